"""Why a model cannot be used, as one small tree; each leaf has its own exit code, for supervisors.

    ModelError               70  (never raised itself)
    |-- ModelDamaged         65  a file is truncated, malformed or not what its header says
    |-- ModelNotFound        66  no such folder, file, name or repository
    |-- ModelUnsupported     67  intact, but of an architecture, tensor type or tokenizer that we cannot serve
    |-- ModelUnavailable     69  it would have to be fetched, and that is not possible now (offline, no pip, refused)
    '-- CacheNotWritable     73  the cache folder cannot be written

Numbers follow sysexits.h where it has a fitting name (DATAERR, NOINPUT, UNAVAILABLE, CANTCREAT).
"""


class ModelError(Exception):
    """One line that says what is wrong and, where there is one, the remedy."""

    exit_code = 70


class ModelDamaged(ModelError):
    exit_code = 65


class ModelNotFound(ModelError):
    exit_code = 66


class ModelUnsupported(ModelError):
    exit_code = 67


class ModelUnavailable(ModelError):
    exit_code = 69


class CacheNotWritable(ModelError):
    exit_code = 73
