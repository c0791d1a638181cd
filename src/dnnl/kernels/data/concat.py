"""Concatenate tensors along one dimension: a copy of each to its place in dst."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dnnl.codegen.conversion import convert
from dnnl.codegen.epilogue.attributes import Attributes, Result, Sources
from dnnl.codegen.ir.builder import Module
from dnnl.codegen.ir.kernel import Arguments, Kernel, Reason, Refusal, symbol
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Bound, Operand
from dnnl.codegen.memory.address import Affine, block_boundaries, letters
from dnnl.codegen.nest.nest import Nest, emit_interleaved, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.kernels.shared.types import WHOLE_BYTES, core_of, refuse_types
from dnnl.types.arg import Arg
from dnnl.types.layout import Layout
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOpSum


@dataclass(frozen=True)
class ConcatConf:
    """dst = srcs[0], srcs[1], ... one behind the other along ``axis``, with ``attributes``."""

    axis: int
    srcs: tuple[MemoryDesc, ...]
    dst: MemoryDesc
    attributes: Attributes


def configure(
    axis: int,
    srcs: tuple[MemoryDesc, ...],
    dst: MemoryDesc,
    attributes: Attributes,
) -> ConcatConf | Refusal:
    """Accept any layouts of types of whole bytes. Without attributes, elements of equal types are
    copied bit by bit."""
    arguments = {Arg.multiple_src(number): src for number, src in enumerate(srcs)}
    refusal = refuse_types(*srcs, dst, allowed=WHOLE_BYTES)
    refusal = refusal or attributes.refuse(arguments, dst) or _refuse_sums(attributes)
    return refusal or ConcatConf(axis, srcs, dst, attributes)


def _refuse_sums(attributes: Attributes) -> Refusal | None:
    if any(isinstance(entry, PostOpSum) for entry in attributes.post_ops):
        return Refusal(Reason.POST_OP, "a sum with dst, of which each source writes a part")
    return None


@dataclass(frozen=True)
class _Part:
    """What one source covers of dst, from ``begin`` on. ``region`` describes it in whole blocks:
    the first ``shift`` elements belong to the sources before, those from ``end`` on to the sources
    behind."""

    number: int
    src: MemoryDesc
    begin: int
    region: MemoryDesc
    shift: int
    end: int


def build(conf: ConcatConf, isa: Isa) -> Kernel:
    """One phase if all sources can be interleaved, else one for each."""
    module = Module("concat", isa)
    arguments = Arguments()
    nests = [_copy(conf, part, arguments) for part in _parts(conf)]
    descs = [*conf.srcs, conf.dst]
    entry = symbol("concat", descs, isa)
    phase = emit_interleaved(module, entry, nests)
    if phase is not None:
        return Kernel(module, (phase,), arguments.ids)
    names = [symbol(f"concat{number}", descs, isa) for number in range(len(nests))]
    phases = [emit_nest(module, name, nest) for name, nest in zip(names, nests, strict=True)]
    return Kernel(module, tuple(phases), arguments.ids)


def _parts(conf: ConcatConf) -> Iterator[_Part]:
    axis, dst = conf.axis, conf.dst
    block = (1, *block_boundaries(dst, axis))[-1]
    sources = [entry for entry in enumerate(conf.srcs) if not entry[1].has_zero_dim]
    place = 0
    for number, src in sources:
        after = place + src.dims[axis]
        first = place // block
        shift = place - first * block
        shift = shift if shift else 0  # where only an execution knows, whole blocks have own code
        last = number == sources[-1][0]
        extent = after - first * block
        padded = dst.padded_dims[axis] - first * block if last else -(-extent // block) * block
        layout = Layout(
            _replaced(dst.dims, axis, extent),
            _replaced(dst.padded_dims, axis, padded),
            dst.strides,
            dst.inner_blocks,
            dst.offset0 + first * dst.strides[axis],
        )
        region = MemoryDesc.of_layout(dst, layout)
        yield _Part(number, src, place, region, shift, padded if last else extent)
        place = after


def _replaced(dims: tuple[int, ...], axis: int, extent: int) -> tuple[int, ...]:
    return (*dims[:axis], extent, *dims[axis + 1 :])


def _copy(conf: ConcatConf, part: _Part, arguments: Arguments) -> Nest:
    """The copy of one source to its part of dst."""
    argument, desc = Arg.multiple_src(part.number), part.src
    axes = letters(part.region.dims)
    index = [Affine.of(axis) for axis in axes]
    dst = Operand(arguments.slot(Arg.DST), part.region, tuple(index))
    index[conf.axis] = own = index[conf.axis] + -part.shift
    src = Operand(arguments.slot(argument), desc, tuple(index))
    given = Sources(conf.attributes, {argument: src}, arguments)
    place = (*index[: conf.axis], own + part.begin, *index[conf.axis + 1 :])
    result = Result(conf.attributes, Operand(dst.slot, conf.dst, place), arguments)

    def body(point: Point) -> None:
        point.store(dst, result.finished(point, given.load(point, argument)))

    kinds = desc.data_type, conf.dst.data_type
    core = convert.bare_core(*kinds) if conf.attributes.plain else core_of(desc, conf.dst)
    inputs, where = (*given.operands, *result.inputs), (Bound(own, part.end - part.shift),)
    return Nest(axes, (), inputs, (dst,), body, where=where, core=core)
