"""What cells compute of their gates, for the units of a vector."""

from __future__ import annotations

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Emitter, Value
from dnnl.codegen.math import f32 as math
from dnnl.types.kinds import Alg


def activated(e: Emitter, alg: Alg, alpha: float, x: Value) -> Value:
    """The activation of a vanilla cell."""
    if alg is Alg.eltwise_tanh:
        return math.tanh(e, x)
    if alg is Alg.eltwise_logistic:
        return math.logistic(e, x)
    zero = vector.splat_constant(x.type, 0)
    below = e.b.fmul(x, math.constant(x, alpha)) if alpha else zero
    return e.b.select(e.b.fcmp_ordered(">", x, zero), x, below)


def lstm(
    e: Emitter, gates: list[Value], c: Value, peephole: list[Value] | None
) -> tuple[Value, Value, list[Value]]:
    """o tanh(c), the new c, and the gates i, f, c~, o, of the sums of these."""

    def seen(total: Value, number: int, state: Value) -> Value:
        if peephole is None:
            return total
        return vector.multiply_add(e, peephole[number], state, total)

    i = math.logistic(e, seen(gates[0], 0, c))
    f = math.logistic(e, seen(gates[1], 1, c))
    candidate = math.tanh(e, gates[2])
    new = vector.multiply_add(e, f, c, e.b.fmul(i, candidate))
    o = math.logistic(e, seen(gates[3], 2, new))
    return e.b.fmul(o, math.tanh(e, new)), new, [i, f, candidate, o]


def mixed(e: Emitter, u: Value, h: Value, o: Value, attention: Value | None) -> Value:
    """u h + (1 - u) o, with (1 - a) u for u where there is an attention a."""
    if attention is not None:
        u = e.b.fmul(u, e.b.fsub(_one(u), attention))
    return vector.multiply_add(e, u, e.b.fsub(h, o), o)


def _one(like: Value) -> Value:
    return math.constant(like, 1.0)
