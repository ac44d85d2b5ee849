"""The model that is served, as the door and the replies see it: names, tokenizer, limits, defaults."""

import hashlib
import json
import logging
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from .. import __version__
from ..executor.settings import ModelFacts
from ..sampler.params import DEFAULTS, SamplingParams
from ..tokenizer.tokenizer import Tokenizer
from .adapters import Adapters
from .config import NO_NAMES, Config
from .errors import ApiError, NotFound
from .validate import Limits, number, repetition, whole

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Served:
    """names: what clients may call the model; the first is what answers carry. created: Unix time of the load."""

    names: tuple[str, ...]
    tokenizer: Tokenizer
    facts: ModelFacts
    limits: Limits
    defaults: SamplingParams
    sampling_defaults: str
    created: int
    fingerprint: str
    folder: Path
    adapters: Adapters

    @property
    def name(self) -> str:
        return self.names[0]

    def check_name(self, asked: str) -> None:
        """Omitted, "" and "default" mean the served model; anything else must be a name of it or of an adapter."""
        if asked not in NO_NAMES and asked not in self.names and asked not in self.adapters:
            served = ", ".join(map(repr, (self.name, *self.adapters.names())))
            raise NotFound(
                f"The model {asked[:200]!r} does not exist here. This server serves {served}.",
                param="model",
                code="model_not_found",
            )

    def card(self) -> dict[str, Any]:
        """The model's entry in /v1/models."""
        return {
            "id": self.name,
            "object": "model",
            "created": self.created,
            "owned_by": "soloist",
            "aliases": list(self.names[1:]),
            "context_length": self.limits.context,
            "vocabulary": self.limits.vocabulary,
            "model_type": self.facts.model_type,
            "merged_adapter": None if self.facts.merged is None else asdict(self.facts.merged),
            "sampling_defaults": {
                "source": self.sampling_defaults,
                **{name: getattr(self.defaults, name) for name in _DEFAULTABLE},
            },
        }


_DEFAULTABLE = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


def make_served(config: Config, folder: Path, tokenizer: Tokenizer, facts: ModelFacts, adapters: Adapters) -> Served:
    names = served_names(config, folder)
    context = min(facts.context_length, config.max_context or facts.context_length)
    identity = f"{__version__} {names[0]} {facts}".encode()
    return Served(
        names=names,
        tokenizer=tokenizer,
        facts=facts,
        limits=Limits(
            vocabulary=min(tokenizer.vocab_size, facts.vocab_size),
            context=context,
            choices=config.max_batch,
            prompts=config.max_batch + config.max_queue,
            token_text=longest_token(tokenizer),
        ),
        defaults=model_defaults(folder) if config.sampling_defaults == "model" else DEFAULTS,
        sampling_defaults=config.sampling_defaults,
        created=int(time.time()),
        fingerprint="fp_" + hashlib.sha256(identity).hexdigest()[:12],
        folder=folder,
        adapters=adapters,
    )


def longest_token(tokenizer: Tokenizer) -> int:
    """Bytes; never so few that a tokenizer which drops characters could make a short prompt look long."""
    return max(16, *(len(tokenizer.token_bytes(token)) for token in range(tokenizer.vocab_size)))


def served_names(config: Config, folder: Path) -> tuple[str, ...]:
    """Configured names first, then the reference (or, where it is a path, the folder's name before it)."""
    is_path = Path(config.model).expanduser().exists()
    own = (folder.name, config.model) if is_path else (config.model, folder.name)
    return tuple(dict.fromkeys((*config.served_model_name, *own)))


def model_defaults(folder: Path) -> SamplingParams:
    """What generation_config.json says of sampling; a value out of range is left out and logged."""
    try:
        stored = json.loads((folder / "generation_config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return DEFAULTS
    except (OSError, ValueError) as error:
        log.warning("generation_config.json cannot be read, its defaults are not applied: %s", error)
        return DEFAULTS
    if not isinstance(stored, dict):
        return DEFAULTS
    if stored.get("do_sample") is False:
        return replace(DEFAULTS, temperature=0.0)
    return replace(DEFAULTS, **_usable(stored))


def _usable(stored: Mapping[str, Any]) -> dict[str, Any]:
    checks = {
        "temperature": lambda value: number("temperature", value, 0, 2),
        "top_p": lambda value: number("top_p", value, 0, 1),
        "top_k": lambda value: whole("top_k", value, 0),
        "min_p": lambda value: number("min_p", value, 0, 1),
        "repetition_penalty": repetition,
    }
    usable = {}
    for name, check in checks.items():
        value = stored.get(name)
        if value is None:
            continue
        try:
            if isinstance(value, bool) or not isinstance(value, int if name == "top_k" else int | float):
                raise TypeError
            usable[name] = check(value)
        except (ApiError, TypeError):
            log.warning("generation_config.json: %s = %r is not usable and is left out", name, value)
    return usable
