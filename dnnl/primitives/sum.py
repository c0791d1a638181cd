"""The weighted sum of tensors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Recipe, Refusal
from dnnl.errors import InvalidArguments
from dnnl.kernels import sum as kernel
from dnnl.primitives.checks import read_sources, source_tensors
from dnnl.primitives.desc import (
    Desc,
    Tensor,
    check_dims,
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
from dnnl.types.kinds import float_text
from dnnl.types.layout_input import read_float
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True, init=False)
class SumDesc(Desc):
    """dst = the sum of ``scales[i] * srcs[i]``, for any number of tensors of the same dims.

    Arguments MULTIPLE_SRC + i, DST. dst may be left out or be ``any``: then it is laid out as the
    first source, whose buffer it may be.
    """

    kind = "sum"
    in_place = (Arg.MULTIPLE_SRC,)

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
        factors = _read_factors(scales)
        dst = dst_desc if dst_desc is not None else sources[0].with_tag("any")
        for name, value in (("scales", factors), ("src_descs", sources), ("dst_desc", dst)):
            object.__setattr__(self, name, value)
        check_tensors(self)
        if len(factors) != len(sources):
            rule = f"expected one factor for each of the {len(sources)} sources"
            raise InvalidArguments("scales", factors, rule)
        for number, source in enumerate(sources):
            check_dims(f"src_descs[{number}]", source, sources[0].dims, "the dims of the first")
        check_dims("dst_desc", dst, sources[0].dims, "the dims of the sources")

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """MULTIPLE_SRC + i and DST."""
        return source_tensors(self.src_descs, self.dst_desc)

    @property
    def implementations(self) -> tuple[Implementation, ...]:
        """Who can do it, best first."""
        return IMPLS

    @property
    def auxiliary(self) -> str:
        """The factors."""
        return "scales:" + ":".join(map(float_text, self.scales))

    @property
    def problem(self) -> str:
        """The dims."""
        return spelled(self.dst_desc.dims)


def _nest(desc: SumDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    refusal = refuse_attr(attr, "post_ops")
    if refusal is not None:
        return refusal
    dst = like(desc.dst_desc, desc.src_descs[0])
    post_ops = resolve_post_ops(tuple(attr.post_ops), dst)
    conf = kernel.configure(desc.scales, desc.src_descs, dst, post_ops)
    if isinstance(conf, Refusal):
        return conf
    return Plan(replace(desc, dst_desc=dst), post_ops, Recipe(conf, isa, kernel.build))


def _read_factors(scales: object) -> tuple[float, ...]:
    """The factors of the sources, checked one by one."""
    if not isinstance(scales, Iterable) or isinstance(scales, str | bytes):
        raise InvalidArguments("scales", scales, "expected a sequence of numbers")
    return tuple(read_float("scales", scale) for scale in scales)


IMPLS = (Implementation("nest", _nest),)
