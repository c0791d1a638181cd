"""MaxRoiPool, whose windows are contents of an input, computed by NumPy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dnnl.graph.graph import Array, ModelError, Node

_CORNERS = 5
"""Numbers of a region: its image, and left, top, right and bottom."""


def max_roi_pool(node: Node, given: Sequence[Array | None]) -> list[Array]:
    """The maxima [regions, channels, *pooled_shape] of images [batch, channels, height, width] in
    the windows of each region; 0 where a window is outside.

    Corners are scaled and rounded, halves away from zero; right and bottom belong to the region.
    """
    images, regions = given[0], given[1]
    if images is None or regions is None or images.ndim != 4 or regions.shape[1:] != (_CORNERS,):
        found = [None if own is None else list(own.shape) for own in given]
        raise ModelError(f"images and regions {found} are not [n, c, h, w] and [regions, 5]")
    pooled = tuple(node.attrs.get("pooled_shape", ()))
    if len(pooled) != 2 or min(pooled) < 1:
        raise ModelError(f"attribute 'pooled_shape' = {pooled} must be two positive integers")
    numbers = regions[:, 0].astype(np.float64)
    if not np.all((numbers >= 0) & (numbers < len(images))):
        raise ModelError(f"regions are in images {numbers.tolist()}, there are {len(images)}")
    scaled = regions[:, 1:].astype(np.float64) * node.attrs.get("spatial_scale", 1.0)
    if not np.isfinite(scaled).all():
        raise ModelError("corners of regions must be finite")
    corners = np.copysign(np.floor(np.abs(scaled) + 0.5), scaled)
    result = np.zeros((len(regions), images.shape[1], *pooled), images.dtype)
    for maxima, number, box in zip(result, numbers, corners, strict=True):
        left, top, right, bottom = box
        rows = _windows(top, bottom, pooled[0], images.shape[2])
        columns = _windows(left, right, pooled[1], images.shape[3])
        for y, row in enumerate(rows):
            for x, column in enumerate(columns):
                window = images[int(number), :, row, column]
                if window.size:
                    maxima[:, y, x] = window.max((1, 2))
    return [result]


def _windows(first: float, last: float, count: int, size: int) -> list[slice]:
    """The windows along an axis of so many elements."""
    bounds = np.arange(count + 1, dtype=np.float32)  # f32 decides what is rounded
    bounds *= np.float32(max(last - first + 1, 1)) / np.float32(count)
    begins = np.clip(np.floor(bounds[:-1]) + first, 0, size)
    ends = np.clip(np.ceil(bounds[1:]) + first, 0, size)
    return [slice(int(a), int(b)) for a, b in zip(begins, ends, strict=True)]
