"""Concatenation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from dnnl.codegen.address import block_boundaries
from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Recipe, Refusal
from dnnl.errors import InvalidArguments
from dnnl.kernels import concat as kernel
from dnnl.primitives.checks import check_axis, read_sources, source_tensors
from dnnl.primitives.desc import Desc, Tensor, check_dims, check_tensors, spelled
from dnnl.primitives.implementation import Implementation, Plan, dense_like, refuse_attr
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.kinds import FormatKind
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True, init=False)
class ConcatDesc(Desc):
    """dst = the sources one behind the other along ``axis``.

    Arguments MULTIPLE_SRC + i, DST. The sources share the data type and all other dims; each has
    its own layout. dst may be left out or be ``any``: then it is laid out as the larger part of
    the sources, or without blocks where a source would end inside a block.
    """

    kind = "concat"

    axis: int
    src_descs: tuple[MemoryDesc, ...]
    dst_desc: MemoryDesc

    def __init__(
        self, axis: int, src_descs: Sequence[MemoryDesc], dst_desc: MemoryDesc | None = None
    ) -> None:
        sources = read_sources(src_descs)
        first = sources[0]
        check_axis(axis, first.ndims)
        for number, source in enumerate(sources):
            self._check_source(number, source, first, axis)
        total = sum(source.dims[axis] for source in sources)
        dims = (*first.dims[:axis], total, *first.dims[axis + 1 :])
        dst = MemoryDesc(dims, first.data_type, "any") if dst_desc is None else dst_desc
        for name, value in (("axis", axis), ("src_descs", sources), ("dst_desc", dst)):
            object.__setattr__(self, name, value)
        check_tensors(self)
        check_dims("dst_desc", dst, dims, f"the sources side by side along axis {axis}")

    @staticmethod
    def _check_source(number: int, source: MemoryDesc, first: MemoryDesc, axis: int) -> None:
        name = f"src_descs[{number}]"
        expected = list(first.dims)
        if source.ndims == first.ndims:
            expected[axis] = source.dims[axis]
        check_dims(name, source, expected, f"the dims of the first but for axis {axis}")
        if source.data_type is not first.data_type:
            rule = f"the sources share one data type, and the first has {first.data_type}"
            raise InvalidArguments(name, str(source.data_type), rule)

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
        """The axis."""
        return f"axis:{self.axis}"

    @property
    def problem(self) -> str:
        """The dims of the sources."""
        return ":".join(spelled(source.dims) for source in self.src_descs)


def _choose_layout(desc: ConcatDesc) -> MemoryDesc:
    """The layout of the larger part of the sources whose blocks every source fills along the
    axis; if there is none, the order of the largest, with the blocked dimensions innermost."""
    if desc.dst_desc.format_kind is not FormatKind.any:
        return desc.dst_desc
    weights: dict[MemoryDesc, int] = {}
    for source in desc.src_descs:
        layout = dense_like(desc.dst_desc, source)
        weights[layout] = weights.get(layout, 0) + source.nelems()
    starts = list(accumulate(source.dims[desc.axis] for source in desc.src_descs))[:-1]
    ordered = sorted(weights, key=lambda layout: -weights[layout])
    for layout in ordered:
        block = (1, *block_boundaries(layout, desc.axis))[-1]
        if all(start % block == 0 for start in starts):
            return layout
    return _unblocked(ordered[0])


def _unblocked(desc: MemoryDesc) -> MemoryDesc:
    """The same order of dimensions without blocks; what was blocked lies innermost."""
    blocked = [dim for dim, _ in desc.inner_blocks]

    def place(dim: int) -> tuple[bool, int]:
        return dim in blocked, blocked.index(dim) if dim in blocked else -desc.strides[dim]

    strides, step = [0] * desc.ndims, 1
    for dim in sorted(range(desc.ndims), key=place, reverse=True):
        strides[dim] = step
        step *= max(1, desc.dims[dim])
    return MemoryDesc(desc.dims, desc.data_type, strides)


def _nest(desc: ConcatDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    refusal = refuse_attr(attr)
    if refusal is not None:
        return refusal
    dst = _choose_layout(desc)
    conf = kernel.configure(desc.axis, desc.src_descs, dst)
    if isinstance(conf, Refusal):
        return conf
    return Plan(replace(desc, dst_desc=dst), (), Recipe(conf, isa, kernel.build))


IMPLS = (Implementation("nest", _nest),)
