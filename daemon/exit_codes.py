"""With what number the process ends, so that a supervisor can tell a typo from a crash. One table.

Numbers follow sysexits.h where it has a fitting name; the reasons why a model cannot be used (65-73) belong to the
commands that fetch and check models and are passed on unchanged.
"""

CLEAN = 0
"""Asked to stop (SIGTERM, SIGINT) and stopped."""

USAGE = 2
"""An unknown flag or command (argparse's own number)."""

MODEL_FAILED = 70
"""The folder looked right, but its model or tokenizer could not be loaded (EX_SOFTWARE)."""

PORT_TAKEN = 71
"""The address cannot be bound: in use, not ours, or not permitted (EX_OSERR)."""

EXECUTOR_HUNG = 75
"""With --exit-on-hang: the executor hangs or died for good; a restart may help (EX_TEMPFAIL)."""

ADAPTER_REFUSED = 76
"""An adapter given at the start is missing, damaged, or does not fit the model (a number free here, EX_PROTOCOL)."""

CONFIGURATION = 78
"""A value in a flag, the environment or the configuration file is wrong (EX_CONFIG)."""

SIGNALLED = 128
"""Plus the signal's number: a second signal ended the process without waiting."""
