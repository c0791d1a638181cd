"""``--concat``."""

from __future__ import annotations

from dnnl.primitives.concat import ConcatDesc
from dnnl.primitives.desc import Desc
from dnnl.reference.arrays import Array
from dnnl.reference.concat import concat
from dnnl.tools.bench.cases import Case
from dnnl.tools.bench.compare import Rule
from dnnl.tools.bench.fill import byte_range, generator, integers
from dnnl.tools.bench.operations.base import Operation, Values, desc_of, shapes, tensor_desc
from dnnl.tools.bench.operations.sum import spread
from dnnl.types.arg import Arg


class Concat(Operation):
    """Tensors one behind the other."""

    def describe(self, case: Case) -> Desc:
        """The sources, and the destination if it is given."""
        tensors = shapes(case).padded
        tags = spread("stag", case["stag"].items, len(tensors))
        sources = [
            tensor_desc(dims, case["sdt"], str(tag))
            for dims, tag in zip(tensors, tags, strict=True)
        ]
        axis: int = case["axis"]
        if case["dtag"] == "undef":
            return ConcatDesc(axis, sources)
        dims = list(tensors[0])
        if axis in range(len(dims)):
            dims[axis] = sum(source[axis] for source in tensors)
        return ConcatDesc(axis, sources, tensor_desc(tuple(dims), case["ddt"], case["dtag"]))

    def fill(self, case: Case, desc: Desc) -> dict[int, Array]:
        """Whole numbers of a byte."""
        low, high = byte_range(case["sdt"])
        values = {}
        for tensor in desc.tensors:
            if not tensor.output:
                rng = generator("concat", tensor.argument, tensor.desc.dims)
                values[tensor.argument] = integers(rng, tensor.desc.dims, low, high)
        return values

    def compute(self, case: Case, desc: Desc, values: Values) -> Array:
        """The sources side by side."""
        count = len(shapes(case).tensors)
        return concat([values[Arg.multiple_src(i)] for i in range(count)], case["axis"])

    def rule(self, case: Case, desc: Desc, values: Values) -> Rule:
        """Equality."""
        unsigned = desc_of(desc, Arg.DST).data_type.min >= 0
        return Rule(0.0, zeros=65 if unsigned else 30)
