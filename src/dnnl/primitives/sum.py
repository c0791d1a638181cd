"""The weighted sum of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from dnnl.codegen.ir.kernel import Refusal
from dnnl.codegen.isa import Isa
from dnnl.errors import InvalidArguments
from dnnl.kernels.pointwise import sum as kernel
from dnnl.language.case import CaseValues, tensor
from dnnl.language.options import (
    ATTRIBUTES,
    DDT,
    DTAG,
    EACH_STAG,
    INPLACE,
    Driver,
    auxiliary,
    sources,
    types,
)
from dnnl.language.problem import Dims
from dnnl.language.values import MANY, number, several
from dnnl.primitives.checks import check_dims, read_sources, spelled
from dnnl.primitives.desc import Desc
from dnnl.primitives.implementation import Implementation, Plan, plan_forward
from dnnl.primitives.operation import FORWARD, Operation, Parameter, Role
from dnnl.primitives.parameters import Reals
from dnnl.reference.sum import SPECIFICATION
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True, init=False)
class SumDesc(Desc):
    """dst = the sum of ``scales[i] * srcs[i]``, for any number of tensors of the same dims.

    Arguments MULTIPLE_SRC + i, DST. dst may be left out or be ``any``: then it is laid out as the
    first source, whose buffer it may be. Integers are added up as f32, rounded and saturated, as in
    oneDNN; `ExactDesc` wraps. Dims, strides and offsets of plain layouts may be RUNTIME_DIM: one
    primitive serves all of them.
    """

    scales: tuple[float, ...]
    src_descs: tuple[MemoryDesc, ...]
    dst_desc: MemoryDesc

    def __init__(
        self,
        scales: Sequence[float],
        src_descs: Sequence[MemoryDesc],
        dst_desc: MemoryDesc | None = None,
    ) -> None:
        sources = read_sources(src_descs)
        dst = dst_desc if dst_desc is not None else sources[0].with_tag("any")
        self._fill(scales=scales, src_descs=sources, dst_desc=dst)

    def check(self) -> None:
        """All tensors have the same dims, and there is a factor for each source."""
        sources = self.src_descs
        if len(self.scales) != len(sources):
            rule = f"expected one factor for each of the {len(sources)} sources"
            raise InvalidArguments("scales", self.scales, rule)
        for place, source in enumerate(sources):
            check_dims(f"src_descs[{place}]", source, sources[0].dims, "the dims of the first")
        check_dims("dst_desc", self.dst_desc, sources[0].dims, "the dims of the sources")

    @property
    def problem(self) -> str:
        """The dims."""
        return spelled(self.dst_desc.dims)


def _nest(desc: SumDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    return plan_forward(desc, attr, isa, _configure(desc), kernel.build)


def _configure(desc: SumDesc) -> Callable[..., kernel.SumConf | Refusal]:
    return partial(kernel.configure, desc.scales, desc.src_descs, desc.dst_desc)


def _sources(case: CaseValues) -> tuple[MemoryDesc, ...]:
    kinds = case["sdt"].items
    tags = case.spread("stag", len(kinds))
    pairs = zip(kinds, tags, strict=True)
    return tuple(tensor(case.shapes.dims, kind, tag) for kind, tag in pairs)


def _target(case: CaseValues) -> MemoryDesc:
    tag = "any" if case["dtag"] == "undef" else case["dtag"]
    return tensor(case.shapes.dims, case["ddt"], tag)


SumDesc.operation = Operation(
    kind="sum",
    summary="sum of tensors of the same sizes",
    driver=Driver(
        "sum",
        (
            types("sdt", "f32:f32", sources, MANY), DDT, EACH_STAG, DTAG.but("undef"),
            auxiliary("scales", "1", several(number)).shown(), *ATTRIBUTES, INPLACE,
        ),
        Dims(),
    ),
    roles=(
        Role(Arg.MULTIPLE_SRC, "src", "src_descs", reads=FORWARD, many=True, case=_sources),
        Role(Arg.DST, "dst", "dst_desc", writes=FORWARD, like=("src_descs",), case=_target),
    ),
    parameters=(
        Parameter(
            "scales", Reals(), lambda case: case.spread("scales", len(case["sdt"])), "scales"
        ),
    ),
    in_place=((Arg.DST, Arg.MULTIPLE_SRC),),
    reference=SPECIFICATION,
    examples=("--sdt=f32:f32:f32 --scales=0.25:2:0.5 --stag=axb 3x19x5",),
    implementations=(
        Implementation("nest", _nest),
    ),
)  # fmt: skip
