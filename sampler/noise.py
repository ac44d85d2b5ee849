"""Uniforms strictly inside (0, 1) and the Gumbel noise made of them. Runs on the executor thread only.

Gumbel-max (Gumbel 1954; Maddison, Tarlow & Minka 2014): argmax(score + noise) is a draw from softmax(score). One
uniform of exactly 0 or 1 makes the noise infinite, and an infinite noise *is* the drawn token: a closed end point
of probability 2**-25 forces one token in 221 at a vocabulary of 151,936. So every uniform is k / 2**24 with
1 <= k <= 2**24 - 1, each exact in float32.

Everything here counts in bits: noise is -log2(-log2 u), and scores are log2 of a weight. The base only adds a
constant to every token's noise, which no argmax sees, and powers of two are the fastest exponential on the CPU.
"""

import mlx.core as mx

STEPS = 2**24


def open_interval(words: mx.array) -> mx.array:
    """uint32 random words -> float32 k / 2**24 strictly inside (0, 1); k = the upper 24 bits, and 1 for 0."""
    return mx.maximum((words >> 8).astype(mx.float32), 1.0) * (1.0 / STEPS)


def gumbel(uniform: mx.array) -> mx.array:
    """float32 uniforms in (0, 1) -> Gumbel noise in bits (base 2), from -4.6 to 23.5, always finite."""
    return -mx.log2(-mx.log2(uniform))


def row_noise(keys: mx.array, width: int) -> mx.array:
    """uint32[B, 2] -> float32[B, width]: one independent noise a token, row b made from keys[b] alone."""
    return gumbel(open_interval(random_words(keys, width)))


def token_noise(keys: mx.array, ids: mx.array) -> mx.array:
    """uint32[B, 2], integer[B, K] -> float32[B, K]: the noise of these tokens, without making the others'.

    Token i of row b is drawn under the key (k0 xor i, ~k1), so its noise depends on its id and its row's key, not
    on its rank, its neighbours or K. (Rank-keyed noise would jump when two nearly equal tokens change places.)
    """
    first = keys[:, :1] ^ ids.astype(mx.uint32)
    second = mx.broadcast_to(mx.bitwise_invert(keys[:, 1:]), first.shape)
    token_keys = mx.stack([first, second], axis=-1).reshape(-1, 2)
    return gumbel(open_interval(random_words(token_keys, 1))).reshape(ids.shape)


def random_words(keys: mx.array, width: int) -> mx.array:
    """uint32[B, 2] -> uint32[B, width] of Threefry-2x32 (Salmon et al. 2011), row b from keys[b] alone.

    `split` hands out the generator's raw words, and maps over a batch of keys; `mx.random.uniform` refuses one, and
    rounds words near 2**32 up to exactly 1 before it clamps.
    """
    pairs = (width + 1) // 2
    return mx.vmap(lambda key: mx.random.split(key, pairs).reshape(-1)[:width])(keys)
