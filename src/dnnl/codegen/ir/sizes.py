"""Code for numbers that only an execution knows.

They are computed at the entry of a function, once each, from the numbers of all symbols, which are
an argument of the kernel.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from dnnl.types.size import Size, SymbolTable, bounds

_I64 = ir.IntType(64)
_SIGN = 63  # the shift that leaves the sign in every bit


class Numbers:
    """The values of sizes in one function. ``b`` is at its entry while values are written;
    ``pointer()`` gives the address of the numbers of all symbols there."""

    def __init__(self, b: ir.IRBuilder) -> None:
        self._b = b
        self._values: dict[object, ir.Value] = {}
        #: Set by who knows where the numbers of an execution are.
        self.pointer: Callable[[], ir.Value] | None = None

    @property
    def used(self) -> bool:
        """Whether the function reads any."""
        return bool(self._values)

    def value(self, size: Size) -> ir.Value:
        """The value of a size."""
        return self.once(size.key, lambda: self._polynomial(size))

    def once(self, key: object, write: Callable[[], ir.Value]) -> ir.Value:
        """The value of ``write()``, which is written once, at the entry of the function."""
        found = self._values.get(key)
        if found is None:
            with self._b.goto_entry_block():
                found = self._values[key] = write()
        return found

    def _polynomial(self, size: Size) -> ir.Value:
        b, total = self._b, None
        for key, factor in size.terms.items():
            term: ir.Value | None = None
            for number in key:
                value = self._atom(size.symbols, number)
                term = value if term is None else b.mul(term, value, flags=("nsw",))
            if term is None:
                term = ir.Constant(_I64, factor)
            elif factor != 1:
                term = b.mul(term, ir.Constant(_I64, factor), flags=("nsw",))
            total = term if total is None else b.add(total, term, flags=("nsw",))
        return total

    def _atom(self, symbols: SymbolTable, number: int) -> ir.Value:
        b, atom = self._b, symbols.atoms[number]

        def write() -> ir.Value:
            if not atom.operation:
                assert self.pointer is not None, "a function without sizes as an argument"
                place = ir.Constant(_I64, symbols.place(atom))
                where = b.gep(self.pointer(), [place], source_etype=_I64)
                return b.load(where, typ=_I64)
            first, second = map(self._operand, atom.operands)
            if atom.operation == "//":
                return self._quotient(atom.operands[0], first, second)
            relation = "<" if atom.operation == "min" else ">"
            return b.select(b.icmp_signed(relation, first, second), first, second)

        return self.once(("atom", number), write)

    def _operand(self, value: int) -> ir.Value:
        return self._polynomial(value) if isinstance(value, Size) else ir.Constant(_I64, value)

    def _quotient(self, size: int, value: ir.Value, divisor: ir.Value) -> ir.Value:
        """value // divisor, rounded down; the divisor is positive."""
        b = self._b
        if bounds(size)[0] >= 0:
            return b.udiv(value, divisor)
        sign = b.ashr(value, ir.Constant(_I64, _SIGN))
        below = b.and_(sign, b.sub(divisor, ir.Constant(_I64, 1)))
        return b.sdiv(b.sub(value, below), divisor)
