"""Gradients of a layer normalization: in which phases they are computed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from math import prod

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Module, Value, Values
from dnnl.codegen.ir.kernel import Arguments, Kernel, Refusal, symbol
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, Axis, letters
from dnnl.codegen.nest.fold_loop import added
from dnnl.codegen.nest.folds import Fold, Parts, at_once, emit_fold, partials_desc, sums
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.codegen.open_nest.fold import OpenFold, open_partials_desc
from dnnl.kernels.normalization.layer_gradients import Gradients, LayerNormalizationBackwardConf
from dnnl.kernels.normalization.layer_rows import ROWS, Block, Chunks, blocks, open_blocks
from dnnl.kernels.normalization.shared import inverse_deviation
from dnnl.kernels.shared.open_nests import OpenKernel
from dnnl.kernels.shared.scratchpad import Scratchpad
from dnnl.kernels.shared.types import WIDE_FLOATS, refuse_types
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc


def configure(
    conf: LayerNormalizationBackwardConf, isa: Isa
) -> LayerNormalizationBackwardConf | Refusal:
    """Accept any layouts of floats."""
    refusal = refuse_types(*conf.data, allowed=WIDE_FLOATS)
    if refusal or not conf.summed:
        return refusal or conf
    scratchpad, (*rows, length) = Scratchpad(), conf.src.dims
    if any(desc.has_runtime_values for desc in (*conf.data, conf.stat)):
        _, parts = scratchpad.take(open_partials_desc(len(conf.summed), conf.held))
        return replace(conf, partial=parts, scratchpad=scratchpad.size)
    # Summed on the way where rows lie in one piece.
    long = length >= isa.lanes and isa.device is None
    flat = conf.flat if long and not conf.src.has_zero_dim else None
    if flat is not None:
        chunks = Chunks.of(isa, *flat.src.dims)
        sums_of_chunks = MemoryDesc((chunks.slots * len(conf.summed) * length,), conf.held)
        _, parts = scratchpad.take(sums_of_chunks)
        return replace(flat, chunks=chunks, partial=parts, scratchpad=scratchpad.size)
    if Arg.DIFF_SCALE in conf.summed:
        _, factors = scratchpad.take(MemoryDesc(rows, conf.held))
        conf = replace(conf, factors=factors)
    _, parts = scratchpad.take(partials_desc(isa, length, prod(rows), len(conf.summed), conf.held))
    return replace(conf, partial=parts, scratchpad=scratchpad.size)


def build(conf: LayerNormalizationBackwardConf, isa: Isa) -> Kernel:
    """Everything in one go over chunks of rows, if these lie in one piece; else the sums over rows,
    for which a first phase prepares a factor of each row, then src."""
    module = Module("layer_normalization_backward", isa)
    arguments = Arguments()
    if conf.chunks is not None:
        return Kernel(module, _in_chunks(conf, conf.chunks, module, arguments), arguments.ids)
    phases: tuple[Phase, ...] = ()
    if not conf.factors.is_zero:
        phases = (_factors(conf, module, arguments),)
    if conf.summed:
        phases += _sums(conf, module, arguments)
    phases += _each_row(conf, module, arguments)
    return Kernel(module, phases, arguments.ids)


def build_open(conf: LayerNormalizationBackwardConf, isa: Isa) -> Kernel:
    """One kernel for all sizes."""
    return OPEN.build(conf, isa)


def _open_sums(conf: LayerNormalizationBackwardConf, arguments: Arguments) -> Iterator[OpenFold]:
    """The sums over rows, if any are asked for."""
    if conf.summed:
        yield OpenFold(_summed(conf, arguments), arguments.slot(Arg.SCRATCHPAD), conf.partial)


def _open_rows(conf: LayerNormalizationBackwardConf, arguments: Arguments) -> Iterator[Nest]:
    """The gradients of src, which may take the place of diff_dst: a nest of blocks of rows, and one
    of single rows."""
    for block in open_blocks(conf.data):
        yield _rows(conf, arguments, block)


OPEN = OpenKernel(
    "layer_normalization_backward",
    _open_sums,
    {
        "src": Arg.SRC, "diff_dst": Arg.DIFF_DST, "diff_src": Arg.DIFF_SRC, "stat": Arg.VARIANCE,
        "scale": Arg.SCALE, "diff_scale": Arg.DIFF_SCALE, "diff_shift": Arg.DIFF_SHIFT,
    },
    _open_rows,
)  # fmt: skip


def _in_chunks(
    conf: LayerNormalizationBackwardConf, chunks: Chunks, module: Module, arguments: Arguments
) -> tuple[Phase, ...]:
    """A work item goes over a chunk of rows, whose sums it keeps in the scratchpad; these are then
    added up."""
    rows, length = conf.src.dims
    along, chunk, block = Axis(length, "b"), Axis(chunks.count, "chunk"), Axis(chunks.blocks, "a")
    slot, summed = arguments.slot(Arg.SCRATCHPAD), len(conf.summed)
    parts = Parts((along,), summed, slot, conf.partial, conf.held)
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
            totals = dict(zip(conf.summed, parts.operands(places, begin), strict=True))
            step = Gradients(conf, arguments, rows_of, totals)
            body = partial(_chunk, step, moving.extent)
            nest = Nest((places,), (moving, along), step.inputs, step.outputs, body, core=conf.core)
            entry = _symbol(conf, module, f"layer_normalization_backward{name}")
            phases.append(emit_nest(module, entry, nest))
    part = Axis(chunks.slots, "part")
    read = parts.operands(part)
    merged = sums(
        lambda p, *totals: added(p.e, totals, tuple(map(p.load, read))), summed, conf.held
    )
    outputs = _outputs(conf, arguments, along)
    fold = Fold((along,), (part,), read, outputs, merged, partial(_store, outputs))
    entry = symbol("layer_normalization_sums", [conf.src], module.isa)
    return *phases, emit_nest(module, entry, at_once(fold))


def _outputs(
    conf: LayerNormalizationBackwardConf, arguments: Arguments, along: Axis
) -> tuple[Operand, ...]:
    """The gradients of scale and shift."""
    index = (Affine.of(along),)
    return tuple(Operand(arguments.slot(arg), desc, index) for arg, desc in conf.summed.items())


def _store(outputs: tuple[Operand, ...], point: Point, values: Values) -> None:
    for output, value in zip(outputs, values, strict=True):
        point.store(output, value)


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


def _each_row(
    conf: LayerNormalizationBackwardConf, module: Module, arguments: Arguments
) -> tuple[Phase, ...]:
    """The gradients of src alone."""
    phases = []
    for number, block in enumerate(blocks(module.isa, conf.data)):
        nest = _rows(conf, arguments, block)
        name = "layer_normalization_backward" + (f"_rest{number}" if number else "")
        phases.append(emit_nest(module, _symbol(conf, module, name), nest))
    return tuple(phases)


def _rows(conf: LayerNormalizationBackwardConf, arguments: Arguments, block: Block) -> Nest:
    step = Gradients(conf, arguments, block)
    return Nest(
        block.parallel,
        (block.along,),
        step.inputs,
        step.outputs,
        step.body,
        core=conf.core,
        in_rows=len(block.rows) > 1,
    )


def _symbol(conf: LayerNormalizationBackwardConf, module: Module, name: str) -> str:
    return symbol(name, conf.data, module.isa)


def _factors(conf: LayerNormalizationBackwardConf, module: Module, arguments: Arguments) -> Phase:
    """1 / sqrt(variance + epsilon) of each row."""
    axes = letters(conf.factors.dims)
    index = tuple(Affine.of(axis) for axis in axes)
    variance = Operand(arguments.slot(Arg.VARIANCE), conf.stat, index)
    factor = Operand(arguments.slot(Arg.SCRATCHPAD), conf.factors, index)

    def body(point: Point) -> None:
        point.store(factor, inverse_deviation(point, point.load(variance), conf.epsilon))

    entry = symbol("layer_normalization_factors", [conf.factors], module.isa)
    nest = Nest(axes, (), (variance,), (factor,), body, core=conf.core)
    return emit_nest(module, entry, nest)


def _sums(
    conf: LayerNormalizationBackwardConf, module: Module, arguments: Arguments
) -> tuple[Phase, ...]:
    entry = symbol("layer_normalization_sums", [conf.src, conf.diff_dst], module.isa)
    fold = _summed(conf, arguments)
    return emit_fold(module, entry, fold, (arguments.slot(Arg.SCRATCHPAD), conf.partial))


def _summed(conf: LayerNormalizationBackwardConf, arguments: Arguments) -> Fold:
    """The gradients of scale and shift: the sums of diff_dst * normalized src, and of diff_dst."""
    axes = letters(conf.src.dims)
    index = tuple(Affine.of(axis) for axis in axes)
    src = Operand(arguments.slot(Arg.SRC), conf.src, index)
    diff_dst = Operand(arguments.slot(Arg.DIFF_DST), conf.diff_dst, index)
    summed = conf.summed
    outputs = _outputs(conf, arguments, axes[-1])
    inputs = [diff_dst]
    if Arg.DIFF_SCALE in summed:
        known = not conf.factors.is_zero
        at = (Arg.SCRATCHPAD, conf.factors) if known else (Arg.VARIANCE, conf.stat)
        factor = Operand(arguments.slot(at[0]), at[1], index[:-1])
        mean = None if conf.rms else Operand(arguments.slot(Arg.MEAN), conf.stat, index[:-1])
        inputs += [src, factor] if mean is None else [src, factor, mean]

    def step(p: Point, *totals: Value) -> Values:
        gradient, found = p.load(diff_dst), dict(zip(summed, totals, strict=True))
        if Arg.DIFF_SCALE in found:
            centred = p.load(src)
            if mean is not None:
                centred = p.e.b.fsub(centred, p.load(mean))
            inverse = p.load(factor)
            if not known:
                inverse = inverse_deviation(p, inverse, conf.epsilon)
            normalized = p.e.b.fmul(centred, inverse)
            total = found[Arg.DIFF_SCALE]
            found[Arg.DIFF_SCALE] = vector.multiply_add(p.e, gradient, normalized, total)
        if Arg.DIFF_SHIFT in found:
            found[Arg.DIFF_SHIFT] = p.e.b.fadd(found[Arg.DIFF_SHIFT], gradient)
        return tuple(found.values())

    reduction = sums(step, len(summed), conf.held)
    finish = partial(_store, outputs)
    return Fold(axes[-1:], axes[:-1], tuple(inputs), outputs, reduction, finish)
