"""Affine forms, and offsets of memory descriptors as such, against the descriptors' own."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnnl.codegen import isa
from dnnl.codegen.ir.builder import Module, i64
from dnnl.codegen.memory.address import ZERO, Affine, Axis, block_boundaries, linear_offset
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.types.memory_desc import MemoryDesc

SMALL = st.integers(-7, 7)
EXTENTS = st.integers(1, 5)


def value(form: Affine, at: dict[Axis, int]) -> int:
    """The form at a point."""
    return form.const + sum(stride * at[axis] for axis, stride in form.strides.items())


def points(axes: Sequence[Axis]) -> list[dict[Axis, int]]:
    """Every point of the axes."""
    ranges = (range(axis.extent) for axis in axes)
    return [dict(zip(axes, point, strict=True)) for point in itertools.product(*ranges)]


@st.composite
def forms(draw: st.DrawFn, axes: Sequence[Axis]) -> Affine:
    """A form over some of the axes."""
    form = Affine({}, draw(SMALL))
    for axis in axes:
        form = form + Affine.of(axis, draw(SMALL))
    return form


@st.composite
def forms_over_axes(draw: st.DrawFn, count: int) -> tuple[list[Axis], list[Affine]]:
    """Three axes and forms over them."""
    axes = [Axis(draw(EXTENTS), name) for name in "xyz"]
    return axes, [draw(forms(axes)) for _ in range(count)]


@given(forms_over_axes(2), SMALL)
def test_sums_and_multiples(case: tuple[list[Axis], list[Affine]], factor: int) -> None:
    axes, (a, b) = case
    for at in points(axes):
        assert value(a + b, at) == value(a, at) + value(b, at)
        assert value(a + factor, at) == value(a, at) + factor
        assert value(a * factor, at) == value(a, at) * factor
    assert 0 not in (a + b).strides.values()
    assert 0 not in (a * factor).strides.values()
    assert (a + a * -1).strides == {}


@given(forms_over_axes(1))
def test_low_and_high_are_reached(case: tuple[list[Axis], list[Affine]]) -> None:
    axes, (form,) = case
    values = [value(form, at) for at in points(axes)]
    assert (form.low, form.high) == (min(values), max(values))


@given(forms_over_axes(2))
def test_substitution(case: tuple[list[Axis], list[Affine]]) -> None:
    (x, y, z), (form, inner) = case
    inner = inner.without(x)
    replaced = form.substitute(x, inner)
    held = form.without(x)
    assert replaced.stride(x) == held.stride(x) == 0
    for at in points([y, z]):
        assert value(replaced, at) == value(form, {**at, x: value(inner, at)})
        assert value(held, at) == value(form, {**at, x: 0})


@given(forms_over_axes(1), st.integers(1, 6))
def test_divmod_is_exact_or_none(case: tuple[list[Axis], list[Affine]], divisor: int) -> None:
    axes, (form,) = case
    split = form.divmod(divisor)
    if split is not None:
        for at in points(axes):
            assert divmod(value(form, at), divisor) == tuple(value(part, at) for part in split)


def test_divmod_by_halves() -> None:
    outer, inner = Axis(5, "outer"), Axis(8, "inner")
    split = (Affine.of(outer, 8) + Affine.of(inner) + 16).divmod(8)
    assert split == (Affine.of(outer) + 2, Affine.of(inner))
    assert (Affine.of(inner) + 1).divmod(8) is None
    assert Affine.of(Axis(9, "long")).divmod(8) is None
    assert (Affine.of(outer, 8) + -8).divmod(8) == (Affine.of(outer) + -1, ZERO)


LAYOUTS = [
    "abcd",
    "acdb",
    "dcba",
    "aBcd16b",
    "aBcd8b",
    "ABcd16b16a",
    "ABcd4b16a4b",
    "aBcD4d8b",
    "aBcd4b4b",
    "Abcd3a",
]


def split_axes(desc: MemoryDesc) -> tuple[list[Axis], list[Affine]]:
    """Axes that fit the blocks of each dimension, and the index that they make."""
    axes, index = [], []
    for dim, extent in enumerate(desc.padded_dims):
        form, step = ZERO, 1
        for size in [*block_boundaries(desc, dim), extent]:
            axis = Axis(size // step, f"{dim}:{step}")
            form = form + Affine.of(axis, step)
            axes.append(axis)
            step = size
        index.append(form)
    return axes, index


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dims", [(2, 19, 3, 5), (17, 4, 1, 8)], ids=str)
def test_offsets_of_every_element(dims: tuple[int, ...], layout: str) -> None:
    desc = MemoryDesc(dims, "f32", layout)
    axes, index = split_axes(desc)
    offset = linear_offset(desc, index)
    assert offset is not None
    for at in points(axes):
        place = tuple(value(form, at) for form in index)
        if all(i < extent for i, extent in zip(place, dims, strict=True)):
            assert value(offset, at) == desc.offset(place)


def test_offset_of_a_part() -> None:
    whole = MemoryDesc((4, 48, 5, 6), "f32", "aBcd16b")
    desc = whole.submemory((2, 16, 3, 2), (1, 16, 2, 3))
    axes, index = split_axes(desc)
    offset = linear_offset(desc, index)
    assert offset is not None
    assert offset.const == desc.offset0 > 0
    for at in points(axes):
        assert value(offset, at) == desc.offset(tuple(value(form, at) for form in index))


@given(st.integers(1, 3), st.integers(0, 3), st.integers(1, 3))
def test_offset_of_a_sliding_window(stride: int, padding: int, dilation: int) -> None:
    out, tap = Axis(4, "out"), Axis(3, "tap")
    desc = MemoryDesc((1, 1, 40), "f32", "aBc8b")
    w = Affine.of(out, stride) + Affine.of(tap, dilation) + -padding
    offset = linear_offset(desc, (ZERO, ZERO, w))
    assert offset is not None
    for at in points([out, tap]):
        if value(w, at) >= 0:
            assert value(offset, at) == desc.offset((0, 0, value(w, at)))


def test_an_axis_across_a_block_has_no_linear_offset() -> None:
    desc = MemoryDesc((1, 19, 3, 5), "f32", "aBcd16b")
    n, c, h, w = (Axis(extent, "axis") for extent in desc.dims)
    index = [Affine.of(axis) for axis in (n, c, h, w)]
    assert linear_offset(desc, index) is None
    index[1] = Affine.of(Axis(4, "c"), 12)
    assert linear_offset(desc, index) is None
    index[1] = Affine.of(Axis(2, "c"), 16) + 3
    offset = linear_offset(desc, index)
    assert offset is not None
    assert offset.const == 3


def test_block_boundaries() -> None:
    desc = MemoryDesc((32, 32, 4, 4), "f32", "ABcd4b16a4b")
    assert block_boundaries(desc, 0) == (16,)
    assert block_boundaries(desc, 1) == (4, 16)
    assert block_boundaries(desc, 2) == ()


def test_every_axis_must_have_a_value_where_a_form_is_written() -> None:
    e = PhaseFunction(Module("test", isa.GENERIC), "test", range(1)).e
    row, column, unit = Axis(4, "row"), Axis(8, "column"), Axis(1, "unit")
    form = Affine({row: 8, column: 1, unit: 100}, 3)
    known = {row: i64(2), column: i64(5)}
    assert form.emit(e, known).constant == 3 + 2 * 8 + 5
    with pytest.raises(AssertionError, match="column<8 has no value"):
        form.emit(e, {row: i64(2)})
    assert form.along({row}).emit(e, {row: i64(2)}).constant == 3 + 2 * 8
