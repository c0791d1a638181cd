"""Pooling: the maximum or the average of each window."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dnnl.errors import InvalidArguments
from dnnl.reference.arrays import Array, f64, name_of
from dnnl.reference.fill import HALVES, byte_range, generator, integers
from dnnl.reference.rule import Rule
from dnnl.reference.specification import Specification, Values
from dnnl.reference.tolerance import EXACT, Tolerance
from dnnl.reference.windows import Window
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.kinds import Alg

TOLERANCE = {
    "pooling_max": EXACT,
    "pooling_avg_include_padding": Tolerance(ulps=2, growth=2, floor=None),
    "pooling_avg_exclude_padding": Tolerance(ulps=2, growth=2, floor=None),
}  # length: the kernel's volume


def pooling(
    src: ArrayLike,
    alg: Alg | str,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    padding_l: Sequence[int],
    padding_r: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    lowest: float = float(np.finfo(np.float32).min),
) -> Array:
    """``src`` [N, C, spatial...] -> [N, C, output...].

    A maximum ignores the padding and starts at ``lowest``, the least finite value of the
    destination's type. An average divides by the kernel's volume (``include``) or by the number
    of taps inside the source (``exclude``).
    """
    data = f64(src)
    window = Window.of(kernel, strides, padding_l, padding_r, dilations)
    name = name_of(alg)
    if name == "pooling_max":
        return _maximum(data, window, lowest)
    total = _total(data, window)
    if name == "pooling_avg_include_padding":
        return total / math.prod(window.kernel)
    if name == "pooling_avg_exclude_padding":
        return total / np.maximum(_total(np.ones_like(data), window), 1.0)
    raise InvalidArguments("alg", name, "expected a pooling")


def _maximum(data: Array, window: Window, lowest: float) -> Array:
    best = np.full((*data.shape[:2], *window.output_dims(data.shape[2:])), lowest)
    for _, values in window.taps(data, -np.inf):
        # The first of equal maxima wins, and a NaN never compares greater.
        best = np.where(values > best, values, best)
    return best


def _total(data: Array, window: Window) -> Array:
    total = np.zeros((*data.shape[:2], *window.output_dims(data.shape[2:])))
    for _, values in window.taps(data, 0.0):
        total += values
    return total


_LIMIT = 2048


class _Pooling(Specification):
    """Whole numbers, whose maxima are exact and whose averages round once."""

    def fill(self, desc: Any) -> dict[int, Array]:
        """Whole numbers that the type holds; not negative ones to average."""
        src = desc.src_desc
        kind = src.data_type
        limit = 32 if kind in HALVES else 8 if kind.bits == 8 else _LIMIT
        low, high = byte_range(kind) if kind.is_integer and kind.bits <= 8 else (-limit, limit)
        if desc.alg_kind is not Alg.pooling_max:
            low = 0
        return {Arg.SRC: integers(generator("pool", src.dims), src.dims, low, high)}

    def compute(self, desc: Any, values: Values) -> dict[int, Array]:
        """The windows of the source."""
        dst = pooling(
            values[Arg.SRC], desc.alg_kind, kernel=desc.kernel, strides=desc.strides,
            padding_l=desc.padding_l, padding_r=desc.padding_r, dilations=desc.dilations,
            lowest=float(desc.dst_desc.data_type.min),
        )  # fmt: skip
        return {Arg.DST: dst}

    def rule(
        self, desc: Any, argument: int, values: Values, post_ops: Sequence[object] = ()
    ) -> Rule:
        """Equality of maxima, a few roundings of averages."""
        kind = desc.dst_desc.data_type
        eps = DataType.f32.eps if kind is DataType.f64 else kind.eps
        return Rule(0.0 if desc.alg_kind is Alg.pooling_max else 10 * eps, zeros=99)


SPECIFICATION = _Pooling()
