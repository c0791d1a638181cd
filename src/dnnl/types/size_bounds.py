"""What a polynomial over sizes is at least and at most, as far as that is known.

A product of atoms has a factor, as ``{(0, 3): 2, (): 5}`` for 2 * a0 * a3 + 5. Each atom is what
exceeds its least value, so that products of atoms are monotonic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, prod
from typing import Any

Key = tuple[int, ...]
"""A product of atoms by number, sorted; a number -1 - n is the remainder of quotient n."""
Terms = Mapping[Key, int]


@dataclass(frozen=True, eq=False)
class Atom:
    """What polynomials consist of: symbol ``number``, or an ``operation`` on ``operands``:
    ``//``, ``min`` or ``max``. It is between ``low`` and ``high``."""

    number: int
    typical: int
    low: float
    high: float
    operation: str = ""
    operands: tuple[Any, ...] = ()


def quotient_bounds(low: float, high: float, least: float, most: float) -> tuple[float, float]:
    """The bounds of a quotient from those of both numbers; the divisor is positive."""

    def quotient(a: float, b: float) -> float:
        if a in (inf, -inf):
            return a
        return a // b if b != inf else 0 if a >= 0 else -1

    smallest = quotient(low, most if low >= 0 else least)
    return smallest, quotient(high, least if high >= 0 else most)


def _limits(atoms: Sequence[Atom], number: int) -> tuple[float, float]:
    if number >= 0:
        return atoms[number].low, atoms[number].high
    return 0, atoms[-1 - number].operands[1] - 1


def bounds_of(atoms: Sequence[Atom], terms: Terms) -> tuple[float, float]:
    """The bounds of a polynomial, from those of its terms once each atom is what exceeds its least
    value."""
    shifted: dict[Key, float] = {}
    for key, factor in terms.items():
        products: dict[Key, float] = {(): factor}
        for number in key:
            low = _limits(atoms, number)[0]
            if low == -inf:
                return -inf, inf
            following: dict[Key, float] = {}
            for own, value in products.items():
                following[own] = following.get(own, 0) + value * low
                longer = tuple(sorted((*own, number)))
                following[longer] = following.get(longer, 0) + value
            products = following
        for own, value in products.items():
            shifted[own] = shifted.get(own, 0) + value
    least = most = float(shifted.pop((), 0))
    for key, share in shifted.items():
        spans = [high - low for low, high in (_limits(atoms, number) for number in key)]
        reach = share * prod(spans) if share and 0 not in spans else 0.0
        least, most = least + min(0.0, reach), most + max(0.0, reach)
    return least, most


def with_remainders(atoms: Sequence[Atom], terms: Terms) -> Terms | None:
    """The polynomial with quotients by constants replaced, where factors allow, by what is divided
    less the remainder; None where there are none."""
    made: dict[Key, int] = {}
    changed = False
    for key, factor in terms.items():
        found = next((n for n in key if n >= 0 and _divides(atoms[n], factor)), None)
        if found is None:
            made[key] = made.get(key, 0) + factor
            continue
        changed = True
        value, divisor = atoms[found].operands
        others = list(key)
        others.remove(found)
        share = factor // divisor
        parts = [((), value)] if isinstance(value, int) else value.terms.items()
        for other, f in [*parts, ((-1 - found,), -1)]:
            own = tuple(sorted((*others, *other)))
            made[own] = made.get(own, 0) + f * share
    return {key: factor for key, factor in made.items() if factor} if changed else None


def _divides(atom: Atom, factor: int) -> bool:
    divisor = atom.operands[1] if atom.operation == "//" else 0
    return isinstance(divisor, int) and divisor > 0 and factor % divisor == 0


def without(key: Key, divisor: Key) -> Key | None:
    """The factors of a term without those of ``divisor``; None if it lacks any."""
    rest = list(key)
    for number in divisor:
        if number not in rest:
            return None
        rest.remove(number)
    return tuple(rest)
