"""``--pool``."""

from __future__ import annotations

from dnnl.primitives.desc import Desc
from dnnl.primitives.pooling import PoolingDesc
from dnnl.reference.arrays import Array
from dnnl.reference.pooling import pooling
from dnnl.tools.bench.cases import Case
from dnnl.tools.bench.compare import Rule
from dnnl.tools.bench.fill import HALVES, byte_range, generator, integers
from dnnl.tools.bench.operations.base import (
    INVALID,
    Operation,
    Values,
    desc_of,
    descriptor,
    forward,
    tensor_desc,
)
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType

_ALGS = {
    "max": "pooling_max",
    "avg_np": "pooling_avg_exclude_padding",
    "avg_p": "pooling_avg_include_padding",
}
_LIMIT = 2048


class Pooling(Operation):
    """The maximum or the average of windows."""

    def skip(self, case: Case) -> str | None:
        """An average without its padding needs an element in each window."""
        problem = descriptor(case)
        columns = zip(*map(problem.spatial, "kdp"), problem.padding_r, strict=True)
        empty = any(max(left, right) >= (k - 1) * (d + 1) + 1 for k, d, left, right in columns)
        return INVALID if empty and case["alg"] == "avg_np" else None

    def describe(self, case: Case) -> Desc:
        """The forward computation."""
        prop = forward(case)
        problem = descriptor(case)
        kinds = case["dt"].items
        src = tensor_desc(problem.src_dims, kinds[0], case["tag"])
        dst = tensor_desc((*src.dims[:2], *problem.spatial("o")), kinds[-1], "any")
        kernel, strides, padding, dilations = map(problem.spatial, "kspd")
        return PoolingDesc.forward(
            prop, _ALGS[case["alg"]], src, dst, strides, kernel, padding, problem.padding_r,
            dilations,
        )  # fmt: skip

    def fill(self, case: Case, desc: Desc) -> dict[int, Array]:
        """Whole numbers that the type holds; not negative ones to average."""
        src = desc_of(desc, Arg.SRC)
        kind = src.data_type
        limit = 32 if kind in HALVES else 8 if kind.bits == 8 else _LIMIT
        low, high = byte_range(kind) if kind.is_integer and kind.bits <= 8 else (-limit, limit)
        if case["alg"] != "max":
            low = 0
        return {Arg.SRC: integers(generator("pool", src.dims), src.dims, low, high)}

    def compute(self, case: Case, desc: Desc, values: Values) -> Array:
        """The windows of the source."""
        assert isinstance(desc, PoolingDesc)
        return pooling(
            values[Arg.SRC],
            desc.alg_kind,
            kernel=desc.kernel,
            strides=desc.strides,
            padding_l=desc.padding_l,
            padding_r=desc.padding_r,
            dilations=desc.dilations,
            lowest=float(desc.dst_desc.data_type.min),
        )

    def rule(self, case: Case, desc: Desc, values: Values) -> Rule:
        """Equality of maxima, a few roundings of averages."""
        kind = desc_of(desc, Arg.DST).data_type
        eps = DataType.f32.eps if kind is DataType.f64 else kind.eps
        return Rule(0.0 if case["alg"] == "max" else 10 * eps, zeros=99)
