"""Random arrays of any type: extreme values beside others."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dnnl.types.dtype import DataType

Typed = NDArray[Any]

_SPECIAL = (0.0, -0.0, 0.5, -0.5, 1.5, -2.5, 1e3, -1e3, np.inf, -np.inf, np.nan)


def drawn(kind: DataType, shape: tuple[int, ...], seed: int) -> Typed:
    """Elements of all sizes; one in three is at the end of the range, or 0, 1, 2 or -1."""
    rng = np.random.default_rng(seed)
    if kind.is_float:
        plain = rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 20, shape)
        if kind is not DataType.f64:
            plain = plain.astype(np.float32)
        pool = np.array((*_SPECIAL, 2.0**31, 2.0**63, 2.0**64, -(2.0**63), 127.5, 255.0))
    elif kind is DataType.boolean:
        return rng.integers(0, 2, shape).astype(np.bool_)
    else:
        bits = rng.bytes(int(np.prod(shape)) * kind.size)
        shifts = rng.integers(0, kind.bits, shape).astype(kind.numpy)
        plain = np.right_shift(np.frombuffer(bits, kind.numpy).reshape(shape), shifts)
        low, high = int(kind.min), int(kind.max)
        ends = [low, low + 1, high - 1, high, 0, 1, 2, kind.bits, -1]
        pool = np.array([n for n in ends if low <= n], kind.numpy)
    with np.errstate(over="ignore"):
        chosen = rng.choice(pool, shape)
        return np.where(rng.integers(0, 3, shape) == 0, chosen, plain).astype(kind.numpy)
