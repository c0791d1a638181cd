"""Folds over windows that hang over the edges: what lies outside leaves the values as they are."""

from __future__ import annotations

import numpy as np
import pytest

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Emitter, Module, Value, Values
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, Axis, letters
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.reference.tolerance import EXACT
from dnnl.runtime.image import Phase
from tests.check import check, logical, memory_of
from tests.codegen.lanes import runnable_rows
from tests.codegen.nests import ENGINE, described, launch
from tests.pairs import every_pair

EACH_ISA = pytest.mark.parametrize("isa", runnable_rows(), ids=lambda row: row.name)
DIMS = (2, 19, 6, 21)
LOWEST = float(np.float32(-3.0e38))


@every_pair(
    EACH_ISA,
    pytest.mark.parametrize(
        ("layout", "absent"),
        [("abcd", LOWEST), ("acdb", LOWEST), ("abcd", None), ("aBcd16b", None)],
    ),
    pytest.mark.parametrize(
        ("kernel", "stride", "pad", "dilation"),
        [
            ((3, 3), 1, 1, 1),
            ((3, 5), 2, 2, 1),
            ((2, 3), 1, 2, 2),
            ((11, 13), 1, 6, 1),
            ((1, 33), 1, 16, 1),
            ((9, 9), 2, 12, 1),
        ],
    ),
)
def test_sums_of_two_operands(
    kernel: tuple[int, int],
    stride: int,
    pad: int,
    dilation: int,
    absent: float | None,
    layout: str,
    isa: Isa,
) -> None:
    """The largest a + b of each window and how many there are, all of them below zero."""
    random = np.random.default_rng(1)
    values = [random.integers(-99, -1, DIMS).astype(np.float64) for _ in "ab"]
    sources = [memory_of(each, described(DIMS, layout), ENGINE) for each in values]
    reach = [(k - 1) * dilation + 1 for k in kernel]
    edges = [(0, 0), (0, 0), (pad, pad), (pad, pad)]
    padded = np.pad(sum(map(logical, sources)), edges, constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, reach, (2, 3))
    windows = windows[:, :, ::stride, ::stride, ::dilation, ::dilation]
    windows = windows.reshape(*windows.shape[:4], -1)
    largest_sum, inside = np.maximum(windows.max(-1), LOWEST), np.isfinite(windows).sum(-1)
    desc = described(windows.shape[:4], layout)

    def build(module: Module) -> list[Phase]:
        axes = letters(desc.dims)
        index = tuple(map(Affine.of, axes))
        taps = tuple(Axis(size, f"k{dim}") for dim, size in enumerate(kernel))
        seen = [
            own * stride + Affine.of(tap, dilation) + -pad
            for own, tap in zip(index[2:], taps, strict=True)
        ]
        given = [Operand(slot, each.desc, (*index[:2], *seen)) for slot, each in enumerate(sources)]
        largest, number = Operand(2, desc, index), Operand(3, desc, index)

        def step(p: Point, best: Value) -> Values:
            return (vector.maximum(p.e, p.e.b.fadd(*map(p.load, given)), best),)

        def merge(e: Emitter, a: Values, b: Values) -> Values:
            return (vector.maximum(e, a[0], b[0]),)

        def body(point: Point) -> None:
            (best,) = point.fold((LOWEST,), step, merge, absent=absent)
            point.store(largest, best)
            point.store(number, point.folded)

        return [
            emit_nest(module, "windows", Nest(axes, taps, tuple(given), (largest, number), body))
        ]

    best, count = launch(isa, build, sources, [desc, desc])
    check(best, largest_sum, EXACT("f32"))
    check(count, inside, EXACT("f32"))
