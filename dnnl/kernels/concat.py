"""Lay tensors side by side along one dimension: a copy for each, to its own place in dst."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from dnnl.codegen import convert
from dnnl.codegen.access import Bound, Operand
from dnnl.codegen.address import Affine, Axis, block_boundaries
from dnnl.codegen.builder import Module
from dnnl.codegen.epilogue import Arguments
from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Kernel, Refusal
from dnnl.codegen.nest import Nest, emit_nest, emit_side_by_side
from dnnl.codegen.point import Point
from dnnl.codegen.quantization import Quantization, Quantizer
from dnnl.kernels.open_nests import OpenKernel
from dnnl.kernels.pointwise import WHOLE_BYTES, core_of, letters, refuse_types, symbol
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc

_NONE = Quantization()


@dataclass(frozen=True)
class Conf:
    """dst = srcs[0], srcs[1], ... one behind the other along ``axis``, each with its scale."""

    axis: int
    srcs: tuple[MemoryDesc, ...]
    dst: MemoryDesc
    quantization: Quantization


def configure(
    axis: int,
    srcs: tuple[MemoryDesc, ...],
    dst: MemoryDesc,
    quantization: Quantization,
) -> Conf | Refusal:
    """Accept any layouts of types of whole bytes; the bits of equal types are moved where nothing
    is scaled."""
    arguments = {Arg.multiple_src(number): src for number, src in enumerate(srcs)}
    refusal = refuse_types(*srcs, dst, allowed=WHOLE_BYTES)
    refusal = refusal or quantization.refuse(arguments)
    return refusal or Conf(axis, srcs, dst, quantization)


@dataclass(frozen=True)
class _Part:
    """What one source covers of dst: ``region`` describes it in whole blocks, of which the first
    ``shift`` elements belong to the sources before and all from ``end`` on to those behind."""

    number: int
    src: MemoryDesc
    region: MemoryDesc
    shift: int
    end: int


def build(conf: Conf, isa: Isa) -> Kernel:
    """One phase where all sources can take turns, else one for each."""
    module = Module("concat", isa)
    arguments = Arguments()
    nests = [_copy(conf, part, arguments) for part in _parts(conf)]
    descs = [*conf.srcs, conf.dst]
    together = symbol("concat", descs, isa)
    phase = emit_side_by_side(module, together, nests)
    if phase is not None:
        return Kernel(module, (phase,), arguments.ids)
    names = [symbol(f"concat{number}", descs, isa) for number in range(len(nests))]
    phases = [emit_nest(module, name, nest) for name, nest in zip(names, nests, strict=True)]
    return Kernel(module, tuple(phases), arguments.ids)


def _parts(conf: Conf) -> Iterator[_Part]:
    axis, dst = conf.axis, conf.dst
    block = (1, *block_boundaries(dst, axis))[-1]
    sources = [entry for entry in enumerate(conf.srcs) if not entry[1].has_zero_dim]
    place = 0
    for number, src in sources:
        after = place + src.dims[axis]
        first = place // block
        shift = place - first * block
        last = number == sources[-1][0]
        extent = after - first * block
        padded = dst.padded_dims[axis] - first * block if last else -(-extent // block) * block
        region = MemoryDesc(
            _replaced(dst.dims, axis, extent),
            dst.data_type,
            dst.strides,
            inner_blocks=dst.inner_blocks,
            padded_dims=_replaced(dst.padded_dims, axis, padded),
            offset0=dst.offset0 + first * dst.strides[axis],
        )
        yield _Part(number, src, region, shift, padded if last else extent)
        place = after


def _replaced(dims: tuple[int, ...], axis: int, extent: int) -> tuple[int, ...]:
    return (*dims[:axis], extent, *dims[axis + 1 :])


def _copy(conf: Conf, part: _Part, arguments: Arguments) -> Nest:
    axes = letters(part.region.dims)
    index = [Affine.of(axis) for axis in axes]
    dst = Operand(arguments.slot(Arg.DST), part.region, tuple(index))
    own = index[conf.axis] + -part.shift
    index[conf.axis] = own
    where = (Bound(own, part.end - part.shift),)
    return replace(_moved(conf, part.number, axes, index, dst, arguments), where=where)


def _moved(
    conf: Conf,
    number: int,
    axes: Sequence[Axis],
    index: Sequence[Affine],
    dst: Operand,
    arguments: Arguments,
) -> Nest:
    """One source with its ``index``, which goes to its own part of dst."""
    argument, desc = Arg.multiple_src(number), conf.srcs[number]
    src = Operand(arguments.slot(argument), desc, tuple(index))
    quantizer = Quantizer(conf.quantization.of_arguments((argument,)), {argument: src}, arguments)

    def body(point: Point) -> None:
        point.store(dst, quantizer.dequantize(point, argument, point.load(src)))

    if quantizer.operands:
        core = core_of(desc, conf.dst)
    else:
        core = convert.bare_core(desc.data_type, conf.dst.data_type)
    return Nest(tuple(axes), (), (src, *quantizer.operands), (dst,), body, core=core)


def build_open(conf: Conf, isa: Isa) -> Kernel:
    """A nest for each source, for all sizes."""
    return OPEN.build(conf, isa)


def _nests(conf: Conf, arguments: Arguments) -> Iterator[Nest]:
    """A copy for each source to its place in dst, which is known if its size is."""
    place = 0
    for number, src in enumerate(conf.srcs):
        axes = letters(src.dims)
        index = [Affine.of(axis) for axis in axes]
        there = [*index]
        there[conf.axis] = there[conf.axis] + place
        dst = Operand(arguments.slot(Arg.DST), conf.dst, tuple(there))
        yield _moved(conf, number, axes, index, dst, arguments)
        place += max(0, src.dims[conf.axis])


OPEN = OpenKernel("concat", _nests, {"srcs": Arg.MULTIPLE_SRC, "dst": Arg.DST})
