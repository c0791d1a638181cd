"""Sum: dst = sum over i of scales[i] * srcs[i]."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from dnnl.reference.arrays import Array, f64
from dnnl.reference.fill import HALVES, cycle
from dnnl.reference.rule import Rule
from dnnl.reference.specification import Description, Specification, Values, inputs, zero_limit
from dnnl.reference.tolerance import Tolerance
from dnnl.types.arg import Arg

TOLERANCE = Tolerance(ulps=2, growth=1, floor=None)  # length: the number of sources


def sum_(srcs: Sequence[ArrayLike], scales: Sequence[float] | None = None) -> Array:
    """All sources have the same dims; ``scales`` defaults to ones."""
    factors = [1.0] * len(srcs) if scales is None else scales
    dst = np.zeros(np.shape(srcs[0]))
    for src, factor in zip(srcs, factors, strict=True):
        dst = dst + factor * f64(src)
    return dst


_VALUES, _STEP = 16, 1.25


class _Sum(Specification):
    """Sources of sixteen values each."""

    def fill(self, desc: Description) -> dict[int, Array]:
        """Sixteen values, each source beginning at another one."""
        values = {}
        for number, (argument, source) in enumerate(inputs(desc)):
            kind = source.data_type
            step = 1 if kind.is_integer else _STEP / 16 if kind in HALVES else _STEP
            steps = [step * i for i in range(_VALUES)]
            values[argument] = cycle(steps, source.dims, start=5 * number)
        return values

    def compute(self, desc: Description, values: Values) -> dict[int, Array]:
        """The weighted sum."""
        sources = [values[argument] for argument, _ in inputs(desc)]
        return {Arg.DST: sum_(sources, desc.scales)}

    def rule(
        self, desc: Description, argument: int, values: Values, post_ops: Sequence[object] = ()
    ) -> Rule:
        """One rounding for each source."""
        kind = desc.dst_desc.data_type
        return Rule(len(desc.src_descs) * kind.eps, zero_limit(kind))


SPECIFICATION = _Sum()
