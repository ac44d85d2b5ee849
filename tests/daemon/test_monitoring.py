"""The dashboard and the alert rules speak of figures that the daemon has, in a language that Prometheus reads."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from http_server import Server
from prometheus_client.parser import text_string_to_metric_families

FOLDER = Path(__file__).parents[2] / "docs" / "monitoring"
PAGE = (FOLDER.parent / "observability.md").read_text()
DASHBOARD = json.loads((FOLDER / "soloist-dashboard.json").read_text())
NAME = re.compile(r"\b(?:soloist|process)_[a-z_]+\b")
FOREIGN = {"process_resident_memory_bytes"}  # Linux only


def promtool(*words: str, cwd: Path = FOLDER) -> None:
    done = subprocess.run(["promtool", *words], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def samples(stop: Server) -> set[str]:
    """Names of all samples, after a request that leaves none out."""
    stop.chat(max_tokens=1, unheard_of=1)
    families = list(text_string_to_metric_families(stop.get("/metrics").body.decode()))
    return {sample.name for family in families for sample in family.samples}


def expressions(panels: list[Any]) -> Iterator[str]:
    for panel in panels:
        yield from (target["expr"] for target in panel.get("targets", []))


def test_alert_rules_are_valid_and_fire_when_they_should() -> None:
    promtool("check", "rules", "soloist-alerts.yml")
    promtool("test", "rules", "soloist-alerts-test.yml")


def test_alert_rules_name_existing_figures(samples: set[str]) -> None:
    rules = (FOLDER / "soloist-alerts.yml").read_text()
    expressions = re.findall(r"expr: (?:\|\n)?((?:.*\n)(?:\s{12,}.*\n)*)", rules)
    names = {name for expression in expressions for name in NAME.findall(expression)}
    assert len(names) >= 8 and names <= samples | FOREIGN, names - samples


def test_the_dashboard_names_existing_figures(samples: set[str]) -> None:
    names = {name for expression in expressions(DASHBOARD["panels"]) for name in NAME.findall(expression)}
    assert len(names) > 25 and names <= samples | FOREIGN, names - samples


def test_every_expression_of_the_dashboard_can_be_read(tmp_path: Path) -> None:
    found = list(expressions(DASHBOARD["panels"]))
    plain = [e.replace("$__rate_interval", "5m").replace("$job", ".*").replace("$instance", ".*") for e in found]
    rules = [{"record": f"panel:{number}", "expr": expression} for number, expression in enumerate(plain)]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    promtool("check", "rules", "--lint=none", "rules.yml", cwd=tmp_path)


def test_the_dashboard_fits_together() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(place["x"] + i, place["y"] + j) for i in range(place["w"]) for j in range(place["h"])}
        assert not cells & taken and place["x"] + place["w"] <= 24, panel["title"]
        taken |= cells
        assert panel["type"] == "row" or panel["datasource"]["uid"] == "${datasource}"
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(panels)))
    assert used <= variables, used


def test_every_figure_is_described(samples: set[str]) -> None:
    for name in {re.sub(r"_(bucket|sum|count)$", "", sample) for sample in samples if sample.startswith("soloist")}:
        assert f"`{name}`" in PAGE, name
