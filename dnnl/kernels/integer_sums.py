"""Sums of integers that correct products: phases that add up terms in s32."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dnnl.codegen.access import Operand
from dnnl.codegen.address import Affine, Axis
from dnnl.codegen.builder import I32, Emitter, Module, Value, Values
from dnnl.codegen.epilogue import Arguments
from dnnl.codegen.nest import Nest, emit_nest
from dnnl.codegen.point import Point
from dnnl.kernels.pointwise import letters
from dnnl.kernels.scratchpad import Argument
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

    def add(point: Point, value: Value) -> Values:
        return (point.e.b.add(value, term(point)),)

    def merge(e: Emitter, a: Values, b: Values) -> Values:
        return (e.b.add(a[0], b[0]),)

    def body(point: Point) -> None:
        point.store(total, *point.fold((0,), add, merge))

    nest = Nest(tuple(axes[0]), tuple(axes[1]), tuple(inputs), (total,), body, core=I32)
    return emit_nest(module, symbol, nest)


def emit_row_sums(
    module: Module, symbol: str, src: Argument, sums: Argument, arguments: Arguments
) -> Phase:
    """Write a phase that adds up integers over those dimensions of ``src`` that follow the ones of
    ``sums``, in s32."""
    axes = letters(src[1].dims)
    index = tuple(Affine.of(axis) for axis in axes)
    given = Operand(arguments.slot(src[0]), src[1], index)
    kept = sums[1].ndims
    total = Operand(arguments.slot(sums[0]), sums[1], index[:kept])
    parts = axes[:kept], axes[kept:]
    return emit_sums(module, symbol, parts, (given,), total, lambda point: point.load(given))
