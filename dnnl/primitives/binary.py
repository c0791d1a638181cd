"""Functions of two tensors, element by element."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Recipe, Refusal
from dnnl.errors import InvalidArguments
from dnnl.kernels import binary as kernel
from dnnl.primitives.desc import (
    Desc,
    Tensor,
    check_alg,
    check_defined,
    check_dims,
    check_not_any,
    check_tensors,
    spelled,
)
from dnnl.primitives.implementation import (
    Implementation,
    Plan,
    like,
    refuse_attr,
    resolve_post_ops,
)
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.kinds import Alg, coerce
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True, init=False)
class BinaryDesc(Desc):
    """dst = src0 alg src1; a comparison gives 1 or 0.

    Arguments SRC_0, SRC_1, DST. All have the same rank; a source of size 1 in a dimension is
    broadcast along it. src1 and dst may be ``any``, and dst may be src0's buffer.
    """

    kind = "binary"
    in_place = (Arg.SRC,)

    alg_kind: Alg
    src0_desc: MemoryDesc
    src1_desc: MemoryDesc
    dst_desc: MemoryDesc

    def __init__(
        self,
        alg_kind: Alg | str,
        src0_desc: MemoryDesc,
        src1_desc: MemoryDesc,
        dst_desc: MemoryDesc,
    ) -> None:
        alg = coerce(Alg, alg_kind, "alg_kind")
        for name, value in zip(
            ("alg_kind", "src0_desc", "src1_desc", "dst_desc"),
            (alg, src0_desc, src1_desc, dst_desc),
            strict=True,
        ):
            object.__setattr__(self, name, value)
        check_tensors(self)
        check_alg(self.alg_kind, "binary_")
        check_not_any("src0_desc", self.src0_desc)
        check_defined("src1_desc", self.src1_desc)
        left, right = self.src0_desc.dims, self.src1_desc.dims
        fits = len(left) == len(right) and all(
            a == b or 1 in (a, b) for a, b in zip(left, right, strict=True)
        )
        if not fits:
            rule = f"each dimension must be 1 or that of src0, which is {left}"
            raise InvalidArguments("src1_desc", right, rule)
        dims = [b if a == 1 else a for a, b in zip(left, right, strict=True)]
        check_dims("dst_desc", self.dst_desc, dims, "what src0 and src1 are broadcast to")

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """SRC_0, SRC_1 and DST."""
        return (
            Tensor(Arg.SRC_0, "src", self.src0_desc),
            Tensor(Arg.SRC_1, "src", self.src1_desc),
            Tensor(Arg.DST, "dst", self.dst_desc, output=True),
        )

    @property
    def implementations(self) -> tuple[Implementation, ...]:
        """Who can do it, best first."""
        return IMPLS

    @property
    def auxiliary(self) -> str:
        """The function."""
        return f"alg:{self.alg_kind}"

    @property
    def problem(self) -> str:
        """The dims of both sources."""
        return f"{spelled(self.src0_desc.dims)}:{spelled(self.src1_desc.dims)}"


def _nest(desc: BinaryDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    refusal = refuse_attr(attr, "post_ops")
    if refusal is not None:
        return refusal
    src0 = desc.src0_desc
    src1 = like(desc.src1_desc, src0)
    dst = like(desc.dst_desc, max(src0, src1, key=lambda source: prod(source.dims)))
    post_ops = resolve_post_ops(tuple(attr.post_ops), dst)
    conf = kernel.configure(desc.alg_kind, src0, src1, dst, post_ops)
    if isinstance(conf, Refusal):
        return conf
    resolved = replace(desc, src1_desc=src1, dst_desc=dst)
    return Plan(resolved, post_ops, Recipe(conf, isa, kernel.build))


IMPLS = (Implementation("nest", _nest),)
