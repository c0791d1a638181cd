"""Running kernels that were generated for a device on the processor at hand.

The IR is the device's, with its scalars, its address space and an entry point for one work item.
Only where the number of the item comes from is another, and how many there are: variables, which a
loop around the entry point sets. The loop begins beyond the last item, as a device does that starts
whole groups. Items run one after the other, so that there are no work-groups with barriers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from llvmlite import binding as llvm
from llvmlite import ir

from dnnl.codegen.compile import jit
from dnnl.codegen.ir.kernel import Recipe
from dnnl.codegen.isa import Isa
from dnnl.primitives import primitive, primitive_desc
from dnnl.runtime.engines import cpu, cpu_jit
from dnnl.runtime.engines.cpu_jit import Linked
from dnnl.runtime.image import Image, Phase, Unknowns
from dnnl.types.size import is_known

_ITEM, _ITEMS = "emulated_item", "emulated_items"
_BEYOND = 5
_MOST = 1 << 17
_CALL = """
define void @"emulated_{symbol}"(ptr %args, i64 %begin, i64 %end, i64 %thread) {{
entry:
{loads}  br label %loop
loop:
  %item = phi i64 [ {last}, %entry ], [ %before, %loop ]
  store i64 %item, ptr @{item}
  store i64 {items}, ptr @{items_of}
  call void @"{symbol}"({given})
  %before = sub i64 %item, 1
  %more = icmp sgt i64 %item, 0
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""
_LOAD = """  %slot{0} = getelementptr ptr, ptr %args, i64 {0}
  %flat{0} = load ptr, ptr %slot{0}
  %far{0} = addrspacecast ptr %flat{0} to ptr addrspace({1})
"""


def _variable(module: ir.Module, name: str) -> ir.GlobalVariable:
    variable = module.globals.get(name)
    if variable is None:
        number = ir.IntType(64)
        variable = ir.GlobalVariable(module, number, name)
        variable.linkage, variable.initializer = "internal", ir.Constant(number, 0)
    return variable


def _item(b: ir.IRBuilder) -> ir.Value:
    return b.load(_variable(b.module, _ITEM), typ=ir.IntType(64))


def _items(b: ir.IRBuilder) -> ir.Value:
    return b.load(_variable(b.module, _ITEMS), typ=ir.IntType(64))


def _caller(phase: Phase, space: int, sizes: int) -> str:
    """A phase function for the cpu engine that does all items of a phase, in one go. Behind the
    last argument, at ``sizes``, are those that only executions know."""
    slots = [sizes if slot < 0 else slot for slot in phase.slots]
    # Of more items than there are, nothing is done.
    phase = replace(
        phase, slots=tuple(slots), count=phase.count if is_known(phase.count) else _MOST
    )
    return _CALL.format(
        symbol=phase.symbol,
        loads="".join(_LOAD.format(slot, space) for slot in phase.slots),
        last=phase.count - 1 + _BEYOND,
        items=phase.count + _BEYOND,
        item=_ITEM,
        items_of=_ITEMS,
        given=", ".join(f"ptr addrspace({space}) %far{slot}" for slot in phase.slots),
    )


def _image(recipe: Recipe) -> tuple[Image, bool]:
    device = recipe.isa.device
    assert device is not None
    kernel = recipe.kernel()
    callers = [_caller(own, device.memory, len(kernel.arguments)) for own in kernel.phases]
    for name in (_ITEM, _ITEMS):
        _variable(kernel.module.ir, name)
    kernel.module.ir.triple = llvm.get_process_triple()
    code = cpu_jit.assemble("\n".join([str(kernel.module), *callers]))
    phases = tuple(Phase(f"emulated_{phase.symbol}", 1) for phase in kernel.phases)
    unknowns = None
    if recipe.symbols is not None:
        unknowns = Unknowns(tuple(map(str, recipe.symbols.guards)), ("1",) * len(phases))
    return Image("cpu", code, phases, kernel.arguments, unknowns), False


@contextmanager
def emulated(row: Isa) -> Iterator[Isa]:
    """Within it, primitives of the cpu engine are those of a device."""
    assert row.device is not None
    own = replace(row.device, convention="", item=_item, items=_items, fence=None, groups=None)
    local = replace(row, device=own)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(primitive_desc, "select_isa", lambda _: local)
        patch.setattr(jit, "image", _image)
        patch.setattr(cpu, "_loader", lambda: Linked)  # as the number of the item is a variable
        yield local
    primitive._cache.clear()
