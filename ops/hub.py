"""Models of the Hugging Face Hub: what the local cache holds, and fetching what it lacks.

`huggingface_hub` is imported late: it takes a quarter of a second that a local model should not cost.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from .model_errors import ModelDamaged, ModelError, ModelNotFound, ModelUnavailable
from .model_folder import FolderFacts, check_folder
from .progress import Progress, silent

# What mlx-lm would fetch.
PATTERNS = [
    *("*.json", "model*.safetensors", "*.py", "tokenizer.model", "*.tiktoken"),
    *("tiktoken.model", "*.txt", "*.jsonl", "*.jinja"),
]
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def looks_like_repository(reference: str) -> bool:
    return REPOSITORY.fullmatch(reference) is not None


def snapshot(repository: str, progress: Progress = silent) -> Path:
    """The folder of `org/name`: from the local cache if it is whole there, else fetched.

    Raises ModelNotFound (no such repository, or gated), ModelUnavailable (offline, or the network fails).
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.constants import HF_HUB_OFFLINE
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError
    from huggingface_hub.utils import disable_progress_bars

    cached, lack = cached_snapshot(repository)
    if cached is not None:
        return cached
    if HF_HUB_OFFLINE:
        raise ModelUnavailable(f"{lack}, and HF_HUB_OFFLINE forbids fetching it")
    if not sys.stderr.isatty():
        disable_progress_bars()
    progress(f"Fetching {repository}", 0, None)
    try:
        return Path(snapshot_download(repository, allow_patterns=PATTERNS))
    except GatedRepoError as error:
        raise ModelNotFound(f"{repository} is gated: accept its terms on its page, then set HF_TOKEN") from error
    except RepositoryNotFoundError as error:
        raise ModelNotFound(f"there is no folder, imported model or Hugging Face model called {repository}") from error
    except (HfHubHTTPError, OSError, RuntimeError, ValueError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelUnavailable(f"cannot fetch {repository} from the Hugging Face Hub: {reason}") from error


def cached_snapshot(repository: str) -> tuple[Path | None, str]:
    """The folder of `org/name` in the local cache, or None and what it lacks. Never asks the network.

    Raises ModelUnsupported if it is whole and of a kind that cannot be served: fetching it again would not help.
    """
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(repository, local_files_only=True, allow_patterns=PATTERNS))
        check_folder(folder)  # older caches do not tell a half fetched snapshot from a whole one
    except ModelDamaged as error:
        return None, str(error)
    except (OSError, ValueError):
        return None, f"{repository} is not in the Hugging Face cache"
    return folder, ""


def cached_models() -> Iterator[tuple[str, FolderFacts]]:
    """(repository, facts) of every entry of the local Hugging Face cache that is a model we could serve."""
    from huggingface_hub.constants import HF_HUB_CACHE

    for entry in sorted(Path(HF_HUB_CACHE).glob("models--*--*")):
        repository = entry.name.removeprefix("models--").replace("--", "/", 1)
        for folder in sorted((entry / "snapshots").glob("*")):
            try:
                yield repository, check_folder(folder)
            except ModelError:
                continue
