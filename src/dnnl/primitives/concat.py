"""Concatenation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate

from dnnl.codegen.ir.kernel import Refusal
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.address import block_boundaries
from dnnl.errors import InvalidArguments
from dnnl.kernels.data import concat as kernel
from dnnl.language.case import CaseValues, tensor
from dnnl.language.options import ATTRIBUTES, AXIS, DDT, DTAG, EACH_STAG, SDT, Driver
from dnnl.language.problem import Dims
from dnnl.language.values import MANY
from dnnl.primitives.checks import check_dims, read_sources, spelled
from dnnl.primitives.desc import Desc
from dnnl.primitives.implementation import (
    Implementation,
    Plan,
    dense_like,
    plan_forward,
)
from dnnl.primitives.operation import FORWARD, Operation, Parameter, Role
from dnnl.primitives.parameters import AxisDomain
from dnnl.reference.concat import SPECIFICATION
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.kinds import RUNTIME_DIM, FormatKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import surely_divides, typical


@dataclass(frozen=True, init=False)
class ConcatDesc(Desc):
    """dst = the sources one behind the other along ``axis``.

    Arguments MULTIPLE_SRC + i, DST. The sources share the data type and all other dims; each has
    its own layout and may have a scale. dst may be left out or be ``any``: then it is laid out as
    the larger part of the sources, or without blocks where a source would end inside a block. Dims,
    strides and offsets of plain layouts may be RUNTIME_DIM: one primitive serves all of them.
    """

    axis: int
    src_descs: tuple[MemoryDesc, ...]
    dst_desc: MemoryDesc

    def __init__(
        self, axis: int, src_descs: Sequence[MemoryDesc], dst_desc: MemoryDesc | None = None
    ) -> None:
        sources = read_sources(src_descs)
        if dst_desc is None or getattr(dst_desc, "is_zero", False):
            dims = _joined(sources, AxisDomain().read("axis", axis, sources[0].ndims))
            dst_desc = MemoryDesc(dims, sources[0].data_type, "any")
        self._fill(axis=axis, src_descs=sources, dst_desc=dst_desc)

    def check(self) -> None:
        """The sources differ along the axis alone, and dst has their total size."""
        first, axis = self.src_descs[0], self.axis
        for number, source in enumerate(self.src_descs):
            name = f"src_descs[{number}]"
            expected = list(first.dims)
            if source.ndims == first.ndims:
                expected[axis] = source.dims[axis]
            check_dims(name, source, expected, f"the dims of the first but for axis {axis}")
            if source.data_type is not first.data_type:
                rule = f"the sources share one data type, and the first has {first.data_type}"
                raise InvalidArguments(name, str(source.data_type), rule)
        why = f"the sources side by side along axis {axis}"
        check_dims("dst_desc", self.dst_desc, _joined(self.src_descs, axis), why)

    def size_name(self, argument: int, dim: int, letter: str) -> str:
        """Along the axis each tensor has a size of its own."""
        return f"{argument}{letter}" if dim == self.axis else letter

    def derived_size(
        self, argument: int, dim: int, dims: Mapping[int, Sequence[int]]
    ) -> int | None:
        """That of dst is the sum of those of the sources."""
        if argument != Arg.DST or dim != self.axis:
            return None
        return sum(dims[Arg.MULTIPLE_SRC + n][dim] for n in range(len(self.src_descs)))

    @property
    def problem(self) -> str:
        """The dims of the sources."""
        return ":".join(spelled(source.dims) for source in self.src_descs)


def _joined(sources: Sequence[MemoryDesc], axis: int) -> tuple[int, ...]:
    """The dims of the sources side by side, as far as they have the axis."""
    dims = sources[0].dims
    sizes = [source.dims[axis] for source in sources if axis < source.ndims]
    total = RUNTIME_DIM if RUNTIME_DIM in sizes else sum(sizes)
    return (*dims[:axis], total, *dims[axis + 1 :])


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
    ordered = sorted(weights, key=lambda layout: -typical(weights[layout]))
    for layout in ordered:
        block = (1, *block_boundaries(layout, desc.axis))[-1]
        if all(surely_divides(block, start) for start in starts):
            return layout
    return _unblocked(ordered[0])


def _unblocked(desc: MemoryDesc) -> MemoryDesc:
    """Dense and without blocks, in the order of ``desc``; blocked dimensions become innermost."""
    blocked = [dim for dim, _ in desc.inner_blocks]

    def place(dim: int) -> tuple[bool, int]:
        return dim in blocked, blocked.index(dim) if dim in blocked else -desc.strides[dim]

    strides, step = [0] * desc.ndims, 1
    for dim in sorted(range(desc.ndims), key=place, reverse=True):
        strides[dim] = step
        step *= max(1, desc.dims[dim])
    return MemoryDesc(desc.dims, desc.data_type, strides)


def _nest(desc: ConcatDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    desc = replace(desc, dst_desc=_choose_layout(desc))
    return plan_forward(desc, attr, isa, _configure(desc), kernel.build)


def _configure(desc: ConcatDesc) -> partial[kernel.ConcatConf | Refusal]:
    return partial(kernel.configure, desc.axis, desc.src_descs, desc.dst_desc)


def _sources(case: CaseValues) -> tuple[MemoryDesc, ...]:
    tensors = case.shapes.padded
    tags = case.spread("stag", len(tensors))
    return tuple(tensor(dims, case["sdt"], tag) for dims, tag in zip(tensors, tags, strict=True))


def _target(case: CaseValues) -> MemoryDesc | None:
    if case["dtag"] == "undef":
        return None
    tensors, axis = case.shapes.padded, case["axis"]
    dims = list(tensors[0])
    if axis in range(len(dims)):
        dims[axis] = sum(source[axis] for source in tensors)
    return tensor(dims, case["ddt"], case["dtag"])


ConcatDesc.operation = Operation(
    kind="concat",
    summary="concat: tensors one behind the other",
    driver=Driver(
        "concat", (SDT, DDT, EACH_STAG, DTAG.but("undef"), AXIS, *ATTRIBUTES), Dims(1, MANY[-1])
    ),
    roles=(
        Role(Arg.MULTIPLE_SRC, "src", "src_descs", reads=FORWARD, many=True, case=_sources),
        Role(Arg.DST, "dst", "dst_desc", writes=FORWARD, chosen=True, case=_target),
    ),
    parameters=(Parameter("axis", AxisDomain(), lambda case: case["axis"], "axis"),),
    reference=SPECIFICATION,
    examples=("--axis=1 --dtag=undef,axb 3x5x7:3x16x7",),
    implementations=(Implementation("nest", _nest),),
)
