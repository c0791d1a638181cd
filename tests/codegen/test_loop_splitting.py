"""Ranges of loops in which bounds are known to hold or to fail."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from dnnl.codegen.memory.access import Bound
from dnnl.codegen.memory.address import Affine, Axis
from dnnl.codegen.nest.loop_splitting import Variants, cut


def outcomes(bound: Bound, fixed: dict[Axis, int]) -> set[bool]:
    """What a bound says over all iterations of the axes that are not fixed."""
    free = [axis for axis in bound.form.strides if axis not in fixed]
    results = set()
    for values in product(*(range(axis.extent) for axis in free)):
        place = {**fixed, **dict(zip(free, values, strict=True))}
        value = sum(stride * place[axis] for axis, stride in bound.form.strides.items())
        results.add(0 <= value + bound.form.const < bound.limit)
    return results


def check(axes: list[Axis], bounds: list[Bound]) -> Variants:
    """Every claim of the ranges is true, and the ranges cover their axis once."""
    variants = cut(axes, bounds)
    claimed: set[Bound] = set()
    for axis, ranges in variants.ranges.items():
        walked = [index for piece in ranges for index in range(piece.begin, piece.end)]
        assert walked == list(range(axis.extent))
        for piece in ranges:
            for bound, holds in piece.known.items():
                claimed.add(bound)
                for index in range(piece.begin, piece.end):
                    assert outcomes(bound, {axis: index}) == {holds}
    assert not claimed & set(variants.tested)
    return variants


def test_a_tail_is_a_range_of_its_own() -> None:
    outer, lane = Axis(4, "outer"), Axis(16, "lane")
    form = Affine.of(outer, 16) + Affine.of(lane)
    variants = check([outer], [Bound(form, 50)])
    assert [(piece.begin, piece.end) for piece in variants.ranges[outer]] == [(0, 3), (3, 4)]
    assert not variants.tested


def test_rows_of_padding_are_known_to_be_outside() -> None:
    row = Axis(16, "row")
    bound = Bound(Affine.of(row), 3)
    variants = check([row], [bound])
    assert [dict(piece.known) for piece in variants.ranges[row]] == [{bound: True}, {bound: False}]


def test_a_window_has_a_range_inside_and_one_at_each_edge() -> None:
    outer, tap = Axis(9, "outer"), Axis(3, "tap")
    bound = Bound(Affine.of(outer) + Affine.of(tap) + -1, 9)
    variants = check([outer], [bound])
    pieces = variants.ranges[outer]
    assert [(piece.begin, piece.end) for piece in pieces] == [(0, 1), (1, 8), (8, 9)]
    assert [dict(piece.known) for piece in pieces] == [{}, {bound: True}, {}]
    assert not variants.tested


def test_windows_beyond_both_edges_are_known_to_see_nothing() -> None:
    outer, tap = Axis(9, "outer"), Axis(2, "tap")
    bound = Bound(Affine.of(outer) + Affine.of(tap) + -4, 2)
    pieces = check([outer], [bound]).ranges[outer]
    known = [(piece.begin, piece.end, piece.known.get(bound)) for piece in pieces]
    assert known == [(0, 3, False), (3, 4, None), (4, 5, True), (5, 6, None), (6, 9, False)]


def test_bounds_against_the_walk_are_tested() -> None:
    outer = Axis(9, "outer")
    bound = Bound(Affine.of(outer, -1) + 4, 9)
    assert cut([outer], [bound]).tested == (bound,)


def test_what_every_point_breaks_is_not_tested() -> None:
    outer, lane = Axis(9, "outer"), Axis(16, "lane")
    tail, row = Bound(Affine.of(lane), 14), Bound(Affine.of(outer), 4)
    variants = cut([outer], [tail, row], lane=lane)
    assert not variants.tested
    assert list(variants.ranges) == [outer]


def test_where_lanes_differ_is_cut_first() -> None:
    """The windows of whole vectors are the ends of loops in any case."""
    outer, inner, lane, tap = (Axis(extent, str(extent)) for extent in (13, 2, 8, 13))
    rows = Bound(Affine.of(outer) + Affine.of(tap) + -6, 13)
    lanes = Bound(Affine.of(inner, 8) + Affine.of(lane) + Affine.of(tap) + -6, 13)
    variants = cut([outer, inner], [rows, lanes], taps=13 * 13, lane=lane)
    assert list(variants.ranges) == [inner]
    assert variants.tested == (rows,)


def test_combinations_stay_few() -> None:
    axes = [Axis(5, str(number)) for number in range(6)]
    bounds = [Bound(Affine.of(axis), 4) for axis in axes]
    variants = check(axes, bounds)
    assert 0 < len(variants.ranges) < 6
    assert len(variants.tested) == 6 - len(variants.ranges)


@given(
    extents=st.tuples(st.integers(1, 7), st.integers(1, 5)),
    strides=st.tuples(st.integers(1, 9), st.integers(0, 9)),
    limits=st.lists(st.integers(1, 60), min_size=1, max_size=3),
    const=st.integers(-20, 5),
)
def test_what_is_known_is_true(
    extents: tuple[int, int], strides: tuple[int, int], limits: list[int], const: int
) -> None:
    outer, lane = (Axis(extent, name) for extent, name in zip(extents, "ol", strict=True))
    form = Affine.of(outer, strides[0]) + Affine.of(lane, strides[1]) + const
    bounds = [Bound(form, limit) for limit in limits]
    check([outer], [bound for bound in bounds if bound.needed])
