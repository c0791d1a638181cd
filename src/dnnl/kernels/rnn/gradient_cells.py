"""The gradients of the sums of gates, and of the states before a step, for a vector of units."""

from __future__ import annotations

from collections.abc import Sequence

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Emitter, Value
from dnnl.codegen.math import f32 as math
from dnnl.types.kinds import Alg


def activated(e: Emitter, alg: Alg, alpha: float, y: Value, dh: Value) -> Value:
    """That of the sum of a vanilla cell, whose activation gave ``y``."""
    if alg is Alg.eltwise_tanh:
        return _by_tanh(e, dh, y)
    if alg is Alg.eltwise_logistic:
        return _by_logistic(e, dh, y)
    zero = vector.splat_constant(y.type, 0)
    below = e.b.fmul(dh, math.constant(y, alpha)) if alpha else zero
    return e.b.select(e.b.fcmp_ordered(">", y, zero), dh, below)


def lstm(
    e: Emitter,
    gates: Sequence[Value],
    cells: tuple[Value, Value],
    dh: Value,
    dc: Value,
    peephole: Sequence[Value] | None,
) -> tuple[list[Value], Value]:
    """Those of the sums of i, f, c~, o, and of the cell before; ``cells`` are the one before and
    the one behind, ``dh`` and ``dc`` the gradients of o tanh(c) and of c."""
    b, (i, f, g, o), (before, behind) = e.b, gates, cells
    t = math.tanh(e, behind)
    do = _by_logistic(e, b.fmul(dh, t), o)
    dc = b.fadd(dc, _by_tanh(e, b.fmul(dh, o), t))
    if peephole is not None:
        dc = vector.multiply_add(e, do, peephole[2], dc)
    di = _by_logistic(e, b.fmul(dc, g), i)
    df = _by_logistic(e, b.fmul(dc, before), f)
    dg = _by_tanh(e, b.fmul(dc, i), g)
    dbefore = b.fmul(dc, f)
    if peephole is not None:
        for own, weights in zip((di, df), peephole, strict=False):
            dbefore = vector.multiply_add(e, own, weights, dbefore)
    return [di, df, dg, do], dbefore


def mixed(
    e: Emitter, u: Value, h: Value, o: Value, dh: Value, attention: Value | None
) -> tuple[Value, Value, Value, Value]:
    """Those of the sums of u and o, of the h that is mixed in, and of the attention, of
    u h + (1 - u) o, with (1 - a) u for u where there is an attention a."""
    b, one = e.b, math.constant(u, 1.0)
    share = one if attention is None else b.fsub(one, attention)
    scaled = u if attention is None else b.fmul(u, share)
    dscaled = b.fmul(dh, b.fsub(h, o))
    own = dscaled if attention is None else b.fmul(dscaled, share)
    do = _by_tanh(e, b.fmul(dh, b.fsub(one, scaled)), o)
    return _by_logistic(e, own, u), do, b.fmul(dh, scaled), b.fneg(b.fmul(dscaled, u))


def reset(e: Emitter, r: Value, factor: Value, gradient: Value) -> Value:
    """That of the sum of r, where the ``gradient`` is that of r times the ``factor``."""
    return _by_logistic(e, e.b.fmul(gradient, factor), r)


def _by_tanh(e: Emitter, gradient: Value, y: Value) -> Value:
    return e.b.fmul(gradient, e.b.fsub(math.constant(y, 1.0), e.b.fmul(y, y)))


def _by_logistic(e: Emitter, gradient: Value, y: Value) -> Value:
    return e.b.fmul(gradient, e.b.fmul(y, e.b.fsub(math.constant(y, 1.0), y)))
