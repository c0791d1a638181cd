"""Compensation: sums of weights that a reorder has just written, stored behind them."""

from __future__ import annotations

from dnnl.codegen.ir.builder import I32, Emitter, Module, Value, Values
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import ZERO, Affine, letters
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.runtime.image import Phase
from dnnl.types.memory_desc import MemoryDesc

_FACTORS = {"s8s8": -128, "zero_points": -1}
_GROUP = 4


def emit_compensation(module: Module, weights: MemoryDesc, slot: int) -> list[Phase]:
    """Write a phase for each mask of the compensation of the weights at ``slot``, if they have any.
    It runs after all weights, padding included, are written."""
    masks = weights.compensation.masks if weights.compensation is not None else {}
    phases = []
    for mask in dict.fromkeys(masks.values()):
        kinds = [kind for kind in masks if masks[kind] == mask]
        isa = module.isa
        symbol = f"reorder_compensation{mask}__s8_s32__{isa.lanes}x1__{isa.name}"
        nest = _sums(weights, slot, mask, kinds)
        phases.append(emit_nest(module, symbol, nest))
    return phases


def _sums(weights: MemoryDesc, slot: int, mask: int, kinds: list[str]) -> Nest:
    as_s32 = _as_s32(weights, mask)
    # Padding is zero, so that sums may include it and need no masks.
    axes = letters((as_s32 or weights).padded_dims)
    index = tuple(Affine.of(axis) for axis in axes)
    parallel_index = tuple(
        Affine.of(axis) if mask >> dim & 1 else ZERO for dim, axis in enumerate(axes)
    )
    source = Operand(slot, as_s32 or weights, index)
    sums = {kind: Operand(slot, weights.compensation_desc(kind), parallel_index) for kind in kinds}

    def add(point: Point, total: Value) -> Values:
        value = point.load(source)
        return (point.e.b.add(total, _sum_of_bytes(point, value) if as_s32 else value),)

    def body(point: Point) -> None:
        (total,) = point.fold((0,), add, _merge)
        for kind, operand in sums.items():
            point.store(operand, point.e.b.mul(total, point.constant(_FACTORS[kind])))

    parallel = tuple(axis for dim, axis in enumerate(axes) if mask >> dim & 1)
    reduced = tuple(axis for dim, axis in enumerate(axes) if not mask >> dim & 1)
    return Nest(parallel, reduced, (source,), tuple(sums.values()), body, core=I32)


def _as_s32(weights: MemoryDesc, mask: int) -> MemoryDesc | None:
    """The weights and their padding viewed as s32: four contiguous bytes that are summed; None if
    contiguous bytes are not summed, or are no multiple of four."""
    strides = [
        stride if count > 1 else 0
        for stride, count in zip(weights.strides, weights.outer_dims, strict=True)
    ]
    inner, dims = list(weights.inner_blocks), list(weights.padded_dims)
    if inner:
        dim, size = inner.pop()
        inner += [(dim, size // _GROUP)] if size > _GROUP else []
    elif 1 in strides:
        dim = strides.index(1)
        size, strides[dim] = dims[dim], _GROUP
    else:
        return None
    if mask >> dim & 1 or any(n % _GROUP for n in (size, dims[dim], weights.offset0, *strides)):
        return None
    dims[dim] //= _GROUP
    first = weights.offset0 // _GROUP
    steps = [stride // _GROUP for stride in strides]
    return MemoryDesc(dims, "s32", steps, inner_blocks=inner, padded_dims=dims, offset0=first)


def _sum_of_bytes(point: Point, packed: Value) -> Value:
    b, top = point.e.b, point.constant(24)
    total = b.ashr(packed, top)
    for shift in (8, 16, 24):
        total = b.add(total, b.ashr(b.shl(packed, point.constant(shift)), top))
    return total


def _merge(e: Emitter, a: Values, b: Values) -> Values:
    return (e.b.add(a[0], b[0]),)
