"""Softmax and its logarithm."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Refusal
from dnnl.kernels import softmax as kernel
from dnnl.primitives.checks import check_axis
from dnnl.primitives.desc import (
    Desc,
    Tensor,
    check_alg,
    check_dims,
    check_not_any,
    check_prop_forward,
    check_tensors,
    read_kinds,
    spelled,
    src_dst,
)
from dnnl.primitives.implementation import (
    Implementation,
    Plan,
    plan_with_dst,
)
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.kinds import Alg, PropKind, coerce
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True)
class SoftmaxDesc(Desc):
    """dst = exp(src - max) / sum(exp(src - max)) along ``axis``, or src - max - log(sum).

    Arguments SRC, DST; both have the same dims, dst may be ``any`` and may be src's buffer. Where
    all of a row is -inf the result is 0 (-inf for the logarithm).
    """

    kind = "softmax"
    in_place = (Arg.SRC,)

    prop_kind: PropKind
    alg_kind: Alg
    src_desc: MemoryDesc
    dst_desc: MemoryDesc
    axis: int

    @classmethod
    def forward(
        cls,
        prop_kind: PropKind | str,
        alg_kind: Alg | str,
        src_desc: MemoryDesc,
        dst_desc: MemoryDesc,
        axis: int,
    ) -> SoftmaxDesc:
        """Describe a forward computation; raises InvalidArguments where the rules are broken."""
        prop, alg = coerce(PropKind, prop_kind, "prop_kind"), coerce(Alg, alg_kind, "alg_kind")
        return cls(prop, alg, src_desc, dst_desc, axis)

    def __post_init__(self) -> None:
        read_kinds(self)
        check_tensors(self)
        check_prop_forward(self.prop_kind)
        check_alg(self.alg_kind, "softmax_")
        check_not_any("src_desc", self.src_desc)
        check_dims("dst_desc", self.dst_desc, self.src_desc.dims, "the dims of src")
        check_axis(self.axis, self.src_desc.ndims)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """SRC and DST."""
        return src_dst(self.src_desc, self.dst_desc)

    @property
    def implementations(self) -> tuple[Implementation, ...]:
        """Who can do it, best first."""
        return IMPLS

    @property
    def auxiliary(self) -> str:
        """The algorithm and the axis."""
        return f"alg:{self.alg_kind} axis:{self.axis}"

    @property
    def problem(self) -> str:
        """The dims."""
        return spelled(self.src_desc.dims)


def _nest(desc: SoftmaxDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    configure = partial(kernel.configure, desc.alg_kind, desc.axis, desc.src_desc)
    return plan_with_dst(desc, attr, isa, configure, kernel.build)


IMPLS = (Implementation("nest", _nest),)
