"""Whether a line rises: a rule that noise, a step and a slow start do not mislead."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

LEAST = 12
"""Samples of the second half without which nothing is said."""


def judged(times: Sequence[float]) -> bool:
    """Whether there are samples enough to say something."""
    return bool(_late(np.asarray(times)).sum() >= LEAST)


def rise(
    times: Sequence[float], values: Sequence[float], absolute: float, relative: float
) -> float | None:
    """By how much a line rises in an hour, None if it does not; ``times`` are seconds.

    The first half is there to fill caches. The medians of the three thirds of the second half are
    compared: the last one exceeds the first one by more than ``absolute`` plus ``relative`` of the
    first, and the middle one lies between them, not next to either, as it would after a step.
    """
    t, v = np.asarray(times), np.asarray(values)
    if not judged(times):
        return None
    late = _late(t)
    moments, medians = (
        [float(np.median(third)) for third in np.array_split(each[late], 3)] for each in (t, v)
    )
    first, middle, last = medians
    growth = last - first
    if growth <= absolute + relative * abs(first):
        return None
    if min(middle - first, last - middle) < growth / 8:
        return None
    return growth / (moments[2] - moments[0]) * 3600


def _late(times: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which samples lie in the second half of the time."""
    return times >= (times[0] + times[-1]) / 2 if times.size else np.zeros(0, bool)
