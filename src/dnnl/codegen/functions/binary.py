"""The binary algorithms as IR: one row each.

The maximum and the minimum of a NaN and anything is NaN; a comparison with a NaN is false, except
that a NaN is unequal to everything. A selection has a third operand, the condition.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Emitter
from dnnl.types.kinds import Alg

Function = Callable[[Emitter, ir.Value, ir.Value], ir.Value]


def supported(alg: Alg) -> bool:
    """Whether ``apply`` knows the algorithm."""
    return alg in _APPLY or alg is Alg.binary_select


def apply(e: Emitter, alg: Alg, a: ir.Value, b: ir.Value, *condition: ir.Value) -> ir.Value:
    """``a alg b`` on each lane of two float vectors; comparisons give 1 or 0, ``binary_select``
    gives a where the ``condition`` is not 0, else b."""
    if alg is Alg.binary_select:
        (chosen,) = condition
        zero = vector.splat_constant(chosen.type, 0.0)
        return e.b.select(e.b.fcmp_unordered("!=", chosen, zero), a, b)
    return _APPLY[alg](e, a, b)


def _truth(e: Emitter, condition: ir.Value, kind: ir.VectorType) -> ir.Value:
    one, zero = vector.splat_constant(kind, 1.0), vector.splat_constant(kind, 0.0)
    return e.b.select(condition, one, zero)


def _ordered(operator: str) -> Function:
    return lambda e, a, b: _truth(e, e.b.fcmp_ordered(operator, a, b), a.type)


_APPLY: dict[Alg, Function] = {
    Alg.binary_add: lambda e, a, b: e.b.fadd(a, b),
    Alg.binary_sub: lambda e, a, b: e.b.fsub(a, b),
    Alg.binary_mul: lambda e, a, b: e.b.fmul(a, b),
    Alg.binary_div: lambda e, a, b: e.b.fdiv(a, b),
    Alg.binary_max: lambda e, a, b: vector.or_nan(e, a, b, vector.maximum),
    Alg.binary_min: lambda e, a, b: vector.or_nan(e, a, b, vector.minimum),
    Alg.binary_ge: _ordered(">="),
    Alg.binary_gt: _ordered(">"),
    Alg.binary_le: _ordered("<="),
    Alg.binary_lt: _ordered("<"),
    Alg.binary_eq: _ordered("=="),
    Alg.binary_ne: lambda e, a, b: _truth(e, e.b.fcmp_unordered("!=", a, b), a.type),
}
