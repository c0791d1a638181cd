"""How work is shared out, on processors and on devices."""

from __future__ import annotations

import pytest

from dnnl.codegen import isa
from dnnl.codegen.memory.address import Axis
from dnnl.codegen.nest import work_items
from dnnl.codegen.nest.loop_order import Loop

PROCESSOR, DEVICE = isa.find("avx2"), isa.DEVICES[0]


@pytest.mark.parametrize(("units", "outer", "work"), [(1, 1, 10), (7, 3, 10**5), (1000, 1, 10**9)])
def test_chunks_cover_all_units_and_are_not_too_many(units: int, outer: int, work: int) -> None:
    items = work_items.target_items(PROCESSOR, work)
    size = work_items.chunk(units, outer, items)
    count = -(-units // size)
    assert 1 <= size <= units
    assert outer * count < items + outer * 2
    every = work_items.target_items(DEVICE, max(work, units * outer))
    assert work_items.chunk(units, outer, every) == 1


def test_items_are_large_enough_and_few_enough() -> None:
    loops = [Loop(Axis(1000, "a")), Loop(Axis(1000, "b"))]
    for work in (1, 100):
        items = work_items.share_out(PROCESSOR, loops, work)
        assert items.count <= 256
        assert 10**6 * work / items.count >= work_items.LEAST_WORK
    assert work_items.share_out(DEVICE, loops, 1).count == 10**6
