"""How work is shared out: what a work item of a kernel is, on which machine.

Which thread does an item has no influence on its result, and how many items there are follows from
the shape and the machine's kind, never from the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from dnnl.codegen.isa import Isa
from dnnl.codegen.nest.loop_order import Loop

LEAST_WORK = 8192
"""What an item should do at least, in elements that pass memory, to outlast its start by far."""
MULTIPLY_ADDS = 16
"""How many multiply-adds of a register tile take the time of one element that passes memory."""

FEW_ITEMS = 32
"""With fewer items than these some threads may wait."""

SHARES = 64
"""Items for nearly any number of threads, where each costs something besides its work."""

# So many items keep any number of threads busy.
_MOST_ITEMS = 256


def target_items(isa: Isa, work: int, most: int = _MOST_ITEMS) -> int:
    """Into how many items to cut work on so many elements, at most. On a device, where thousands
    are done side by side and starting one costs nothing, each element may be one."""
    if isa.device is not None:
        return max(1, work)
    return max(1, min(most, work // LEAST_WORK))


def enough(loop: Loop) -> bool:
    """Whether the iterations of a loop are items enough by themselves."""
    return loop.count >= FEW_ITEMS


def chunk(units: int, outer: int, items: int) -> int:
    """How many of ``units`` that lie in a row, such as register tiles, one item does, so that
    there are about so many ``items`` where ``outer`` rows of units are shared out already.

    Rather fewer: halves of a row may leave one thread twice the work of another."""
    return -(-units // min(units, max(1, items // max(1, outer))))


@dataclass(frozen=True)
class Items:
    """The outer loops shared out as work items: the first ``whole`` loops one iteration an item,
    and ``step`` iterations of the next loop, if that is not zero."""

    whole: int
    step: int
    count: int


ONE = Items(0, 0, 1)
"""One item that does everything."""


def share_out(isa: Isa, loops: Sequence[Loop], work_per_point: int) -> Items:
    """Cut the loops into work items of a sensible size; on a device each point is one."""
    target = target_items(isa, prod(loop.count for loop in loops) * work_per_point)
    count = 1
    for whole, loop in enumerate(loops):
        if count >= target or loop.within:
            return Items(whole, 0, count)
        missing = -(-target // count)
        if isa.device is None and loop.count > 2 * missing:
            step = -(-loop.count // missing)
            return Items(whole, step, count * -(-loop.count // step))
        count *= loop.count
    return Items(len(loops), 0, count)
