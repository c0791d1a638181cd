"""The symbols of a description: what its sizes consist of, and what is asked about them.

A comparison that has one outcome for all numbers is decided. Any other is decided for the typical
numbers, and becomes a guard: a condition of the code that relies on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd, inf

from dnnl.types.size import Size, text, typical
from dnnl.types.size_bounds import Atom, quotient_bounds, without

LEAST = 2
"""The least number for which a symbol is made: 0 and 1 decide what is empty and what is broadcast.
Symbols of sizes stand for 1, too, unless something asks."""
_FEW = 64
"""So many numbers have a quotient in common at most for it to settle them: a few vectors' or a
tile's elements."""


@dataclass(frozen=True)
class Guard:
    """A condition that generated code relies on: ``size`` is ``<``, ``>=``, ``==`` or ``!=`` 0."""

    size: Size
    relation: str

    def __str__(self) -> str:
        return f"{text(self.size)} {self.relation} 0"


class Symbols:
    """The symbols of one description, what was derived from them, and the guards so far."""

    def __init__(self) -> None:
        self.atoms: list[Atom] = []
        self._places: dict[int, int] = {}
        self._derived: dict[tuple[object, ...], Atom] = {}
        self._guards: dict[tuple[object, ...], Guard] = {}
        self._narrowed: list[Atom] = []
        """The atoms with what guards say of them: it answers questions, and nothing else."""

    @property
    def guards(self) -> tuple[Guard, ...]:
        """What all comparisons so far rely on."""
        return tuple(self._guards.values())

    def size(self, typical: int, low: int = LEAST, high: float = inf, multiple: int = 1) -> int:
        """A new symbol times ``multiple``, in all at least ``low`` and at most ``high``."""
        least = -(-low // multiple)
        most = high if high == inf else high // multiple
        atom = Atom(len(self.atoms), typical // multiple, least, most)
        self.atoms.append(atom)
        self._narrowed.append(atom)
        self._places[atom.number] = len(self._places)
        return Size(self, {(atom.number,): multiple})

    @property
    def ranges(self) -> tuple[tuple[int, float, float], ...]:
        """The typical number of each symbol, the least and the largest."""
        return tuple((a.typical, a.low, a.high) for a in self.atoms if not a.operation)

    @property
    def settled(self) -> tuple[int, ...]:
        """The places of symbols whose terms equal numbers: guards allow them one, or few."""
        fixed = (guard.size for guard in self._guards.values() if guard.relation == "==")
        alone = ([key for key in size.terms if key] for size in fixed)
        terms = [keys[0] for keys in alone if len(keys) == 1]
        return tuple({place for key in terms for number in key for place in self._within(number)})

    def _within(self, number: int) -> Iterator[int]:
        """The places of the symbols of an atom, without those that a large number divides: many
        numbers have one quotient."""
        atom = self.atoms[number]
        if number in self._places:
            yield self._places[number]
        if atom.operation == "//" and typical(atom.operands[1]) > _FEW:
            return
        for operand in atom.operands:
            for key in operand.terms if isinstance(operand, Size) else ():
                for other in key:
                    yield from self._within(other)

    def place(self, atom: Atom) -> int:
        """The number of a symbol among all symbols."""
        return self._places[atom.number]

    def derived(self, operation: str, *operands: Size | int, least: float = -inf) -> int:
        """The quotient, or the smaller or larger one, of two numbers; at least ``least``."""
        key = operation, *(x.key if isinstance(x, Size) else x for x in operands)
        atom = self._derived.get(key)
        if atom is None:
            if operation == "//" and operands[1] < 1:  # which is a guard, unless it is known
                return int(operands[0]) // int(operands[1])
            value = _OPERATIONS[operation](*map(typical, operands))
            atom = Atom(len(self.atoms), value, least, inf, operation, operands)
            self._derived[key] = atom = _bounded(atom, self.atoms)
            self.atoms.append(atom)
            self._narrowed.append(_bounded(atom, self._narrowed))
        return Size(self, {(atom.number,): 1})

    def ask(self, size: Size, relation: str) -> bool:
        """Whether ``size`` is ``<`` or ``==`` 0, by what is known or by a guard."""
        known = _decided(size, relation, size.bounds)
        if known is not None:
            return known
        size = self._deciding(size)
        known = _decided(size, relation, size.bounds_by(self._narrowed))
        if known is not None:
            return known
        holds = size.typical < 0 if relation == "<" else size.typical == 0
        key = relation, size.key
        if key not in self._guards:
            opposite = ">=" if relation == "<" else "!="
            guard = Guard(size, relation if holds else opposite)
            self._guards[key] = guard
            self._narrow(size, guard.relation)
        return holds

    def _deciding(self, size: Size) -> Size:
        """``size`` without the positive factors of all its terms, which decide nothing."""
        first, *others = size.terms
        common = [n for n in first if self._narrowed[n].low >= 1]
        for key in others:
            common = [n for n in common if n in key]
        divisor = tuple(dict.fromkeys(common))  # each once: all terms have it
        share = gcd(*size.terms.values())
        terms = {without(key, divisor): factor // share for key, factor in size.terms.items()}
        return Size(self, {key: factor for key, factor in terms.items() if key is not None})

    def _narrow(self, size: int, relation: str) -> None:
        """Take over what a guard says of a single atom, and what follows for others."""
        terms = size.terms if isinstance(size, Size) else {}
        keys = [key for key in terms if key]
        if len(keys) != 1 or len(keys[0]) != 1:
            return
        (number,) = keys[0]
        atom = self._narrowed[number]
        low, high = _allowed(atom, terms[keys[0]], terms.get((), 0), relation)
        if (low, high) == (atom.low, atom.high):
            return
        self._narrowed[number] = replace(atom, low=low, high=high)
        for place in range(number + 1, len(self.atoms)):
            self._narrowed[place] = _bounded(self._narrowed[place], self._narrowed)
        value, divisor = atom.operands or (0, 0)
        if atom.operation == "//" and isinstance(divisor, int):
            if low > atom.low:
                self._narrow(value - int(low) * divisor, ">=")
            if high < atom.high:
                self._narrow(value - int(high + 1) * divisor, "<")


def _decided(size: Size, relation: str, bounds: tuple[float, float]) -> bool | None:
    """Whether a size is ``<`` or ``==`` 0, where its bounds tell."""
    low, high = bounds
    if relation == "<" and (high < 0 or low >= 0):
        return high < 0
    if relation == "==" and (high < 0 or low > 0 or size.is_indivisible):
        return False
    return True if relation == "==" and low == high == 0 else None


def _allowed(atom: Atom, factor: int, constant: int, relation: str) -> tuple[float, float]:
    """The least and the largest number of an atom for which factor * atom + constant is
    ``relation`` 0."""
    low, high = atom.low, atom.high
    if relation in ("==", "!="):
        number, rest = divmod(-constant, factor)
        if relation == "==" and not rest:
            return number, number
        excluded = relation == "!=" and not rest
        return low + (excluded and number == low), high - (excluded and number == high)
    if relation == "<":  # as a number that is at least 0
        factor, constant = -factor, -constant - 1
    if factor > 0:
        return max(low, -(constant // factor)), high
    return low, min(high, constant // -factor)


def _bounded(atom: Atom, atoms: Sequence[Atom]) -> Atom:
    """An atom with the bounds that follow from those of its operands, by ``atoms``."""
    if not atom.operation:
        return atom
    (low, high), ends = (
        own.bounds_by(atoms) if isinstance(own, Size) else (own, own) for own in atom.operands
    )
    if atom.operation == "//":
        low, high = quotient_bounds(low, high, max(1, ends[0]), ends[1])
    else:
        choose = min if atom.operation == "min" else max
        low, high = choose(low, ends[0]), choose(high, ends[1])
    return replace(atom, low=max(low, atom.low), high=min(high, atom.high))


_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "//": lambda a, b: a // b,
    "min": min,
    "max": max,
}
