"""``--binary``."""

from __future__ import annotations

from math import prod

from dnnl.errors import Unimplemented
from dnnl.primitives.binary import BinaryDesc
from dnnl.primitives.desc import Desc
from dnnl.reference.arrays import Array
from dnnl.reference.binary import binary
from dnnl.tools.bench.attributes import BINARY
from dnnl.tools.bench.cases import Case
from dnnl.tools.bench.compare import Rule
from dnnl.tools.bench.fill import generator, integers
from dnnl.tools.bench.operations.base import (
    INVALID,
    Operation,
    Values,
    bad_in_place,
    desc_of,
    has_sum,
    shapes,
    strides_of,
    tensor_desc,
    zero_limit,
)
from dnnl.types.arg import Arg

_COMPARISONS = ("ge", "gt", "le", "lt", "eq", "ne")


class Binary(Operation):
    """A function of two tensors that are broadcast."""

    def skip(self, case: Case) -> str | None:
        """In place there must be one tensor of the result's form that nothing else reads."""
        if not case["inplace"]:
            return None
        problem = shapes(case)
        types = case["sdt"][0], case["ddt"]
        wrong = (
            bad_in_place(case, *types, case["stag"][0], case["dtag"])
            or problem.dims != problem.result
            or has_sum(case)
        )
        return INVALID if wrong else None

    def describe(self, case: Case) -> Desc:
        """The function on the tensors with trailing ones."""
        alg = BINARY[str(case["alg"])]
        if alg.name == "binary_select":
            raise Unimplemented("binary takes no condition as a third source")
        problem = shapes(case)
        parts = strides_of(case, "stag", "stag", "dtag")
        kinds = case["sdt"].items
        tags = case["stag"].items
        sources = [
            tensor_desc(dims, kind, tag, part)
            for dims, kind, tag, part in zip(problem.padded, kinds, tags, parts, strict=False)
        ]
        dst = tensor_desc(problem.result, case["ddt"], case["dtag"], parts[2])
        return BinaryDesc(alg, sources[0], sources[1], dst)

    def fill(self, case: Case, desc: Desc) -> dict[int, Array]:
        """Small whole numbers, halved in a first source of floats; a divisor is not 0."""
        values = {}
        for argument in (Arg.SRC_0, Arg.SRC_1):
            source = desc_of(desc, argument)
            numbers = integers(generator("binary", argument, source.dims), source.dims, -8, 8)
            if source.data_type.min >= 0:
                numbers = abs(numbers)
            if argument == Arg.SRC_1:
                numbers[numbers == 0] = 1
            elif source.data_type.is_float:
                numbers /= 2
            values[int(argument)] = numbers
        return values

    def compute(self, case: Case, desc: Desc, values: Values) -> Array:
        """The function."""
        return binary(BINARY[str(case["alg"])], values[Arg.SRC_0], values[Arg.SRC_1])

    def rule(self, case: Case, desc: Desc, values: Values) -> Rule:
        """One rounding."""
        name = str(case["alg"])
        # One value alone can make nearly everything zero, as a divisor of integers does.
        few = prod(shapes(case).padded[1]) < 10
        zeros = 99 if name in _COMPARISONS or few else zero_limit(case["ddt"])
        return Rule(case["ddt"].eps, zeros, non_finite=name == "div")
