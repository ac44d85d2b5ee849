"""What a model's folder says about its text: special tokens, end tokens, chat templates."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .errors import TokenizerError

_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


@dataclass(frozen=True, slots=True)
class Folder:
    """special: name to text of the special tokens, as templates see them. ends: ids that end an answer, as the
    model's own configurations name them. templates: by name; one without a name is `default`.
    added: tokens that tokenizer_config.json declares, id to its description. adds_bos: what the configuration says
    about BOS before a text, None where it says nothing. kind: the name of its tokenizer class."""

    path: Path
    special: dict[str, Any] = field(default_factory=dict)
    bos: int | None = None
    ends: frozenset[int] = frozenset()
    templates: dict[str, str] = field(default_factory=dict)
    added: dict[int, dict[str, Any]] = field(default_factory=dict)
    adds_bos: bool | None = None
    kind: str = ""

    @classmethod
    def read(cls, path: Path, override: str | None = None) -> "Folder":
        """Read the small files of a model folder. Raises TokenizerError when one is not what it should be."""
        config = read_json(path / "tokenizer_config.json")
        model = read_json(path / "config.json")
        nested = model.get("text_config")
        text: dict[str, Any] = nested if isinstance(nested, dict) else {}
        generation = read_json(path / "generation_config.json")
        templates = {"default": override} if override is not None else _templates(path, config)
        return cls(
            path,
            special=_special(config, read_json(path / "special_tokens_map.json")),
            bos=next((b for b in (model.get("bos_token_id"), text.get("bos_token_id")) if isinstance(b, int)), None),
            ends=frozenset(i for source in (model, text, generation) for i in _ids(source.get("eos_token_id"))),
            templates=templates,
            added=_added(config),
            kind=str(config.get("tokenizer_class", "")),
            adds_bos=adds_bos if isinstance(adds_bos := config.get("add_bos_token"), bool) else None,
        )

    def completed(self, special: dict[str, Any]) -> "Folder":
        """With the special tokens that a vocabulary file knows and the configuration does not name."""
        return replace(self, special={**special, **self.special})


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object; empty when there is no such file. Raises TokenizerError naming the file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise TokenizerError(f"{path} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise TokenizerError(f"{path} must hold a JSON object")
    return value


def _ids(value: Any) -> Iterable[int]:
    values = value if isinstance(value, list) else [value]
    return [i for i in values if isinstance(i, int) and not isinstance(i, bool)]


def _text(token: Any) -> str | None:
    """A special token is written as its text, or as an object that holds it."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _special(config: dict[str, Any], older: dict[str, Any]) -> dict[str, Any]:
    special: dict[str, Any] = {}
    for name in _NAMES:
        text = _text(config.get(name, older.get(name)))
        if text is not None:
            special[name] = text
    extra = config.get("extra_special_tokens")
    if isinstance(extra, dict):
        special.update({name: text for name, token in extra.items() if (text := _text(token)) is not None})
    more = config.get("additional_special_tokens", older.get("additional_special_tokens"))
    if isinstance(more, list):
        special["additional_special_tokens"] = [text for token in more if (text := _text(token)) is not None]
    return special


def _added(config: dict[str, Any]) -> dict[int, dict[str, Any]]:
    declared = config.get("added_tokens_decoder")
    if not isinstance(declared, dict):
        return {}
    return {int(id): token for id, token in declared.items() if str(id).isdigit() and _text(token) is not None}


def _templates(path: Path, config: dict[str, Any]) -> dict[str, str]:
    """A template file wins over tokenizer_config.json, as in transformers."""
    found = config.get("chat_template")
    beside = read_json(path / "chat_template.json").get("chat_template")
    for candidate in (found, beside):
        if isinstance(candidate, str):
            templates = {"default": candidate}
            break
        if isinstance(candidate, list):
            templates = {t["name"]: t["template"] for t in candidate if isinstance(t, dict) and "template" in t}
            break
        if isinstance(candidate, dict):
            templates = {name: text for name, text in candidate.items() if isinstance(text, str)}
            break
    else:
        templates = {}
    for file in [path / "chat_template.jinja", *sorted((path / "additional_chat_templates").glob("*.jinja"))]:
        if file.is_file():
            name = "default" if file.name == "chat_template.jinja" else file.stem
            templates[name] = file.read_text(encoding="utf-8")
    return templates
