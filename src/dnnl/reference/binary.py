"""Element by element operations on two tensors that broadcast to each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dnnl.reference.arrays import Array, f64, name_of
from dnnl.reference.fill import generator, integers
from dnnl.reference.rule import Rule
from dnnl.reference.specification import Description, Specification, Values, inputs, zero_limit
from dnnl.reference.tolerance import EXACT
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.kinds import Alg

TOLERANCE = EXACT  # one IEEE operation, comparisons included

_FUNCTIONS: dict[str, Callable[[Array, Array], Any]] = {
    "binary_add": np.add,
    "binary_sub": np.subtract,
    "binary_mul": np.multiply,
    "binary_div": np.divide,
    "binary_max": np.maximum,
    "binary_min": np.minimum,
    "binary_ge": np.greater_equal,
    "binary_gt": np.greater,
    "binary_le": np.less_equal,
    "binary_lt": np.less,
    "binary_eq": np.equal,
    "binary_ne": np.not_equal,
}
ALGS = (*_FUNCTIONS, "binary_select")


def binary(
    alg: Alg | str, src0: ArrayLike, src1: ArrayLike, src2: ArrayLike | None = None
) -> Array:
    """``src0 alg src1``; a comparison gives 1 or 0, ``select`` gives ``src2 ? src0 : src1``.

    The sources have the same rank and a dimension of 1 broadcasts; ``src2`` has the dims of
    the first.
    """
    name = name_of(alg)
    left, right = f64(src0), f64(src1)
    if name == "binary_select":
        if src2 is None:
            raise TypeError("binary_select needs src2")
        return np.where(np.asarray(src2) != 0, left, right)
    with np.errstate(all="ignore"):
        return f64(_FUNCTIONS[name](left, right))


_FEW = 10
_COMPARISONS = ("binary_ge", "binary_gt", "binary_le", "binary_lt", "binary_eq", "binary_ne")


class _Binary(Specification):
    """Whole numbers and halves, which functions of two values do not round."""

    def fill(self, desc: Description) -> dict[int, Array]:
        """Small whole numbers, halved in a first source of floats; a divisor is not 0. Numbers to
        compare are so few that each comparison is alternately true and false, with any one number,
        and whole ones are divided that are so large that not all quotients are 0."""
        values = {}
        compares = desc.alg_kind.name in _COMPARISONS
        for argument, source in inputs(desc):
            most = _most(desc.alg_kind, argument, source.data_type)
            rng = generator("binary", argument, source.dims)
            numbers = integers(rng, source.dims, -most, most)
            if source.data_type.min >= 0:
                numbers = abs(numbers)
            if argument == Arg.SRC_2:
                numbers *= generator("binary", "chosen", source.dims).random(source.dims) < 0.5
            elif argument == Arg.SRC_1:
                numbers[numbers == 0] = 1
            elif source.data_type.is_float and not compares:
                numbers /= 2
            values[argument] = numbers
        return values

    def compute(self, desc: Description, values: Values) -> dict[int, Array]:
        """The function."""
        operands = values[Arg.SRC_0], values[Arg.SRC_1], values.get(Arg.SRC_2)
        return {Arg.DST: binary(desc.alg_kind, *operands)}

    def rule(
        self, desc: Description, argument: int, values: Values, post_ops: Sequence[object] = ()
    ) -> Rule:
        """One rounding."""
        kind, alg = desc.dst_desc.data_type, desc.alg_kind
        compares = alg.name in _COMPARISONS
        # One value alone can make nearly everything zero, as a divisor of integers does.
        few = values[Arg.SRC_1].size < _FEW
        zeros = 99 if compares or few else zero_limit(kind)
        return Rule(kind.eps, zeros, non_finite=alg is Alg.binary_div)


def _most(alg: Alg, argument: int, kind: DataType) -> int:
    """The largest number that an operand is filled with."""
    if alg.name in _COMPARISONS:
        return 1 if argument == Arg.SRC_1 else 2
    divided = alg is Alg.binary_div and argument == Arg.SRC_0
    return 64 if divided and kind.is_integer else 8


SPECIFICATION = _Binary()
