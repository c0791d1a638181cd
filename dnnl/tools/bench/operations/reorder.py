"""``--reorder``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dnnl.errors import Unimplemented
from dnnl.primitives.desc import Desc
from dnnl.primitives.primitive_desc import PrimitiveDesc
from dnnl.primitives.reorder import ReorderDesc
from dnnl.reference.arrays import Array
from dnnl.reference.reorder import reorder
from dnnl.tools.bench.cases import Case
from dnnl.tools.bench.compare import Rule
from dnnl.tools.bench.fill import cycle
from dnnl.tools.bench.operations.base import (
    INVALID,
    NOT_SUPPORTED,
    Operation,
    Values,
    desc_of,
    has_sum,
    shapes,
    strides_of,
    tensor_desc,
)
from dnnl.types.arg import Arg
from dnnl.types.compensation import Compensation
from dnnl.types.dtype import DataType
from dnnl.types.kinds import RUNTIME_DIM

OFLAGS = {"s8s8_comp": "s8s8", "zp_comp": "zero_points"}
"""The kind of compensation that each flag of the destination stands for."""

_LARGEST = {DataType.f32: 2.0**24, DataType.f64: 2.0**24, DataType.f16: 2.0**11}
_FEW = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 16.0, 64.0)


def _compensation(case: Case) -> dict[str, int]:
    """The masks of the sums that the case asks for behind dst, by kind."""
    flags = [entry.split(":") for entry in str(case["oflag"]).split("+") if entry]
    return {OFLAGS[name]: int(mask) for name, mask in flags}


def _between(case: Case, dims: Sequence[int]) -> ReorderDesc:
    source, target = strides_of(case, "stag", "dtag")
    return ReorderDesc(
        tensor_desc(dims, case["sdt"], case["stag"], source),
        tensor_desc(dims, case["ddt"], case["dtag"], target),
    )


class Reorder(Operation):
    """A copy; the reference rounds what it computes exactly, so nothing else is right."""

    def skip(self, case: Case) -> str | None:
        """Zero points of floats, and a sum beside one of the destination, have no meaning."""
        types = {"src": case["sdt"], "dst": case["ddt"]}
        for entry in case["attr-zero-points"].items:
            kind = types.get(entry.name)
            if kind is None or kind.is_float or (entry.name == "dst" and has_sum(case)):
                return INVALID
        if _compensation(case) and (case["ddt"] is not DataType.s8 or case["runtime-dim-mask"]):
            return NOT_SUPPORTED
        return NOT_SUPPORTED if str(case["cross-engine"]) != "none" else None

    def describe(self, case: Case) -> Desc:
        """Both layouts as they are given."""
        dims = shapes(case).dims
        mask, sums = int(case["runtime-dim-mask"]), _compensation(case)
        if mask:
            if sums:
                raise Unimplemented("no sums behind weights whose dims only the execution knows")
            dims = tuple(RUNTIME_DIM if mask >> dim & 1 else size for dim, size in enumerate(dims))
        desc = _between(case, dims)
        if sums:
            desc = replace(desc, dst_desc=desc.dst_desc.with_compensation(Compensation(**sums)))
        return desc

    def at_execution(self, case: Case, pd: PrimitiveDesc) -> PrimitiveDesc:
        """With the dims that the mask kept from the description."""
        if not case["runtime-dim-mask"]:
            return pd
        known = _between(case, shapes(case).dims)
        return pd.with_sizes({tensor.argument: tensor.desc for tensor in known.tensors})

    def fill(self, case: Case, desc: Desc) -> dict[int, Array]:
        """Extremes, and numbers that the conversions treat differently."""
        kind = case["sdt"]
        high = _LARGEST.get(kind, kind.max)
        low = -high if kind in _LARGEST else kind.min
        return {Arg.SRC: cycle((high, low, *_FEW), desc_of(desc, Arg.SRC).dims)}

    def compute(self, case: Case, desc: Desc, values: Values) -> Array:
        """The source."""
        return reorder(values[Arg.SRC])

    def rule(self, case: Case, desc: Desc, values: Values) -> Rule:
        """Equality."""
        return Rule(0.0, zeros=80)
