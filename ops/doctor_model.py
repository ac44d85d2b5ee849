"""What the doctor says of the model: its folder, its text side, and a sampled answer by the real engine."""

import asyncio
import contextlib
import os
import time
from pathlib import Path

from ..daemon.config import Config, ConfigError
from ..daemon.start import engine_settings, read_tokenizer
from ..executor.engine import Engine
from ..executor.errors import ExecutorError
from ..executor.request import Delta, Failure, Request
from ..sampler.keys import fresh_seed
from ..sampler.params import SamplingParams
from ..tokenizer.errors import TemplateError, TokenizerError
from ..tokenizer.tokenizer import Tokenizer
from . import hub, model_manifest
from .cache_folder import models_dir
from .doctor_finding import Finding
from .gguf_file import GgufFile
from .gguf_llama import llama_config
from .gguf_tokenizer import tokenizer as gguf_tokenizer
from .imported_models import NAME, RESERVED, named
from .model_errors import ModelError, ModelNotFound
from .model_folder import FolderFacts, check_folder

TOKENS = 8
WITHIN_S = 600.0
HELLO = [{"role": "user", "content": "Hello!"}]


def folder(reference: str) -> tuple[Finding, FolderFacts | None]:
    """Judge the model as `serve` would, but fetch nothing. The facts are None where it is not here, or not usable."""
    try:
        facts = _local(reference)
    except ModelError as error:
        return Finding("model", "fail", str(error), "choose another with --model, or fetch it again"), None
    if facts is None:
        return Finding("model", "ok", f"{reference}: not here yet, fetched on first use"), None
    if isinstance(facts, str):
        return Finding("model", "ok", facts), None
    detail = f"{facts.path}: {facts.model_type}, {facts.quantization}, {facts.bytes / 1e6:.0f} MB"
    return Finding("model", "ok", detail), facts


def _local(reference: str) -> FolderFacts | str | None:
    """Facts of a model that is here; a sentence for a GGUF that could be imported; None for one to be fetched."""
    if reference == RESERVED:
        target = models_dir() / RESERVED
        return check_folder(target) if model_manifest.damage(target) is None else None
    path = Path(reference).expanduser()
    if os.path.isfile(path):
        with GgufFile(path) as file:
            llama_config(file)
            gguf_tokenizer(file)
        return f"{path}: a GGUF that can be imported"
    if os.path.isdir(path):
        return check_folder(path)
    if NAME.fullmatch(reference) and named(reference).is_dir():
        return check_folder(named(reference))
    if hub.looks_like_repository(reference):
        snapshot, _ = hub.cached_snapshot(reference)
        return check_folder(snapshot) if snapshot else None
    raise ModelNotFound(f"there is no model {reference!r}")


def text(config: Config, path: Path) -> tuple[Finding, Tokenizer | None]:
    """Control ids: an answer can end, the template's words are single ids, and a client's text never becomes one."""
    try:
        tokenizer = read_tokenizer(config, path)
    except (TokenizerError, ConfigError) as error:
        return Finding("tokenizer", "fail", str(error), "fetch the model again, or correct the setting"), None
    ends = {end: tokenizer.token_text(end) for end in sorted(tokenizer.end_ids)}
    detail = f"{tokenizer.vocab_size} ids; ends with {', '.join(ends.values()) or 'nothing'}"
    if tokenizer.registered:
        detail += f"; registered here, for its own files forget them: {', '.join(tokenizer.registered)}"
    if not ends:
        remedy = "name eos_token_id in the model's generation_config.json"
        return Finding("tokenizer", "slow", f"{detail}: every answer runs to its limit", remedy), tokenizer
    for end, spelled in ends.items():
        if spelled and end not in tokenizer.encode(spelled, specials=True):
            remedy = "compare the model's tokenizer.json with its source"
            return Finding("tokenizer", "fail", f"{spelled!r} does not become its id {end}", remedy), tokenizer
        if spelled and end in tokenizer.encode(spelled):
            fault, remedy = f"a client's {spelled!r} becomes the control id {end}", "report this with the model's name"
            return Finding("tokenizer", "fail", fault, remedy), tokenizer
    return Finding("tokenizer", "ok", detail), tokenizer


def template(tokenizer: Tokenizer) -> Finding:
    remedy = "give one with --chat-template"
    if not tokenizer.has_chat_template:
        return Finding("template", "slow", "none: /v1/chat/completions is refused", remedy)
    try:
        ids = tokenizer.render(HELLO, None, {})
    except TemplateError as error:
        return Finding("template", "fail", error.message, remedy)
    detail = f"a greeting becomes {len(ids)} ids"
    try:
        tokenizer.render([{"role": "system", "content": "Be kind."}, *HELLO], None, {})
    except TemplateError as error:
        detail += f"; it takes no system message ({error.message})"
    return Finding("template", "ok", detail)


def canary(config: Config, path: Path, tokenizer: Tokenizer) -> Finding:
    """What a default client asks for, temperature and seed omitted, answered by the real engine on its own thread."""
    ids = tokenizer.render(HELLO, None, {}) if tokenizer.has_chat_template else tokenizer.encode("Hello!")
    try:
        return asyncio.run(_draw(config, path, tuple(ids)))
    except (ExecutorError, TimeoutError) as error:
        reason = str(error) or f"nothing came within {WITHIN_S:g} s"
        return Finding("canary", "fail", reason, "look at the failures above, then at the daemon's log")


async def _draw(config: Config, path: Path, ids: tuple[int, ...]) -> Finding:
    begun = time.monotonic()
    engine = Engine(engine_settings(config, path, (), None))
    await engine.start()
    try:
        async with asyncio.timeout(WITHIN_S):
            facts = await engine.loaded()
            loaded = time.monotonic()
            request = Request("doctor", ids, TOKENS, SamplingParams(seed=fresh_seed()))
            drawn: list[int] = []
            async for event in engine.submit(request):
                match event:
                    case Failure(message=message):
                        return Finding("canary", "fail", message, engine.health().last_error or "see the daemon's log")
                    case Delta(ids=new):
                        drawn += new
        seconds = time.monotonic() - loaded
        if len(drawn) != TOKENS or not all(0 <= token < facts.vocab_size for token in drawn):
            return Finding("canary", "fail", f"{TOKENS} tokens were asked for, {drawn} came", "report this")
        health = engine.health()
        detail = f"{TOKENS} sampled tokens in {seconds:.2f} s, loaded in {loaded - begun:.1f} s, on {health.device}"
        return Finding("canary", "ok", f"{detail}, thread {health.thread}, {health.stream}")
    finally:
        with contextlib.suppress(ExecutorError):
            await engine.stop(0.0)
