"""Reductions that compensate products: phases that sum terms, integers in s32."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dnnl.codegen.conversion.convert import storage
from dnnl.codegen.ir.builder import F32, Emitter, Module, Value, Values
from dnnl.codegen.ir.kernel import Arguments
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, Axis, letters
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.kernels.shared.scratchpad import Argument
from dnnl.runtime.image import Phase


def emit_sums(
    module: Module,
    symbol: str,
    axes: tuple[Sequence[Axis], Sequence[Axis]],
    inputs: Sequence[Operand],
    total: Operand,
    term: Callable[[Point], Value],
) -> Phase:
    """Write a phase that stores in ``total``, for each point of the first ``axes``, the sum of
    ``term`` over the second ones."""
    core = storage(total.data_type).element

    def plus(e: Emitter, a: Value, b: Value) -> Value:
        return e.b.fadd(a, b) if core is F32 else e.b.add(a, b)

    def add(point: Point, value: Value) -> Values:
        return (plus(point.e, value, term(point)),)

    def merge(e: Emitter, a: Values, b: Values) -> Values:
        return (plus(e, a[0], b[0]),)

    def body(point: Point) -> None:
        point.store(total, *point.fold((0,), add, merge))

    outer, summed = (tuple(own) for own in axes)
    # Products read the sums at once, so they should stay in the cache.
    nest = Nest(
        *(outer, summed, tuple(inputs), (total,), body),
        core=core,
        reads_dst=True,
        any_length=True,
    )
    return emit_nest(module, symbol, nest)


def emit_segment_sums(
    module: Module, symbol: str, src: Argument, sums: Argument, size: int, arguments: Arguments
) -> Phase:
    """Write a phase that sums segments of ``size`` elements along the last dimension of ``src``.
    With a single segment it sums all dimensions of src that follow those of ``sums``; the last
    dimension of ``sums`` counts the segments."""
    axes, free = letters(src[1].dims), sums[1].ndims - 1
    rows, summed = axes[:free], axes[free:]
    segment = Axis(sums[1].dims[-1], "segment")
    depth = [Affine.of(axis) for axis in summed]
    if segment.extent > 1:
        summed = (Axis(size, "term"),)
        depth = [Affine.of(segment, size) + Affine.of(summed[0])]
    index = [Affine.of(axis) for axis in rows]
    given = Operand(arguments.slot(src[0]), src[1], (*index, *depth))
    total = Operand(arguments.slot(sums[0]), sums[1], (*index, Affine.of(segment)))
    parts = (*rows, segment), summed
    return emit_sums(module, symbol, parts, (given,), total, lambda point: point.load(given))


def emit_row_sums(
    module: Module, symbol: str, src: Argument, sums: Argument, arguments: Arguments
) -> Phase:
    """Write a phase that sums integers, in s32, over the dimensions of ``src`` that follow those of
    ``sums``."""
    axes = letters(src[1].dims)
    index = tuple(Affine.of(axis) for axis in axes)
    given = Operand(arguments.slot(src[0]), src[1], index)
    free = sums[1].ndims
    total = Operand(arguments.slot(sums[0]), sums[1], index[:free])
    parts = axes[:free], axes[free:]
    return emit_sums(module, symbol, parts, (given,), total, lambda point: point.load(given))
