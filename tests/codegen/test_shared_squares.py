"""Which squares a work-group transposes in shared memory, and how its items access them."""

from __future__ import annotations

from itertools import product

import pytest

from dnnl.codegen import isa
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, Axis, letters
from dnnl.codegen.nest.schedule import Schedule, schedule
from dnnl.codegen.nest.shared_squares import SharedSquares, wide
from dnnl.codegen.nest.space import Space
from dnnl.types.memory_desc import MemoryDesc

(ROW,) = (row for row in isa.DEVICES if row.name == "spirv64")


def plan(
    dims: tuple[int, ...], src: str, dst: str, src_type: str = "f32", dst_type: str = "f32"
) -> Schedule:
    """The schedule of a reorder."""
    axes = letters(dims)
    index = tuple(map(Affine.of, axes))
    own = Operand(0, MemoryDesc(dims, src_type, src), index)
    other = Operand(1, MemoryDesc(dims, dst_type, dst), index)
    return schedule(ROW, Space.of(axes, (), (own,), (other,)))


@pytest.mark.parametrize(
    ("made", "lanes", "tile", "items"),
    [
        (plan((64, 96), "ab", "ba"), 32, 32, 256),
        (plan((64, 96), "ab", "ba", "s8", "f64"), 32, 64, 256),
        (plan((64, 96), "ab", "ba", "bf16", "s8"), 64, 32, 256),
        # The rest of a block of dst makes the rows of src longer.
        (plan((64, 48, 3, 3), "abcd", "ABcd16b16a"), 16, 32, 128),
        # But less than 64 bytes of dst are too few.
        (plan((64, 48, 3, 3), "abcd", "ABcd16b16a", "f32", "s8"), 64, 16, 256),
        (plan((64, 48, 3, 3), "ABcd16b16a", "abcd"), 32, 16, 128),
        # A row of a square may be longer than those of src and dst, if it is half full.
        (plan((17, 19), "ab", "ba"), 32, 32, 256),
    ],
)
def test_squares_fit_the_rows_of_both(made: Schedule, lanes: int, tile: int, items: int) -> None:
    assert isinstance(made.squares, SharedSquares)
    assert (made.vectors.lanes, made.squares.tile.extent, made.group) == (lanes, tile, items)


@pytest.mark.parametrize(
    "made",
    [
        plan((64, 96), "ab", "ab"),
        plan((8, 4096), "ab", "ba"),
        plan((64, 96), "ab", "ba", "s4", "f32"),
        plan((64, 96), "ab", "ba", "s8", "s4"),
    ],
)
def test_others_need_none(made: Schedule) -> None:
    assert made.group == 1


@pytest.mark.parametrize("data_type", ["s8", "bf16", "f32", "f64"])
def test_neighbours_in_a_column_are_in_different_banks(data_type: str) -> None:
    made = plan((128, 128), "ab", "ba", data_type, data_type)
    assert isinstance(made.squares, SharedSquares)
    assert ROW.device is not None
    assert ROW.device.groups is not None
    (access,) = made.space.reads
    size = access.operand.data_type.size
    pitch, bank = made.squares.pitch(ROW.device.groups, access), ROW.device.groups.bank
    # As many items are served at the same time as have different banks: half of them for f64.
    rows = range(32 * bank // max(bank, size))
    assert len({row * pitch * size // bank % 32 for row in rows}) == len(rows)
    # Rows begin where a bank does, for wide accesses.
    assert pitch * size % bank == 0


@pytest.mark.parametrize(
    ("dims", "data_type", "count"),
    [((64, 96), "f32", 4), ((64, 98), "f32", 1), ((64, 98), "f64", 2), ((64, 96), "s8", 4)],
)
def test_accesses_are_wide_where_rows_are_aligned(
    dims: tuple[int, int], data_type: str, count: int
) -> None:
    made = plan(dims, "ab", "ba", data_type, data_type)
    assert made.squares is not None
    (access,) = made.space.reads
    assert wide(access, made.squares.tile) == count
    assert wide(access, made.vectors.lane) == 1
    assert wide(made.space.dst, made.vectors.lane) == (2 if data_type == "f64" else 4)


def test_every_element_is_in_one_square() -> None:
    made = plan((40, 33, 3, 3), "abcd", "ABcd16b16a")
    (src,) = made.space.reads
    assert made.squares is not None
    lane = made.vectors.lane
    assert isinstance(lane, Axis)
    axes = [*(loop.axis for loop in made.loops), lane, made.squares.tile]
    seen = []
    for values in product(*(range(axis.extent) for axis in axes)):
        point = dict(zip(axes, values, strict=True))

        def value(form: Affine, point: dict[Axis, int] = point) -> int:
            return form.const + sum(
                step * point.get(axis, 0) for axis, step in form.strides.items()
            )

        bounds = (*made.space.exists, *made.space.domain)
        if all(0 <= value(bound.form) < bound.limit for bound in bounds):
            assert src.offset is not None
            seen.append(value(src.offset))
    assert sorted(seen) == list(range(40 * 33 * 9))
