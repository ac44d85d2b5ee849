"""From a configuration to a served model: find the folder, load text and weights side by side, tell how far it is.

Runs on the event loop; finding and the tokenizer run in worker threads, the weights on the executor thread.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

from ..executor.engine import Engine
from ..executor.errors import ModelLoadError
from ..executor.settings import EngineSettings
from ..tokenizer.errors import TokenizerError
from ..tokenizer.tokenizer import Tokenizer
from . import exit_codes
from .banner import loading
from .config import Config, ConfigError
from .served import make_served
from .state import Daemon

FindModel = Callable[[str], Path]


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
    daemon.phase = "the model is loading"
    engine = daemon.engine = Engine(engine_settings(config, folder))
    with loading(config.model):
        await engine.start()
        try:
            tokenizer = await asyncio.to_thread(Tokenizer.load, folder, read_template(config))
            facts = await engine.loaded()
        except (TokenizerError, ModelLoadError) as error:
            raise CannotServe(f"model {config.model!r} cannot be loaded: {error}", exit_codes.MODEL_FAILED) from None
        except ConfigError as error:
            raise CannotServe(str(error), exit_codes.CONFIGURATION) from None
    daemon.served = make_served(config, folder, tokenizer, facts)


def engine_settings(config: Config, folder: Path) -> EngineSettings:
    return EngineSettings(
        model=folder,
        max_context=config.max_context,
        max_batch=config.max_batch,
        max_queue=config.max_queue,
        prefill_chunk=config.prefill_chunk,
        prefix_cache_bytes=config.prefix_cache_bytes,
        stall_after=config.stall_after,
        trust_remote_code=config.trust_remote_code,
    )


def read_template(config: Config) -> str | None:
    if config.chat_template is None:
        return None
    try:
        return config.chat_template.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"chat_template {config.chat_template} cannot be read: {reason}") from None
