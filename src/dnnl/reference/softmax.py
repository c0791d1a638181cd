"""Softmax and its logarithm along one axis, guarded by the row's maximum."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from dnnl.errors import InvalidArguments
from dnnl.reference.arrays import Array, f64, name_of, overflowed
from dnnl.reference.fill import HALVES, generator, integers
from dnnl.reference.rule import Rule, core_eps
from dnnl.reference.specification import Description, Specification, Values
from dnnl.reference.tolerance import Tolerance
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.kinds import Alg

# The exponent s - max is rounded before it is used, so the error of a small term is relative to
# the large ones next to it. length: the extent of the axis.
TOLERANCE = Tolerance(ulps=16, growth=1, floor=None)
BACKWARD_TOLERANCE = Tolerance(ulps=16, growth=2, floor=None)


@np.errstate(invalid="ignore")
def softmax(
    src: ArrayLike,
    axis: int,
    alg: Alg | str = "softmax_accurate",
    masked_rows: str = "zero",
) -> Array:
    """``softmax_accurate``: e^(s - max) / sum; ``softmax_log``: s - max - ln(sum).

    A row of nothing but -inf has the sum 0, which is replaced by 1; with ``masked_rows`` "nan" it
    is NaN.
    """
    name = name_of(alg)
    data = f64(src)
    peak = np.max(data, axis=axis, keepdims=True, initial=-np.inf)
    shifted = data - np.where((peak == -np.inf) & (masked_rows == "zero"), 0.0, peak)
    exponentials = np.exp(shifted)
    total = np.sum(exponentials, axis=axis, keepdims=True)
    total = np.where(total == 0.0, 1.0, total)
    if name == "softmax_accurate":
        return exponentials / total
    if name == "softmax_log":
        return shifted - np.log(total)
    raise InvalidArguments("alg", name, "expected a softmax")


@np.errstate(all="ignore")
def softmax_backward(
    dst: ArrayLike, diff_dst: ArrayLike, axis: int, alg: Alg | str = "softmax_accurate"
) -> Array:
    """diff_src from the result ``dst`` of the forward pass.

    ``softmax_accurate``: dst * (diff_dst - sum of diff_dst * dst); ``softmax_log``:
    diff_dst - e^dst * sum of diff_dst.
    """
    name = name_of(alg)
    result, gradient = f64(dst), f64(diff_dst)
    if name == "softmax_accurate":
        total = np.sum(gradient * result, axis=axis, keepdims=True)
        return np.asarray(result * (gradient - total))
    if name == "softmax_log":
        total = np.sum(gradient, axis=axis, keepdims=True)
        return np.asarray(gradient - np.exp(result) * total)
    raise InvalidArguments("alg", name, "expected a softmax")


_RUN = 8  # how many elements of a row are not negligible
_LARGE = 88
_WIDE = (DataType.f32, DataType.f64)


class _Softmax(Specification):
    """Rows of which a few elements count, so that errors do not drown, and gradients that do not
    cancel."""

    def fill(self, desc: Description) -> dict[int, Array]:
        """The least value everywhere but in one short run of each row; or a negative result with
        a positive gradient."""
        if not desc.propagation.is_forward:
            return {
                Arg.DST: -_parts(desc.dst_desc.dims, "dst"),
                Arg.DIFF_DST: _parts(desc.diff_dst_desc.dims, "diff_dst"),
            }
        src, axis = desc.src_desc, desc.axis
        length = src.dims[axis]
        rng = generator("softmax", src.dims, axis)
        rows = [extent for d, extent in enumerate(src.dims) if d != axis]
        start = rng.integers(0, max(1, length - _RUN + 1), rows)[..., np.newaxis]
        place = np.arange(length)
        sign = rng.choice([-1, 1] if src.data_type.min < 0 else [1], rows)[..., np.newaxis]
        run = sign * _LARGE + rng.integers(0, 3, (*rows, length))
        values = np.where((place >= start) & (place < start + _RUN), run, src.data_type.min)
        return {Arg.SRC: np.moveaxis(values, -1, axis)}

    def compute(self, desc: Description, values: Values) -> dict[int, Array]:
        """The function on the axis, or its gradient."""
        if desc.propagation.is_forward:
            wide = any(tensor.desc.data_type is DataType.f64 for tensor in desc.tensors)
            core = DataType.f64 if wide else DataType.f32
            src = overflowed(values[Arg.SRC], core)  # in which kernels scale
            return {Arg.DST: softmax(src, desc.axis, desc.alg_kind, desc.masked_rows)}
        ends = values[Arg.DST], values[Arg.DIFF_DST]
        return {Arg.DIFF_SRC: softmax_backward(*ends, desc.axis, desc.alg_kind)}

    def rule(
        self, desc: Description, argument: int, values: Values, post_ops: Sequence[object] = ()
    ) -> Rule:
        """A few epsilons of wide floats, relative to the terms of gradients; of narrow ones the
        neighbour, to which values near the middle may be rounded."""
        output, forward = desc.desc_of(argument), desc.propagation.is_forward
        kind, length = output.data_type, max(1, output.dims[desc.axis])
        log = desc.alg_kind is Alg.softmax_log
        factor = (5 if log else 1) * (1 if forward else 4)
        threshold = 10 * kind.eps * factor if kind in _WIDE else 0.0
        if kind in HALVES:
            threshold = kind.eps
        if not forward:
            return Rule(threshold, slack=core_eps(kind), size=np.abs(values[Arg.DIFF_DST]))
        # Of integers a row may have one greatest element, and nothing next to it.
        whole = any(tensor.desc.data_type.is_integer for tensor in desc.tensors)
        share = 1 / length if whole else _RUN / length
        nothing = log and (length == 1 or kind is DataType.u8)
        zeros = 100.0 if nothing else max(30.0, 100 * (1 - share))
        # The logarithm of a sum near 1 has the errors of the sum, and dropout may double them.
        return Rule(threshold, zeros=zeros, slack=core_eps(kind) * (4 if log else 1))


def _parts(dims: Sequence[int], name: str) -> Array:
    """Parts of 128 in (0, 1], whose sums are exact."""
    return integers(generator("softmax", dims, name), dims, 1, 128) / 128


SPECIFICATION = _Softmax()
