"""Two passes over data that is cache-resident: fold elements, then process the same elements."""

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
from dnnl.types.size import smaller, surely_equal


def resident(isa: Isa, nest: Nest, second: Nest) -> bool:
    """Whether to emit ``nest`` as one phase (`emit_resident`), in which each point folds its
    elements and reads them again from the cache. Otherwise a split fold and the nest ``second`` do
    the same in two phases.

    Two phases are better if a point exceeds the cache, if it would read short runs, or if there are
    too few points for the threads. One phase must also move less memory.
    """
    plan = planned(isa, nest)
    points = prod(loop.count for loop in plan.loops)
    row = plan.vectors.lanes * plan.columns * prod(axis.extent for axis in plan.space.inner)
    if points < smaller(FEW_ITEMS, target_items(isa, points * row)):
        return False
    read = _moving(plan, plan.space.reads)
    written = _moving(plan, [plan.space.accesses[output] for output in nest.outputs])
    if not read:
        return True  # each reads a single element
    if row * _bits(read) // 8 > isa.caches.l2:
        return False
    # Other stores read the line that they overwrite.
    at_once = _bits(read) + _bits(written) * (1 if plan.streamed else 2)
    apart = 2 * _bits(read) + _bits(written) * (1 if second.planned(isa).streamed else 2)
    long_runs = plan.vectors.reduced or all(_in_a_row(plan, access) for access in read)
    return long_runs and at_once < apart


def emit_resident(module: Module, symbol: str, nest: Nest) -> Phase:
    """Emit the phase ``symbol``."""
    return emit_planned(module, symbol, nest, planned(module.isa, nest))


def planned(isa: Isa, nest: Nest) -> Schedule:
    """The schedule with vectors of several registers, or of one along the reduction."""
    plan = schedule(isa, nest.space, replace(nest.style, registers=REGISTERS))
    return nest.planned(isa) if plan.vectors.reduced else plan


def _moving(plan: Schedule, accesses: Sequence[Access]) -> list[Access]:
    """The accesses that vary with the reduced axes."""
    return [access for access in accesses if not plan.space.invariant(access)]


def _in_a_row(plan: Schedule, access: Access) -> bool:
    """Whether consecutive iterations of a fold read consecutive vectors."""
    inner = plan.space.inner
    return access.offset is not None and (
        any(surely_equal(abs(access.offset.stride(axis)), plan.vectors.lanes) for axis in inner)
        or all(axis.single for axis in inner)
    )


def _bits(accesses: Sequence[Access]) -> int:
    """The bits of one element of each operand."""
    return sum(access.operand.desc.data_type.bits for access in accesses)
