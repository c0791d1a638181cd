"""Functions of elements in their own types: integers wrap, and none passes through f32 on its way
to an integer.

A row of ``_FUNCTIONS`` for each step of a typed expression. Values are vectors of what is stored;
truth values are bytes, of which any but 0 is true, and 1 is written. What is converted to bf16 or
f16 is rounded to f32 first, as ONNX Runtime does. Where mathematics has no answer, one is chosen: a
quotient and a remainder by zero are 0, and so is what a shift by the width of the type or more
leaves (-1 for negative values that are shifted to the right). Floats that no integer can hold
become the nearest that there is, NaN becomes 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from llvmlite import ir

from dnnl.codegen.conversion import convert
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, F64, I8, Emitter, Values, i64
from dnnl.types.dtype import DataType
from dnnl.types.expression import CAST, COMPARISONS, CONSTANT, PARAMETER, Expression
from dnnl.types.typed import STEPS

Types = Sequence[DataType]
Apply = Callable[[Emitter, Types, list[ir.Value]], ir.Value]
OfIntegers = Callable[..., ir.Value]


def core(types: Iterable[DataType]) -> ir.Type:
    """What vectors are measured by: an integer as wide as the widest element."""
    return ir.IntType(max(data_type.bits for data_type in types))


def types_of(expression: Expression) -> list[DataType]:
    """The types of the steps of a typed expression."""
    return [step.data_type for step in expression.steps if step.data_type is not None]


def refused(expression: Expression) -> DataType | None:
    """The first type that a function in an expression does not take, if any."""
    steps = expression.steps
    for step in steps:
        if step.sources:
            last = steps[step.sources[-1]].data_type
            if last not in STEPS[step.name].allowed:
                return last
    return None


def emit(e: Emitter, expression: Expression, stored: Sequence[ir.Value]) -> ir.Value:
    """What is to be stored, of parameters as they are stored."""
    values: list[ir.Value] = []
    types = types_of(expression)
    for step, data_type in zip(expression.steps, types, strict=True):
        if step.name == PARAMETER:
            values.append(stored[int(step.detail)])
        elif step.name == CONSTANT:
            bits = np.array(step.constant, data_type.numpy).view(f"i{data_type.numpy.itemsize}")
            kind = _like(stored[0], ir.IntType(data_type.bits))
            values.append(vector.splat_constant(kind, int(bits)))
        else:
            given = [data_type, *(types[source] for source in step.sources)]
            values.append(apply(e, step.name, given, [values[n] for n in step.sources]))
    return values[-1]


def apply(e: Emitter, name: str, types: Types, stored: list[ir.Value]) -> ir.Value:
    """A step of stored elements; ``types`` are those of the result and of the sources."""
    return _FUNCTIONS[name](e, types, stored)


def _like(value: ir.Value, element: ir.Type) -> ir.Type:
    return vector.vector_type(element, value.type.count)


def _constant(value: ir.Value, number: int) -> ir.Constant:
    return vector.splat_constant(value.type, number)


def _is(e: Emitter, value: ir.Value, number: int) -> ir.Value:
    return e.b.icmp_unsigned("==", value, _constant(value, number))


def _signed(data_type: DataType) -> bool:
    return data_type.min < 0


def _real(data_type: DataType) -> ir.Type:
    return F64 if data_type is DataType.f64 else F32


def _float(e: Emitter, data_type: DataType, stored: ir.Value) -> ir.Value:
    """The numbers of a float, as f32 or f64."""
    real = _real(data_type)
    if data_type.bits == vector.bits(real):
        return e.b.bitcast(stored, _like(stored, real))
    return convert.storage(data_type, real).to_core(e, stored)


def _truth(e: Emitter, mask: ir.Value, stored: ir.Value) -> ir.Value:
    """A mask of the lanes of ``stored`` as bytes of 0 and 1."""
    return e.b.zext(mask, _like(stored, I8))


def _nonzero(e: Emitter, stored: ir.Value) -> ir.Value:
    return e.b.icmp_unsigned("!=", stored, _constant(stored, 0))


def _compare(e: Emitter, operator: str, data_type: DataType, a: ir.Value, b: ir.Value) -> ir.Value:
    """The mask of the lanes where integers compare so."""
    compare = e.b.icmp_signed if _signed(data_type) else e.b.icmp_unsigned
    return compare(operator, a, b)


def _comparison(operator: str) -> Apply:
    def compare(e: Emitter, types: Types, stored: list[ir.Value]) -> ir.Value:
        kind = types[1]
        if kind.is_float:
            a, b = (_float(e, kind, value) for value in stored)
            comparing = e.b.fcmp_unordered if operator == "!=" else e.b.fcmp_ordered
            return _truth(e, comparing(operator, a, b), stored[0])
        if kind is DataType.boolean:
            stored = [_truth(e, _nonzero(e, value), value) for value in stored]
        return _truth(e, _compare(e, operator, kind, *stored), stored[0])

    return compare


def _of_integers(function: OfIntegers) -> Apply:
    """``function(e, type, *values)``, with the type of dst; truth values come as 0 and 1."""

    def compute(e: Emitter, types: Types, stored: list[ir.Value]) -> ir.Value:
        if types[0] is DataType.boolean:
            stored = [_truth(e, _nonzero(e, value), value) for value in stored]
        return function(e, types[0], *stored)

    return compute


def _quotient(e: Emitter, data_type: DataType, a: ir.Value, b: ir.Value) -> ir.Value:
    """a / b towards zero, where b is neither 0 nor -1.

    Processors have no division of integer vectors: a float with more digits than both sides have
    rounds to an integer only what is one.
    """
    signed = _signed(data_type)
    if data_type.bits == 64:
        return e.b.sdiv(a, b) if signed else e.b.udiv(a, b)
    real = _like(a, F32 if data_type.bits <= 16 else F64)
    widen, narrow = (e.b.sitofp, e.b.fptosi) if signed else (e.b.uitofp, e.b.fptoui)
    return narrow(e.b.fdiv(widen(a, real), widen(b, real)), a.type)


def _divide(e: Emitter, data_type: DataType, a: ir.Value, b: ir.Value) -> ir.Value:
    """a / b towards zero. -1 is apart as the quotient of the least number would be too large."""
    none, minus = _is(e, b, 0), _is(e, b, -1)
    trap = e.b.or_(none, minus) if _signed(data_type) else none
    quotient = _quotient(e, data_type, a, e.b.select(trap, _constant(b, 1), b))
    if _signed(data_type):
        quotient = e.b.select(minus, e.b.sub(_constant(a, 0), a), quotient)
    return e.b.select(none, _constant(a, 0), quotient)


def _remainder(e: Emitter, data_type: DataType, a: ir.Value, b: ir.Value) -> ir.Value:
    """What division towards zero leaves: it has the sign of ``a``."""
    left = e.b.sub(a, e.b.mul(_divide(e, data_type, a, b), b))
    return e.b.select(_is(e, b, 0), _constant(a, 0), left)


def _modulo(e: Emitter, data_type: DataType, a: ir.Value, b: ir.Value) -> ir.Value:
    """What division towards minus infinity leaves: it has the sign of ``b``."""
    left = _remainder(e, data_type, a, b)
    if not _signed(data_type):
        return left
    opposite = e.b.icmp_signed("<", e.b.xor(left, b), _constant(b, 0))
    wrong = e.b.and_(_nonzero(e, left), opposite)
    return e.b.select(wrong, e.b.add(left, b), left)


def _shifted(to_the_left: bool) -> OfIntegers:
    def shift(e: Emitter, data_type: DataType, a: ir.Value, count: ir.Value) -> ir.Value:
        width = _constant(count, data_type.bits)
        far = e.b.icmp_unsigned(">=", count, width)  # negative counts as well
        most = e.b.select(far, _constant(count, data_type.bits - 1), count)
        if _signed(data_type) and not to_the_left:
            return e.b.ashr(a, most)
        move = e.b.shl if to_the_left else e.b.lshr
        return e.b.select(far, _constant(a, 0), move(a, most))

    return shift


def _power(e: Emitter, types: Types, stored: list[ir.Value]) -> ir.Value:
    """base ** exponent, by squares. A negative exponent leaves 0 of all but 1 and -1, which differ
    by its lowest bit alone."""
    base, exponent = stored
    one, signed = _constant(base, 1), _signed(types[2])
    lowest = e.b.and_(exponent, _constant(exponent, 1))
    below = e.b.icmp_signed("<", exponent, _constant(exponent, 0))

    def step(_: ir.Value, total: ir.Value, square: ir.Value, left: ir.Value) -> Values:
        odd = _nonzero(e, e.b.and_(left, _constant(left, 1)))
        total = e.b.select(odd, e.b.mul(total, square), total)
        return total, e.b.mul(square, square), e.b.lshr(left, _constant(left, 1))

    carried = one, base, e.b.select(below, lowest, exponent) if signed else exponent
    total, *_ = e.loop(i64(0), i64(types[2].bits), step, carried, unroll=False)
    if not signed:
        return total
    unit = _is(e, base, 1)
    if _signed(types[1]):
        unit = e.b.or_(unit, _is(e, base, -1))
    gone = e.b.and_(below, e.b.not_(unit))
    return e.b.select(gone, _constant(base, 0), total)


def _absolute(e: Emitter, data_type: DataType, a: ir.Value) -> ir.Value:
    if not _signed(data_type):
        return a
    negative = e.b.icmp_signed("<", a, _constant(a, 0))
    return e.b.select(negative, e.b.sub(_constant(a, 0), a), a)


def _sign(e: Emitter, data_type: DataType, a: ir.Value) -> ir.Value:
    sign = e.b.zext(_nonzero(e, a), a.type)
    if not _signed(data_type):
        return sign
    negative = e.b.icmp_signed("<", a, _constant(a, 0))
    return e.b.select(negative, _constant(a, -1), sign)


def _extreme(operator: str) -> OfIntegers:
    return lambda e, kind, a, b: e.b.select(_compare(e, operator, kind, a, b), a, b)


def _inverted(e: Emitter, data_type: DataType, a: ir.Value) -> ir.Value:
    return e.b.xor(a, _constant(a, 1 if data_type is DataType.boolean else -1))


def _where(e: Emitter, types: Types, stored: list[ir.Value]) -> ir.Value:
    return e.b.select(_nonzero(e, stored[0]), stored[1], stored[2])


def _cast(e: Emitter, types: Types, stored: list[ir.Value]) -> ir.Value:
    """Integers lose their upper bits, floats what stands behind the point."""
    (dst, src), (value,) = types, stored
    if dst is src and src is not DataType.boolean:
        return value
    if src.is_float:
        return _from_float(e, dst, src, value)
    if src is DataType.boolean:
        value = _truth(e, _nonzero(e, value), value)
    return _from_integer(e, dst, value, signed=_signed(src))


def _from_float(e: Emitter, dst: DataType, src: DataType, stored: ir.Value) -> ir.Value:
    value = _float(e, src, stored)
    if dst is DataType.boolean:
        return _truth(e, e.b.fcmp_unordered("!=", value, _constant(value, 0)), stored)
    if dst.is_float:
        if dst is DataType.f64:
            value = e.b.fpext(value, _like(value, F64))
        elif src is DataType.f64:
            value = e.b.fptrunc(value, _like(value, F32))
        return _from_real(e, dst, value)
    kind = _like(value, ir.IntType(dst.bits))
    sign = "s" if _signed(dst) else "u"
    name = f"llvm.fpto{sign}i.sat.{vector.suffix(kind)}.{vector.suffix(value.type)}"
    return e.intrinsic(name, kind, [value])


def _from_integer(e: Emitter, dst: DataType, value: ir.Value, *, signed: bool) -> ir.Value:
    if dst is DataType.boolean:
        return _truth(e, _nonzero(e, value), value)
    if dst.is_float:
        to_float = e.b.sitofp if signed else e.b.uitofp
        return _from_real(e, dst, to_float(value, _like(value, _real(dst))))
    kind, width = _like(value, ir.IntType(dst.bits)), vector.bits(value.type)
    if dst.bits <= width:
        return value if dst.bits == width else e.b.trunc(value, kind)
    return e.b.sext(value, kind) if signed else e.b.zext(value, kind)


def _from_real(e: Emitter, dst: DataType, value: ir.Value) -> ir.Value:
    """Numbers in f32, of f64 in f64, as they are stored."""
    stored = convert.storage(dst, _real(dst)).from_core(e, value)
    return e.b.bitcast(stored, _like(stored, ir.IntType(dst.bits)))


_FUNCTIONS: dict[str, Apply] = {
    "abs": _of_integers(_absolute),
    "add": _of_integers(lambda e, _, a, b: e.b.add(a, b)),
    "and": _of_integers(lambda e, _, a, b: e.b.and_(a, b)),
    CAST: _cast,
    "div": _of_integers(_divide),
    **{name: _comparison(operator) for name, operator in COMPARISONS.items()},
    "maximum": _of_integers(_extreme(">")),
    "minimum": _of_integers(_extreme("<")),
    "mod": _of_integers(_modulo),
    "mul": _of_integers(lambda e, _, a, b: e.b.mul(a, b)),
    "neg": _of_integers(lambda e, _, a: e.b.sub(_constant(a, 0), a)),
    "not": _of_integers(_inverted),
    "or": _of_integers(lambda e, _, a, b: e.b.or_(a, b)),
    "pow": _power,
    "remainder": _of_integers(_remainder),
    "shift_left": _of_integers(_shifted(to_the_left=True)),
    "shift_right": _of_integers(_shifted(to_the_left=False)),
    "sign": _of_integers(_sign),
    "sub": _of_integers(lambda e, _, a, b: e.b.sub(a, b)),
    "where": _where,
    "xor": _of_integers(lambda e, _, a, b: e.b.xor(a, b)),
}
