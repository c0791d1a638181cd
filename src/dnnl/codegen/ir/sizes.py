"""Code for numbers that only an execution knows.

They are computed at the entry of a function, once each, from the numbers of all symbols, which are
an argument of the kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llvmlite import ir

from dnnl.types.size import Atom, Size, bounds

if TYPE_CHECKING:
    from dnnl.codegen.ir.builder import Emitter

_I64 = ir.IntType(64)
_SIGN = 63  # the shift that leaves the sign in every bit


def emit(e: Emitter, size: Size) -> ir.Value:
    """The value of a size."""
    return e.once_at_entry(size.key, lambda: _polynomial(e, size))


def _polynomial(e: Emitter, size: Size) -> ir.Value:
    total: ir.Value | None = None
    for key, factor in size.terms.items():
        term: ir.Value | None = None
        for number in key:
            value = _atom(e, size, number)
            term = value if term is None else e.b.mul(term, value, flags=("nsw",))
        if term is None:
            term = ir.Constant(_I64, factor)
        elif factor != 1:
            term = e.b.mul(term, ir.Constant(_I64, factor), flags=("nsw",))
        total = term if total is None else e.b.add(total, term, flags=("nsw",))
    return total


def _atom(e: Emitter, size: Size, number: int) -> ir.Value:
    atom = size.symbols.atoms[number]

    def write() -> ir.Value:
        if not atom.operation:
            assert e.sizes is not None, "a function that has no sizes as an argument"
            place = ir.Constant(_I64, size.symbols.place(atom))
            where = e.b.gep(e.sizes(), [place], source_etype=_I64)
            return e.b.load(where, typ=_I64)
        a, b = (_value(e, operand) for operand in atom.operands)
        if atom.operation == "//":
            return _quotient(e, atom, a, b)
        return e.smaller(a, b) if atom.operation == "min" else e.larger(a, b)

    return e.once_at_entry(("atom", number), write)


def _value(e: Emitter, operand: int) -> ir.Value:
    return _polynomial(e, operand) if isinstance(operand, Size) else ir.Constant(_I64, operand)


def _quotient(e: Emitter, atom: Atom, a: ir.Value, b: ir.Value) -> ir.Value:
    """a // b, rounded down; b is positive."""
    if bounds(atom.operands[0])[0] >= 0:
        return e.b.udiv(a, b)
    below = e.b.and_(e.b.ashr(a, ir.Constant(_I64, _SIGN)), e.b.sub(b, ir.Constant(_I64, 1)))
    return e.b.sdiv(e.b.sub(a, below), b)
