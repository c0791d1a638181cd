"""The sizes of a model that only a run knows, as expressions of the numbers of that run."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from operator import itemgetter
from typing import Any

from dnnl.graph.graph import Shape, TensorType
from dnnl.types import arithmetic
from dnnl.types.layout import Layout
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import Size, SymbolTable, is_known, text, typical

Numbers = tuple[int, ...]
"""The numbers of a run, one for each symbol."""
Values = tuple[int, ...]
"""What expressions are in a run, each at its place."""


_SYMBOL = re.compile(r"s[0-9]+")
_MULTIPLE = re.compile(r"([0-9]+\*)?s[0-9]+")


@dataclass(frozen=True, slots=True)
class Form:
    """A descriptor whose numbers are expressions at some ``places``; ``like`` is one of its kind,
    and the descriptor itself without places."""

    like: MemoryDesc
    places: tuple[int, ...] = ()


class OpenInputs:
    """Evaluates symbols from shapes of ``inputs``, in whose types they are the sizes s0, s1, ...;
    ``symbols`` is their number. Other sizes must be what their expressions of symbols give."""

    def __init__(self, inputs: Mapping[str, TensorType]) -> None:
        self._names = tuple(inputs)
        self._ranks = [len(kind.shape) for kind in inputs.values()]
        numbers: dict[int, str] = {}
        rules: list[str] = []
        derived: list[tuple[str, str]] = []
        for place, kind in enumerate(inputs.values()):
            for dim, size in enumerate(kind.shape):
                given = f"n[{place}][{dim}]"
                if isinstance(size, str) and not _MULTIPLE.fullmatch(size):
                    derived.append((given, size))
                    continue
                symbol = _symbol(size)
                if symbol >= 0:
                    rules.append(f"{given}=={symbol}")
                    continue
                multiple = _multiple(size)
                if multiple != 1:
                    rules.append(f"{given}%{multiple}==0")
                    given = f"{given}//{multiple}"
                first = numbers.setdefault(symbol, given)
                if first != given:
                    rules.append(f"{given}=={first}")
        rules += [f"{given}=={_of_inputs(text, numbers)}" for given, text in derived]
        found = "".join(f"{numbers[symbol]}," for symbol in sorted(numbers, reverse=True))
        self.symbols, rule = len(numbers), " and ".join(rules) or "1"
        self._found = arithmetic.trusted(f"lambda n: ({found}) if {rule} else None")

    def numbers(self, shapes: Mapping[str, Shape]) -> Numbers | None:
        """The numbers of all symbols; None where shapes are not those of the inputs, or not the
        multiples that these are."""
        given = [shapes[name] for name in self._names]
        if list(map(len, given)) != self._ranks:
            return None
        try:
            found: Numbers | None = self._found(given)
        except ZeroDivisionError:  # of sizes that are divided by others
            return None
        return found


def _of_inputs(expression: str, numbers: Mapping[int, str]) -> str:
    """An expression of symbols, in the sizes of inputs that these are."""
    names = {f"s{-1 - symbol}": given for symbol, given in numbers.items()}
    arithmetic.check(expression, frozenset(names))
    return f"({_SYMBOL.sub(lambda found: f'({names[found[0]]})', expression)})"


def _symbol(size: int | str) -> int:
    """A size of an input: itself, or -1 - n for symbol n, of which it may be a multiple."""
    return size if isinstance(size, int) else -1 - int(size.rpartition("s")[2])


def _multiple(size: int | str) -> int:
    """What a symbol is multiplied by: 8 of ``8*s0``."""
    return int(str(size).rpartition("s")[0].rstrip("*") or 1)


def named_symbols(kind: TensorType) -> TensorType:
    """The type of an input with the names of symbols instead of these."""
    return TensorType(kind.dtype, tuple(map(_named, kind.sizes)))


def _named(size: int) -> int | str:
    return text(size) if isinstance(size, Size) else size


class Expressions:
    """Collects different expressions of sizes and numbers them."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._forms: dict[MemoryDesc, Form] = {}

    @property
    def texts(self) -> tuple[str, ...]:
        """All of them, by place."""
        return tuple(self._places)

    def place(self, size: int) -> int:
        """Where a size is among all."""
        return self._places.setdefault(
            text(int(size) if is_known(size) else size), len(self._places)
        )

    def form(self, desc: MemoryDesc) -> Form:
        """A descriptor."""
        found = self._forms.get(desc)
        if found is None:
            self._forms[desc] = found = self._form(desc)
        return found

    def _form(self, desc: MemoryDesc) -> Form:
        if all(map(is_known, desc.layout_numbers)):
            return Form(desc)
        return Form(_typical(desc), self.places(desc))

    def places(self, desc: MemoryDesc) -> tuple[int, ...]:
        """Where all numbers of a descriptor are."""
        return tuple(map(self.place, desc.layout_numbers))


def _typical(desc: MemoryDesc) -> MemoryDesc:
    numbers = tuple(map(typical, desc.layout_numbers))
    return _with_numbers(desc, numbers)


def _with_numbers(like: MemoryDesc, numbers: Sequence[int]) -> MemoryDesc:
    count = like.ndims
    dims, padded, strides = (tuple(numbers[n * count : (n + 1) * count]) for n in range(3))
    return MemoryDesc.of_layout(like, Layout(dims, padded, strides, like.inner_blocks, numbers[-1]))


def evaluation(symbols: int, texts: Sequence[str]) -> Callable[[Numbers], Values]:
    """What computes expressions of so many symbols in a run.

    Raises `arithmetic.NoArithmetic` where one is no expression of integers.
    """
    if not symbols:
        known = tuple(map(int, texts))
        return lambda _: known
    made = arithmetic.function(_names(symbols), "".join(f"{own}," for own in texts) or "()")
    return lambda numbers: made(*numbers)


def condition(symbols: SymbolTable) -> str:
    """What must hold of the numbers of a run for a plan, as an expression."""
    ranges = (
        f"{low}<=s{n}" if high == inf else f"{low}<=s{n}<={high}"
        for n, (_, low, high) in enumerate(symbols.ranges)
    )
    return " and ".join((*ranges, *map(str, symbols.guards)))


def holding(symbols: int, condition: str) -> Callable[..., Any]:
    """A function of the numbers of a run: whether a condition holds."""
    return arithmetic.function(_names(symbols), condition)


def _names(symbols: int) -> list[str]:
    return [f"s{place}" for place in range(symbols)]


def picked(places: Sequence[int]) -> Callable[[Values], Values]:
    """What takes the numbers at these places."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda values: tuple([values[place] for place in places])


class SizedDesc:
    """The descriptors that a form has in runs."""

    def __init__(self, form: Form) -> None:
        self._like, self._known = form.like, not form.places
        self._numbers = picked(form.places)
        self._latest: tuple[Values, MemoryDesc] = (), form.like

    def of(self, values: Values) -> MemoryDesc:
        """The descriptor in a run of these numbers."""
        if self._known:
            return self._like
        numbers = self._numbers(values)
        before, found = self._latest
        if numbers != before:
            found = _with_numbers(self._like, numbers)
            self._latest = numbers, found
        return found
