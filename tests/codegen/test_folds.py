"""Folds that are shared out: partial results in the scratchpad, merged in a fixed order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dnnl.codegen import isa as isa_rows
from dnnl.codegen.compile import jit
from dnnl.codegen.ir.builder import Emitter, Module, Value, Values
from dnnl.codegen.ir.vector import multiply_add
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import ZERO, Affine, letters
from dnnl.codegen.nest import work_items
from dnnl.codegen.nest.folds import (
    Fold,
    Reduction,
    at_once,
    emit_fold,
    exact_partials_desc,
    mean_and_variance,
    moments,
    partials_desc,
    sums,
)
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.codegen.nest.schedule import REDUCTION_UNROLL
from dnnl.reference.arrays import Array
from dnnl.reference.tolerance import PRODUCT_SUM
from dnnl.runtime.image import Phase
from dnnl.runtime.memory import Memory
from dnnl.types.dtype import DataType
from tests.check import assert_close, check, logical, memory_of
from tests.codegen.lanes import runnable_rows
from tests.codegen.nests import ENGINE, described, launch, random_of
from tests.pairs import every_pair

EACH_ISA = pytest.mark.parametrize("isa", runnable_rows(), ids=lambda row: row.name)
LAYOUTS = ["abcd", "acdb", "aBcd16b", "aBcd8b", "gaps", "dcba", "ABcd4b16a4b", "cdab"]


@pytest.fixture(autouse=True)
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little work is worth sharing out."""
    monkeypatch.setattr(work_items, "LEAST_WORK", 256)


def statistics(isa: Isa, src: Memory, kept: tuple[int, ...] = (1,)) -> tuple[Memory, ...]:
    """The mean and the variance over all dimensions but some."""
    desc = described(tuple(src.desc.dims[dim] for dim in kept) or (1,), "abcd"[: len(kept) or 1])
    phases: list[Phase] = []
    per_kept = int(np.prod([src.desc.dims[dim] for dim in kept]))
    scratch = partials_desc(isa, per_kept, src.desc.nelems() // per_kept, 4)

    def build(module: Module) -> list[Phase]:
        axes = letters(src.desc.dims)
        index = tuple(Affine.of(axis) for axis in axes)
        given, own = Operand(0, src.desc, index), tuple(index[dim] for dim in kept) or (ZERO,)
        outputs = Operand(1, desc, own), Operand(2, desc, own)

        def finish(point: Point, values: Values) -> None:
            for output, value in zip(outputs, mean_and_variance(point.e, values), strict=True):
                point.store(output, value)

        fold = Fold(
            parallel=tuple(axes[dim] for dim in kept),
            reduced=tuple(axis for dim, axis in enumerate(axes) if dim not in kept),
            inputs=(given,),
            outputs=outputs,
            reduction=moments(lambda p: p.load(given)),
            finish=finish,
        )
        phases.extend(emit_fold(module, "statistics", fold, (3, scratch)))
        return phases

    results = launch(isa, build, [src], [desc, desc], scratch.size)
    assert scratch.size or len(phases) == 1
    return tuple(results)


@every_pair(
    EACH_ISA,
    pytest.mark.parametrize("layout", LAYOUTS),
    pytest.mark.parametrize(
        "dims", [(3, 19, 7, 9), (1, 3, 37, 41), (5, 70, 1, 1), (2, 130, 4, 4), (1, 1, 64, 64)]
    ),
)
def test_statistics_of_channels(dims: tuple[int, ...], layout: str, isa: Isa) -> None:
    src = random_of(described(dims, layout))
    mean, variance = statistics(isa, src)
    values, length = logical(src), dims[0] * dims[2] * dims[3]
    check(mean, values.mean((0, 2, 3)), PRODUCT_SUM("f32", length))
    check(variance, values.var((0, 2, 3)), PRODUCT_SUM("f32", length))


@every_pair(
    EACH_ISA,
    pytest.mark.parametrize("kept", [(), (0,), (0, 1), (2,), (1, 3), (2, 3)]),
    pytest.mark.parametrize("layout", ["abcd", "acdb", "aBcd16b", "gaps"]),
)
def test_statistics_of_whatever_is_kept(layout: str, kept: tuple[int, ...], isa: Isa) -> None:
    src = random_of(described((4, 19, 12, 13), layout))
    mean, variance = statistics(isa, src, kept)
    values = logical(src)
    axes = tuple(dim for dim in range(4) if dim not in kept)
    bound = PRODUCT_SUM("f32", values.size)
    check(mean, np.atleast_1d(values.mean(axes)), bound)
    check(variance, np.atleast_1d(values.var(axes)), bound)


@EACH_ISA
@pytest.mark.parametrize("layout", ["abcd", "acdb", "aBcd16b"])
def test_variance_does_not_cancel(layout: str, isa: Isa) -> None:
    """Means a million times the deviation, an outlier, and channels that never change."""
    rng = np.random.default_rng(3)
    values: Array = rng.standard_normal((4, 20, 30, 40))
    values[:, 0:5] += 1e6
    values[1, 5:9, 3, 3] = 1e4
    values[:, 9] = 12345.678
    src = memory_of(values, described(values.shape, layout), ENGINE)
    stored = logical(src)
    mean, variance = statistics(isa, src)
    bound = replace(PRODUCT_SUM("f32", 4 * 30 * 40), floor=0.0)
    terms, error = np.sqrt((stored**2).mean((0, 2, 3))), logical(mean) - stored.mean((0, 2, 3))
    assert (np.abs(error) <= bound.relative * terms).all()
    changing = np.arange(20) != 9
    assert_close(logical(variance)[changing], stored.var((0, 2, 3))[changing], bound)
    # The mean of what never changes may be rounded, which is then the deviation of all.
    assert logical(variance)[9] <= (DataType.f32.eps * 12345.678) ** 2


@EACH_ISA
@pytest.mark.parametrize("layout", ["abcd", "acdb", "aBcd16b", "gaps", "cdab"])
def test_long_sums_are_as_exact_as_short_ones(layout: str, isa: Isa) -> None:
    """A register does not add up the thousands of terms that one fold has."""
    dims = (2, 16, 89, 90)
    src = memory_of(np.random.default_rng(7).random(dims), described(dims, layout), ENGINE)
    desc = described((16,), "a")

    def build(module: Module) -> list[Phase]:
        axes = letters(dims)
        index = tuple(map(Affine.of, axes))
        given, output = Operand(0, src.desc, index), Operand(1, desc, index[1:2])
        total = sums(lambda p, before: (p.e.b.fadd(before, p.load(given)),))
        fold = Fold(
            parallel=axes[1:2],
            reduced=(axes[0], *axes[2:]),
            inputs=(given,),
            outputs=(output,),
            reduction=total,
            finish=lambda point, values: point.store(output, *values),
        )
        return [emit_nest(module, "total", at_once(fold))]

    (total,) = launch(isa, build, [src], [desc])
    exact = logical(src).sum((0, 2, 3))
    assert np.abs(logical(total) / exact - 1).max() < 4 * DataType.f32.eps


@every_pair(
    EACH_ISA,
    pytest.mark.parametrize("layout", LAYOUTS),
    pytest.mark.parametrize("kind", ["f32", "bf16", "f16"]),
)
def test_gradients_of_scale_and_shift(layout: str, kind: str, isa: Isa) -> None:
    """Two sums at once, of products of two tensors and what each channel has; what becomes of them
    depends on another thing that each channel has."""
    dims, other = (3, 35, 6, 11), "acdb"
    src, diff = random_of(described(dims, layout, kind)), random_of(described(dims, other, kind), 2)
    mean, factor = random_of(described((35,), "a"), 3), random_of(described((35,), "a"), 4)
    desc = described((35,), "a")
    scratch = partials_desc(isa, 35, 3 * 6 * 11, 2)

    def build(module: Module) -> list[Phase]:
        axes = letters(dims)
        index = tuple(Affine.of(axis) for axis in axes)
        x, dy = Operand(0, src.desc, index), Operand(1, diff.desc, index)
        middle, scale = Operand(2, desc, index[1:2]), Operand(3, desc, index[1:2])
        outputs = Operand(4, desc, index[1:2]), Operand(5, desc, index[1:2])

        def step(p: Point, by_scale: Value, by_shift: Value) -> Values:
            gradient, centred = p.load(dy), p.e.b.fsub(p.load(x), p.load(middle))
            more = multiply_add(p.e, gradient, centred, by_scale)
            return more, p.e.b.fadd(by_shift, gradient)

        def finish(point: Point, values: Values) -> None:
            point.store(outputs[0], point.e.b.fmul(values[0], point.load(scale)))
            point.store(outputs[1], values[1])

        fold = Fold(
            axes[1:2],
            (axes[0], *axes[2:]),
            (x, dy, middle),
            outputs,
            sums(step, 2),
            finish,
            after=(scale,),
        )
        return list(emit_fold(module, "gradients", fold, (6, scratch)))

    by_scale, by_shift = launch(isa, build, [src, diff, mean, factor], [desc, desc], scratch.size)
    x, dy, m, f = (logical(memory) for memory in (src, diff, mean, factor))
    bound = PRODUCT_SUM("f32", 3 * 6 * 11)
    check(by_scale, (dy * (x - m[:, None, None])).sum((0, 2, 3)) * f, bound)
    check(by_shift, dy.sum((0, 2, 3)), bound)


@every_pair(
    EACH_ISA,
    pytest.mark.parametrize("layout", ["abcd", "acdb", "aBcd16b", "gaps"]),
    pytest.mark.parametrize("kept", [(), (1,), (0, 3)]),
)
def test_what_is_stored_on_the_way(kept: tuple[int, ...], layout: str, isa: Isa) -> None:
    """A value for each iteration, beside what is folded, in parts and without; and room for no more
    parts than there are."""
    src = random_of(described((4, 32, 12, 13), layout))
    extents = tuple(src.desc.dims[dim] for dim in kept) or (1,)
    totals = described(extents, "abcd"[: len(extents)])
    axes = letters(src.desc.dims)
    index = tuple(Affine.of(axis) for axis in axes)
    given, doubled = Operand(0, src.desc, index), Operand(1, src.desc, index)
    total = Operand(2, totals, tuple(index[dim] for dim in kept) or (ZERO,))

    def step(p: Point, before: Value) -> Values:
        value = p.load(given)
        p.store(doubled, p.e.b.fadd(value, value))
        return (p.e.b.fadd(before, value),)

    fold = Fold(
        parallel=tuple(axes[dim] for dim in kept),
        reduced=tuple(axis for dim, axis in enumerate(axes) if dim not in kept),
        inputs=(given,),
        outputs=(total,),
        reduction=sums(step),
        finish=lambda point, values: point.store(total, *values),
        stored=(doubled,),
    )
    scratch, phases = exact_partials_desc(isa, fold), list[Phase]()

    def build(module: Module) -> list[Phase]:
        phases.extend(emit_fold(module, "stored", fold, (3, scratch)))
        return phases

    twice, summed = launch(isa, build, [src], [src.desc, totals], scratch.size)
    assert bool(scratch.size) == (len(phases) > 1)
    values, rest = logical(src), tuple(dim for dim in range(4) if dim not in kept)
    check(twice, 2 * values, PRODUCT_SUM("f32"))
    check(summed, np.reshape(values.sum(rest), extents), PRODUCT_SUM("f32", values.size))


@EACH_ISA
def test_any_reduction_that_can_be_merged(isa: Isa) -> None:
    src = random_of(described((7, 8, 9, 10), "acdb"))
    desc = described((1,), "a")
    scratch = partials_desc(isa, 1, 5040, 1)

    def build(module: Module) -> list[Phase]:
        axes = letters(src.desc.dims)
        given = Operand(0, src.desc, tuple(Affine.of(axis) for axis in axes))
        product = Operand(1, desc, (ZERO,))

        def larger(point: Point, best: Values) -> Values:
            e, value = point.e, point.load(given)
            return (e.b.select(e.b.fcmp_ordered(">", value, best[0]), value, best[0]),)

        merge = Reduction(
            lambda point: point.fold((-1e30,), lambda p, *best: larger(p, best), largest),
            largest,
            (-1e30,),
        )
        fold = Fold(
            (), axes, (given,), (product,), merge, lambda point, v: point.store(product, v[0])
        )
        return list(emit_fold(module, "largest", fold, (2, scratch)))

    (best,) = launch(isa, build, [src], [desc], scratch.size)
    assert logical(best)[0] == logical(src).max()


def largest(e: Emitter, a: Values, b: Values) -> Values:
    """The larger of two."""
    return (e.b.select(e.b.fcmp_ordered(">", a[0], b[0]), a[0], b[0]),)


@pytest.mark.parametrize("layout", ["abcd", "acdb", "aBcd16b"])
def test_large_reductions_are_cut_for_threads_and_caches(
    layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the layout, there are items for all threads, and what one reads is in a cache when
    it is read again."""
    monkeypatch.undo()
    isa = replace(runnable_rows()[-1])
    dims = 16, 64, 56, 56
    desc, scratch = described(dims, layout), partials_desc(isa, 64, 16 * 56 * 56, 4)
    module = Module("statistics", isa)
    axes = letters(dims)
    given = Operand(0, desc, tuple(Affine.of(axis) for axis in axes))
    mean = Operand(1, described((64,), "a"), (Affine.of(axes[1]),))
    fold = Fold(
        axes[1:2],
        (axes[0], *axes[2:]),
        (given,),
        (mean,),
        moments(lambda p: p.load(given)),
        lambda point, values: point.store(mean, values[1]),
    )
    parts, merger = emit_fold(module, "statistics", fold, (2, scratch))
    assert 32 <= parts.count <= 512
    assert merger.count <= 32


@pytest.mark.parametrize("row", isa_rows.DEVICES, ids=lambda row: row.name)
def test_parts_are_written_for_devices(row: Isa) -> None:
    module, axes = Module("statistics", row), letters((8, 19, 30, 30))
    given = Operand(0, described((8, 19, 30, 30), "abcd"), tuple(map(Affine.of, axes)))
    mean = Operand(1, described((19,), "a"), (Affine.of(axes[1]),))
    fold = Fold(
        axes[1:2],
        (axes[0], *axes[2:]),
        (given,),
        (mean,),
        moments(lambda p: p.load(given)),
        lambda point, values: point.store(mean, mean_and_variance(point.e, values)[0]),
    )
    parts, merger = emit_fold(module, "statistics", fold, (2, partials_desc(row, 19, 7200, 4)))
    assert parts.count > merger.count == (19 if row.many_items else 1)
    assert parts.symbol in jit.assembly(module)


@pytest.mark.parametrize(
    ("dims", "layout", "registers"),
    [
        ((4, 21, 64, 64), "abcd", 8),
        ((1, 21, 16, 16), "abcd", 2),  # the others would leave too few vectors to share out
        ((4, 21, 64, 64), "acdb", 1),  # along the reduction
    ],
)
def test_vectors_beside_a_reduction_are_long(
    dims: tuple[int, ...], layout: str, registers: int
) -> None:
    isa = isa_rows.find("avx2")
    axes = letters(dims)
    index = tuple(map(Affine.of, axes))
    src, dst = (Operand(slot, described(dims, layout), index) for slot in range(2))

    def body(point: Point) -> None:
        point.each(lambda p: p.store(dst, p.load(src)))

    kept = (axes[0], *axes[2:])
    plan = Nest(kept, axes[1:2], (src,), (dst,), body, reduction_unroll=REDUCTION_UNROLL).planned(
        isa
    )
    assert plan.vectors.lanes == registers * isa.lanes
    assert plan.vectors.reduced == (registers == 1)
