"""Pooling: the maximum or the average of each window.

The workspace of a maximum has the dims of dst. It holds the row-major number of the tap that won,
(kd * KH + kh) * KW + kw, as u8 where the kernel has at most 255 taps and as s32 else. Where all
taps are padding, it is that of the first which is not before the image, or of the last one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dnnl.errors import InvalidArguments
from dnnl.reference.arrays import Array, f64, name_of
from dnnl.reference.fill import HALVES, byte_range, generator, integers
from dnnl.reference.rule import Rule
from dnnl.reference.specification import Description, Specification, Values
from dnnl.reference.tolerance import EXACT, Tolerance
from dnnl.reference.windows import Window
from dnnl.types.arg import Arg
from dnnl.types.kinds import Alg

TOLERANCE = {
    "pooling_max": EXACT,
    "pooling_avg_include_padding": Tolerance(ulps=2, growth=2, floor=None),
    "pooling_avg_exclude_padding": Tolerance(ulps=2, growth=2, floor=None),
}  # length: the kernel's volume
# Windows that overlap add up. length: the kernel's volume.
BACKWARD_TOLERANCE = Tolerance(ulps=2, growth=2, floor=None)

_U8_VOLUME = 255


def pooling(
    src: ArrayLike,
    alg: Alg | str,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    padding_l: Sequence[int],
    padding_r: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
) -> Array:
    """``src`` [N, C, spatial...] -> [N, C, output...].

    A maximum ignores the padding, and is -inf without a tap; where a tap is NaN, it is NaN. An
    average divides by the kernel's volume (``include``) or by the number of taps inside the source
    (``exclude``).
    """
    data = f64(src)
    window = Window.of(kernel, strides, padding_l, padding_r, dilations)
    name = name_of(alg)
    if name == "pooling_max":
        return _maximum(data, window)[0]
    return _total(data, window) / _divisor(name, data.shape, window)


def pooling_workspace(
    src: ArrayLike,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    padding_l: Sequence[int],
    padding_r: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
) -> NDArray[np.uint8 | np.int32]:
    """Which tap won the maximum, [N, C, output...], for :func:`pooling_backward`."""
    window = Window.of(kernel, strides, padding_l, padding_r, dilations)
    winner = _maximum(f64(src), window)[1]
    return winner.astype(np.uint8 if math.prod(window.kernel) <= _U8_VOLUME else np.int32)


def pooling_backward(
    diff_dst: ArrayLike,
    alg: Alg | str,
    src_dims: Sequence[int],
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    padding_l: Sequence[int],
    padding_r: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    workspace: ArrayLike | None = None,
) -> Array:
    """``diff_dst`` [N, C, output...] -> diff_src of ``src_dims`` [N, C, spatial...].

    A maximum, which needs the ``workspace``, passes the gradient to the tap that won; an average
    passes equal shares to all taps. What padding receives is lost.
    """
    window = Window.of(kernel, strides, padding_l, padding_r, dilations)
    name = name_of(alg)
    gradient = f64(diff_dst)
    if name == "pooling_max":
        if workspace is None:
            raise TypeError("the gradient of a maximum needs the workspace")
        winner = np.asarray(workspace)
        shares = (np.where(winner == n, gradient, 0.0) for n in range(math.prod(window.kernel)))
        return _scattered(shares, src_dims, window)
    share = gradient / _divisor(name, src_dims, window)
    return _scattered(itertools.repeat(share), src_dims, window)


def _maximum(data: Array, window: Window) -> tuple[Array, NDArray[np.intp]]:
    """The greatest value of each window and the number of its tap."""
    best = np.full((*data.shape[:2], *window.output_dims(data.shape[2:])), -np.inf)
    winner = np.zeros(best.shape, np.intp)
    for number, (_, values) in enumerate(window.taps(data, -np.inf)):
        # The first of equal maxima wins, and the last NaN.
        greater = (values > best) | np.isnan(values)
        best, winner = np.where(greater, values, best), np.where(greater, number, winner)
    return best, np.where(best == -np.inf, window.first_taps(best.shape[2:]), winner)


def _total(data: Array, window: Window) -> Array:
    total = np.zeros((*data.shape[:2], *window.output_dims(data.shape[2:])))
    for _, values in window.taps(data, 0.0):
        total += values
    return total


def _divisor(name: str, src_dims: Sequence[int], window: Window) -> Array:
    """What an average divides its total by: [1, 1, output...], or the same number everywhere."""
    if name == "pooling_avg_include_padding":
        return f64(math.prod(window.kernel))
    if name == "pooling_avg_exclude_padding":
        return np.maximum(_total(np.ones((1, 1, *src_dims[2:])), window), 1.0)
    raise InvalidArguments("alg", name, "expected a pooling")


def _scattered(shares: Iterable[Array], src_dims: Sequence[int], window: Window) -> Array:
    """The sum of what each tap gives back to the source: ``shares`` has one array per tap."""
    spatial = math.prod(src_dims[2:])
    total = np.zeros((*src_dims[:2], spatial))
    places = np.arange(spatial, dtype=np.float64).reshape(1, 1, *src_dims[2:])
    for (_, seen), share in zip(window.taps(places, -1.0), shares, strict=False):
        place = seen.astype(np.intp).reshape(-1)
        inside = place >= 0
        # One tap of different windows sees different elements.
        total[..., place[inside]] += share.reshape(*total.shape[:2], place.size)[..., inside]
    return total.reshape(src_dims)


_LIMIT = 2048


class _Pooling(Specification):
    """Whole numbers, whose maxima are exact and whose averages round once."""

    def fill(self, desc: Description) -> dict[int, Array]:
        """Whole numbers that the type holds; not negative ones to average. A workspace is what
        a source of such numbers leaves, which is given too."""
        if desc.propagation.is_forward:
            return {Arg.SRC: self._numbers(desc.src_desc, desc.alg_kind)}
        values: dict[int, Array] = {Arg.DIFF_DST: self._numbers(desc.diff_dst_desc, desc.alg_kind)}
        if desc.alg_kind is Alg.pooling_max:
            src = self._numbers(desc.diff_src_desc, desc.alg_kind)
            values[Arg.SRC] = src
            values[Arg.WORKSPACE] = f64(pooling_workspace(src, **_window(desc)))
        return values

    @staticmethod
    def _numbers(desc: Description, alg: Alg) -> Array:
        kind = desc.data_type
        limit = 32 if kind in HALVES else 8 if kind.bits == 8 else _LIMIT
        low, high = byte_range(kind) if kind.is_integer and kind.bits <= 8 else (-limit, limit)
        if alg is not Alg.pooling_max:
            low = 0
        return integers(generator("pool", desc.dims), desc.dims, low, high)

    def compute(self, desc: Description, values: Values) -> dict[int, Array]:
        """The windows of the source, the taps that won them, or the gradient."""
        if not desc.propagation.is_forward:
            gradient = pooling_backward(
                values[Arg.DIFF_DST],
                desc.alg_kind,
                desc.diff_src_desc.dims,
                **_window(desc),
                workspace=values.get(Arg.WORKSPACE),
            )
            return {Arg.DIFF_SRC: gradient}
        src = values[Arg.SRC]
        results: dict[int, Array] = {Arg.DST: pooling(src, desc.alg_kind, **_window(desc))}
        if not desc.workspace_desc.is_zero:
            results[Arg.WORKSPACE] = f64(pooling_workspace(src, **_window(desc)))
        return results

    def rule(
        self, desc: Description, argument: int, values: Values, post_ops: Sequence[object] = ()
    ) -> Rule:
        """Equality of maxima and of their taps, a few roundings of averages."""
        kind = desc.desc_of(argument).data_type
        largest = desc.alg_kind is Alg.pooling_max
        # Of many taps that see the same maximum, one gets all; the first tap may always win.
        sparse = largest and argument != Arg.DST
        exact = largest and desc.propagation.is_forward
        return Rule(0.0 if exact else 10 * kind.eps, zeros=100 if sparse else 99)


def _window(desc: Description) -> dict[str, Any]:
    """The window of a description, as the functions here take it."""
    names = ("kernel", "strides", "padding_l", "padding_r", "dilations")
    return {name: getattr(desc, name) for name in names}


SPECIFICATION = _Pooling()
