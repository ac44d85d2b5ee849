"""The README shows what the program says."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_commands_block_is_what_soloist_prints() -> None:
    environment = {"COLUMNS": "100", "PATH": "/usr/bin:/bin", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "soloist", "--help"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    block = re.search(r"<!-- help:.*?-->\n```\n(.*?)```", README, re.DOTALL)
    assert block and block[1].strip() == printed.strip(), printed


def test_every_page_that_the_readme_links_to_exists() -> None:
    links = re.findall(r"\]\(((?!https?:)[^)#]+)\)", README)
    assert len(links) > 8
    assert [link for link in links if not (ROOT / link).exists()] == []
