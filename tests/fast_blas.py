"""Imported before mlx by tests that run the demo model: an optimised BLAS has to be in the process first."""

from soloist.executor.blas import load_blas

BLAS = load_blas()
