"""Reduction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Self

from dnnl.codegen.ir.kernel import Refusal
from dnnl.codegen.isa import Isa
from dnnl.errors import InvalidArguments
from dnnl.kernels.reduction import reduction as kernel
from dnnl.kernels.reduction import wrapping
from dnnl.language.case import CaseValues, tensor
from dnnl.language.options import (
    ATTRIBUTES,
    DDT,
    DTAG,
    SDT,
    STAG,
    Driver,
    algorithm,
    auxiliary,
)
from dnnl.language.problem import Dims
from dnnl.language.values import number
from dnnl.primitives.checks import spelled
from dnnl.primitives.desc import Desc
from dnnl.primitives.implementation import (
    Implementation,
    Plan,
    plan_forward,
    plan_nest,
)
from dnnl.primitives.operation import FORWARD, Operation, Parameter, Role
from dnnl.primitives.parameters import Algorithm, Real
from dnnl.reference.reduction import SPECIFICATION
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.kinds import Alg, FormatKind, sizes_text
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import is_one
from dnnl.types.tag import FormatTag

_PREFIX = "reduction_"
_ALGORITHMS = (
    "sum", "max", "min", "mul", "mean", "norm_lp_max", "norm_lp_sum",
    "norm_lp_power_p_max", "norm_lp_power_p_sum",
)  # fmt: skip
_ELSEWHERE = ("dynamic_quantize", "reduction_dynamic_quantize")


@dataclass(frozen=True, init=False)
class ReductionDesc(Desc):
    """dst = src reduced along each dimension that is 1 in dst and more in src.

    Arguments SRC, DST. The algorithms are the sum, the product (``mul``), the maximum, the minimum,
    the mean, and norms of the magnitudes s: ``norm_lp_max`` is max(sum of s^p, eps)^(1/p),
    ``norm_lp_sum`` is (sum of s^p + eps)^(1/p), those of ``power_p`` leave the root out. ``p`` is 1
    or more; ``p`` and ``eps`` count for norms alone. A maximum or minimum is NaN where an element
    is.

    Sums, means and extremes of integers into integers are computed in s32 without rounding, and
    sums beyond it wrap; everything else in f32. Where src or dst is an integer of another type than
    s8, u8 and s32, or a boolean, both are, elements are converted to the type of dst, and sums and
    products wrap. dst may be ``any``: it has the order of src, and
    blocks of those dimensions that remain. Dims, strides and offsets of plain layouts may be
    RUNTIME_DIM: one primitive serves all of them, and reduces what is 1 in its dst.
    """

    alg_kind: Alg
    src_desc: MemoryDesc
    dst_desc: MemoryDesc
    p: float
    eps: float

    def __init__(
        self,
        alg_kind: Alg | str,
        src_desc: MemoryDesc,
        dst_desc: MemoryDesc,
        p: float = 0.0,
        eps: float = 0.0,
    ) -> None:
        self._fill(alg_kind=alg_kind, src_desc=src_desc, dst_desc=dst_desc, p=p, eps=eps)

    def check(self) -> None:
        """Each dimension of dst is that of src, or 1; norms have a power."""
        src, dst = self.src_desc.dims, self.dst_desc.dims
        fits = len(src) == len(dst) and all(
            (is_one(left) and extent != 0) or left == extent
            for extent, left in zip(src, dst, strict=True)
        )
        if not fits:
            rule = f"each dimension must be that of src, which is {sizes_text(src)}, or 1 instead"
            raise InvalidArguments("dst_desc", dst, f"{rule} of more")
        if "norm" in self.alg_kind.name and self.p < 1:
            rule = "the power of a norm must be at least 1"
            raise InvalidArguments("p", self.p, rule, "p=2 gives the Euclidean norm")

    def check_execution(self, pattern: Self) -> None:
        """What is reduced is known when the code is written."""
        sizes = zip(pattern.src_desc.dims, self.src_desc.dims, self.dst_desc.dims, strict=True)
        for dim, (described, extent, left) in enumerate(sizes):
            if pattern.dst_desc.dims[dim] == described and left != extent:
                rule = f"dimension {dim} is not reduced in the description, and is {extent} in src"
                hint = "1 there in the dst_desc of the description reduces it"
                raise InvalidArguments("args[DST].dims", self.dst_desc.dims, rule, hint)

    @property
    def problem(self) -> str:
        """The dims of both tensors."""
        return f"{spelled(self.src_desc.dims)}:{spelled(self.dst_desc.dims)}"


def _choose_layout(desc: ReductionDesc) -> MemoryDesc:
    """The order of src, with its blocks of the remaining dimensions."""
    src, dst = desc.src_desc, desc.dst_desc
    if dst.format_kind is not FormatKind.any:
        return dst
    if not dst.ndims:
        return MemoryDesc((), dst.data_type)
    order = sorted(range(src.ndims), key=lambda dim: -src.strides[dim])
    blocks = [(dim, size) for dim, size in src.inner_blocks if dst.dims[dim] > 1]
    return dst.with_tag(FormatTag.of(order, blocks))


def _configure(desc: ReductionDesc, isa: Isa) -> partial[kernel.ReductionConf | Refusal]:
    return partial(
        kernel.configure, desc.alg_kind, desc.p, desc.eps, desc.src_desc, desc.dst_desc, isa
    )


def _nest(desc: ReductionDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    desc = replace(desc, dst_desc=_choose_layout(desc))
    return plan_forward(desc, attr, isa, _configure(desc, isa), kernel.build)


def _wrapping(desc: ReductionDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    desc = replace(desc, dst_desc=_choose_layout(desc))

    configure = partial(wrapping.configure, desc.alg_kind, desc.src_desc, desc.dst_desc)
    return plan_nest(desc, attr, isa, configure, wrapping.build)


def _src(case: CaseValues) -> MemoryDesc:
    return tensor(case.shapes.padded[0], case["sdt"], case["stag"])


def _dst(case: CaseValues) -> MemoryDesc:
    return tensor(case.shapes.padded[1], case["ddt"], case["dtag"])


ReductionDesc.operation = Operation(
    kind="reduction",
    summary="reduction of some dimensions to size 1",
    driver=Driver(
        "reduction",
        (
            SDT, DDT, STAG, DTAG,
            algorithm("sum", {name: f"{_PREFIX}{name}" for name in _ALGORITHMS}, _ELSEWHERE),
            auxiliary("p", "1", number), auxiliary("eps", "0", number), *ATTRIBUTES,
        ),
        Dims(2, 2, " to "),
    ),
    roles=(
        Role(Arg.SRC, "src", "src_desc", reads=FORWARD, case=_src),
        Role(Arg.DST, "dst", "dst_desc", writes=FORWARD, chosen=True, case=_dst),
    ),
    parameters=(
        Parameter("alg_kind", Algorithm(_PREFIX), lambda case: case["alg"].alg, "alg"),
        Parameter("p", Real(), lambda case: case["p"], "p"),
        Parameter("eps", Real(), lambda case: case["eps"], "eps"),
    ),
    reference=SPECIFICATION,
    examples=(
        # Each algorithm along the innermost, an outer and all dimensions.
        "--alg=sum,max,min,mul,mean --stag=abx,axb,aBx16b 2x19x5x7:2x19x5x1 2x19x5x7:2x1x5x7",
        "--alg=norm_lp_max,norm_lp_power_p_sum --p=1,3 --eps=0.5 --stag=abx,aBx8b 3x21x6:3x1x6",
        "--alg=norm_lp_sum,norm_lp_power_p_max --p=2,2.5 --eps=0.5 --stag=axb 3x21x6:1x21x1",
        # dst in another layout than src, with blocks of what is reduced and of what is not.
        "--alg=sum --stag=abx,axb,aBx8b --dtag=abx,axb,aBx16b 3x35x4x9:3x35x1x1 3x35x4x9:1x1x4x9",
        "--alg=sum --sdt=bf16,f16,s8,u8,s32 --ddt=f32,f16,bf16,s8,u8,s32 --stag=ab,ba 9x33:9x1",
        "--alg=mean,max,mul --sdt=bf16,u8 --ddt=f32,s8 7x70:7x1 7x70:1x70",
        # Few results of long rows: shared out.
        "--alg=sum,max,norm_lp_sum --p=2 --sdt=f32,s8 300x700:300x1 300x700:1x700 300x700:1x1",
        "--alg=sum --sdt=s8,bf16 --ddt=s32 --stag=abx,axb,aBx16b 5x40x33x41:1x40x1x1",
        "--attr-post-ops=sum:0.5+relu --stag=axb,aBx16b --sdt=f32,s8 --ddt=f32,s8 2x19x5:2x19x1",
        "--attr-post-ops=add:f32:per_oc+linear:2:1 --stag=abx,aBx16b 3x40x30x31:1x40x1x1",
        "--attr-post-ops=mul:bf16:per_tensor+sum --alg=norm_lp_sum --p=2 2x300x200:2x300x1",
        "--alg=sum,mul,max,min --sdt=s64,u16 --ddt=s64,u32 --stag=axb 3x19x5:3x1x5 3x19x5:3x19x1",
        # Nothing is reduced; one element alone; many dimensions.
        "--alg=sum,norm_lp_sum --p=2 2x19x5:2x19x5 1x1:1x1 2x3x2x3x2x3x5:1x3x1x3x2x1x5",
    ),
    implementations=(
        Implementation("nest", _nest), Implementation("wrapping", _wrapping),
    ),
)  # fmt: skip
