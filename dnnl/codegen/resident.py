"""Nests that fold some elements and then go over the same ones again, while a cache holds them."""

from __future__ import annotations

from math import prod

from dnnl.codegen.access import Access
from dnnl.codegen.isa import Isa
from dnnl.codegen.nest import Nest
from dnnl.codegen.parts import REGISTERS
from dnnl.codegen.schedule import Schedule, Style, schedule
from dnnl.codegen.sharing import FEW_ITEMS, wanted


def resident(isa: Isa, nest: Nest) -> Schedule | None:
    """A plan of ``nest`` by which a cache still holds what a point has folded when it is read
    again; None if a fold that is shared out, and a second nest, had better do the same.

    These are better where a point is too large for a cache, or reads shorter runs than they would,
    where there are too few points to be shared out, and where they pass memory no more often.
    """
    plan = schedule(isa, nest.space, Style(registers=REGISTERS))
    if plan.vectors.reduced:
        plan = schedule(isa, nest.space)
    points = prod(loop.count for loop in plan.loops)
    if points < min(FEW_ITEMS, wanted(isa, points * plan.work_per_point)):
        return None
    space = plan.space
    read, written = (
        [access for access in accesses if not space.still(access)]
        for accesses in (space.reads, [space.accesses[output] for output in space.outputs])
    )
    if plan.work_per_point * sum(map(_bits, read)) // 8 > isa.caches.l2:
        return None
    long_runs = plan.vectors.reduced or all(_in_a_row(plan, access) for access in read)
    return plan if long_runs and _saves(isa, plan, read, written) else None


def _saves(isa: Isa, plan: Schedule, read: list[Access], written: list[Access]) -> bool:
    """Whether to read only once outweighs stores that do not pass the caches, which read what they
    overwrite."""
    loads, stores = (sum(map(_bits, accesses)) for accesses in (read, written))
    size = sum(access.operand.desc.size for access in (*read, *written))
    apart = 1 if isa.caches.steered and size >= isa.caches.streamed else 2
    return loads + stores * (1 if plan.streamed else 2) < 2 * loads + stores * apart


def _in_a_row(plan: Schedule, access: Access) -> bool:
    """Whether vectors that are folded lie behind each other."""
    inner = plan.space.inner
    return access.offset is not None and (
        any(abs(access.offset.stride(axis)) == plan.vectors.lanes for axis in inner)
        or all(axis.extent == 1 for axis in inner)
    )


def _bits(access: Access) -> int:
    return access.operand.desc.data_type.bits
