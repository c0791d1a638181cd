"""Nests that fold some elements and then go over the same ones again, while a cache holds them."""

from __future__ import annotations

from math import prod

from dnnl.codegen.isa import Isa
from dnnl.codegen.nest import Nest
from dnnl.codegen.parts import REGISTERS
from dnnl.codegen.schedule import Schedule, Style, schedule
from dnnl.codegen.sharing import FEW_ITEMS, wanted


def resident(isa: Isa, nest: Nest) -> Schedule | None:
    """A plan of ``nest`` by which a cache still holds what a point has folded when it is read
    again; None if a point is too large for that, or if there are too few to be shared out."""
    plan = schedule(isa, nest.space, Style(registers=REGISTERS))
    if plan.vectors.reduced:
        plan = schedule(isa, nest.space)
    points = prod(loop.count for loop in plan.loops)
    if points < min(FEW_ITEMS, wanted(isa, points * plan.work_per_point)):
        return None
    moving = [access for access in plan.space.reads if not plan.space.still(access)]
    bits = sum(access.operand.desc.data_type.bits for access in moving)
    return plan if plan.work_per_point * bits // 8 <= isa.caches.l2 else None
