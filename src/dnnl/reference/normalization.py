"""What the normalizations share: statistics over some axes and the gradient through them.

``axes`` are those that one mean and one variance are taken over. Statistics have the rank of the
source, with the extent 1 along them. A mean of no elements is 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dnnl.reference.arrays import Array, f64
from dnnl.reference.fill import integers

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


def paired(rng: np.random.Generator, dims: Sequence[int], largest: int) -> Array:
    """Whole numbers whose sum along the last dimension is 0: pairs of both signs, and three at an
    odd end; 0 where one is alone."""
    values = f64(integers(rng, dims, 1, largest) * rng.choice([-1, 1], tuple(dims)))
    length = dims[-1]
    values[..., 1::2] = -values[..., 0 : length - 1 : 2]
    if length % 2:
        three = values[..., -3:]
        three[...] = np.sign(three[..., :1]) * f64([1, 1, -2])[-length:]
        three *= length > 1
    return values
