"""Cumulative: dst[.., k, ..] = the sum or the product of src[.., 0..k, ..] along an axis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from dnnl.reference.arrays import Array, f64
from dnnl.reference.fill import drawn, generator, integers
from dnnl.reference.rule import Rule, core_eps
from dnnl.reference.specification import Description, Specification, Values
from dnnl.types.arg import Arg


def cumulative(
    src: ArrayLike, function: str, axis: int, *, exclusive: bool = False, reverse: bool = False
) -> np.ndarray:
    """Sums or products in the type of src; ``exclusive`` ones without the element itself, those in
    ``reverse`` from the end."""
    data = np.asarray(src)
    if not data.shape[axis]:
        return data
    rows = np.moveaxis(data, axis, -1)
    rows = rows[..., ::-1] if reverse else rows
    if exclusive:
        first = np.full((*rows.shape[:-1], 1), int(function == "product"), rows.dtype)
        rows = np.concatenate([first, rows[..., :-1]], -1)
    with np.errstate(all="ignore"):
        every = (np.multiply if function == "product" else np.add).accumulate(rows, -1, rows.dtype)
    every = every[..., ::-1] if reverse else every
    return np.moveaxis(every, -1, axis)


class _Cumulative(Specification):
    """Whole numbers, which add up exactly, and powers of two to multiply."""

    def fill(self, desc: Description) -> dict[int, Array]:
        """Small numbers of which sums stay small; factors that are mostly 1."""
        src = desc.src_desc
        rng, signed = generator("cumulative", src.dims), src.data_type.min < 0
        if desc.function == "sum":
            return {Arg.SRC: integers(rng, src.dims, -4 if signed else 0, 4)}
        ones = drawn(rng, [1.0, -1.0] if signed else [1.0], src.dims)
        factors = [2.0, 0.5] if src.data_type.is_float else [3.0]
        often = rng.random(src.dims) < 4 / max(1, src.dims[desc.axis])
        return {Arg.SRC: ones * np.where(often, drawn(rng, factors, src.dims), 1.0)}

    def compute(self, desc: Description, values: Values) -> dict[int, Array]:
        """Integers in their own type, so that they wrap; floats in f64."""
        kind = desc.src_desc.data_type
        data = values[Arg.SRC] if kind.is_float else values[Arg.SRC].astype(kind.numpy)
        exclusive, reverse = desc.terms == "exclusive", desc.order == "reverse"
        every = cumulative(data, desc.function, desc.axis, exclusive=exclusive, reverse=reverse)
        return {Arg.DST: f64(every)}

    def rule(
        self, desc: Description, argument: int, values: Values, post_ops: Sequence[object] = ()
    ) -> Rule:
        """Integers are equal; floats have the epsilons of sums, relative to what is added."""
        kind = desc.dst_desc.data_type
        if kind.is_integer:
            return Rule(0.0, zeros=100.0)
        steps = 16 + desc.src_desc.dims[desc.axis] ** 0.5
        size = cumulative(np.abs(values[Arg.SRC]), desc.function, desc.axis)
        return Rule(kind.eps + steps * core_eps(kind), zeros=100.0, size=f64(size))


SPECIFICATION = _Cumulative()
