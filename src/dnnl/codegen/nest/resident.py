"""Nests that fold some elements and then go over the same ones again, while a cache holds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from dnnl.codegen.ir.builder import Module
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Access
from dnnl.codegen.nest.nest import Nest, emit_planned
from dnnl.codegen.nest.parts import REGISTERS
from dnnl.codegen.nest.schedule import Schedule, schedule
from dnnl.codegen.nest.work_items import FEW_ITEMS, target_items
from dnnl.runtime.image import Phase


def resident(isa: Isa, nest: Nest, second: Nest) -> bool:
    """Whether ``nest`` had better be written by ``emit_resident``, by whose plan a cache still
    holds what a point has folded when it is read again; or else a fold that is shared out, and then
    the nest ``second``, had better do the same.

    These are better where a point is too large for a cache, or reads shorter runs than they would,
    where there are too few points to be shared out, and where they pass memory no more often.
    """
    plan = planned(isa, nest)
    points = prod(loop.count for loop in plan.loops)
    if points < min(FEW_ITEMS, target_items(isa, points * plan.work_per_point)):
        return False
    read = _moving(plan, plan.space.reads)
    written = _moving(plan, [plan.space.accesses[output] for output in nest.outputs])
    if not read:
        return True  # of a single element each
    if plan.work_per_point * _bits(read) // 8 > isa.caches.l2:
        return False
    # Non-temporal stores do not read what they overwrite.
    at_once = _bits(read) + _bits(written) * (1 if plan.streamed else 2)
    apart = 2 * _bits(read) + _bits(written) * (1 if second.planned(isa).streamed else 2)
    long_runs = plan.vectors.reduced or all(_in_a_row(plan, access) for access in read)
    return long_runs and at_once < apart


def emit_resident(module: Module, symbol: str, nest: Nest) -> Phase:
    """Write the phase ``symbol``."""
    return emit_planned(module, symbol, nest, planned(module.isa, nest))


def planned(isa: Isa, nest: Nest) -> Schedule:
    """The walk with vectors of several registers, but of one where they lie along the reduction."""
    plan = schedule(isa, nest.space, replace(nest.style, registers=REGISTERS))
    return nest.planned(isa) if plan.vectors.reduced else plan


def _moving(plan: Schedule, accesses: Sequence[Access]) -> list[Access]:
    """Those that go on with the fold."""
    return [access for access in accesses if not plan.space.invariant(access)]


def _in_a_row(plan: Schedule, access: Access) -> bool:
    """Whether vectors that are folded lie behind each other."""
    inner = plan.space.inner
    return access.offset is not None and (
        any(abs(access.offset.stride(axis)) == plan.vectors.lanes for axis in inner)
        or all(axis.extent == 1 for axis in inner)
    )


def _bits(accesses: Sequence[Access]) -> int:
    """The bits of one element of each operand."""
    return sum(access.operand.desc.data_type.bits for access in accesses)
