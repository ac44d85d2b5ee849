"""From what a user calls an adapter to the folder that holds it: a folder, or a Hugging Face id. Imports no MLX."""

from pathlib import Path

from .hub import looks_like_repository
from .model_errors import ModelNotFound, ModelUnavailable
from .progress import Progress, silent

PATTERNS = ["adapter_config.json", "adapters.safetensors", "adapter_model.safetensors"]


def resolve_adapter(reference: str, *, progress: Progress = silent) -> Path:
    """The adapter's folder, fetched if it is not in the cache. Raises ModelNotFound, ModelUnavailable."""
    path = Path(reference).expanduser()
    if path.is_dir():
        return path.absolute()
    if path.exists() or not looks_like_repository(reference):
        raise ModelNotFound(f"there is no adapter folder {reference}")
    return _snapshot(reference, progress)


def _snapshot(repository: str, progress: Progress) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.constants import HF_HUB_OFFLINE
    from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError

    try:
        folder = Path(snapshot_download(repository, local_files_only=True, allow_patterns=PATTERNS))
        if (folder / "adapter_config.json").is_file() and any(folder.glob("adapter*.safetensors")):
            return folder
    except (OSError, ValueError):
        pass
    if HF_HUB_OFFLINE:
        raise ModelUnavailable(f"the adapter {repository} is not in the cache, and HF_HUB_OFFLINE forbids fetching it")
    progress(f"Fetching {repository}", 0, None)
    try:
        return Path(snapshot_download(repository, allow_patterns=PATTERNS))
    except RepositoryNotFoundError as error:
        raise ModelNotFound(f"there is no adapter folder or Hugging Face repository {repository}") from error
    except (HfHubHTTPError, OSError, RuntimeError, ValueError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelUnavailable(f"cannot fetch the adapter {repository}: {reason}") from error
