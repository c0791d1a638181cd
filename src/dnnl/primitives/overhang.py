"""Averages of windows that reach beyond the padded image, in terms of the pooling primitive.

Where rounding up adds a window, the last one hangs over the padding. PyTorch and ONNX divide its
sum by the taps in the image and its padding, the primitive by all taps or by those in the image.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray


def padded_shares(
    spatial: Sequence[int],
    windows: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    padding_l: Sequence[int],
    padding_r: Sequence[int],
) -> NDArray[np.float32]:
    """The taps of each window in the image by those in the image and its padding: [windows...].

    An average without padding times this is the average with the padding as zeros. ``dilations``
    are the distances of neighbouring taps, so that 1 is a dense window.
    """
    shares = []
    for extent, count, taps, stride, distance, left, right in zip(
        spatial, windows, kernel, strides, dilations, padding_l, padding_r, strict=True
    ):
        first = np.arange(count) * stride - left
        # How many taps come before the image, its end, and that of its padding.
        limits = np.array([0, extent, extent + right])[:, np.newaxis]
        before, inside, padded = np.clip(-((first - limits) // distance), 0, taps)
        shares.append((inside - before) / padded)
    return np.asarray(reduce(np.multiply.outer, shares), np.float32)
