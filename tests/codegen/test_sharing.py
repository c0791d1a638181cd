"""How work is shared out, on processors and on devices."""

from __future__ import annotations

import pytest

from dnnl.codegen import isa
from dnnl.codegen.memory.address import Axis
from dnnl.codegen.nest import sharing
from dnnl.codegen.nest.walk import Loop

PROCESSOR, DEVICE = isa.find("avx2"), isa.DEVICES[0]


@pytest.mark.parametrize(("units", "outer", "work"), [(1, 1, 10), (7, 3, 10**5), (1000, 1, 10**9)])
def test_chunks_cover_all_units_and_are_not_too_many(units: int, outer: int, work: int) -> None:
    items = sharing.wanted(PROCESSOR, work)
    size = sharing.chunk(units, outer, items)
    count = -(-units // size)
    assert 1 <= size <= units
    assert outer * count < items + outer * 2
    every = sharing.wanted(DEVICE, max(work, units * outer))
    assert sharing.chunk(units, outer, every) == 1


def test_items_are_large_enough_and_few_enough() -> None:
    loops = [Loop(Axis(1000, "a")), Loop(Axis(1000, "b"))]
    for work in (1, 100):
        items = sharing.share_out(PROCESSOR, loops, work)
        assert items.count <= 256
        assert 10**6 * work / items.count >= sharing.LEAST_WORK
    assert sharing.share_out(DEVICE, loops, 1).count == 10**6
