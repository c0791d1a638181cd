"""``--sum``."""

from __future__ import annotations

from typing import TypeVar

from dnnl.primitives.desc import Desc
from dnnl.primitives.sum import SumDesc
from dnnl.reference.arrays import Array
from dnnl.reference.sum import sum_
from dnnl.tools.bench.cases import Case
from dnnl.tools.bench.compare import Rule
from dnnl.tools.bench.errors import BadValue
from dnnl.tools.bench.fill import HALVES, cycle
from dnnl.tools.bench.operations.base import (
    INVALID,
    Operation,
    Values,
    bad_in_place,
    desc_of,
    shapes,
    tensor_desc,
    zero_limit,
)
from dnnl.types.arg import Arg

_VALUES, _STEP = 16, 1.25


T = TypeVar("T")


def spread(option: str, items: tuple[T, ...], count: int) -> tuple[T, ...]:
    """One item for each of ``count`` sources, a single one for all; raises BadValue."""
    if len(items) not in (1, count):
        raise BadValue(f"--{option} has {len(items)} parts, there are {count} sources")
    return items if len(items) == count else items * count


class Sum(Operation):
    """Any number of tensors of the same dims."""

    in_place = Arg.MULTIPLE_SRC

    def skip(self, case: Case) -> str | None:
        """Tensors that differ have no common buffer; an open destination is as the first."""
        target = "any" if case["dtag"] == "undef" else case["dtag"]
        types = case["sdt"][0], case["ddt"]
        return INVALID if bad_in_place(case, *types, case["stag"][0], target) else None

    def describe(self, case: Case) -> Desc:
        """The sources, and the destination if it is given."""
        dims, kinds = shapes(case).dims, case["sdt"].items
        tags = spread("stag", case["stag"].items, len(kinds))
        scales = spread("scales", case["scales"].items, len(kinds))
        sources = [tensor_desc(dims, kind, str(tag)) for kind, tag in zip(kinds, tags, strict=True)]
        target = "any" if case["dtag"] == "undef" else case["dtag"]
        return SumDesc(scales, sources, tensor_desc(dims, case["ddt"], target))

    def fill(self, case: Case, desc: Desc) -> dict[int, Array]:
        """Sixteen values, each source beginning at another one."""
        values = {}
        for number, kind in enumerate(case["sdt"].items):
            argument = Arg.multiple_src(number)
            step = 1 if kind.is_integer else _STEP / 16 if kind in HALVES else _STEP
            steps = [step * i for i in range(_VALUES)]
            values[argument] = cycle(steps, desc_of(desc, argument).dims, start=5 * number)
        return values

    def compute(self, case: Case, desc: Desc, values: Values) -> Array:
        """The weighted sum."""
        assert isinstance(desc, SumDesc)
        sources = [values[Arg.multiple_src(i)] for i in range(len(desc.src_descs))]
        return sum_(sources, desc.scales)

    def rule(self, case: Case, desc: Desc, values: Values) -> Rule:
        """One rounding for each source."""
        return Rule(len(case["sdt"]) * case["ddt"].eps, zero_limit(case["ddt"]))
