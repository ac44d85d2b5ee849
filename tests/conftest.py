"""Before anything imports mlx: the BLAS that its CPU backend will use."""

import fast_blas

__all__ = ["fast_blas"]
