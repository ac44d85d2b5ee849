"""Which file of a model folder holds its vocabulary, in which layout."""

from pathlib import Path

from .errors import TokenizerError
from .folder import Folder
from .ranks import read_tekken, read_tiktoken
from .sentencepiece_file import read_sentencepiece
from .specification import Specification, read_specification

_SENTENCEPIECE = ("tokenizer.model", "tokenizer.model.v*", "*.model.v*", "spiece.model", "*.spm", "*.model")


def read_vocabulary(folder: Folder) -> tuple[Specification, Folder]:
    """tokenizer.json before anything else; then SentencePiece, tekken and tiktoken files.

    Gives the specification, and the folder completed with special tokens that only the vocabulary names. Raises
    TokenizerError when there is none of these or the file is not what its name says.
    """
    path = folder.path
    if (path / "tokenizer.json").is_file():
        return read_specification(path / "tokenizer.json", folder), folder
    for pattern in _SENTENCEPIECE:
        for file in sorted(path.glob(pattern), reverse=True):  # the newest version of several
            return (read_tiktoken if _is_tiktoken(file) else read_sentencepiece)(file, folder)
    if (path / "tekken.json").is_file():
        return read_tekken(path / "tekken.json", folder)
    for file in sorted(path.glob("*.tiktoken")):
        return read_tiktoken(file, folder)
    raise TokenizerError(f"{path} holds no tokenizer: none of tokenizer.json, tokenizer.model, tekken.json, *.tiktoken")


def _is_tiktoken(file: Path) -> bool:
    """Llama 3 and Kimi call a list of base64 tokens and ranks `tokenizer.model` too."""
    with file.open("rb") as stream:
        first = stream.readline(4096).split()
    return len(first) == 2 and first[1].isdigit()
