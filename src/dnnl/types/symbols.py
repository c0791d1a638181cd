"""The symbols of a description: what its sizes consist of, and what is asked about them.

A comparison that has one outcome for all numbers is decided. Any other is decided for the typical
numbers, and becomes a guard: a condition of the code that relies on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf

from dnnl.types.size import Size, bounds, text, typical
from dnnl.types.size_bounds import Atom, quotient_bounds

LEAST = 2
"""Sizes of 0 and 1 are constants: they decide what is empty and what is broadcast."""


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
        """The places of the symbols of an atom."""
        if number in self._places:
            yield self._places[number]
        for operand in self.atoms[number].operands:
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
            (low, high), ends = map(bounds, operands)
            first, second = map(typical, operands)
            value = _OPERATIONS[operation](first, second)
            if operation == "//":
                low, high = quotient_bounds(low, high, max(1, ends[0]), ends[1])
            else:
                choose = min if operation == "min" else max
                low, high = choose(low, ends[0]), choose(high, ends[1])
            atom = Atom(len(self.atoms), value, max(low, least), high, operation, operands)
            self.atoms.append(atom)
            self._derived[key] = atom
        return Size(self, {(atom.number,): 1})

    def ask(self, size: Size, relation: str) -> bool:
        """Whether ``size`` is ``<`` or ``==`` 0, by what is known or by a guard."""
        low, high = size.bounds
        if relation == "<" and (high < 0 or low >= 0):
            return high < 0
        if relation == "==" and (high < 0 or low > 0 or size.is_indivisible):
            return False
        holds = size.typical < 0 if relation == "<" else size.typical == 0
        key = relation, size.key
        if key not in self._guards:
            opposite = ">=" if relation == "<" else "!="
            self._guards[key] = Guard(size, relation if holds else opposite)
        return holds


_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "//": lambda a, b: a // b,
    "min": min,
    "max": max,
}
