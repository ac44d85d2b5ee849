"""Faults that a test injects under a running server."""

import time
from typing import Any

import pytest
from soloist.executor.batch import Batch
from soloist.executor.prefill import Prefill


def slow_prefill(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    real = Prefill.advance

    def advance(self: Prefill, network: Any, chunk: int) -> int:
        time.sleep(seconds)
        return real(self, network, chunk)

    monkeypatch.setattr(Prefill, "advance", advance)


def fail_after(monkeypatch: pytest.MonkeyPatch, tokens: int) -> None:
    real = Batch._launch

    def launch(self: Batch) -> Any:
        if any(len(row.generated) >= tokens for row in self.rows):
            raise RuntimeError("injected secret")
        return real(self)

    monkeypatch.setattr(Batch, "_launch", launch)
