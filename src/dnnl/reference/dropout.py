"""Dropout: random elements become zero, and the random numbers that decide which."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dnnl.reference.arrays import Array, f64

_ROUNDS = 10
_FACTORS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_BUMPS = 0x9E3779B9, 0xBB67AE85
_WORD = 2**32 - 1


def philox(counter: NDArray[np.uint64], key: tuple[int, int]) -> NDArray[np.uint64]:
    """Four random 32-bit numbers for each counter by Philox 4x32-10, along the last axis."""
    state = counter
    for number in range(_ROUNDS):
        bumped = [np.uint64((key[k] + number * _BUMPS[k]) & _WORD) for k in (0, 1)]
        a, b = (state[..., 2 * k] * _FACTORS[k] for k in (0, 1))
        half, low = np.uint64(32), np.uint64(_WORD)
        first = (b >> half) ^ state[..., 1] ^ bumped[0]
        third = (a >> half) ^ state[..., 3] ^ bumped[1]
        state = np.stack([first, b & low, third, a & low], axis=-1)
    return state


def random_bits(count: int, seed: int, offset: int = 0) -> NDArray[np.uint64]:
    """The random numbers of elements 0, 1, ..., in [0, 2^32).

    Four neighbours share a counter: the offset and the number of the first, 64 bits each, with the
    seed as key. Where the offset is 0, it is that number plus 0, 1, 2, 3 in 32 bits each, and both
    numbers of the key are the lower half of the seed.
    """
    low, high = np.uint64(_WORD), np.uint64(32)
    blocks = np.arange(0, count, 4, dtype=np.uint64)
    seeds = seed & _WORD, seed >> 32 & _WORD
    counter: NDArray[np.uint64]
    if offset:
        start = [np.full(blocks.shape, offset >> by & _WORD, np.uint64) for by in (0, 32)]
        counter = np.stack([*start, blocks & low, blocks >> high], axis=-1)
    else:
        every = blocks[:, np.newaxis] + np.arange(4, dtype=np.uint64)
        counter = every.astype(np.uint64) & low
        seeds = seeds[0], seeds[0]
    return philox(counter, seeds).reshape(-1)[:count]


def survivors(
    dims: tuple[int, ...], probability: float, seed: int, offset: int = 0
) -> NDArray[np.bool_]:
    """Which elements of a tensor survive, each dropped with a ``probability``.

    The random number of an element follows from its place in row-major order.
    """
    numbers = random_bits(prod(dims), seed, offset).reshape(dims)
    return numbers.astype(np.float64) > _WORD * np.float64(np.float32(probability))


def dropout(
    values: ArrayLike, probability: float, seed: int, offset: int = 0
) -> tuple[Array, Array]:
    """The survivors divided by 1 - probability, with zeros between; and the mask, 1 or 0."""
    result = f64(values)
    mask = f64(survivors(result.shape, probability, seed, offset))
    with np.errstate(all="ignore"):
        scaled = result / (1 - np.float64(np.float32(probability)))
    return np.where(mask, scaled, 0.0), mask
