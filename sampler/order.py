"""The order of tokens: largest score first, lower id first among equals. Runs on the executor thread only.

Rows are read in blocks of 64 ids. Only K blocks can hold the K best tokens, so a vocabulary is reduced once to its
block maxima (one fast pass) and everything else happens on a few thousand numbers instead of 150,000.
"""

import mlx.core as mx

BLOCK = 64


def blocks(scores: mx.array) -> mx.array:
    """float32[B, V] -> float32[B, N, 64], the last block filled up with -inf."""
    batch, width = scores.shape
    if spare := -width % BLOCK:
        scores = mx.pad(scores, [(0, 0), (0, spare)], constant_values=-mx.inf)
    return scores.reshape(batch, -1, BLOCK)


def best(scores: mx.array) -> tuple[mx.array, mx.array]:
    """float32[B, V] -> (uint32[B, 1] id of the best token, float32[B, 1] its score, NaN if the row holds a NaN)."""
    tiles = blocks(scores)
    tops = mx.max(tiles, axis=-1)
    block = mx.argmax(tops, axis=-1, keepdims=True)
    inside = mx.argmax(_gather(tiles, block), axis=-1, keepdims=True)
    ids = _inside(block * BLOCK + inside, scores.shape[-1])
    # argmax steps over a NaN; max does not.
    return ids, mx.max(tops, axis=-1, keepdims=True)


def top(scores: mx.array, count: int) -> mx.array:
    """float32[B, V] -> uint32[B, count]: the ids of the best tokens, in order. 1 <= count <= V."""
    width = scores.shape[-1]
    if count == 1:
        return best(scores)[0]
    if 4 * count * BLOCK >= width:
        return _top(scores, count)
    tiles = blocks(scores)
    chosen = mx.sort(_top(mx.max(tiles, axis=-1), count), axis=-1)
    # Blocks are in order of id, so place in the gathered row keeps the order of ids.
    place = _top(_gather(tiles, chosen), count)
    block = mx.take_along_axis(chosen, place // BLOCK, axis=-1)
    return _inside(block * BLOCK + place % BLOCK, width)


def _top(scores: mx.array, count: int) -> mx.array:
    """The same on short rows, by sorting int64 words of (score, -id), in which no two are equal."""
    width = scores.shape[-1]
    words = (_ordered(scores).astype(mx.int64) << 32) | mx.arange(width - 1, -1, -1, dtype=mx.int64)
    if count < width:
        words = mx.partition(words, width - count, axis=-1)[:, width - count :]
    falling = -mx.sort(-words, axis=-1)
    return (width - 1 - (falling & 0xFFFFFFFF)).astype(mx.uint32)


def _inside(ids: mx.array, width: int) -> mx.array:
    # Only a row of -inf or NaN can point into the filling of the last block.
    return mx.minimum(ids, width - 1) if width % BLOCK else ids


def _ordered(scores: mx.array) -> mx.array:
    """float32 -> int32 with the same order (two's complement of the magnitude); -0.0 and 0.0 are equal."""
    image = (scores + 0.0).view(mx.int32)
    return image ^ ((image >> 31) & 0x7FFFFFFF)


def _gather(tiles: mx.array, block: mx.array) -> mx.array:
    """float32[B, N, 64], uint32[B, K] -> float32[B, K * 64]."""
    return mx.take_along_axis(tiles, block[:, :, None], axis=1).reshape(tiles.shape[0], -1)
