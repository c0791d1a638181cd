"""Resampling: an image in another size, by the nearest elements or by linear interpolation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dnnl.errors import InvalidArguments
from dnnl.reference.arrays import Array, f64, name_of
from dnnl.reference.fill import byte_range, generator, integers
from dnnl.reference.rule import Rule, core_eps
from dnnl.reference.specification import Specification, Values, zero_limit
from dnnl.reference.tolerance import EXACT, Tolerance
from dnnl.types.arg import Arg
from dnnl.types.kinds import Alg

TOLERANCE = {
    "resampling_nearest": EXACT,
    "resampling_linear": Tolerance(ulps=8, growth=1, floor=None),
}  # length: the number of weights, 2 to the number of spatial dimensions
# length: how many elements of dst an element of src is a part of, on average.
BACKWARD_TOLERANCE = Tolerance(ulps=8, growth=2, floor=None)


def resampling(src: ArrayLike, alg: Alg | str, spatial: Sequence[int]) -> Array:
    """``src`` [N, C, spatial...] -> [N, C, ``spatial``...].

    Element o of O lies at x = (o + 1/2) * I / O - 1/2 among the I elements of src. The nearest one
    to it is that of x rounded, halves away from zero; linear interpolation is between the two
    beside it, which are the same behind the ends.
    """
    data = f64(src)
    for axis, new in enumerate(spatial, 2):
        data = _product(_weights(data.shape[axis], new, alg), data, axis)
    return data


def resampling_backward(diff_dst: ArrayLike, alg: Alg | str, spatial: Sequence[int]) -> Array:
    """``diff_dst`` [N, C, output...] -> diff_src [N, C, ``spatial``...]: each element of dst gives
    its gradient to those that it was made of, by their weights."""
    data = f64(diff_dst)
    for axis, old in enumerate(spatial, 2):
        data = _product(_weights(old, data.shape[axis], alg).T, data, axis)
    return data


def _product(weights: Array, data: Array, axis: int) -> Array:
    """One axis times a matrix."""
    return np.moveaxis(np.tensordot(weights, data, (1, axis)), 0, axis)


def _weights(old: int, new: int, alg: Alg | str) -> Array:
    """What each of ``new`` elements gets of each of ``old``: [new, old]."""
    number, unit = np.arange(new), 2 * max(1, new)
    # Twice as many units as elements of ``new`` make an element of ``old``: all is exact but the
    # last division.
    place = (2 * number + 1) * old
    weights = np.zeros((new, old))
    match name_of(alg):
        case "resampling_nearest":
            weights[number, np.minimum(place // unit, old - 1)] = 1.0
        case "resampling_linear":
            middle = place - unit // 2
            first = np.maximum(middle // unit, 0)
            last = np.minimum(-(-middle // unit), old - 1)
            second = np.abs(middle - unit * first) / unit
            np.add.at(weights, (number, first), 1.0 - second)
            np.add.at(weights, (number, last), second)
        case name:
            raise InvalidArguments("alg", name, "expected a resampling")
    return weights


_LIMIT = 64


class _Resampling(Specification):
    """Whole numbers, all of one sign where they are added up."""

    def fill(self, desc: Any) -> dict[int, Array]:
        """Whole numbers that the type holds."""
        forward = desc.propagation.is_forward
        argument, name = (Arg.SRC, "src_desc") if forward else (Arg.DIFF_DST, "diff_dst_desc")
        tensor = getattr(desc, name)
        kind = tensor.data_type
        low, high = byte_range(kind) if kind.is_integer and kind.bits == 8 else (-_LIMIT, _LIMIT)
        low = low if desc.alg_kind is Alg.resampling_nearest and forward else 1
        return {argument: integers(generator("resampling", tensor.dims), tensor.dims, low, high)}

    def compute(self, desc: Any, values: Values) -> dict[int, Array]:
        """dst, or the gradient of src."""
        if desc.propagation.is_forward:
            dst = resampling(values[Arg.SRC], desc.alg_kind, desc.dst_desc.dims[2:])
            return {Arg.DST: dst}
        spatial = desc.diff_src_desc.dims[2:]
        return {Arg.DIFF_SRC: resampling_backward(values[Arg.DIFF_DST], desc.alg_kind, spatial)}

    def rule(
        self, desc: Any, argument: int, values: Values, post_ops: Sequence[object] = ()
    ) -> Rule:
        """Equality of nearest elements; otherwise a few epsilons, and one rounding."""
        kind = desc.desc_of(argument).data_type
        if desc.propagation.is_forward:
            exact = desc.alg_kind is Alg.resampling_nearest
            threshold = kind.eps if exact else kind.eps + 16 * core_eps(kind)
            return Rule(threshold, zero_limit(kind))
        # Where dst is smaller, most elements of src are no part of it.
        return Rule(kind.eps + 64 * core_eps(kind), zeros=100)


SPECIFICATION = _Resampling()
