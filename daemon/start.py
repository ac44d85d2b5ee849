"""From a configuration to a served model: find the folder, load text and weights side by side, tell how far it is.

Runs on the event loop; finding and the tokenizer run in worker threads, the weights on the executor thread.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from ..executor.engine import Engine
from ..executor.errors import ModelLoadError
from ..executor.settings import EngineSettings
from ..tokenizer import tool_formats
from ..tokenizer.errors import TokenizerError
from ..tokenizer.tokenizer import Tokenizer
from . import exit_codes
from .adapters import Adapters
from .banner import loading
from .config import Config, ConfigError
from .served import make_served, served_names
from .state import Daemon

log = logging.getLogger(__name__)
FindModel = Callable[[str], Path]
HEAD_START_S = 1.0


class CannotServe(Exception):
    """The process has nothing to serve with: one line for the operator, and the number to end with."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


async def load_model(daemon: Daemon, find: FindModel) -> None:
    """Fill in the daemon's engine and model. Raises CannotServe."""
    config = daemon.config
    daemon.phase = "finding the model"
    folder = await asyncio.to_thread(find, config.model)
    check_names(config, folder)
    adapters = [(name, await _find_adapter(daemon, name, reference, folder)) for name, reference in config.adapters]
    merged = config.merge_adapter and await _find_adapter(daemon, "to be merged", config.merge_adapter, folder)
    daemon.phase = "the model is loading"
    engine = Engine(engine_settings(config, folder, tuple(adapters), merged or None))
    with loading(config.model):
        try:
            reading = asyncio.create_task(asyncio.to_thread(read_tokenizer, config, folder))
            # One that cannot be read fails now, before MLX is imported; a large good one does not hold up the weights.
            await asyncio.wait({reading}, timeout=HEAD_START_S)
            if reading.done():
                reading.result()
            await engine.start()
            daemon.engine = engine
            tokenizer = await reading
            facts = await engine.loaded()
        except (TokenizerError, ModelLoadError) as error:
            raise CannotServe(f"model {config.model!r} cannot be loaded: {error}", exit_codes.MODEL_FAILED) from None
        except ConfigError as error:
            raise CannotServe(str(error), exit_codes.CONFIGURATION) from None
    daemon.served = make_served(config, folder, tokenizer, facts, Adapters(engine))
    daemon.pool.submit(prepare_grammars, tokenizer, facts.vocab_size)  # nobody waits for it


def check_names(config: Config, folder: Path) -> None:
    """Raises CannotServe when an adapter could not be told from the model."""
    for name, _ in config.adapters:
        if name in served_names(config, folder):
            message = f"adapter {name!r} has a name of the model: choose another, or another --served-model-name"
            raise CannotServe(message, exit_codes.CONFIGURATION)


async def _find_adapter(daemon: Daemon, name: str, reference: str, model: Path) -> Path:
    """Looked at before the model is loaded, because a refusal should not take minutes."""
    daemon.phase = f"finding the adapter {name}"
    try:
        return await asyncio.to_thread(daemon.find_adapter, reference, model)
    except CannotServe as error:
        raise CannotServe(f"adapter {name}: {error}", error.exit_code) from None


def engine_settings(
    config: Config, folder: Path, adapters: tuple[tuple[str, Path], ...], merged: Path | None
) -> EngineSettings:
    return EngineSettings(
        model=folder,
        adapters=adapters,
        merge_adapter=merged,
        max_context=config.max_context,
        max_batch=config.max_batch,
        max_queue=config.max_queue,
        prefill_chunk=config.prefill_chunk,
        kv_bits=config.kv_bits,
        prefix_cache_bytes=config.prefix_cache_bytes,
        cache_dir=config.cache_dir,
        cache_dir_bytes=config.cache_dir_bytes,
        memory_limit=config.memory_limit,
        stall_after=config.stall_after,
        trust_remote_code=config.trust_remote_code,
    )


def read_tokenizer(config: Config, folder: Path) -> Tokenizer:
    """Raises TokenizerError, ConfigError. Runs in a worker thread."""
    if config.tool_parser is not None and config.tool_parser not in tool_formats.names():
        known = ", ".join(tool_formats.names())
        raise ConfigError(f"tool_parser {config.tool_parser!r} is unknown; known are {known}")
    return Tokenizer.load(folder, read_template(config), tool_parser=config.tool_parser)


def prepare_grammars(tokenizer: Tokenizer, size: int) -> None:
    """A second of work for a large vocabulary, done before the first request that needs it. Runs in the pool."""
    try:
        tokenizer.grammar_vocabulary(size)
    except Exception as error:  # such a request is told so by itself
        log.warning("answers of this model cannot be held to a grammar: %s", error)


def read_template(config: Config) -> str | None:
    if config.chat_template is None:
        return None
    try:
        return config.chat_template.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"chat_template {config.chat_template} cannot be read: {reason}") from None
