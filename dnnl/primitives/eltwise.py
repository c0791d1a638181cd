"""Elementary functions of one tensor."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Refusal
from dnnl.errors import InvalidArguments
from dnnl.kernels import eltwise as kernel
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
from dnnl.types.kinds import Alg, PropKind, coerce, float_text
from dnnl.types.layout_input import read_float
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True)
class EltwiseDesc(Desc):
    """dst = alg(src), element by element; oneDNN's guide, "Eltwise", has the functions.

    Arguments SRC, DST; both have the same dims, dst may be ``any`` and may be src's buffer.
    """

    kind = "eltwise"
    in_place = (Arg.SRC,)

    prop_kind: PropKind
    alg_kind: Alg
    src_desc: MemoryDesc
    dst_desc: MemoryDesc
    alpha: float = 0.0
    beta: float = 0.0

    @classmethod
    def forward(
        cls,
        prop_kind: PropKind | str,
        alg_kind: Alg | str,
        src_desc: MemoryDesc,
        dst_desc: MemoryDesc,
        alpha: float = 0.0,
        beta: float = 0.0,
    ) -> EltwiseDesc:
        """Describe a forward computation; raises InvalidArguments where the rules are broken."""
        prop, alg = coerce(PropKind, prop_kind, "prop_kind"), coerce(Alg, alg_kind, "alg_kind")
        return cls(prop, alg, src_desc, dst_desc, alpha, beta)

    def __post_init__(self) -> None:
        read_kinds(self)
        for name in ("alpha", "beta"):
            object.__setattr__(self, name, read_float(name, getattr(self, name)))
        check_tensors(self)
        check_prop_forward(self.prop_kind)
        check_alg(self.alg_kind, "eltwise_")
        check_not_any("src_desc", self.src_desc)
        check_dims("dst_desc", self.dst_desc, self.src_desc.dims, "the dims of src")
        if self.alg_kind in (Alg.eltwise_clip, Alg.eltwise_clip_v2) and self.beta < self.alpha:
            raise InvalidArguments("beta", self.beta, f"must not be below alpha = {self.alpha}")

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
        """The function and its parameters."""
        alpha, beta = float_text(self.alpha), float_text(self.beta)
        return f"alg:{self.alg_kind} alpha:{alpha} beta:{beta}"

    @property
    def problem(self) -> str:
        """The dims."""
        return spelled(self.src_desc.dims)


def _nest(desc: EltwiseDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    configure = partial(kernel.configure, desc.alg_kind, desc.alpha, desc.beta, desc.src_desc)
    return plan_with_dst(desc, attr, isa, configure, kernel.build)


IMPLS = (Implementation("nest", _nest),)
