"""What a model folder is, in 16 bytes: its configuration, and enough of its weights to tell any two models apart.

Plain Python. Used to name what a later process may reuse; a folder that was copied or touched keeps its fingerprint.
"""

import hashlib
import json
from pathlib import Path

SAMPLES, SAMPLE_BYTES = 256, 4096


def of_folder(folder: Path) -> bytes:
    """A digest of config.json and, for each weights file, its size, header and 256 pages spread over its data.

    Training changes nearly every page, so weights that differ do not agree on all samples; reading all of a large
    model would cost a minute at each start.
    """
    digest = hashlib.blake2b(digest_size=16)
    digest.update(json.dumps(json.loads((folder / "config.json").read_text()), sort_keys=True).encode())
    for path in sorted(folder.glob("*.safetensors")):
        size = path.stat().st_size
        digest.update(f"{path.name} {size} ".encode())
        with path.open("rb") as file:
            header = int.from_bytes(file.read(8), "little")
            digest.update(file.read(min(header, size)))
            for index in range(SAMPLES):
                file.seek(index * max(size - SAMPLE_BYTES, 0) // SAMPLES)
                digest.update(file.read(SAMPLE_BYTES))
    return digest.digest()
