"""Vectors of numbers of the plan, which are constants, or what only an execution knows."""

from __future__ import annotations

from llvmlite import ir

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Emitter
from dnnl.types.size import is_known


def splat(e: Emitter, kind: ir.VectorType, value: int) -> ir.Value:
    """The same i64 in all lanes."""
    if is_known(value):
        return vector.splat_constant(kind, value)
    return vector.splat(e, e.number(value), kind.count)


def like(e: Emitter, model: ir.Value, value: int) -> ir.Value:
    """An i64, or a vector of it if ``model`` is one."""
    if isinstance(model.type, ir.VectorType):
        return splat(e, model.type, value)
    return e.number(value)


def multiples(e: Emitter, kind: ir.VectorType, value: int) -> ir.Value:
    """An i64 times the number of each lane."""
    if is_known(value):
        return ir.Constant(kind, [value * lane for lane in range(kind.count)])
    lanes = vector.numbers(kind.element, tuple(range(kind.count)))
    return e.b.mul(lanes, splat(e, kind, value))
