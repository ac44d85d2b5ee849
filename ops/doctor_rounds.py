"""The order in which the doctor looks: earlier answers explain later ones, and nothing makes him faint."""

from collections.abc import Callable, Iterator
from typing import TypeVar

from ..daemon.config import Config
from . import doctor_access, doctor_checks, doctor_ghosts, doctor_model
from .doctor_finding import Finding

T = TypeVar("T")
Check = Callable[[], Finding]


def findings(config: Config, *, quick: bool = False) -> Iterator[Finding]:
    """Every check's answer. quick: the model is not loaded."""
    for name, check in (
        ("python", doctor_checks.python),
        ("packages", doctor_checks.packages),
        ("blas", doctor_checks.blas),
        ("device", doctor_checks.device),
        ("compiler", doctor_checks.compiler),
        ("thread", doctor_ghosts.thread),
        ("stream", doctor_ghosts.stream),
        ("dice", doctor_ghosts.dice),
        ("uniforms", doctor_ghosts.uniforms),
        ("generator", doctor_ghosts.generator),
        ("cache", lambda: doctor_access.cache(config)),
        ("keys", lambda: doctor_access.keys(config)),
        ("port", lambda: doctor_access.port(config)),
    ):
        yield _answer(name, check)
    yield from _about_the_model(config, quick)


def _about_the_model(config: Config, quick: bool) -> Iterator[Finding]:
    found, facts = _answers("model", lambda: doctor_model.folder(config.model))
    yield _answer("memory", lambda: doctor_checks.memory(facts.bytes if facts else None))
    yield found
    if facts is None:
        return
    found, tokenizer = _answers("tokenizer", lambda: doctor_model.text(config, facts.path))
    yield found
    if tokenizer is None:
        return
    yield _answer("template", lambda: doctor_model.template(tokenizer))
    if not quick:
        yield _answer("canary", lambda: doctor_model.canary(config, facts.path, tokenizer))


def _answer(name: str, check: Check) -> Finding:
    return _answers(name, lambda: (check(), None))[0]


def _answers(name: str, check: Callable[[], tuple[Finding, T | None]]) -> tuple[Finding, T | None]:
    """An answer, and what later checks need of it."""
    try:
        return check()
    except Exception as error:
        return Finding(name, "fail", f"{type(error).__name__}: {error}", "report this with the whole output"), None
