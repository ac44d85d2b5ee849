"""Soloist: an OpenAI-compatible inference daemon in which exactly one thread touches MLX."""

__version__ = "0.1.0"
