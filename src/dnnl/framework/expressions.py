"""The sizes of a model that only a run knows, as expressions of the numbers of that run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dnnl.framework.graph import TensorType
from dnnl.types.layout import Layout
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import Size, Symbols, is_known, text

_ARITHMETIC = {"__builtins__": {"min": min, "max": max}}

Numbers = tuple[int, ...]
"""The numbers of a run, one for each symbol."""
Given = Mapping[str, TensorType]


def symbols_in(inputs: Given) -> dict[int, tuple[str, int]]:
    """Where the number of each symbol is found: the name of an input, and a dimension of it."""
    found: dict[int, tuple[str, int]] = {}
    for name, kind in inputs.items():
        for dim, size in enumerate(kind.sizes):
            if isinstance(size, Size):
                (key,) = size.terms
                place = size.symbols.place(size.symbols.atoms[key[0]])
                found.setdefault(place, (name, dim))
    return found


class Expressions:
    """Sizes, each with a place in the results of one function of the numbers of a run."""

    def __init__(self, symbols: Symbols | None) -> None:
        self._symbols = symbols
        self._places: dict[str, int] = {}
        self._descs: dict[MemoryDesc, SizedDesc] = {}
        self._compute: Callable[..., Sequence[int]] | None = None

    def sized(self, desc: MemoryDesc) -> SizedDesc:
        """A descriptor, which is one object for all steps that have it."""
        found = self._descs.get(desc)
        if found is None:
            self._descs[desc] = found = SizedDesc(desc, self)
        return found

    def place(self, size: int) -> int | str:
        """A number, or what `value` finds it by."""
        if is_known(size):
            return size
        spelled = text(size)
        self._places.setdefault(spelled, len(self._places))
        return spelled

    def compute(self, numbers: Numbers) -> Mapping[str, int]:
        """All numbers of a run, by their expressions."""
        if self._symbols is None:
            return {}
        if self._compute is None:
            self._compute = _function(self._symbols, self._places)
        return dict(zip(self._places, self._compute(*numbers), strict=True))


def conditions(symbols: Symbols) -> Callable[..., Any]:
    """A function of the numbers of a run: whether what was planned holds for them."""
    names = ",".join(f"s{place}" for place in range(len(symbols.ranges)))
    ranges = (f"{low}<=s{n}" for n, (_, low, _) in enumerate(symbols.ranges))
    spelled = " and ".join((*ranges, *map(str, symbols.guards))) or "True"
    made: Callable[..., Any] = eval(f"lambda {names}: {spelled}", _ARITHMETIC)
    return made


def _function(symbols: Symbols, expressions: Mapping[str, int]) -> Callable[..., Sequence[int]]:
    names = ",".join(f"s{place}" for place in range(len(symbols.ranges)))
    results = "".join(f"{expression}," for expression in expressions)
    # Expressions of our own arithmetic, in which names of a model do not occur.
    made: Callable[..., Sequence[int]] = eval(f"lambda {names}: ({results})", _ARITHMETIC)
    return made


class SizedDesc:
    """A descriptor whose numbers may be expressions."""

    def __init__(self, desc: MemoryDesc, expressions: Expressions) -> None:
        self._desc = desc
        self._numbers = tuple(map(expressions.place, desc.layout_numbers))
        self._known = all(map(is_known, desc.layout_numbers))
        self._latest: tuple[Numbers, MemoryDesc] = (), desc

    def numbers(self, values: Mapping[str, int]) -> Numbers:
        """What tells descriptors of different runs apart."""
        if self._known:
            return ()
        return tuple([values[n] if isinstance(n, str) else n for n in self._numbers])

    def of(self, numbers: Numbers) -> MemoryDesc:
        """The descriptor in a run of these `numbers`."""
        before, found = self._latest
        if numbers != before:
            count = self._desc.ndims
            dims, padded, strides = (numbers[n * count : (n + 1) * count] for n in range(3))
            places = Layout(dims, padded, strides, self._desc.inner_blocks, numbers[-1])
            found = MemoryDesc.of_layout(self._desc, places)
            self._latest = numbers, found
        return found
