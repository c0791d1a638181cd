"""What cells compute of their gates, for the units of a vector."""

from __future__ import annotations

from dnnl.codegen.functions.expression import emit
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Emitter, Value
from dnnl.codegen.math import f32 as math
from dnnl.types.cell_functions import CellFunctions
from dnnl.types.expression import Expression


def applied(e: Emitter, function: Expression, x: Value) -> Value:
    """A function of one number."""
    return emit(e, function, [x])


def lstm(
    e: Emitter,
    functions: CellFunctions,
    gates: list[Value],
    c: Value,
    peephole: list[Value] | None,
) -> tuple[Value, Value, list[Value]]:
    """o h(c), the new c, and the gates i, f, c~, o, of the sums of these."""
    gate, state = functions.of_sum(0), functions.of_state

    def seen(total: Value, number: int, state: Value) -> Value:
        if peephole is None:
            return total
        return vector.multiply_add(e, peephole[number], state, total)

    i = applied(e, gate, seen(gates[0], 0, c))
    if functions.coupled:
        f = e.b.fsub(_one(i), i)
    else:
        f = applied(e, gate, seen(gates[1], 1, c))
    candidate = applied(e, functions.of_sum(1), gates[2])
    new = vector.multiply_add(e, f, c, e.b.fmul(i, candidate))
    o = applied(e, gate, seen(gates[3], 2, new))
    return e.b.fmul(o, applied(e, state, new)), new, [i, f, candidate, o]


def mixed(e: Emitter, u: Value, h: Value, o: Value, attention: Value | None) -> Value:
    """u h + (1 - u) o, with (1 - a) u for u where there is an attention a."""
    if attention is not None:
        u = e.b.fmul(u, e.b.fsub(_one(u), attention))
    return vector.multiply_add(e, u, e.b.fsub(h, o), o)


def _one(like: Value) -> Value:
    return math.constant(like, 1.0)
