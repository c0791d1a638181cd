"""Gradients of rows along channels: a few rows side by side, which a cache holds."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import prod

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Module, Value, Values
from dnnl.codegen.ir.kernel import Arguments, symbol
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, Axis, letters
from dnnl.codegen.nest.folds import Fold, Parts, emit_fold, partials_desc, sums
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.errors import InvalidArguments
from dnnl.kernels.normalization.axes import NormalizationAxes
from dnnl.kernels.normalization.blocks import ROWS, Chunks, block_of, blocks
from dnnl.kernels.normalization.description import NormalizationBackwardConf, present, store
from dnnl.kernels.normalization.gradients import GradientRow, Gradients, totals
from dnnl.kernels.shared.scratchpad import Scratchpad
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import surely_equal


def configured(conf: NormalizationBackwardConf, isa: Isa) -> NormalizationBackwardConf:
    """The configuration with its strategy."""
    if not conf.learned:
        return conf
    scratchpad, (*rows, length) = Scratchpad(), conf.src.dims
    # Dense rows are summed while they are differentiated.
    long = length >= isa.lanes > 1
    flat = _flat(conf) if long and not conf.src.has_zero_dim else None
    if flat is not None:
        chunks = Chunks.of(isa, *flat.src.dims)
        sums_of_chunks = MemoryDesc((chunks.slots * len(conf.learned) * length,), conf.held)
        _, parts = scratchpad.take(sums_of_chunks)
        return replace(flat, chunks=chunks, partial=parts, scratchpad=scratchpad.size)
    if Arg.DIFF_SCALE in conf.learned:
        _, inverses = scratchpad.take(MemoryDesc(rows, conf.held))
        conf = replace(conf, statistics=inverses)
    _, parts = scratchpad.take(partials_desc(isa, length, prod(rows), len(conf.learned), conf.held))
    return replace(conf, partial=parts, scratchpad=scratchpad.size)


def _flat(conf: NormalizationBackwardConf) -> NormalizationBackwardConf | None:
    """The configuration with all rows along one dimension; None where they have no common stride,
    or are not dense."""
    *rows, length = conf.src.dims
    if any(desc.inner_blocks or desc.strides[-1] != 1 for desc in conf.data):
        return None
    try:
        src, diff_dst, diff_src = (desc.reshape((prod(rows), length)) for desc in conf.data)
        stat = conf.stat.reshape((prod(rows),))
    except InvalidArguments:
        return None
    axes = NormalizationAxes.of_layer(src.ndims)
    return replace(conf, axes=axes, src=src, diff_dst=diff_dst, diff_src=diff_src, stat=stat)


def phases(
    conf: NormalizationBackwardConf, module: Module, arguments: Arguments
) -> tuple[Phase, ...]:
    """Write everything in one go over chunks of dense rows; else the sums over rows, for which a
    first phase prepares the inverse deviation of each row, then diff_src."""
    if conf.chunks is not None:
        return _in_chunks(conf, conf.chunks, module, arguments)
    written: tuple[Phase, ...] = ()
    if not conf.statistics.is_zero:
        name = symbol(f"{conf.kind}_factors", [conf.statistics], module.isa)
        written = (emit_nest(module, name, _inverses(conf, arguments)),)
    if conf.learned:
        name = symbol(f"{conf.kind}_sums", [conf.src, conf.diff_dst], module.isa)
        scratch = arguments.slot(Arg.SCRATCHPAD), conf.partial
        written += emit_fold(module, name, _sums(conf, arguments), scratch)
    for number, block in enumerate(blocks(module.isa, conf.data)):
        name = _symbol(conf, module, f"_rest{number}" if number else "")
        written += (emit_nest(module, name, Gradients(conf, arguments, block).nest),)
    return written


def _in_chunks(
    conf: NormalizationBackwardConf, chunks: Chunks, module: Module, arguments: Arguments
) -> tuple[Phase, ...]:
    """A work item goes over a chunk of rows, whose sums it has in the scratchpad; these are then
    added up."""
    rows, length = conf.src.dims
    along, chunk, block = Axis(length, "b"), Axis(chunks.count, "chunk"), Axis(chunks.blocks, "a")
    parts = Parts(
        (along,), len(conf.learned), arguments.slot(Arg.SCRATCHPAD), conf.partial, conf.held
    )
    first = Affine.of(chunk, chunks.blocks * ROWS) + Affine.of(block, ROWS)
    index = [(first + row,) for row in range(ROWS)]
    rest = Axis(chunks.rest, "a")
    last = Affine.of(rest) + (rows - chunks.rest)
    written = []
    for name, places, moving, own, begin in (
        ("", chunk, block, index, 0),
        ("_rest", Axis(1, "chunk"), rest, [(last,)], chunks.count),
    ):
        if not (surely_equal(places.extent, 0) or surely_equal(moving.extent, 0)):
            totals_of = dict(zip(conf.learned, parts.operands(places, begin), strict=True))
            step = Gradients(conf, arguments, block_of((places,), along, own, 0), totals_of)
            body = partial(_chunk, step, moving.extent)
            nest = Nest((places,), (moving, along), step.inputs, step.outputs, body, core=conf.core)
            written.append(emit_nest(module, _symbol(conf, module, name), nest))
    part = Axis(chunks.slots, "part")
    learned = conf.learned_at(arguments, (Affine.of(along),))
    merged = totals((along,), (part,), parts.operands(part), learned, conf.held)
    entry = symbol(f"{conf.kind}_sums", [conf.src], module.isa)
    return *written, emit_nest(module, entry, merged)


def _chunk(step: Gradients, blocks: int, point: Point) -> None:
    """All blocks of a chunk, one after the other, with sums that start at zero."""

    def clear(p: Point) -> None:
        for operand in step.sums.values():
            p.store(operand, p.constant(0.0))

    if surely_equal(blocks, 1):
        point.each(clear)
        step.body(point)
    else:
        point.outermost(lambda p: p.each(clear), 1)
        point.outermost(step.body)


def _symbol(conf: NormalizationBackwardConf, module: Module, part: str) -> str:
    return symbol(f"{conf.kind}_backward{part}", conf.data, module.isa)


def _inverses(conf: NormalizationBackwardConf, arguments: Arguments) -> Nest:
    """The inverse deviation of each row."""
    block = conf.axes.block(letters(conf.src.dims))
    (row,) = block.rows
    own = GradientRow(conf, arguments, row)
    inverse = Operand(arguments.slot(Arg.SCRATCHPAD), conf.statistics, row.statistics)

    def body(point: Point) -> None:
        point.store(inverse, own.inverse(point))

    return Nest(block.parallel, (), (own.variance,), (inverse,), body, core=conf.core)


def _sums(conf: NormalizationBackwardConf, arguments: Arguments) -> Fold:
    """The gradients of scale and shift: the sums of diff_dst * normalized src, and of diff_dst."""
    block = conf.axes.block(letters(conf.src.dims))
    (row,) = block.rows
    own, learned, known = GradientRow(conf, arguments, row), conf.learned, None
    inputs = own.gradients
    if Arg.DIFF_SCALE in learned:
        if not conf.statistics.is_zero:
            known = Operand(arguments.slot(Arg.SCRATCHPAD), conf.statistics, row.statistics)
        inputs += present(own.src, known or own.variance, own.mean)

    def step(p: Point, *before: Value) -> Values:
        gradient, found = own.passed(p), dict(zip(learned, before, strict=True))
        if Arg.DIFF_SCALE in found:
            centred = own.centred(p, None if own.mean is None else p.load(own.mean))
            inverse = own.inverse(p) if known is None else p.load(known)
            normalized, total = p.e.b.fmul(centred, inverse), found[Arg.DIFF_SCALE]
            found[Arg.DIFF_SCALE] = vector.multiply_add(p.e, gradient, normalized, total)
        if Arg.DIFF_SHIFT in found:
            found[Arg.DIFF_SHIFT] = p.e.b.fadd(found[Arg.DIFF_SHIFT], gradient)
        return tuple(found.values())

    outputs = conf.learned_at(arguments, block.channel)
    finish = partial(store, outputs)
    reduction = sums(step, len(learned), conf.held)
    return Fold(block.channels, block.parallel, inputs, outputs, reduction, finish)
