"""Reduction: sums, products, extremes, means and norms along dimensions that become 1."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import ArrayLike

from dnnl.errors import InvalidArguments
from dnnl.reference.arrays import Array, f64, name_of
from dnnl.reference.fill import BYTE, byte_range, drawn, generator, integers, sparse
from dnnl.reference.rule import Rule, core_eps
from dnnl.reference.specification import Description, Specification, Values
from dnnl.reference.tolerance import EXACT, Tolerance
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.kinds import Alg

_SUM = Tolerance(ulps=2, growth=1, floor=None)
_NORM = Tolerance(ulps=16, growth=1, floor=None)
TOLERANCE = {
    "reduction_max": EXACT,
    "reduction_min": EXACT,
    "reduction_sum": _SUM,
    "reduction_mul": Tolerance(ulps=2, growth=2),
    "reduction_mean": _SUM,
    "reduction_norm_lp_max": _NORM,
    "reduction_norm_lp_sum": _NORM,
    "reduction_norm_lp_power_p_max": _NORM,
    "reduction_norm_lp_power_p_sum": _NORM,
}  # length: how many elements become one


def reduction(
    src: ArrayLike, alg: Alg | str, dims: Sequence[int], p: float = 1.0, eps: float = 0.0
) -> Array:
    """``src`` reduced to ``dims``, each of which is that of src or 1.

    The largest and the smallest are NaN where an element is. The norm is
    max(sum of \\|s\\|^p, eps)^(1/p) or (that sum + eps)^(1/p), those of power p without the root.
    """
    data = f64(src)
    pairs = enumerate(zip(data.shape, dims, strict=True))
    axes = tuple(axis for axis, (extent, left) in pairs if extent != left)
    match name_of(alg):
        case "reduction_max":
            return f64(data.max(axes, keepdims=True, initial=-np.inf))
        case "reduction_min":
            return f64(data.min(axes, keepdims=True, initial=np.inf))
        case "reduction_sum":
            return f64(data.sum(axes, keepdims=True))
        case "reduction_mul":
            return f64(data.prod(axes, keepdims=True))
        case "reduction_mean":
            return f64(data.sum(axes, keepdims=True) / _count(data, dims))
        case name if name.startswith("reduction_norm_lp_"):
            total = (np.abs(data) ** p).sum(axes, keepdims=True)
            total = np.maximum(total, eps) if name.endswith("max") else total + eps
            return f64(total if "power_p" in name else total ** (1 / p))
        case name:
            raise InvalidArguments("alg", name, "expected a reduction")


def wrapped(src: np.ndarray, alg: Alg | str, dims: Sequence[int], dst: DataType) -> np.ndarray:
    """Integers reduced to ``dims`` in the type of ``dst``, wrapped around."""
    axes = tuple(axis for axis, left in enumerate(dims) if src.shape[axis] != left)
    function = {
        "reduction_sum": np.add,
        "reduction_mul": np.multiply,
        "reduction_max": np.maximum,
        "reduction_min": np.minimum,
    }[name_of(alg)]
    data = src.astype(dst.numpy)
    return np.asarray(function.reduce(data, axes, dst.numpy, keepdims=True)) if axes else data


def _count(data: Array, dims: Sequence[int]) -> int:
    """How many elements become one."""
    return int(data.size // max(1, prod(dims)))


# About so far numbers of 8 bits hold sums.
_ROOM = 100
# So many factors of a product are no ones.
_FACTORS = {True: 4, False: 10}


_OF_ONEDNN = {DataType.s8, DataType.u8, DataType.s32}
_ROUNDED = _OF_ONEDNN.union(kind for kind in DataType if kind.is_float)


class _Reduction(Specification):
    """Whole numbers, which add up exactly, and powers of two to multiply."""

    def fill(self, desc: Description) -> dict[int, Array]:
        """Numbers of any size to compare. Of what is added or multiplied so few are not zero, or
        one, that narrow types hold the result."""
        src, dst = desc.src_desc, desc.dst_desc
        dims, kind = src.dims, src.data_type
        count = src.nelems() // max(1, dst.nelems())
        name = desc.alg_kind.name
        rng = generator("reduction", dims, name)
        # What wraps is so large that a comparison in f32 says nothing.
        wraps = not {kind, dst.data_type} <= _ROUNDED
        signed = kind.min < 0 and not (wraps and dst.data_type.min == 0)
        if desc.alg_kind in (Alg.reduction_max, Alg.reduction_min):
            low, high = byte_range(kind)
            return {Arg.SRC: integers(rng, dims, low if signed else 0, high)}
        if desc.alg_kind is Alg.reduction_mul:
            whole = kind.is_integer or dst.data_type.is_integer
            often = rng.random(dims) < _FACTORS[whole] / max(1, count)
            factors = [2.0] if whole else [2.0, 0.5]
            ones = drawn(rng, [1.0, -1.0] if signed else [1.0], dims)
            return {Arg.SRC: ones * np.where(often, drawn(rng, factors, dims), 1.0)}
        narrow = dst.data_type.is_integer and dst.data_type.bits == BYTE
        low, high = (-1, 3) if narrow else (-8, 24)
        density = min(1.0, _ROOM / max(1, count)) if narrow else 1.0
        return {Arg.SRC: sparse(rng, dims, low if signed else 0, high, density)}

    def compute(self, desc: Description, values: Values) -> dict[int, Array]:
        """The reduction."""
        numbers = desc.p, desc.eps
        src, dst = desc.src_desc.data_type, desc.dst_desc.data_type
        if not {src, dst} <= _ROUNDED:
            typed = values[Arg.SRC].astype(src.numpy)
            return {Arg.DST: f64(wrapped(typed, desc.alg_kind, desc.dst_desc.dims, dst))}
        return {Arg.DST: reduction(values[Arg.SRC], desc.alg_kind, desc.dst_desc.dims, *numbers)}

    def rule(
        self, desc: Description, argument: int, values: Values, post_ops: Sequence[object] = ()
    ) -> Rule:
        """Extremes are exact; sums and products have a few epsilons, relative to their
        terms, and are rounded once."""
        kind, dims = desc.dst_desc.data_type, desc.dst_desc.dims
        # Few numbers are far from zero where little is added up, or nothing is.
        zeros = 100.0
        if desc.alg_kind in (Alg.reduction_max, Alg.reduction_min):
            return Rule(kind.eps, zeros=zeros)
        src = values[Arg.SRC]
        count = _count(src, dims)
        steps = 16 + count**0.5
        threshold = kind.eps + steps * core_eps(kind)
        if desc.alg_kind in (Alg.reduction_sum, Alg.reduction_mean):
            size = reduction(np.abs(src), desc.alg_kind, dims)
            # Relative to the terms only so much as sums lose; the result is rounded by itself.
            return Rule(threshold, zeros=zeros, size=size if kind.bits >= 32 else None)
        return Rule(threshold, zeros=zeros)


SPECIFICATION = _Reduction()
