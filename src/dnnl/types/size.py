"""Integers that only an execution knows, in the arithmetic of planning.

A :class:`Size` stands for an extent, a stride or an offset wherever code is planned and generated.
It is a polynomial over the symbols of a description, and over quotients and extremes of such::

    rows = symbols.size(300)         # any number of at least 2
    blocks = -(-rows // 16)          # a Size
    blocks * 16 >= rows              # True, for all numbers
    rows < 1000                      # True, and a guard: the code serves less than 1000 rows

A comparison that has one outcome for all numbers is decided. Any other is decided for the
``typical`` numbers and remembered as a guard. What needs a number of its own, as ``range(rows)``,
takes the typical one and remembers that too. So code that was generated from sizes serves exactly
those executions whose numbers satisfy the guards, and code that asks nothing serves all.

`typical` gives the number that heuristics decide by, without a guard.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import gcd, inf, prod
from typing import TYPE_CHECKING, Any, Protocol

from dnnl.types.size_bounds import Atom, Key, Terms, bounds_of, with_remainders
from dnnl.types.size_quotients import exact_quotient

if TYPE_CHECKING:  # for which a size is an integer: planning computes with both alike
    _Number = int
else:
    _Number = object


class SymbolTable(Protocol):
    """What answers the questions of sizes: `dnnl.types.symbols.Symbols`."""

    atoms: list[Atom]

    @property
    def guards(self) -> tuple[object, ...]:
        """What all comparisons so far rely on."""

    @property
    def ranges(self) -> tuple[tuple[int, float, float], ...]:
        """The typical number of each symbol, the least and the largest."""

    def place(self, atom: Atom) -> int:
        """The number of a symbol among all symbols."""

    def derived(self, operation: str, *operands: Size | int, least: float = ...) -> int:
        """A quotient or an extreme of numbers."""

    def ask(self, size: Size, relation: str) -> bool:
        """Whether ``size`` is ``<`` or ``==`` 0."""


class Size(_Number):
    """A number that only an execution knows: a polynomial over the atoms of ``symbols``."""

    __slots__ = ("__dict__", "_terms", "symbols")

    def __init__(self, symbols: SymbolTable, terms: Terms) -> None:
        self.symbols, self._terms = symbols, terms

    @cached_property
    def key(self) -> frozenset[tuple[Key, int]]:
        """What tells polynomials apart."""
        return frozenset(self._terms.items())

    @property
    def terms(self) -> Terms:
        """The factor of each product of atoms."""
        return self._terms

    @cached_property
    def typical(self) -> int:
        """The number that heuristics decide by."""
        atoms = self.symbols.atoms
        return sum(c * prod(atoms[n].typical for n in key) for key, c in self._terms.items())

    @cached_property
    def bounds(self) -> tuple[float, float]:
        """What the number is at least and at most, as far as that is known, whatever guards say: it
        is the same whenever it is asked for."""
        return self.bounds_by(self.symbols.atoms)

    def bounds_by(self, atoms: Sequence[Atom]) -> tuple[float, float]:
        """The bounds that follow from those of ``atoms``."""
        low, high = bounds_of(atoms, self._terms)
        rewritten = with_remainders(atoms, self._terms)
        if rewritten is not None:
            least, most = bounds_of(atoms, rewritten)
            low, high = max(low, least), min(high, most)
        return low, high

    @property
    def is_indivisible(self) -> bool:
        """Whether the number is never 0, since the constant is no multiple of what the other
        factors have in common."""
        factors = [factor for key, factor in self._terms.items() if key]
        return self._terms.get((), 0) % gcd(*factors) != 0

    def __add__(self, other: Any) -> int:
        if isinstance(other, Size):
            return _sum(self, other._terms)
        return _sum(self, {(): other}) if isinstance(other, int) else NotImplemented

    __radd__ = __add__

    def __neg__(self) -> int:
        return Size(self.symbols, {key: -factor for key, factor in self._terms.items()})

    def __pos__(self) -> int:
        return self

    def __sub__(self, other: Any) -> int:
        return self + -other if isinstance(other, int | Size) else NotImplemented

    def __rsub__(self, other: Any) -> int:
        return -self + other if isinstance(other, int) else NotImplemented

    def __mul__(self, other: Any) -> int:
        if isinstance(other, Size):
            return _product(self, other)
        if not isinstance(other, int):
            return NotImplemented
        if other == 0:
            return 0
        return Size(self.symbols, {key: factor * other for key, factor in self._terms.items()})

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> int:
        if isinstance(other, Size):
            return _quotient_of_sizes(self, other)
        if not isinstance(other, int):
            return NotImplemented
        if other < 0:
            return -self // -other
        whole = {key: f // other for key, f in self._terms.items() if f % other == 0}
        rest = {key: f for key, f in self._terms.items() if f % other}
        if not rest:
            return _made(self.symbols, whole)
        if () in rest and len(rest) == 1:  # a constant below the divisor adds less than 1
            constant = rest[()] // other
            return _made(self.symbols, {**whole, (): whole.get((), 0) + constant})
        made = _canonical_quotient(Size(self.symbols, rest), other)
        return made + _made(self.symbols, whole)

    def __rfloordiv__(self, other: Any) -> int:
        if not isinstance(other, int):
            return NotImplemented
        if other == 0:
            return 0
        return self.symbols.derived("//", other, self)

    def __mod__(self, other: Any) -> int:
        if not isinstance(other, int | Size):
            return NotImplemented
        return self - self // other * other

    def __rmod__(self, other: Any) -> int:
        return other - other // self * self if isinstance(other, int) else NotImplemented

    def __divmod__(self, other: Any) -> tuple[int, int]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[int, int]:
        return other // self, other % self

    def __lshift__(self, other: Any) -> int:
        return self * (1 << int(other))

    def __rlshift__(self, other: Any) -> int:
        return int(other << int(self))

    def __rshift__(self, other: Any) -> int:
        return self // (1 << int(other))

    def __and__(self, other: Any) -> int:
        return int(int(self) & other)

    __rand__ = __and__

    def bit_length(self) -> int:
        """The bits of the typical number, which a guard makes the only one."""
        return int(self).bit_length()

    def __abs__(self) -> int:
        return -self if self < 0 else self

    def __lt__(self, other: object) -> bool:
        return _ask(self - other, "<") if isinstance(other, int | Size) else _compared(self, other)

    def __gt__(self, other: object) -> bool:
        if isinstance(other, int | Size):
            return _ask(other - self, "<")
        return _compared(self, other, above=True)

    def __le__(self, other: object) -> bool:
        return not self > other

    def __ge__(self, other: object) -> bool:
        return not self < other

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, Size) and other.symbols is not self.symbols:
            return False
        return _ask(self - other, "==") if isinstance(other, int | Size) else NotImplemented

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        # Never that of a number, which a set would compare it with.
        return hash((self.key, id(self.symbols)))

    def __bool__(self) -> bool:
        return self != 0

    def __index__(self) -> int:
        """The typical number, which a guard makes the only one."""
        if self != self.typical:  # never, but it is what adds the guard
            raise AssertionError(f"{self!r} has typical numbers that its bounds exclude")
        return self.typical

    __int__ = __index__

    def __float__(self) -> float:
        return float(int(self))

    def __truediv__(self, other: Any) -> float:
        return float(int(self) / other)

    def __rtruediv__(self, other: Any) -> float:
        return float(other / int(self))

    def __str__(self) -> str:
        return str(int(self))

    def __format__(self, spec: str) -> str:
        return format(int(self), spec)

    def __repr__(self) -> str:
        return f"<{text(self)}>"


def typical(value: int) -> int:
    """The number that heuristics decide by: typical where only an execution knows it."""
    return value.typical if isinstance(value, Size) else value


def is_known(value: int) -> bool:
    """Whether a number is known now."""
    return not isinstance(value, Size)


def bounds(value: int) -> tuple[float, float]:
    """What a number is at least and at most."""
    return value.bounds if isinstance(value, Size) else (value, value)


def surely_at_most(a: int, b: int) -> bool:
    """Whether a <= b for all numbers."""
    if bounds(b - a)[0] >= 0:
        return True
    larger_of, smaller_of = _operands("max", b), _operands("min", a)
    return any(surely_at_most(a, one) for one in larger_of) or any(
        surely_at_most(one, b) for one in smaller_of
    )


def surely_below(a: int, b: int) -> bool:
    """Whether a < b for all numbers."""
    return bounds(b - a)[0] > 0


def surely_equal(a: int, b: int) -> bool:
    """Whether a == b for all numbers."""
    return bounds(a - b) == (0, 0)


def is_one(value: int) -> bool:
    """Whether a number is 1. That it is none needs no guard: other code serves 1 as well."""
    return typical(value) == 1 and value == 1


def broadcasts(extent: int, full: int) -> bool:
    """Whether an extent is ``full``, or 1 and so can be broadcast to it."""
    return is_one(extent) or extent == full


def surely_divides(divisor: int, value: int) -> bool:
    """Whether a number is a multiple of the divisor for all numbers."""
    return surely_equal(value % divisor, 0)


def separates(size: int, limit: int) -> bool:
    """Whether a size is below a limit; if only an execution knows, each case has its kernels."""
    return size < limit


def smaller(a: int, b: int) -> int:
    """min(a, b), where neither must be known."""
    if surely_at_most(a, b):
        return a
    return b if surely_at_most(b, a) else symbols_of(a, b).derived("min", a, b)


def larger(a: int, b: int) -> int:
    """max(a, b), where neither must be known."""
    if surely_at_most(a, b):
        return b
    return a if surely_at_most(b, a) else symbols_of(a, b).derived("max", a, b)


def order(a: int, b: int) -> int:
    """0 if a == b, below 0 if a < b, else above 0, for the typical numbers. That a <= b for all
    numbers is enough for "below", and needs no guard."""
    if typical(a) != typical(b):
        if surely_at_most(a, b):
            return -1
        if surely_at_most(b, a):
            return 1
    return 0 if a == b else -1 if a < b else 1


class Descending:
    """A number in an order from the largest to the least, which asks nothing that is known."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Descending) and order(self.value, other.value) == 0

    def __hash__(self) -> int:
        return hash(self.value)

    def __lt__(self, other: Descending) -> bool:
        return order(self.value, other.value) > 0


def _operands(operation: str, value: int) -> tuple[Size | int, ...]:
    """The operands of which a number is the extreme, where it is one."""
    terms = value.terms if isinstance(value, Size) else {}
    keys = [key for key, factor in terms.items() if factor == 1]
    if len(terms) != 1 or not keys or len(keys[0]) != 1:
        return ()
    atom = symbols_of(value).atoms[keys[0][0]]
    return atom.operands if atom.operation == operation else ()


def symbols_of(*values: int) -> SymbolTable:
    """The symbols of those that are sizes."""
    return next(value.symbols for value in values if isinstance(value, Size))


def text(value: int) -> str:
    """A Python expression for a number, in which the symbols are called s0, s1, ..."""
    if not isinstance(value, Size):
        return repr(value)
    return "+".join(_term(value.symbols, key, factor) for key, factor in value.terms.items())


def _term(symbols: SymbolTable, key: Key, factor: int) -> str:
    names = [_atom(symbols, number) for number in key]
    return "*".join([str(factor), *names] if factor != 1 or not names else names)


def _atom(symbols: SymbolTable, number: int) -> str:
    atom = symbols.atoms[number]
    if not atom.operation:
        return f"s{symbols.place(atom)}"
    first, second = map(text, atom.operands)
    if atom.operation == "//":
        return f"(({first})//({second}))"
    return f"{atom.operation}({first},{second})"


def _made(symbols: SymbolTable, terms: Terms) -> int:
    """The polynomial, or the integer where it is one."""
    terms = {key: factor for key, factor in terms.items() if factor}
    if not terms:
        return 0
    return terms[()] if len(terms) == 1 and () in terms else Size(symbols, terms)


def _sum(a: Size, terms: Terms) -> int:
    total = dict(a.terms)
    for key, factor in terms.items():
        total[key] = total.get(key, 0) + factor
    return _made(a.symbols, total)


def _product(a: Size, b: Size) -> int:
    total: dict[Key, int] = {}
    for first, factor in a.terms.items():
        for second, other in b.terms.items():
            key = tuple(sorted(first + second))
            total[key] = total.get(key, 0) + factor * other
    return _made(a.symbols, total)


def _canonical_quotient(size: Size, divisor: int) -> int:
    """size // divisor with a positive first factor: equal quotients are one atom."""
    first = next(factor for key, factor in sorted(size.terms.items()) if key)
    if first < 0:
        return -_canonical_quotient_of(-size + (divisor - 1), divisor)
    return _canonical_quotient_of(size, divisor)


def _canonical_quotient_of(value: int, divisor: int) -> int:
    if not isinstance(value, Size):
        return value // divisor
    constant = value.terms.get((), 0)
    whole = constant // divisor
    rest: Any = value - whole * divisor
    common = gcd(divisor, *(factor for key, factor in value.terms.items() if key))
    if common > 1:  # what is below the common factor does not matter
        rest = (rest - rest.terms.get((), 0)) // common + rest.terms.get((), 0) // common
        divisor //= common
    return _nested_quotient(rest, divisor) + whole


def _nested_quotient(size: Size, divisor: int) -> int:
    """size // divisor; (p // a + c) // divisor is (p + a * c) // (a * divisor)."""
    (key, factor), *others = ((key, factor) for key, factor in size.terms.items() if key)
    part, by = size.symbols.atoms[key[0]].operands or (0, 0)
    quotient = size.symbols.atoms[key[0]].operation == "//" and isinstance(by, int)
    if quotient and not others and len(key) == factor == 1:
        found: int = (part + by * size.terms.get((), 0)) // (by * divisor)
        return found
    return size.symbols.derived("//", size, divisor)


def _quotient_of_sizes(a: Size, b: Size) -> int:
    """a // b; exact where a is a multiple of b that can be seen."""
    if a.key == b.key:
        return 1
    exact = exact_quotient(a.terms, b.terms)
    if exact is not None:
        return _made(a.symbols, exact)
    if a.bounds[1] <= 0:  # rounded up: equal quotients are one atom, of at least 1 for a part
        above = -a + b - 1
        if not isinstance(above, Size):
            return -(above // b)
        return -a.symbols.derived("//", above, b, least=int(a.bounds[1] < 0))
    return a.symbols.derived("//", a, b)


def _ask(difference: int, relation: str) -> bool:
    if isinstance(difference, Size):
        return difference.symbols.ask(difference, relation)
    return difference < 0 if relation == "<" else difference == 0


def _compared(size: Size, other: Any, *, above: bool = False) -> bool:
    """Whether a size is below, or ``above``, a number that is no integer: that fixes it."""
    if other in (inf, -inf):
        return bool((other < 0) if above else (other > 0))
    return bool(int(size) > other if above else int(size) < other)
