"""Gradients of a layer normalization: in which phases they are computed."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from dnnl.codegen import vector
from dnnl.codegen.access import Operand
from dnnl.codegen.address import Affine, Axis
from dnnl.codegen.builder import Module, Value, Values
from dnnl.codegen.epilogue import Arguments
from dnnl.codegen.folds import Fold, Reduction, emit_fold
from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Kernel, Refusal
from dnnl.codegen.nest import Nest, emit_nest
from dnnl.codegen.point import Point
from dnnl.kernels.layer_normalization_gradients import Conf, Gradients
from dnnl.kernels.layer_normalization_rows import (
    ROWS,
    Block,
    Chunks,
    added,
    blocks,
    inverse_deviation,
    sums,
)
from dnnl.kernels.pointwise import FLOATS, letters, refuse_types, symbol
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc


def configure(conf: Conf, isa: Isa) -> Conf | Refusal:
    """Accept any layouts of floats."""
    refusal = refuse_types(conf.src, conf.diff_dst, conf.diff_src, allowed=FLOATS)
    if refusal or not conf.summed:
        return refusal or conf
    flat = _flat(conf, isa)
    if flat is not None:
        chunks = Chunks.of(isa, *flat.src.dims)
        return replace(flat, scratchpad=4 * chunks.slots * len(flat.summed) * flat.src.dims[1])
    parts = conf.parts(isa)
    return replace(conf, scratchpad=4 * (parts.offset0 + parts.nelems()))


def _flat(conf: Conf, isa: Isa) -> Conf | None:
    """The gradients of scale and shift are summed on the way where rows lie in one piece."""
    long = conf.src.dims[-1] >= isa.lanes and isa.device is None
    return conf.flat if long and not conf.src.has_zero_dim else None


def build(conf: Conf, isa: Isa) -> Kernel:
    """Everything in one go over chunks of rows, if these lie in one piece; else the sums over rows,
    for which a first phase prepares a factor of each row, then src."""
    module = Module("layer_normalization_backward", isa)
    arguments = Arguments()
    if not conf.summed:
        return Kernel(module, _each_row(conf, module, arguments), arguments.ids)
    if _flat(conf, isa) is not None:
        return Kernel(module, _in_chunks(conf, module, arguments), arguments.ids)
    phases = (
        _factors(conf, module, arguments),
        *_sums(conf, module, arguments),
        *_each_row(conf, module, arguments),
    )
    return Kernel(module, phases, arguments.ids)


def _in_chunks(conf: Conf, module: Module, arguments: Arguments) -> tuple[Phase, ...]:
    """A work item goes over a chunk of rows, whose sums it keeps in the scratchpad; these are then
    added up."""
    rows, length = conf.src.dims
    chunks = Chunks.of(module.isa, rows, length)
    along, chunk, block = Axis(length, "b"), Axis(chunks.count, "chunk"), Axis(chunks.blocks, "a")
    slot = arguments.slot(Arg.SCRATCHPAD)

    def sums_of(places: Axis, begin: int = 0) -> dict[Arg, Operand]:
        """The sums in the slots ``begin`` and following; those of one gradient lie together."""
        descs = {
            arg: MemoryDesc(
                (places.extent, length), "f32", offset0=(number * chunks.slots + begin) * length
            )
            for number, arg in enumerate(conf.summed)
        }
        index = Affine.of(places), Affine.of(along)
        return {arg: Operand(slot, desc, index) for arg, desc in descs.items()}

    first = Affine.of(chunk, chunks.blocks * ROWS) + Affine.of(block, ROWS)
    index = [(first + row,) for row in range(ROWS)]
    rest = Axis(chunks.rest, "a")
    last = Affine.of(rest) + (rows - chunks.rest)
    phases = []
    for name, places, moving, own, begin in (
        ("", chunk, block, index, 0),
        ("_rest", Axis(1, "chunk"), rest, [(last,)], chunks.count),
    ):
        if places.extent and moving.extent:
            rows_of = Block((places,), along, tuple(own), 0)
            step = Gradients(conf, arguments, rows_of, sums_of(places, begin))
            body = partial(_chunk, step, moving.extent)
            nest = Nest((places,), (moving, along), step.inputs, step.outputs, body)
            entry = _symbol(conf, module, f"layer_normalization_backward{name}")
            phases.append(emit_nest(module, entry, nest))
    part = Axis(chunks.slots, "part")
    read = tuple(sums_of(part).values())
    outputs = tuple(
        Operand(arguments.slot(arg), desc, (Affine.of(along),)) for arg, desc in conf.summed.items()
    )

    def merged(point: Point) -> None:
        def step(p: Point, *totals: Value) -> Values:
            return added(p.e, totals, tuple(p.load(operand) for operand in read))

        for output, value in zip(outputs, sums(point, len(read), step), strict=True):
            point.store(output, value)

    entry = symbol("layer_normalization_sums", [conf.src], module.isa)
    phases.append(emit_nest(module, entry, Nest((along,), (part,), read, outputs, merged)))
    return tuple(phases)


def _chunk(step: Gradients, blocks: int, point: Point) -> None:
    """All blocks of a chunk, one after the other, with sums that start at zero."""

    def clear(p: Point) -> None:
        for operand in step.sums.values():
            p.store(operand, p.constant(0.0))

    if blocks == 1:
        point.each(clear)
        step.body(point)
    else:
        point.outermost(lambda p: p.each(clear), 1)
        point.outermost(step.body)


def _each_row(conf: Conf, module: Module, arguments: Arguments) -> tuple[Phase, ...]:
    """The gradients of src alone."""
    phases = []
    descs = [conf.src, conf.diff_dst, conf.diff_src]
    for number, block in enumerate(blocks(module.isa, descs)):
        step = Gradients(conf, arguments, block)
        nest = Nest(block.parallel, (block.along,), step.inputs, step.outputs, step.body)
        name = "layer_normalization_backward" + (f"_rest{number}" if number else "")
        phases.append(emit_nest(module, _symbol(conf, module, name), nest))
    return tuple(phases)


def _symbol(conf: Conf, module: Module, name: str) -> str:
    return symbol(name, [conf.src, conf.diff_dst, conf.diff_src], module.isa)


def _factors(conf: Conf, module: Module, arguments: Arguments) -> Phase:
    """1 / sqrt(variance + epsilon) of each row."""
    axes = letters(conf.factors.dims)
    index = tuple(Affine.of(axis) for axis in axes)
    variance = Operand(arguments.slot(Arg.VARIANCE), conf.stat, index)
    factor = Operand(arguments.slot(Arg.SCRATCHPAD), conf.factors, index)

    def body(point: Point) -> None:
        point.store(factor, inverse_deviation(point, point.load(variance), conf.epsilon))

    entry = symbol("layer_normalization_factors", [conf.factors], module.isa)
    return emit_nest(module, entry, Nest(axes, (), (variance,), (factor,), body))


def _sums(conf: Conf, module: Module, arguments: Arguments) -> tuple[Phase, ...]:
    """The gradients of scale and shift: the sums of diff_dst * normalized src, and of diff_dst."""
    axes = letters(conf.src.dims)
    index = tuple(Affine.of(axis) for axis in axes)
    src = Operand(arguments.slot(Arg.SRC), conf.src, index)
    diff_dst = Operand(arguments.slot(Arg.DIFF_DST), conf.diff_dst, index)
    factor = Operand(arguments.slot(Arg.SCRATCHPAD), conf.factors, index[:-1])
    mean = None if conf.rms else Operand(arguments.slot(Arg.MEAN), conf.stat, index[:-1])
    summed = conf.summed
    outputs = tuple(Operand(arguments.slot(arg), desc, index[-1:]) for arg, desc in summed.items())
    inputs = [diff_dst]
    if Arg.DIFF_SCALE in summed:
        inputs += [src, factor] if mean is None else [src, factor, mean]

    def step(p: Point, *totals: Value) -> Values:
        gradient, found = p.load(diff_dst), dict(zip(summed, totals, strict=True))
        if Arg.DIFF_SCALE in found:
            centred = p.load(src)
            if mean is not None:
                centred = p.e.b.fsub(centred, p.load(mean))
            normalized = p.e.b.fmul(centred, p.load(factor))
            total = found[Arg.DIFF_SCALE]
            found[Arg.DIFF_SCALE] = vector.multiply_add(p.e, gradient, normalized, total)
        if Arg.DIFF_SHIFT in found:
            found[Arg.DIFF_SHIFT] = p.e.b.fadd(found[Arg.DIFF_SHIFT], gradient)
        return tuple(found.values())

    def finish(point: Point, values: Values) -> None:
        for output, value in zip(outputs, values, strict=True):
            point.store(output, value)

    count = len(summed)
    reduction = Reduction(lambda point: sums(point, count, step), added, (0.0,) * count)
    fold = Fold(axes[-1:], axes[:-1], tuple(inputs), outputs, reduction, finish)
    entry = symbol("layer_normalization_sums", [conf.src, conf.diff_dst], module.isa)
    scratch = arguments.slot(Arg.SCRATCHPAD), conf.parts(module.isa)
    return emit_fold(module, entry, fold, scratch)
