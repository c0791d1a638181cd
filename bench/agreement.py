"""Before something is timed it must be right: ours against a peer's result or the reference."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dnnl import DataType
from dnnl.reference.arrays import Array

TOLERANCE = 1e-4
"""The largest error in units of the largest element: far above what the order of f32 sums makes
of it, far below what any mistake does."""


class WrongResult(Exception):
    """Ours and a peer's result differ."""


def check(what: str, given: NDArray[np.float32], expected: NDArray[np.float32], peer: str) -> None:
    """Raise WrongResult where ``given`` is not what ``peer`` computed."""
    scale = float(np.abs(expected).max(initial=0.0)) or 1.0
    error = float(np.abs(given - expected).max(initial=0.0)) / scale
    if not error <= TOLERANCE:
        raise WrongResult(f"{what}: differs from {peer} by {error:.3g} of the largest element")


def check_rounded(what: str, given: Array, expected: Array, data_type: DataType) -> None:
    """Raise WrongResult where elements of ``data_type`` are further than a step from ``expected``.

    A step is what a reciprocal may change near a halfway value; a few of them in f32 and f64, where
    a sum cancels.
    """
    if np.array_equal(given, expected):
        return
    wide = 4 if data_type.bits >= 32 else 1
    step = 1.0 if data_type.is_integer else wide * data_type.eps * np.maximum(np.abs(expected), 1)
    wrong = ~(np.abs(given - expected) <= step)
    count = int(np.count_nonzero(wrong))
    if count:
        at = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
        raise WrongResult(
            f"{what}: {count} of {wrong.size} elements are wrong, the first at "
            f"{tuple(map(int, at))}: {given[at]:g}, not {expected[at]:g}"
        )
