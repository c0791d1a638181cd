"""Before something is timed it must be right: ours against a peer's result."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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
