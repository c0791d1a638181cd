"""Nests that write several tensors: of other types, other layouts, and fewer dimensions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dnnl.codegen.ir.builder import Emitter, Module, Value, Values
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Number, Operand
from dnnl.codegen.memory.address import Affine, Axis, letters
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.codegen.nest.space import Space
from dnnl.reference.tolerance import EXACT, PRODUCT_SUM
from dnnl.runtime.image import Phase
from dnnl.types.memory_desc import MemoryDesc
from tests.check import check, logical, memory_of
from tests.codegen.lanes import runnable_rows
from tests.codegen.nests import ENGINE, described, launch, random_of
from tests.pairs import every_pair


def space_of(desc: MemoryDesc, index: tuple[Affine, ...]) -> Space:
    """The space of a nest that writes one tensor."""
    axes = tuple(axis for form in index for axis in form.strides)
    return Space.of(axes, (), (), (Operand(0, desc, index),))


EACH_ISA = pytest.mark.parametrize("isa", runnable_rows(), ids=lambda row: row.name)
LOWEST = -3.0e38


def first_maximum(e: Emitter, a: Values, b: Values) -> Values:
    """The larger of two values with its number; of equal ones that with the lower number."""
    later = e.b.fcmp_ordered("<", b[1], a[1])
    equal = e.b.and_(e.b.fcmp_ordered("==", b[0], a[0]), later)
    better = e.b.or_(e.b.fcmp_ordered(">", b[0], a[0]), equal)
    return tuple(e.b.select(better, y, x) for x, y in zip(a, b, strict=True))


@every_pair(
    EACH_ISA,
    pytest.mark.parametrize("kernel", [(3, 3), (2, 17)]),
    pytest.mark.parametrize(
        ("layout", "indices"),
        [
            ("abcd", "u8:abcd"),
            ("acdb", "s32:acdb"),
            ("aBcd16b", "u8:aBcd16b"),
            ("aBcd8b", "s32:abcd"),
            ("gaps", "u8:aBcd16b"),
            ("dcba", "s32:abcd"),
        ],
    ),
)
def test_maximum_and_its_place(
    layout: str, indices: str, kernel: tuple[int, int], isa: Isa
) -> None:
    dims, stride = (2, 19, 7, 23), 2
    out = tuple((n - k) // stride + 1 for n, k in zip(dims[2:], kernel, strict=True))
    src = random_of(described(dims, layout))
    kind, tag = indices.split(":")
    values, places = described((2, 19, *out), layout), described((2, 19, *out), tag, kind)

    def build(module: Module) -> list[Phase]:
        axes = letters(values.dims)
        index = [Affine.of(axis) for axis in axes]
        taps = tuple(Axis(size, f"k{dim}") for dim, size in enumerate(kernel))
        seen = [f * stride + Affine.of(tap) for f, tap in zip(index[2:], taps, strict=True)]
        given = Operand(0, src.desc, (*index[:2], *seen))
        largest, place = Operand(1, values, tuple(index)), Operand(2, places, tuple(index))
        number = Number(Affine.of(taps[0], kernel[1]) + Affine.of(taps[1]))

        def step(p: Point, best: Value, at: Value) -> Values:
            value = p.load(given)
            better = p.e.b.fcmp_ordered(">", value, best)
            return p.e.b.select(better, value, best), p.e.b.select(better, p.number(number), at)

        def body(point: Point) -> None:
            best, at = point.fold((LOWEST, 0.0), step, first_maximum)
            point.store(largest, best)
            point.store(place, at)

        nest = Nest(axes, taps, (given,), (largest, place), body, numbers=(number,))
        return [emit_nest(module, "maximum", nest)]

    windows = np.lib.stride_tricks.sliding_window_view(logical(src), kernel, (2, 3))
    windows = windows[:, :, ::stride, ::stride].reshape(*values.dims, -1)
    best, at = launch(isa, build, [src], [values, places])
    check(best, windows.max(-1), EXACT("f32"))
    check(at, windows.argmax(-1), EXACT(kind))


@EACH_ISA
def test_the_first_of_equal_maxima_has_the_lowest_number(isa: Isa) -> None:
    """Also where several iterations are done at a time, and where lanes are."""
    row = np.zeros((3, 70))
    row[0, [9, 40, 69]] = row[1, [66, 67]] = 1.0
    src = memory_of(row, described((3, 70), "ab"), ENGINE)
    desc = described((3,), "a", "s32")

    def build(module: Module) -> list[Phase]:
        a, b = letters((3, 70))
        given = Operand(0, src.desc, (Affine.of(a), Affine.of(b)))
        place = Operand(1, desc, (Affine.of(a),))
        number = Number(Affine.of(b))

        def step(p: Point, best: Value, at: Value) -> Values:
            value = p.load(given)
            better = p.e.b.fcmp_ordered(">", value, best)
            return p.e.b.select(better, value, best), p.e.b.select(better, p.number(number), at)

        def body(point: Point) -> None:
            # What no iteration has begun with loses against each that has.
            _, at = point.fold((LOWEST, 70.0), step, first_maximum)
            point.store(place, at)

        return [
            emit_nest(
                module, "first", Nest((a,), (b,), (given,), (place,), body, numbers=(number,))
            )
        ]

    (at,) = launch(isa, build, [src], [desc])
    check(at, [9, 66, 0], EXACT("s32"))


@every_pair(
    EACH_ISA,
    pytest.mark.parametrize("axis", [1, 3]),
    pytest.mark.parametrize("layout", ["abcd", "acdb", "aBcd16b", "gaps", "ABcd4b16a4b"]),
)
def test_rows_and_what_has_one_value_for_each(layout: str, axis: int, isa: Isa) -> None:
    """dst is src less the mean of its row; the mean and its square are stored once a row."""
    dims = (3, 21, 4, 37)
    src = random_of(described(dims, layout))
    kept = tuple(extent for dim, extent in enumerate(dims) if dim != axis)
    means = described(kept, "abc")
    squares = described(kept, "cab")

    def build(module: Module) -> list[Phase]:
        axes = letters(dims)
        index = tuple(Affine.of(own) for own in axes)
        rows = tuple(form for dim, form in enumerate(index) if dim != axis)
        given, dst = Operand(0, src.desc, index), Operand(1, src.desc, index)
        mean, square = Operand(2, means, rows), Operand(3, squares, rows)

        def add(p: Point, total: Value) -> Values:
            return (p.e.b.fadd(total, p.load(given)),)

        def both(e: Emitter, a: Values, b: Values) -> Values:
            return (e.b.fadd(a[0], b[0]),)

        def body(point: Point) -> None:
            b = point.e.b
            (total,) = point.fold((0.0,), add, both)
            middle = b.fmul(total, point.constant(1 / dims[axis]))
            point.each(lambda p: p.store(dst, b.fsub(p.load(given), middle)))
            point.store(mean, middle)
            point.store(square, b.fmul(middle, middle))

        parallel = tuple(own for dim, own in enumerate(axes) if dim != axis)
        nest = Nest(parallel, (axes[axis],), (given,), (dst, mean, square), body)
        return [emit_nest(module, "rows", nest)]

    values = logical(src)
    want = values.mean(axis)
    dst, mean, square = launch(isa, build, [src], [src.desc, means, squares])
    bound = PRODUCT_SUM("f32", dims[axis])
    check(mean, want, bound)
    check(square, want**2, bound)
    check(dst, values - np.expand_dims(want, axis), bound)


@every_pair(
    EACH_ISA,
    pytest.mark.parametrize(
        ("layout", "first", "mask"),
        [
            ("abcd", "acdb", "acdb"),
            ("abcd", "acdb", "aBcd16b"),
            ("acdb", "abcd", "gaps"),
            ("abcd", "aBcd16b", "abcd"),
            ("aBcd8b", "gaps", "ABcd4b16a4b"),
            ("dcab", "abcd", "dcba"),
        ],
    ),
    pytest.mark.parametrize("streamed", [False, True]),
)
def test_outputs_of_other_layouts(
    layout: str, first: str, mask: str, streamed: bool, isa: Isa
) -> None:
    """What is loaded in squares, or stored by non-temporal stores, in the first output only."""
    dims = (2, 35, 6, 33)
    src = random_of(described(dims, layout))
    descs = [described(dims, first), described(dims, mask, "u8"), described(dims, layout, "s32")]
    count = np.arange(np.prod(dims[1:])).reshape(dims[1:])
    caches = replace(isa.caches, streamed=1, streamed_rows=1) if streamed else isa.caches

    def build(module: Module) -> list[Phase]:
        axes = letters(dims)
        index = tuple(Affine.of(own) for own in axes)
        given = Operand(0, src.desc, index)
        outputs = tuple(Operand(slot, desc, index) for slot, desc in enumerate(descs, 1))
        number = Number(index[1] * (dims[2] * dims[3]) + index[2] * dims[3] + index[3])

        def body(point: Point) -> None:
            value, zero, one = point.load(given), point.constant(0.0), point.constant(1.0)
            positive = point.e.b.fcmp_ordered(">", value, zero)
            point.store(outputs[0], point.e.b.select(positive, value, zero))
            point.store(outputs[1], point.e.b.select(positive, one, zero))
            point.store(outputs[2], point.number(number))

        nest = Nest(axes, (), (given,), outputs, body, numbers=(number,))
        return [emit_nest(module, "relu", nest)]

    values = logical(src)
    results = launch(replace(isa, caches=caches), build, [src], descs)
    wanted = np.maximum(values, 0.0), values > 0, np.broadcast_to(count, dims)
    for made, want in zip(results, wanted, strict=True):
        check(made, want, EXACT(made.desc.data_type))


@every_pair(
    EACH_ISA,
    pytest.mark.parametrize("streamed", [False, True]),
    pytest.mark.parametrize("layout", ["abc", "gaps", "bac"]),
)
def test_rows_one_after_the_other(layout: str, streamed: bool, isa: Isa) -> None:
    """Each row of a batch less its mean, and a sum that grows from row to row."""
    batch, rows, length = dims = (3, 5, 67)
    src = random_of(described(dims, layout))
    if streamed:
        isa = replace(isa, caches=replace(isa.caches, streamed=1, streamed_rows=1))
    dst, total = described(dims, layout), described((batch, length), "ab")

    def build(module: Module) -> list[Phase]:
        a, b, c = axes = letters(dims)
        index = tuple(Affine.of(axis) for axis in axes)
        given, made = Operand(0, src.desc, index), Operand(1, dst, index)
        grown = Operand(2, total, (index[0], index[2]))

        def row(point: Point) -> None:
            def step(p: Point, value: Value) -> Values:
                return (p.e.b.fadd(value, p.load(given)),)

            def both(e: Emitter, x: Values, y: Values) -> Values:
                return (e.b.fadd(x[0], y[0]),)

            (found,) = point.fold((0.0,), step, both)
            mean = point.e.b.fdiv(found, point.constant(length))

            def finish(p: Point) -> None:
                value = p.e.b.fsub(p.load(given), mean)
                sum_ = p.e.b.fadd(p.load(grown), value)
                p.store(made, value)
                p.store(grown, sum_)

            point.each(finish)

        def body(point: Point) -> None:
            point.outermost(lambda p: p.each(lambda q: q.store(grown, q.constant(0.0))), 1)
            point.outermost(row)

        return [emit_nest(module, "rows", Nest((a,), (b, c), (given,), (made, grown), body))]

    result, sums = launch(isa, build, [src], [dst, total])
    values = logical(src)
    want = values - values.mean(2, keepdims=True)
    check(result, want, PRODUCT_SUM("f32", length))
    check(sums, want.sum(1), PRODUCT_SUM("f32", rows * length))


def test_an_output_longer_than_its_axis_is_refused() -> None:
    """Only what its descriptor says is padding becomes zero."""
    a, b = letters((3, 17))
    index = (Affine.of(a), Affine.of(b))
    padded, longer = described((3, 17), "aB16b"), described((3, 32), "aB16b")
    (end,) = space_of(padded, index).domain
    assert end.limit == 17
    with pytest.raises(AssertionError, match="does not reach 32 elements"):
        space_of(longer, index)
