"""Register tiles: their shapes, their reduction levels, and their products against NumPy."""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llvmlite import ir
from numpy.typing import NDArray

from dnnl import config
from dnnl.codegen import isa as rows
from dnnl.codegen.compile import jit
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, Emitter, Module, i64
from dnnl.codegen.ir.kernel import Kernel, Recipe
from dnnl.codegen.isa import Isa
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.codegen.product.brgemm import (
    Factors,
    Level,
    Tile,
    accumulate,
    choose_vectors,
    max_rows,
    merge_levels,
)
from dnnl.codegen.product.multiply import multiply
from dnnl.runtime.engine import Engine
from dnnl.types.dtype import DataType
from tests.codegen.lanes import runnable_rows
from tests.launch import launch
from tests.pairs import every_pair

EACH_ROW = pytest.mark.parametrize("isa", rows.ROWS, ids=lambda row: row.name)
EACH_RUNNABLE = pytest.mark.parametrize("isa", runnable_rows(), ids=lambda row: row.name)


@EACH_ROW
@pytest.mark.parametrize("vectors", [1, 2, 3, 4])
def test_a_tile_fits_the_registers(vectors: int, isa: Isa) -> None:
    count = max_rows(isa, vectors)
    needed = count * vectors + vectors + 1
    assert needed <= isa.registers or count == 1
    assert needed + vectors > isa.registers


@EACH_ROW
@pytest.mark.parametrize("columns", range(1, 131))
def test_no_other_width_computes_fewer_columns(columns: int, isa: Isa) -> None:
    """Single vectors are worth it where they save a ninth."""
    padded = {v: -(-columns // (v * isa.lanes)) * v * isa.lanes for v in (2, 3, 1)}
    chosen, wide = choose_vectors(isa, columns), min(padded[2], padded[3])
    if chosen == 1:
        assert padded[1] < wide * 8 / 9
    else:
        assert padded[chosen] == wide
        assert padded[1] >= wide * 8 / 9
        assert chosen == 2 or padded[2] > wide


SCALARS = [row for row in rows.DEVICES if row.lanes == 1]


@pytest.mark.parametrize("isa", SCALARS, ids=lambda row: row.name)
def test_tiles_of_scalars_load_little_for_what_they_multiply(isa: Isa) -> None:
    for columns in (3, 4, 50, 1000):
        vectors = choose_vectors(isa, columns)
        count = max_rows(isa, vectors)
        assert count * vectors >= 2 * (count + vectors)
    assert choose_vectors(isa, 1) == 2


@EACH_ROW
def test_rows_that_share_cache_sets_make_wide_tiles(isa: Isa) -> None:
    columns = 8 * isa.lanes
    way = isa.caches.l1 // isa.caches.l1_ways  # so many bytes apart, all rows fall into one set
    fits = max_rows(isa, 2) <= isa.caches.l1_ways
    assert choose_vectors(isa, columns, way) == (2 if fits else 4)
    assert choose_vectors(isa, columns, way + 64) == 2
    assert choose_vectors(isa, columns, 3) == 2
    assert choose_vectors(isa, 4 * isa.lanes - 1, way) != 4


def steps(levels: list[Level]) -> Counter[tuple[int, int]]:
    """Where the levels lead in A and in B, and how often."""
    ranges = [range(level.begin.constant, level.end.constant) for level in levels]
    return Counter(
        (
            sum(i * level.a_step for i, level in zip(at, levels, strict=True)),
            sum(i * level.b_step for i, level in zip(at, levels, strict=True)),
        )
        for at in itertools.product(*ranges)
    )


@st.composite
def some_levels(draw: st.DrawFn) -> list[Level]:
    """Levels that often, but not always, continue one another."""
    levels: list[Level] = []
    a = b = 1
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.sampled_from([0, 0, 0, 1, 2]))
        count = draw(st.integers(0, 4))
        levels.insert(0, Level(i64(begin), i64(begin + count), a, b))
        a *= max(1, count) * draw(st.sampled_from([1, 1, 1, 2]))
        b *= max(1, count) * draw(st.sampled_from([1, 1, 1, 3]))
    return levels


@given(some_levels())
def test_merged_levels_go_the_same_way(levels: list[Level]) -> None:
    merged = merge_levels(levels)
    assert steps(merged) == steps(levels)
    assert 1 <= len(merged) <= len(levels)


def test_what_merges() -> None:
    whole = [Level.over(4, 24, 48), Level.over(3, 8, 16), Level.over(8, 1, 2)]
    assert [level.count for level in merge_levels(whole)] == [96]
    other = [Level.over(4, 24, 50), Level.over(3, 8, 16), Level.over(8, 1, 2)]
    assert [level.count for level in merge_levels(other)] == [4, 24]
    single = [Level.over(4, 5, 5), Level.over(1, 77, 77), Level.over(3, 1, 2)]
    assert [level.count for level in merge_levels(single)] == [4, 3]
    variable = Level(_value(), i64(3), 8, 8)
    assert merge_levels([variable, Level.over(8, 1, 1)])[0] is variable


def _value() -> ir.Value:
    """A value that is only known at run time."""
    function = ir.Function(ir.Module(), ir.FunctionType(ir.VoidType(), [ir.IntType(64)]), "f")
    return function.args[0]


@dataclass(frozen=True)
class _Conf:
    """A product: (count, a_step, b_step) of each level, and where rows and vectors are."""

    levels: tuple[tuple[int, int, int], ...]
    rows: tuple[int, ...]
    vectors: tuple[int, ...]
    bounded: bool
    leaf: bool


def _build(conf: _Conf, isa: Isa) -> Kernel:
    """One tile from A, B and the outermost level's end to C."""
    module = Module("tile", isa)
    phase = PhaseFunction(module, "tile", range(4))
    e = phase.e
    a, b, end, c = phase.arguments.values()
    levels = [Level.over(*level) for level in conf.levels]
    if conf.bounded:
        given = e.b.load(end, typ=ir.IntType(64))
        levels[0] = Level(i64(1), given, levels[0].a_step, levels[0].b_step)
    way = multiply(isa, DataType.f32, DataType.f32)
    assert way is not None
    factors = Factors(a, b, conf.rows, conf.vectors, way)

    def twice(e: Emitter, tile: Tile, at: Factors) -> Tile:
        for _ in range(2):
            tile = accumulate(e, tile, at, [])
        return tile

    start = Tile.of(way.zero(e), len(conf.rows), len(conf.vectors))
    sums = accumulate(e, start, factors, levels, twice if conf.leaf else None)
    for number, value in enumerate(sums.cells):
        vector.store(e, value, e.element(c, i64(number * isa.lanes), F32))
    return Kernel(module, (phase.end(1),), (0, 1, 2, 3))


def _run(isa: Isa, conf: _Conf, a: NDArray[Any], b: NDArray[Any], end: int) -> NDArray[np.float32]:
    c = np.full(len(conf.rows) * len(conf.vectors) * isa.lanes, np.nan, np.float32)
    limit = np.array([end], np.int64)
    with tempfile.TemporaryDirectory() as folder, config.override("cache_dir", folder):
        image, _ = jit.image(Recipe(conf, isa, _build))
    pointers = tuple(array.ctypes.data for array in (a, b, limit, c))
    launch(Engine("cpu").load(image), pointers)
    return c.reshape(len(conf.rows), len(conf.vectors), isa.lanes)


@pytest.mark.parametrize(
    ("steps", "tile", "sums"),
    [(64, (1, 1), 1), (128, (1, 1), 8), (128, (1, 2), 8), (128, (3, 1), 6), (128, (4, 2), 8)],
)
def test_a_small_tile_keeps_several_sums(steps: int, tile: tuple[int, int], sums: int) -> None:
    """As many as are under way at the same time, if there are steps enough."""
    conf = _Conf(((steps, 1, 40),), tuple(range(tile[0])), tuple(range(tile[1])), False, False)
    text = str(_build(conf, rows.find("avx2")).module)
    loop = text.partition(".loop:")[2].partition("br i1")[0]
    assert loop.count("phi  <8 x float>") == sums


@every_pair(
    EACH_RUNNABLE,
    pytest.mark.parametrize("leaf", [False, True]),
    pytest.mark.parametrize("bounded", [False, True]),
    pytest.mark.parametrize(
        ("levels", "tile"),
        [
            (((5, 1, 40),), (4, 2)),
            (((1, 1, 1),), (1, 1)),
            (((3, 70, 300), (4, 1, 70)), (6, 1)),
            (((2, 7, 900), (3, 300, 130), (2, 31, 40)), (3, 3)),
            (((0, 1, 1), (4, 1, 40)), (2, 2)),
            # Small tiles, whose steps are summed up in turns.
            (((67, 1, 17),), (1, 2)),
            (((131, 1, 3),), (1, 1)),
            (((3, 70, 300), (66, 1, 5)), (2, 2)),
        ],
        ids=str,
    ),
)
def test_product(
    levels: tuple[tuple[int, int, int], ...],
    tile: tuple[int, int],
    bounded: bool,
    leaf: bool,
    isa: Isa,
) -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-4, 5, 4000).astype(np.float32) for _ in range(2))
    # Neither rows nor vectors need to be in order or evenly spaced.
    at_rows = tuple(int(i) for i in rng.permutation(300)[: tile[0]])
    at_vectors = tuple(v * isa.lanes + 3 for v in reversed(range(tile[1])))
    end = levels[0][0]
    got = _run(isa, _Conf(levels, at_rows, at_vectors, bounded, leaf), a, b, end)

    want = np.zeros(got.shape)
    ranges = [range(count) for count, _, _ in levels]
    ranges[0] = range(1 if bounded else 0, end)
    for point in itertools.product(*ranges):
        a_at = sum(i * step for i, (_, step, _) in zip(point, levels, strict=True))
        b_at = sum(i * step for i, (_, _, step) in zip(point, levels, strict=True))
        for r, row in enumerate(at_rows):
            for v, column in enumerate(at_vectors):
                begin = b_at + column
                want[r, v] += a[a_at + row] * b[begin : begin + isa.lanes]
    assert np.array_equal(got, want * (2 if leaf else 1))
