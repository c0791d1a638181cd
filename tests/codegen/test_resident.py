"""Which folds are kept in a cache for the second time that their elements are read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dnnl.codegen.isa.x86 import ROWS
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, letters
from dnnl.codegen.nest.nest import Nest
from dnnl.codegen.nest.resident import planned, resident
from tests.codegen.nests import described

ISA = next(row for row in ROWS if row.name == "avx512_core")


def nests(dims: tuple[int, ...], layout: str, sources: int) -> tuple[Nest, Nest]:
    """A fold over all but the channels, after which as many elements are written; and the nest that
    would write them if the means lay in memory."""
    axes = letters(dims)
    index = tuple(Affine.of(axis) for axis in axes)
    dst, *read = (Operand(slot, described(dims, layout), index) for slot in range(sources + 1))
    mean = Operand(sources + 1, described(dims[1:2], "a"), index[1:2])
    rest = (axes[0], *axes[2:])
    at_once = Nest(axes[1:2], rest, tuple(read), (dst, mean), lambda point: None)
    return at_once, Nest(axes, (), (*read, mean), (dst,), lambda point: None)


@pytest.mark.parametrize(
    ("dims", "layout", "sources", "kept"),
    [
        ((4, 64, 14, 14), "abcd", 1, True),
        ((4, 512, 14, 14), "aBcd16b", 1, True),
        ((1, 3, 9, 9), "abcd", 1, True),  # one item does all
        ((16, 4, 112, 112), "abcd", 1, False),  # too few channels for all threads
        ((64, 64, 112, 112), "abcd", 1, False),  # a channel is larger than the cache
        ((4, 2048, 14, 14), "acdb", 1, False),  # runs of a few lines out of each row
        ((16, 256, 56, 56), "abcd", 1, True),  # written past the caches either way
        ((16, 256, 56, 56), "abcd", 2, True),
        ((16, 1024, 14, 14), "abcd", 1, True),  # rows that are no whole lines
    ],
)
def test_what_stays_in_a_cache(
    dims: tuple[int, ...], layout: str, sources: int, kept: bool
) -> None:
    assert resident(ISA, *nests(dims, layout, sources)) == kept


def test_what_is_read_does_not_pass_the_caches() -> None:
    """A sum post-op reads dst, which is then not overwritten by non-temporal stores."""
    first, _ = nests((16, 256, 56, 56), "abcd", 1)
    assert planned(ISA, first).streamed == first.outputs[:1]
    assert planned(ISA, replace(first, reads_dst=True)).streamed == ()
