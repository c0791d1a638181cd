"""Sliding windows seen from their elements, and gradients gathered by them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnnl.codegen.ir.builder import Emitter, Module, Value, Values
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Bound, Number, Operand
from dnnl.codegen.memory.address import Affine, Axis, letters
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.codegen.nest.windows import Containing, Window, containing, tap_number
from dnnl.reference.arrays import Array
from dnnl.reference.tolerance import PRODUCT_SUM
from dnnl.runtime.image import Phase
from dnnl.types.memory_desc import MemoryDesc
from tests.check import check, logical, memory_of
from tests.codegen.lanes import runnable_rows
from tests.codegen.nests import ENGINE, Build, described, launch, random_of
from tests.pairs import every_pair

EACH_ISA = pytest.mark.parametrize("isa", runnable_rows(), ids=lambda row: row.name)


def value(form: Affine, at: dict[Axis, int]) -> int:
    return form.const + sum(stride * at[axis] for axis, stride in form.strides.items())


def holds(bounds: tuple[Bound, ...], at: dict[Axis, int]) -> bool:
    return all(0 <= value(bound.form, at) < bound.limit for bound in bounds)


def found(own: Containing) -> Iterator[tuple[int, set[tuple[int, int]]]]:
    """Each element that is walked, with its pairs of window and tap."""
    for place in product(*(range(axis.extent) for axis in own.parallel)):
        at = dict(zip(own.parallel, place, strict=True))
        if holds(own.where, at):
            every = [{**at, own.reduced: step} for step in range(own.reduced.extent)]
            pairs = {
                (value(own.window, a), value(own.tap, a)) for a in every if holds(own.pairs, a)
            }
            yield value(own.element, at), pairs


@given(
    st.builds(
        Window,
        elements=st.integers(1, 20),
        windows=st.integers(1, 9),
        kernel=st.integers(1, 7),
        stride=st.integers(1, 7),
        dilation=st.integers(1, 7),
        padding=st.integers(0, 6),
    )
)
def test_every_element_has_its_windows_once(dim: Window) -> None:
    walked = list(found(containing(dim, "h")))
    assert sorted(element for element, _ in walked) == list(range(dim.elements))
    for element, pairs in walked:
        place = element + dim.padding
        want = {
            (window, tap)
            for window, tap in product(range(dim.windows), range(dim.kernel))
            if window * dim.stride + tap * dim.dilation == place
        }
        assert pairs == want


@given(
    st.builds(
        Window,
        elements=st.integers(1, 9),
        windows=st.integers(1, 9),
        kernel=st.integers(1, 30),
        stride=st.integers(1, 7),
        dilation=st.integers(1, 7),
        padding=st.integers(0, 40),
    )
)
def test_taps_that_no_window_has_on_an_element_are_known(dim: Window) -> None:
    hit = {
        tap
        for window, tap in product(range(dim.windows), range(dim.kernel))
        if 0 <= window * dim.stride + tap * dim.dilation - dim.padding < dim.elements
    }
    assert hit <= set(dim.reached)
    span = dim.elements + (dim.windows - 1) * dim.stride  # of all windows together
    assert 1 <= len(dim.reached) <= 1 + span // dim.dilation


def test_an_iteration_that_divides_looks_at_nothing_else() -> None:
    """Where the kernel is a multiple of the stride, no tap is missing: only edges have bounds."""
    own = containing(Window(56, 28, 4, 2, 1, 1), "h")
    assert own.reduced.extent == 2
    assert len(own.pairs) == 1


def gather(
    dims: list[Window], diff_dst: MemoryDesc, diff_src: MemoryDesc, places: MemoryDesc
) -> Build:
    """A nest over diff_src: the sum of diff_dst of those windows whose ``places`` name the tap."""

    def build(module: Module) -> list[Phase]:
        n, c = letters(diff_src.dims[:2])
        own = [containing(dim, f"d{number}") for number, dim in enumerate(dims)]
        batch = Affine.of(n), Affine.of(c)
        windows = (*batch, *(each.window for each in own))
        pairs = tuple(bound for each in own for bound in each.pairs)
        gradient = Operand(0, diff_dst, windows, inside=pairs)
        chosen = Operand(1, places, windows, inside=pairs)
        result = Operand(2, diff_src, (*batch, *(each.element for each in own)))
        number = Number(tap_number([each.tap for each in own], [dim.kernel for dim in dims]))

        def step(p: Point, total: Value) -> Values:
            hit = p.e.b.fcmp_ordered("==", p.load(chosen), p.number(number))
            term = p.e.b.select(hit, p.load(gradient), p.constant(0.0))
            return (p.e.b.fadd(total, term),)

        def merge(e: Emitter, a: Values, b: Values) -> Values:
            return (e.b.fadd(a[0], b[0]),)

        def body(point: Point) -> None:
            (total,) = point.fold((0.0,), step, merge)
            point.store(result, total)

        nest = Nest(
            parallel=(n, c, *(axis for each in own for axis in each.parallel)),
            reduced=tuple(each.reduced for each in own),
            inputs=(gradient, chosen),
            outputs=(result,),
            body=body,
            where=tuple(bound for each in own for bound in each.where),
            numbers=(number,),
        )
        return [emit_nest(module, "gather", nest)]

    return build


def scattered(dims: list[Window], gradient: Array, places: Array) -> Array:
    """Each element of ``gradient`` added to the tap of its window that ``places`` names."""
    result = np.zeros((*gradient.shape[:2], *(dim.elements for dim in dims)))
    for at in np.ndindex(*gradient.shape):
        taps = np.unravel_index(int(places[at]), [dim.kernel for dim in dims])
        spot = tuple(
            o * dim.stride + int(k) * dim.dilation - dim.padding
            for o, k, dim in zip(at[2:], taps, dims, strict=True)
        )
        if all(0 <= i < dim.elements for i, dim in zip(spot, dims, strict=True)):
            result[(*at[:2], *spot)] += gradient[at]
    return result


@every_pair(
    EACH_ISA,
    pytest.mark.parametrize(
        ("source", "target"),
        [
            ("abcd", "abcd"),
            ("acdb", "acdb"),
            ("aBcd16b", "aBcd16b"),
            ("abcd", "acdb"),
            ("acdb", "abcd"),
            ("aBcd8b", "gaps"),
            ("gaps", "aBcd16b"),
            ("dcba", "abcd"),
        ],
    ),
    pytest.mark.parametrize(
        "dims",
        [
            [Window(17, 9, 3, 2, 1, 1), Window(23, 11, 3, 2, 1, 0)],  # overlapping
            [Window(12, 4, 3, 3, 1, 0), Window(40, 38, 3, 1, 1, 0)],  # side by side, and by one
            [
                Window(11, 3, 2, 4, 1, 1),
                Window(19, 4, 2, 3, 2, 1),
            ],  # gaps between windows, dilation
            [Window(14, 4, 3, 2, 2, 2), Window(1, 1, 1, 1, 1, 0)],  # elements between all taps
        ],
    ),
)
def test_gradients_are_gathered(dims: list[Window], source: str, target: str, isa: Isa) -> None:
    batch, spatial = (2, 19), tuple(dim.windows for dim in dims)
    gradient = random_of(described((*batch, *spatial), source))
    volume = int(np.prod([dim.kernel for dim in dims]))
    taps = np.random.default_rng(2).integers(0, volume, (*batch, *spatial))
    places = memory_of(taps, described((*batch, *spatial), source, "u8"), ENGINE)
    result = described((*batch, *(dim.elements for dim in dims)), target)
    build = gather(dims, gradient.desc, result, places.desc)
    (made,) = launch(isa, build, [gradient, places], [result])
    want = scattered(dims, logical(gradient), logical(places))
    check(made, want, PRODUCT_SUM("f32", volume))
