"""How products are cut for a matrix unit, and what sets the shapes of its tiles."""

from __future__ import annotations

import struct

import pytest

from dnnl.codegen import isa as rows
from dnnl.codegen.isa.row import Matrix
from dnnl.codegen.product.tiles import Shape, block_of, max_parts, parts_of, through
from dnnl.kernels.product.unit.tiles import tile_rows

UNIT = Matrix(())
ROWS = [row for row in rows.ROWS if row.matrix is not None]


@pytest.mark.parametrize(
    ("words", "block"),
    [(1, 1), (16, 16), (17, 16), (20, 10), (37, 16), (48, 16), (27, 9), (1024, 16)],
)
def test_a_line_is_cut_evenly_or_leaves_a_rest(words: int, block: int) -> None:
    assert block_of(UNIT, words) == block


@pytest.mark.parametrize("vectors", [1, 2, 3])
def test_sums_and_operands_fit_the_tiles(vectors: int) -> None:
    parts = max_parts(UNIT, vectors)
    assert parts >= 1
    assert parts * vectors + parts + vectors <= UNIT.tiles
    assert (parts + 1) * (vectors + 1) + vectors > UNIT.tiles


def test_parts_have_rows_at_one_distance() -> None:
    assert parts_of(UNIT, 2, range(0, 320, 10)) == (16, 16)
    assert parts_of(UNIT, 2, range(0, 250, 10)) == (13, 12)
    assert parts_of(UNIT, 2, [5]) == (1,)
    assert parts_of(UNIT, 2, [0, 8, 100, 108]) == (2, 2)
    assert parts_of(UNIT, 1, [0, 8, 16, 100, 108, 116, 200, 208, 216]) == (3, 3, 3)
    assert parts_of(UNIT, 2, [0, 8, 16, 100, 108, 116, 200, 208, 216]) is None
    assert parts_of(UNIT, 2, range(33)) is None


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("vectors", [1, 2])
def test_tiles_of_any_width_can_be_cut(vectors: int, row: rows.Isa) -> None:
    for width in range(1, 100):
        rows_of_tile = tile_rows(row, vectors, width)
        bands = max(1, rows_of_tile // width)
        places = [1000 * band + place for band in range(bands) for place in range(width)]
        assert row.matrix is not None
        assert parts_of(row.matrix, vectors, places[:rows_of_tile]) is not None


def test_rows_with_all_that_lies_between() -> None:
    assert list(through([0, 8, 16, 40, 48, 56])) == [0, 8, 16, 24, 32, 40, 48, 56]
    assert list(through([5, 8, 20, 23])) == [5, 8, 11, 14, 17, 20, 23]
    for apart in ([5], [0, 8, 20, 28], [0, 0, 8]):
        assert through(apart) == apart


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("vectors", [1, 2])
def test_lines_that_begin_a_pitch_apart_fit_the_tiles(vectors: int, row: rows.Isa) -> None:
    assert row.matrix is not None
    assert tile_rows(row, 2, 7) == 14
    assert tile_rows(row, 2, 7, 9) == 21
    for width in range(1, 60):
        for pitch in range(80):
            taken = tile_rows(row, vectors, width, pitch)
            assert taken >= tile_rows(row, vectors, width)
            lines = max(1, taken // width)
            places = [pitch * line + place for line in range(lines) for place in range(width)]
            cut = parts_of(row.matrix, vectors, places[:taken])
            assert cut or parts_of(row.matrix, vectors, through(places[:taken]))


def test_the_contents_that_set_the_shapes() -> None:
    contents = Shape((13, 12), 2, 10).contents
    assert len(contents) == 64
    assert contents[0] == 1
    assert struct.unpack("<8H", contents[16:32]) == (64, 64, 64, 64, 40, 40, 64, 64)
    assert tuple(contents[48:56]) == (13, 13, 12, 12, 13, 12, 10, 10)
    assert not any(contents[1:16] + contents[32:48] + contents[56:])
