"""What tensors are filled with: values that make results exact, or errors visible."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import ArrayLike

from dnnl.reference.arrays import Array, f64
from dnnl.reference.conversions import convert
from dnnl.types.dtype import DataType

Dims = Sequence[int]

BYTE = 8
HALVES = (DataType.bf16, DataType.f16)


def generator(*key: object) -> np.random.Generator:
    """Random numbers that depend on ``key`` alone."""
    return np.random.default_rng(zlib.crc32(repr(key).encode()))


def stored(values: Array, data_type: DataType) -> Array:
    """The values as ``data_type`` holds them."""
    return convert(values, data_type, DataType.f64)


def integers(rng: np.random.Generator, dims: Dims, low: int, high: int) -> Array:
    """Whole numbers from ``low`` to ``high``, both included."""
    return f64(rng.integers(low, high, tuple(dims), endpoint=True))


def sparse(rng: np.random.Generator, dims: Dims, low: int, high: int, density: float) -> Array:
    """Whole numbers of which the share ``density`` is nonzero at random; one always is."""
    values = integers(rng, dims, low, high)
    if density < 1:
        values *= rng.random(tuple(dims)) < density
        values.reshape(-1)[:1] = high
    return values


def stored_elements(rng: np.random.Generator, dims: Dims, low: int, high: int, nnz: int) -> Array:
    """Whole numbers of which ``nnz``, at random positions, are not zero; all, if that is more."""
    values = np.zeros(prod(dims))
    places = rng.choice(values.size, min(nnz, values.size), replace=False, shuffle=False)
    found = rng.integers(min(low, 0), high, places.size)
    values[places] = np.where(found >= 0, found + 1, found) if low < 0 else found + 1
    return values.reshape(tuple(dims))


def cycle(values: ArrayLike, dims: Dims, start: int = 0) -> Array:
    """``values`` again and again in row-major order."""
    count = prod(dims)
    return f64(np.resize(np.roll(f64(values), -start), count)).reshape(tuple(dims))


def drawn(rng: np.random.Generator, values: Sequence[float], dims: Dims) -> Array:
    """Each element one of ``values``."""
    return f64(rng.choice(f64(values), tuple(dims)))


def uniform(rng: np.random.Generator, dims: Dims, limit: float = 16.0) -> Array:
    """Real numbers in [-limit, limit]."""
    return f64(rng.uniform(-limit, limit, tuple(dims)))


def byte_range(data_type: DataType) -> tuple[int, int]:
    """The whole numbers of a narrow integer type; those of s8 for every other type, and of u8 where
    that has none below zero."""
    if data_type.is_integer and data_type.bits <= BYTE:
        return int(data_type.min), int(data_type.max)
    return (0, 255) if data_type.is_integer and not data_type.min else (-128, 127)
