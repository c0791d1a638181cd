"""Work items: how loops are divided among threads, or among the invocations of a device.

The number of items depends on the shape and on the kind of machine, never on the number of threads.
The thread that runs an item does not influence its result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from dnnl.codegen.isa import Isa
from dnnl.codegen.nest.loop_order import Loop
from dnnl.types.size import is_known, larger, smaller, typical

LEAST_WORK = 8192
"""The least work of an item, in elements that are moved through memory: much more than its start
costs."""
MULTIPLY_ADDS = 16
"""The multiply-adds of a register tile that take as long as one element that is moved through
memory."""

FEW_ITEMS = 32
"""With fewer items than this some threads may idle."""

SHARES = 64
"""The number of items that suits nearly any number of threads, if each has a cost besides its
work."""

# Enough items for any number of threads.
_MOST_ITEMS = 256


def target_items(isa: Isa, work: int, most: int = _MOST_ITEMS) -> int:
    """The number of items for ``work`` elements, at most ``most``. On a device each element may be
    one: thousands run in parallel and starting one is free."""
    if isa.many_items:
        return larger(1, work)
    return larger(1, smaller(most, work // LEAST_WORK))


def enough(loop: Loop) -> bool:
    """Whether the iterations of a loop are enough items."""
    return loop.typical >= FEW_ITEMS


def chunk(units: int, outer: int, items: int) -> int:
    """How many of ``units`` consecutive units, such as register tiles, form one item, so that
    ``outer`` rows of units give about ``items`` items.

    The number is rounded towards fewer items: halves of rows could give one thread twice the work
    of another.
    """
    return -(-units // smaller(units, larger(1, items // larger(1, outer))))


@dataclass(frozen=True)
class Items:
    """Work items: one iteration of each of the outer ``whole`` loops, and ``step`` iterations of
    the next loop unless ``step`` is zero. An item does ``chunk`` of these, one after the other."""

    whole: int
    step: int
    count: int
    chunk: int = 1


ONE = Items(0, 0, 1)
"""A single item."""


def share_out(isa: Isa, loops: Sequence[Loop], work_per_point: int) -> Items:
    """Divide loops into work items of a suitable size; on a device each point is an item."""
    if not all(is_known(loop.count) for loop in loops):
        return _share_out_unknown(isa, loops, work_per_point)
    target = target_items(isa, prod(loop.count for loop in loops) * work_per_point)
    count = 1
    for whole, loop in enumerate(loops):
        if count >= target or loop.within:
            return Items(whole, 0, count)
        missing = -(-target // count)
        if not isa.many_items and loop.count > 2 * missing:
            step = -(-loop.count // missing)
            return Items(whole, step, count * -(-loop.count // step))
        count *= loop.count
    return Items(len(loops), 0, count)


def _share_out_unknown(isa: Isa, loops: Sequence[Loop], work_per_point: int) -> Items:
    """The same where only the execution knows how long the loops are: their iterations are
    numbered, and each item does as many as make a suitable number of items."""
    work = prod(loop.count for loop in loops) * work_per_point
    target = target_items(isa, work)
    count, whole = 1, 0
    for loop in loops:
        if typical(count) >= typical(target) or loop.within:
            break
        count, whole = count * loop.count, whole + 1
    if isa.many_items:
        return Items(whole, 0, count)
    chunk = larger(1, -(-count // target))
    return Items(whole, 0, -(-count // chunk), chunk)
