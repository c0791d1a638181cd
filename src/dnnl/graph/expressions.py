"""The sizes of a model that only a run knows, as expressions of the numbers of that run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from operator import itemgetter
from typing import Any

from dnnl.graph.graph import Shape, TensorType
from dnnl.types.layout import Layout
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import Size, Symbols, is_known, text

_ARITHMETIC = {"__builtins__": {"min": min, "max": max}}

Numbers = tuple[int, ...]
"""The numbers of a run, one for each symbol."""
Values = tuple[int, ...]
"""What expressions are in a run, each at its place."""


class OpenInputs:
    """Which numbers the shapes of ``inputs``, some of whose sizes are symbols, give these."""

    def __init__(self, inputs: Mapping[str, TensorType]) -> None:
        self._shapes = {name: tuple(map(_symbol, kind.sizes)) for name, kind in inputs.items()}
        found: dict[int, tuple[str, int]] = {}
        multiples: dict[int, int] = {}
        for name, kind in inputs.items():
            for dim, size in enumerate(kind.sizes):
                if isinstance(size, Size):
                    found.setdefault(-1 - _symbol(size), (name, dim))
                    (multiples[-1 - _symbol(size)],) = size.terms.values()
        self._places = [found[place] for place in sorted(found)]
        self._multiples = [multiples[place] for place in sorted(found)]
        self._are_multiples = any(multiple != 1 for multiple in self._multiples)

    def numbers(self, shapes: Mapping[str, Shape]) -> Numbers | None:
        """The numbers of all symbols; None where shapes are not those of the inputs, or not the
        multiples that these are."""
        if any(len(own) != len(shapes[name]) for name, own in self._shapes.items()):
            return None
        numbers = tuple([shapes[name][dim] for name, dim in self._places])
        for name, own in self._shapes.items():
            for size, given in zip(own, shapes[name], strict=True):
                if given != (size if size >= 0 else numbers[-1 - size]):
                    return None
        if not self._are_multiples:
            return numbers
        pairs = [divmod(n, by) for n, by in zip(numbers, self._multiples, strict=True)]
        return None if any(rest for _, rest in pairs) else tuple(number for number, _ in pairs)


def _symbol(size: int) -> int:
    """A size of an input: itself, or -1 - n for symbol n."""
    if not isinstance(size, Size):
        return size
    (key,) = size.terms
    return -1 - size.symbols.place(size.symbols.atoms[key[0]])


class Expressions:
    """Sizes, each with a place in the results of one function of the numbers of a run."""

    def __init__(self, symbols: Symbols | None) -> None:
        self._symbols = symbols
        self._places: dict[str, int] = {}
        self._descs: dict[MemoryDesc, SizedDesc] = {}
        self._compute: Callable[..., Values] | None = None

    @property
    def is_known(self) -> bool:
        """Whether all sizes are numbers."""
        return self._symbols is None

    def sized(self, desc: MemoryDesc) -> SizedDesc:
        """A descriptor, which is one object for all steps that have it."""
        found = self._descs.get(desc)
        if found is None:
            self._descs[desc] = found = SizedDesc(desc, self)
        return found

    def place(self, size: int) -> int:
        """Where a size is among the results of `compute`."""
        return self._places.setdefault(text(size), len(self._places))

    def pick(self, places: Sequence[int]) -> Callable[[Values], Values]:
        """What takes the numbers at these places."""
        if len(places) > 1:
            return itemgetter(*places)
        return lambda values: tuple([values[place] for place in places])

    def compute(self, numbers: Numbers) -> Values:
        """All numbers of a run, by their expressions."""
        if self._compute is None:
            body = "".join(f"{own}," for own in self._places)
            self._compute = _function(self._symbols or Symbols(), body)
        return self._compute(*numbers)


def conditions(symbols: Symbols) -> Callable[..., Any]:
    """A function of the numbers of a run: whether what was planned holds for them."""
    ranges = (
        f"{low}<=s{n}" if high == inf else f"{low}<=s{n}<={high}"
        for n, (_, low, high) in enumerate(symbols.ranges)
    )
    return _function(symbols, " and ".join((*ranges, *map(str, symbols.guards))))


def _function(symbols: Symbols, body: str) -> Callable[..., Any]:
    names = ",".join(f"s{place}" for place in range(len(symbols.ranges)))
    # Expressions of our own arithmetic, in which names of a model do not occur.
    made: Callable[..., Any] = eval(f"lambda {names}: ({body})", _ARITHMETIC)
    return made


class SizedDesc:
    """A descriptor whose numbers may be expressions."""

    def __init__(self, desc: MemoryDesc, expressions: Expressions) -> None:
        self._desc = desc
        self.places = tuple(map(expressions.place, desc.layout_numbers))
        self._numbers = expressions.pick(self.places)
        self._known = all(map(is_known, desc.layout_numbers))
        self._latest: tuple[Values, MemoryDesc] = (), desc

    def of(self, values: Values) -> MemoryDesc:
        """The descriptor in a run of these numbers."""
        if self._known:
            return self._desc
        numbers = self._numbers(values)
        before, found = self._latest
        if numbers != before:
            count = self._desc.ndims
            dims, padded, strides = (numbers[n * count : (n + 1) * count] for n in range(3))
            places = Layout(dims, padded, strides, self._desc.inner_blocks, numbers[-1])
            found = MemoryDesc.of_layout(self._desc, places)
            self._latest = numbers, found
        return found
