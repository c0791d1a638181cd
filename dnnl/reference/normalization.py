"""What the normalizations share: statistics over some axes and the gradient through them.

``axes`` are those that one mean and one variance are taken over. Statistics keep the rank of the
source, with the extent 1 along them. A mean of no elements is 0.
"""

from __future__ import annotations

import math

import numpy as np

from dnnl.reference.arrays import Array

Axes = tuple[int, ...]


def mean_over(values: Array, axes: Axes) -> Array:
    """The arithmetic mean."""
    count = math.prod(values.shape[axis] for axis in axes)
    return np.asarray(np.sum(values, axis=axes, keepdims=True) / max(1, count))


def moments(values: Array, axes: Axes) -> tuple[Array, Array]:
    """The mean and the population variance."""
    mean = mean_over(values, axes)
    return mean, mean_over((values - mean) ** 2, axes)


def through_statistics(gradient: Array, normalized: Array, axes: Axes, *, centred: bool) -> Array:
    """The gradient of ``normalized`` without the share that its own statistics take away.

    Moving a source moves the variance, hence the term along ``normalized``, and the mean, hence the
    constant term; not ``centred``: no mean was subtracted.
    """
    along = normalized * mean_over(gradient * normalized, axes)
    constant = mean_over(gradient, axes) if centred else 0.0
    return gradient - constant - along
