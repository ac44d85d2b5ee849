"""Settings: where each value comes from, what is refused, and that printing them gives them back."""

import argparse
import tomllib
from pathlib import Path

import pytest
from soloist.daemon.config import SETTINGS, Config, ConfigError
from soloist.daemon.sources import MASK, add_flags, read_config, to_toml


def read(*flags: str, **environment: str) -> Config:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_flags(parser)
    return read_config(parser.parse_args(flags), environment)


def test_flag_over_environment_over_file_over_default(tmp_path: Path) -> None:
    file = tmp_path / "soloist.toml"
    file.write_text('port = 1\nmax-batch = 2\nmodel = "from-file"\nserved_model_name = ["a", "b"]\n')
    config = read("--config", str(file), "--port", "3", SOLOIST_PORT="2", SOLOIST_MODEL="from-environment")
    assert (config.port, config.model, config.max_batch, config.max_queue) == (3, "from-environment", 2, 64)
    assert config.served_model_name == ("a", "b")
    assert read(SOLOIST_CONFIG=str(file)).model == "from-file"


def test_every_setting_has_a_flag_a_variable_and_help() -> None:
    assert len(SETTINGS) >= 22
    for setting in SETTINGS:
        assert setting.flag.startswith("--") and setting.variable.startswith("SOLOIST_") and setting.help


def test_lists_are_repeated_flags_or_commas() -> None:
    assert read("--served-model-name", "a", "--served-model-name", "b").served_model_name == ("a", "b")
    assert read(SOLOIST_SERVED_MODEL_NAME="a, b").served_model_name == ("a", "b")


def test_switches_sizes_and_seconds_are_read() -> None:
    config = read("--exit-on-hang", "--max-body-bytes", "2MiB", "--stall-after", "1.5", SOLOIST_TRUST_REMOTE_CODE="yes")
    assert (config.exit_on_hang, config.max_body_bytes, config.stall_after) == (True, 2 * 1024**2, 1.5)
    assert config.trust_remote_code and not read("--no-exit-on-hang", SOLOIST_EXIT_ON_HANG="1").exit_on_hang


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        (["--port", "70000"], "port"),
        (["--max-batch", "1.5"], "max_batch"),
        (["--stall-after", "nan"], "stall_after"),
        (["--keepalive-every", "0"], "keepalive_every"),
        (["--max-body-bytes", "many"], "max_body_bytes"),
        (["--log-level", "loud"], "log_level"),
        (["--model", ""], "model"),
        (["--cors-origin", "app.example"], "cors_origin"),
        (["--cors-origin", "*", "--cors-origin", "http://a"], "cors_origin"),
    ],
)
def test_a_bad_value_names_the_setting(flags: list[str], name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        read(*flags)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("portt = 1", "portt"),
        ('port = "x"', "port"),
        ("port = true", "port"),
        ("exit_on_hang = 1", "exit_on_hang"),
        ("served_model_name = [1]", "served_model_name"),
        ("port = ", "not valid TOML"),
        ("[server]\nport = 1", "server"),
    ],
)
def test_a_bad_file_names_the_key_and_itself(tmp_path: Path, text: str, named: str) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=named) as caught:
        read("--config", str(file))
    assert str(file) in str(caught.value)


def test_printed_settings_can_be_read_back_and_hold_no_secret(tmp_path: Path) -> None:
    config = read("--port", "9", "--served-model-name", 'a"b\\', "--max-context", "100")
    file = tmp_path / "printed.toml"
    file.write_text(to_toml(config))
    assert read("--config", str(file)) == config
    printed = to_toml(Config(api_key=("sk-secret",)))
    assert "sk-secret" not in printed and tomllib.loads(printed)["api_key"] == [MASK]


def test_a_bad_secret_is_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        read(SOLOIST_API_KEY="sk-secret,,")
    assert "sk-secret" not in str(caught.value)


def test_help_can_be_printed(capsys: pytest.CaptureFixture[str]) -> None:
    from soloist.__main__ import main

    with pytest.raises(SystemExit) as end:
        main(["serve", "--help"])
    assert end.value.code == 0 and "90 %" in capsys.readouterr().out
