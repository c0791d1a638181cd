"""The sliding window that convolution and pooling share.

A window of ``kernel`` taps slides along each spatial dimension: tap ``k`` of output ``o`` is at
``o * stride + k * (dilation + 1) - padding_l``. Dilation 0 is a dense window.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dnnl.reference.arrays import Array


@dataclass(frozen=True)
class Window:
    """One window; every field has one number per spatial dimension, outermost first."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    padding_l: tuple[int, ...]
    padding_r: tuple[int, ...]
    dilations: tuple[int, ...]

    @classmethod
    def of(
        cls,
        kernel: Sequence[int],
        strides: Sequence[int],
        padding_l: Sequence[int],
        padding_r: Sequence[int] | None,
        dilations: Sequence[int] | None,
    ) -> Window:
        """``padding_r`` defaults to ``padding_l``, ``dilations`` to a dense window."""
        right = padding_l if padding_r is None else padding_r
        dilated = [0] * len(kernel) if dilations is None else dilations
        return cls(tuple(kernel), tuple(strides), tuple(padding_l), tuple(right), tuple(dilated))

    def output_dims(self, spatial: Sequence[int]) -> tuple[int, ...]:
        """How many positions the window takes along each dimension of a ``spatial`` extent."""
        return tuple(
            (i + left + right - (k - 1) * (d + 1) - 1) // s + 1
            for i, k, s, left, right, d in zip(
                spatial,
                self.kernel,
                self.strides,
                self.padding_l,
                self.padding_r,
                self.dilations,
                strict=True,
            )
        )

    def first_taps(self, outputs: Sequence[int]) -> NDArray[np.intp]:
        """The row-major number of the first tap of each window that is not before the image:
        [output...]; the last one in a dimension in which all do."""
        number = np.zeros((1,) * len(outputs), np.intp)
        for axis, count in enumerate(outputs):
            ahead = self.padding_l[axis] - np.arange(count) * self.strides[axis]
            first = np.clip(-(-ahead // (self.dilations[axis] + 1)), 0, self.kernel[axis] - 1)
            column = first.reshape([-1 if at == axis else 1 for at in range(len(outputs))])
            number = number * self.kernel[axis] + column
        return number

    def taps(self, src: Array, fill: float) -> Iterator[tuple[tuple[int, ...], Array]]:
        """For each tap in row-major order its index and what all windows see there.

        ``src`` is [N, C, spatial...] and is surrounded by ``fill``; what they see is
        [N, C, output...]. Negative padding leaves the border of ``src`` unseen.
        """
        left = [max(0, p) for p in self.padding_l]
        right = [max(0, p) for p in self.padding_r]
        padded = np.pad(src, [(0, 0), (0, 0), *zip(left, right, strict=True)], constant_values=fill)
        outputs = self.output_dims(src.shape[2:])
        first = [pad - p for pad, p in zip(left, self.padding_l, strict=True)]
        for tap in itertools.product(*map(range, self.kernel)):
            seen = [slice(None), slice(None)]
            for start, k, d, o, s in zip(
                first, tap, self.dilations, outputs, self.strides, strict=True
            ):
                begin = start + k * (d + 1)
                seen.append(slice(begin, begin + o * s, s))
            yield tap, padded[tuple(seen)]
