"""Which images are copied row by row, as bytes, where they get a border."""

from __future__ import annotations

import pytest

from dnnl import MemoryDesc
from dnnl.codegen import isa as rows
from dnnl.kernels.product.base.border_rows import Around, Rows

(ISA,) = (row for row in rows.ROWS if row.name == "avx512_core_amx")
LAST = "acdb"


def cut(dims: tuple[int, ...], data_type: str, tag: str, copy: str, border: int) -> Rows | None:
    """The rows of src with so many zeros on each side."""
    head = len(dims) - 2
    larger = (*dims[:head], *(size + 2 * border for size in dims[head:]))
    src, made = MemoryDesc(dims, data_type, tag), MemoryDesc(larger, data_type, copy)
    return Rows.of(ISA, src, made, (border, border))


def test_rows_of_bytes() -> None:
    around = (Around(2, 2, 0, 7 * 9 * 20), Around(9, 7, 1, 9 * 20))
    assert cut((2, 20, 7, 9), "u8", LAST, LAST, 1) == Rows(around, 1, 9, 1, 20, 20, 0)
    around = (Around(2, 2, 0, 2 * 7 * 9 * 20), Around(11, 7, 2, 2 * 9 * 20))
    assert cut((2, 20, 7, 9), "bf16", LAST, LAST, 2) == Rows(around, 2, 9, 2, 40, 40, 0)


@pytest.mark.parametrize(("groups", "channels", "made"), [(1, 3, 4), (2, 5, 8), (3, 2, 4)])
def test_words_that_are_filled_up(groups: int, channels: int, made: int) -> None:
    found = cut((2, groups, channels, 7, 9), "u8", "adebc", "adebC4c", 1)
    assert found is not None
    assert (found.before, found.width, found.behind) == (groups, 9 * groups, groups)
    assert (found.src_bytes, found.copy_bytes) == (channels, made)
    assert found.row_bytes == 11 * groups * made


def test_others_are_copied_by_elements() -> None:
    assert cut((2, 16, 7, 9), "u8", "aBcd16b", LAST, 1) is None
    assert cut((2, 16, 7, 9), "u8", "abcd", LAST, 1) is None
    assert cut((2, 1, 9, 7, 9), "u8", "adebc", "adebC4c", 1) is None  # 12 bytes do not divide 64
    src, copy = MemoryDesc((2, 4, 7, 9), "u8", LAST), MemoryDesc((2, 4, 9, 11), "s8", LAST)
    assert Rows.of(ISA, src, copy, (1, 1)) is None
