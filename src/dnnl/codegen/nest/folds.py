"""Reductions split over work items: statistics of a batch, gradients of scales.

A kernel describes a reduction and what is done with its result::

    fold = Fold(
        parallel=(c,), reduced=(n, h, w), inputs=(src,), outputs=(mean, variance),
        reduction=moments(lambda p: p.load(src)), finish=store_statistics,
    )
    phases = emit_fold(module, "statistics", fold, scratch)

``scratch`` is memory for partial results, as large as `partials_desc` says. Work items reduce one
part each and store partial results. A second phase merges them in a fixed order. If there is too
little work to split, one phase does everything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

from dnnl.codegen.conversion.convert import storage
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, F64, Emitter, Module, Type, Value, Values
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, Axis
from dnnl.codegen.nest.fold_loop import Merge, Step, added
from dnnl.codegen.nest.nest import Nest, emit_nest, emit_planned
from dnnl.codegen.nest.parts import cut_reduction, most_parts, worth_splitting
from dnnl.codegen.nest.point import Point
from dnnl.codegen.nest.schedule import schedule
from dnnl.codegen.nest.space import Space
from dnnl.runtime.image import Phase
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import is_one, surely_equal

_UNBOUND = -1  # the slot of operands that are planned but not emitted


@dataclass(frozen=True, eq=False)
class Reduction:
    """A reduction of iterations to a few values.

    ``partial(point)`` folds the reduced axes of a point, or a part of them. ``merge(e, values,
    others)`` combines two results; ``neutral`` is its neutral element. Values are of ``data_type``:
    f32, s32, or f64, in which the body then computes as well.
    """

    partial: Callable[[Point], Values]
    merge: Merge
    neutral: tuple[float, ...]
    data_type: DataType = DataType.f32

    @property
    def element(self) -> Type:
        """The IR type of a value's elements."""
        return storage(self.data_type).element


def sums(step: Step, count: int = 1, data_type: DataType = DataType.f32) -> Reduction:
    """``count`` sums. ``step(point, *totals)`` adds the terms of one iteration."""
    neutral = (0.0,) * count
    return Reduction(lambda point: point.fold(neutral, step, added), added, neutral, data_type)


def moments(value: Callable[[Point], Value], data_type: DataType = DataType.f32) -> Reduction:
    """The moments from which :func:`mean_and_variance` is computed: the number of iterations, their
    mean, its rounding error, and the sum of squared differences from the exact mean.

    There is no cancellation, however far the mean is from zero: the mean of a part is computed
    first, and the part is read again (from the cache) to square the differences. Parts are merged
    by the formula of Chan, Golub and LeVeque.
    """

    def partial(point: Point) -> Values:
        b, count, some = point.e.b, point.folded, point.divisor
        (total,) = sums(lambda p, before: (p.e.b.fadd(before, value(p)),)).partial(point)
        mean = b.fdiv(total, some)

        def step(p: Point, rest: Value, squares: Value) -> Values:
            difference = p.e.b.fsub(value(p), mean)
            more = vector.multiply_add(p.e, difference, difference, squares)
            return p.e.b.fadd(rest, difference), more

        total, squares = sums(step, 2).partial(point)
        rest = b.fdiv(total, some)
        return count, mean, rest, b.fsub(squares, b.fmul(total, rest))

    return Reduction(partial, _merged_moments, (0.0,) * 4, data_type)


def mean_and_variance(e: Emitter, values: Values) -> tuple[Value, Value]:
    """The mean and the variance (divided by the count) from the values of ``moments``."""
    count, mean, rest, squares = values
    some = vector.maximum(e, count, vector.splat_constant(count.type, 1.0))
    return e.b.fadd(mean, rest), e.b.fdiv(squares, some)


def _merged_moments(e: Emitter, a: Values, b: Values) -> Values:
    (n, mean, rest, squares), (m, other, its_rest, more) = a, b
    zero, one = (vector.splat_constant(n.type, value) for value in (0.0, 1.0))
    count = e.b.fadd(n, m)
    share = e.b.fdiv(m, vector.maximum(e, count, one))
    # The mean of the first part is kept as the reference; ``rest`` corrects it.
    mean = e.b.select(e.b.fcmp_ordered("==", n, zero), other, mean)
    difference = e.b.fadd(e.b.fsub(other, mean), e.b.fsub(its_rest, rest))
    apart = e.b.fmul(e.b.fmul(difference, difference), e.b.fmul(n, share))
    rest = vector.multiply_add(e, difference, share, rest)
    return count, mean, rest, e.b.fadd(e.b.fadd(squares, more), apart)


@dataclass(frozen=True, eq=False)
class Fold:
    """A reduction of ``inputs`` over ``reduced``, for every point of ``parallel``.

    ``finish(point, values)`` stores results to ``outputs``. It may read the operands ``after``.
    Both are indexed by the parallel axes only. ``stored`` are outputs that the reduction stores in
    each iteration. ``reads_dst`` says that ``finish`` reads the first output.
    """

    parallel: tuple[Axis, ...]
    reduced: tuple[Axis, ...]
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    reduction: Reduction
    finish: Callable[[Point, Values], None]
    after: tuple[Operand, ...] = ()
    stored: tuple[Operand, ...] = ()
    reads_dst: bool = False

    @property
    def core(self) -> Type:
        """The type of the body's vectors."""
        return F64 if self.reduction.data_type is DataType.f64 else F32


def partials_desc(
    isa: Isa, points: int, reduced: int, values: int, data_type: DataType = DataType.f32
) -> MemoryDesc:
    """Memory for the partial results of any fold of ``reduced`` elements to ``values`` values for
    each of ``points`` points: an upper bound, empty if the reduction is never split."""
    parts = most_parts(isa, points, reduced)
    split = worth_splitting(parts, reduced)
    return MemoryDesc((parts * values * points if split else 0,), data_type)


def exact_partials_desc(isa: Isa, fold: Fold) -> MemoryDesc:
    """Exactly the memory that this fold needs for partial results; empty if it is not split.
    Planning it takes about a millisecond."""
    points, reduced, values = _sizes(fold)
    data_type = fold.reduction.data_type
    most = partials_desc(isa, points, reduced, values, data_type)
    if not most.nelems():
        return most
    _, _, count, _ = _in_parts(isa, fold, Parts.of(fold, _UNBOUND, most))
    split = not surely_equal(count, 1)
    return MemoryDesc((count * values * points if split else 0,), data_type)


def emit_fold(
    module: Module, symbol: str, fold: Fold, scratch: tuple[int, MemoryDesc]
) -> tuple[Phase, ...]:
    """Emit the phases ``symbol``: one, or the partial reduction and the merge.

    ``scratch`` is the slot of the scratchpad and the part of it with the partial results, see
    `partials_desc` and `exact_partials_desc`.
    """
    isa, parts = module.isa, Parts.of(fold, *scratch)
    nest, space, count, registers = _in_parts(isa, fold, parts)
    if surely_equal(count, 1):
        return (emit_nest(module, symbol, replace(at_once(fold), registers=registers)),)
    plan = schedule(isa, space, replace(nest.style, registers=registers))
    first = emit_planned(module, symbol, nest, plan)
    return first, emit_nest(module, f"merged_{symbol}", parts.merger(count, fold))


def _sizes(fold: Fold) -> tuple[int, int, int]:
    """The numbers of points, of reduced elements for each point, and of values."""
    points, reduced = (prod(axis.extent for axis in axes) for axes in (fold.parallel, fold.reduced))
    return points, reduced, len(fold.reduction.neutral)


def _in_parts(isa: Isa, fold: Fold, parts: Parts) -> tuple[Nest, Space, int, int]:
    """The nest that reduces one part, the space of all parts, their number, and the registers that
    vectors should fill."""
    nest = parts.part(fold)
    written = nest.outputs[len(fold.stored) :]
    points, reduced, _ = _sizes(fold)
    return nest, *cut_reduction(isa, nest.space, points, reduced, written, fold.core)


def at_once(fold: Fold) -> Nest:
    """The nest of an unsplit fold."""

    def body(point: Point) -> None:
        fold.finish(point, fold.reduction.partial(point))

    inputs, outputs = (*fold.inputs, *fold.after), (*fold.stored, *fold.outputs)
    return Nest(
        fold.parallel, fold.reduced, inputs, outputs, body, reads_dst=fold.reads_dst, core=fold.core
    )


def _padded(fold: Fold, axis: Axis) -> bool:
    """Whether an output that is stored in each iteration is padded along ``axis``. This matters for
    axes of extent 1 as well."""
    return any(
        form.strides == {axis: 1} and operand.desc.padded_dims[dim] > operand.desc.dims[dim]
        for operand in fold.stored
        for dim, form in enumerate(operand.index)
    )


@dataclass(frozen=True, eq=False)
class Parts:
    """The partial results of a fold: ``values`` tensors over the parts and the axes ``parallel``,
    one behind the other in ``scratch``."""

    parallel: tuple[Axis, ...]
    values: int
    slot: int
    scratch: MemoryDesc
    data_type: DataType = DataType.f32

    @staticmethod
    def of(fold: Fold, slot: int, scratch: MemoryDesc) -> Parts:
        """The partial results of ``fold``."""
        reduction = fold.reduction
        parallel = tuple(
            axis for axis in fold.parallel if not is_one(axis.extent) or _padded(fold, axis)
        )
        return Parts(parallel, len(reduction.neutral), slot, scratch, reduction.data_type)

    def operands(self, part: Axis | None = None, first: int = 0) -> tuple[Operand, ...]:
        """The operands of the parts on axis ``part``, the first of which has the number ``first``;
        without an axis, of the part ``first`` only."""
        axes = self.parallel if part is None else (part, *self.parallel)
        dims, index = tuple(axis.extent for axis in axes), tuple(map(Affine.of, axes))
        begin = self.scratch.offset0 + first * prod(axis.extent for axis in self.parallel)
        apart = self.scratch.nelems() // self.values
        return tuple(
            Operand(
                self.slot, MemoryDesc(dims, self.data_type, offset0=begin + number * apart), index
            )
            for number in range(self.values)
        )

    def part(self, fold: Fold) -> Nest:
        """The nest that reduces one part, as if there were no others."""
        written = self.operands()

        def body(point: Point) -> None:
            for operand, value in zip(written, fold.reduction.partial(point), strict=True):
                point.store_stored(operand, value)

        outputs = (*fold.stored, *written)
        return Nest(fold.parallel, fold.reduced, fold.inputs, outputs, body, core=fold.core)

    def merger(self, count: int, fold: Fold) -> Nest:
        """The nest that merges ``count`` parts and finishes like ``fold``."""
        part = Axis(count, "part")
        read, own = self.operands(part), fold.reduction

        def step(p: Point, *values: Value) -> Values:
            return own.merge(p.e, values, tuple(p.load_stored(operand) for operand in read))

        def partial(point: Point) -> Values:
            return point.fold(own.neutral, step, own.merge, element=own.element)

        merged = replace(own, partial=partial)
        whole = replace(fold, reduced=(part,), inputs=read, reduction=merged, stored=())
        return at_once(whole)
