"""Turns GGUF blocks into MLX's affine layout without losing a bit: the same integers, other packing.

MLX keeps w = scale * q + bias with q unsigned, packed little-endian in uint32 words along the input axis, one scale
and bias for each 32 values here. GGUF's blocks (ggml-common.h) map onto it exactly:

    Q4_0   w = d * (q - 8)      scale d, bias -8 d        4 bits
    Q4_1   w = d * q + m        scale d, bias m           4 bits
    Q8_0   w = d * s, s signed  scale d, bias -128 d      8 bits, q = s + 128

Every product is exact in float32 (11-bit half scales times at most 8 bits), hence scales and biases in float32:
dequantising gives the very floats that ggml's own rule gives (a zero may differ in sign where Q4_0's d is negative),
and MLX's CPU kernels for half scales are far slower.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
GROUP = 32
BITS = {"Q4_0": 4, "Q4_1": 4, "Q8_0": 8}


@dataclass(frozen=True, slots=True)
class Packed:
    """weight: uint32 (rows, inputs * bits / 32); scales and biases: float32 (rows, inputs / 32)."""

    weight: Array
    scales: Array
    biases: Array
    bits: int

    def rows(self, order: Array) -> "Packed":
        """The same matrix with its rows in another order: each row carries its own scales and biases along."""
        return Packed(self.weight[order], self.scales[order], self.biases[order], self.bits)


def unpack_floats(blocks: Array, type_name: str) -> Array:
    """F32 or F16 bytes (..., bytes) as numpy floats of that width."""
    return blocks.view("<f4" if type_name == "F32" else "<f2")


def pack(blocks: Array, type_name: str) -> Packed:
    """uint8 (rows, bytes of a row) of Q4_0, Q4_1 or Q8_0 blocks -> Packed."""
    size = {"Q4_0": 18, "Q4_1": 20, "Q8_0": 34}[type_name]
    blocks = blocks.reshape(blocks.shape[0], -1, size)
    with np.errstate(invalid="ignore"):
        return _packed(blocks, type_name, size)


def _packed(blocks: Array, type_name: str, size: int) -> Packed:
    scales = _half(blocks, 0)
    if type_name == "Q8_0":
        codes = blocks[:, :, 2:] ^ np.uint8(128)  # two's complement + 128
        return Packed(_words(codes), scales, scales * np.float32(-128), 8)
    nibbles = blocks[:, :, size - 16 :]
    codes = np.concatenate([nibbles & 15, nibbles >> 4], axis=-1)  # low halves are values 0-15, high ones 16-31
    biases = _half(blocks, 2) if type_name == "Q4_1" else scales * np.float32(-8)
    return Packed(_words(codes[:, :, 0::2] | codes[:, :, 1::2] << 4), scales, biases, 4)


def _half(blocks: Array, at: int) -> Array:
    """The half float at byte `at` of each block, widened to float32: (rows, blocks). NaN only in a damaged file."""
    return np.ascontiguousarray(blocks[:, :, at : at + 2]).view("<f2")[:, :, 0].astype(np.float32)


def _words(packed: Array) -> Array:
    """Bytes in ascending order of significance -> little-endian uint32 words, one row of words a row."""
    return np.ascontiguousarray(packed.reshape(packed.shape[0], -1)).view("<u4")
