"""Plans of one part of a model, for the shapes and the contents that come.

The first has all of them as numbers. Later ones have a symbol for each size that is open, and for
each number of 2 or more, or -2 or less, among integers that are contents. 0, 1 and -1 decide what
is empty, broadcast or the rest, and numbers beyond any size mean the end of an axis: a plan is for
these.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import numpy as np

from dnnl import forks
from dnnl.errors import Error
from dnnl.framework.compiler import compiled
from dnnl.framework.parts import Part
from dnnl.framework.progress import Report
from dnnl.framework.requests import Budget
from dnnl.framework.session import Session
from dnnl.graph.expressions import Numbers, OpenInputs, named_symbols
from dnnl.graph.graph import JOINT, SEQUENCE, UNRANKED, Array, Graph, Shape, TensorType
from dnnl.graph.sizes import INT64
from dnnl.passes.specialize import specialize
from dnnl.runtime.engine import Engine
from dnnl.types.dtype import DataType
from dnnl.types.runtime_dim import RuntimeDim
from dnnl.types.size import LEAST, Size, Symbols

_MOST_PLANS = 8
"""Plans for one size that a part has at most, and as many for open sizes: the latest."""
_FOUND = 1024
"""Shapes and contents for which the plan that serves them is remembered."""
_MOST_NUMBERS = 64
"""Elements of contents beyond which a plan is for their numbers."""
_HUGE = 2**31
"""What means the end of an axis, not a size."""
_INTEGERS = (np.dtype(np.int64), np.dtype(np.int32))

Key = tuple[Any, ...]


@dataclass(frozen=True)
class Settings:
    """What all plans of a model have in common. ``promises`` are the sizes that its names stand
    for. With ``opens`` no plan is for one size before the model needs it."""

    engine: Engine
    layout: str = "propagate"
    num_threads: int | None = None
    kind: DataType = DataType.f32
    progress: Report | None = None
    budget: Budget | None = None
    promises: Mapping[str, RuntimeDim] = field(default_factory=dict)
    opens: bool = False


class PartSession(Session):
    """A session of a part, whose sizes may also be contents of its inputs: ``numbers`` has the
    symbols among the elements of each of these."""

    def __init__(
        self, graph: Graph, numbers: Mapping[str, tuple[int, ...]], settings: Settings
    ) -> None:
        engine, layout, report = settings.engine, settings.layout, settings.progress
        made = compiled(graph, engine, layout, settings.kind, report)
        super().__init__(made, settings.num_threads, settings.budget)
        listed = {_as_shape(name): TensorType(INT64, own) for name, own in numbers.items()}
        given = {**graph.inputs, **listed}
        self._sizes = OpenInputs({name: named_symbols(kind) for name, kind in given.items()})


@dataclass(frozen=True)
class Pattern:
    """Contents as a plan has them: their bytes, or numbers with the sign of each of its symbols."""

    dtype: np.dtype[Any]
    shape: Shape
    elements: bytes | tuple[int | str, ...]

    def numbers(self, array: Array) -> Shape | None:
        """What an array has for the symbols, without signs; None where the plan is for others."""
        if (array.dtype, array.shape) != (self.dtype, self.shape):
            return None
        if isinstance(self.elements, bytes):
            return () if array.tobytes() == self.elements else None
        found = []
        for own, number in zip(self.elements, map(int, array.flat), strict=True):
            if isinstance(own, str):
                found.append(number if own == "+" else -number)
                if not LEAST <= found[-1] < _HUGE:
                    return None
            elif own != number:
                return None
        return tuple(found)


@dataclass
class _Opened:
    """The inputs and contents of a plan, with symbols."""

    shapes: dict[str, Shape] = field(default_factory=dict)
    contents: dict[str, Array] = field(default_factory=dict)
    patterns: dict[str, Pattern] = field(default_factory=dict)
    numbers: dict[str, tuple[int, ...]] = field(default_factory=dict)


class Plans:
    """The plans of one part. ``declared`` has the types of those of its inputs that the model
    declares: sizes of one name are one symbol. ``check(values)`` raises where a plan must not be
    made for some values."""

    def __init__(
        self,
        part: Part,
        declared: Mapping[str, TensorType],
        settings: Settings,
        check: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> None:
        self.part, self._declared, self._settings = part, declared, settings
        self._check = check
        self._known: dict[Key, PartSession] = {}
        self._open: list[tuple[Key, Mapping[str, Pattern], PartSession]] = []
        self._found: dict[Key, tuple[PartSession, Numbers]] = {}
        self._lock = forks.Lock()

    @property
    def sessions(self) -> tuple[PartSession, ...]:
        """All plans that there are now."""
        return (*self._known.values(), *(session for _, _, session in self._open))

    def find(self, values: Mapping[str, Any]) -> tuple[PartSession, Numbers]:
        """The plan for some arrays, which is made where there is none, and the numbers of a run of
        it."""
        arrays = {name: values[name] for name in self.part.inputs}
        contents = {name: values[own] for name, own in self.part.contents.items()}
        key = (
            tuple((array.dtype, array.shape) for array in arrays.values()),
            tuple((array.dtype, array.shape, array.tobytes()) for array in contents.values()),
        )
        with self._lock.own:
            found = self._found.get(key)
            if found is None:
                found = self._search(key, arrays, contents)
                if len(self._found) >= _FOUND:
                    self._found.clear()
                self._found[key] = found
            return found

    def _search(
        self, key: Key, arrays: Mapping[str, Array], contents: Mapping[str, Array]
    ) -> tuple[PartSession, Numbers]:
        known = self._known.get(key)
        if known is not None:
            return known, ()
        dtypes = tuple(array.dtype for array in arrays.values())
        for own, patterns, session in reversed(self._open):
            numbers = _numbers(session, patterns, arrays, contents) if own == dtypes else None
            if numbers is not None:
                return session, numbers
        if self._check is not None:
            self._check(arrays)
        opened, made = self._made(arrays, contents)
        if not made.is_open:
            self._known = dict([*self._known.items(), (key, made)][-_MOST_PLANS:])
            self._found.clear()  # plans that are forgotten are not held by it
            return made, ()
        self._open = [*self._open, (dtypes, opened.patterns, made)][-_MOST_PLANS:]
        self._found.clear()
        numbers = _numbers(made, opened.patterns, arrays, contents)
        assert numbers is not None, "a plan serves what it was made for"
        return made, numbers

    def _made(
        self, arrays: Mapping[str, Array], contents: Mapping[str, Array]
    ) -> tuple[_Opened, PartSession]:
        if self._known or self._settings.opens:
            try:
                return self._with_symbols(arrays, contents)
            except Error:  # of these sizes, with numbers in the message, or only of symbols
                pass
        inputs = {name: TensorType(a.dtype, a.shape) for name, a in arrays.items()}
        graph = self._graph(inputs, contents)
        return _Opened(), PartSession(specialize(graph), {}, self._settings)

    def _graph(
        self,
        inputs: Mapping[str, TensorType],
        contents: Mapping[str, Array],
        types: Mapping[str, TensorType] | None = None,
    ) -> Graph:
        graph = self.part.graph
        constants = {**graph.constants, **contents}
        return replace(graph, inputs=dict(inputs), constants=constants, types=dict(types or {}))

    def _with_symbols(
        self, arrays: Mapping[str, Array], contents: Mapping[str, Array]
    ) -> tuple[_Opened, PartSession]:
        types = {name: TensorType(a.dtype, a.shape) for name, a in contents.items()}
        inputs = {name: TensorType(a.dtype, UNRANKED) for name, a in arrays.items()}
        fixed: set[str] = set()
        while True:
            symbols, names = Symbols(), list[str]()
            opened = self._opened(arrays, contents, symbols, names, fixed)
            graph = specialize(self._graph(inputs, opened.contents, types), opened.shapes)
            settled = {names[place] for place in symbols.settled}
            if not settled:
                return opened, PartSession(graph, opened.numbers, self._settings)
            fixed |= settled

    def _opened(
        self,
        arrays: Mapping[str, Array],
        contents: Mapping[str, Array],
        symbols: Symbols,
        names: list[str],
        fixed: Collection[str],
    ) -> _Opened:
        """Shapes and contents with a symbol for each number that has none of the names of
        ``fixed``."""
        made: dict[str, int] = {}

        def symbol(name: str, number: int) -> int:
            if number < LEAST or name in fixed:
                return number
            if name not in made:
                names.append(name)
                promised = self._settings.promises.get(name, RuntimeDim())
                most = inf if promised.max > _HUGE else promised.max
                least = max(LEAST, promised.min)
                made[name] = symbols.size(number, least, most, promised.multiple)
            return made[name]

        opened = _Opened()
        for name, array in arrays.items():
            own = self._names(name, array.ndim)
            opened.shapes[name] = tuple(
                symbol(size, extent) if isinstance(size, str) else extent
                for size, extent in zip(own, array.shape, strict=True)
            )
        for name, array in contents.items():
            known = _integers(array)
            sizes = [_sized(symbol, f"{name}{JOINT}{i}", n) for i, n in enumerate(known)]
            given = [_size_in(size) for size in sizes]
            opened.contents[name] = array
            opened.patterns[name] = Pattern(array.dtype, array.shape, array.tobytes())
            if any(size is not None for size in given):
                elements = np.empty(array.size, object)
                elements[:] = sizes
                opened.contents[name] = elements.reshape(array.shape)
                signs = tuple(
                    n if size is None else "+" if n > 0 else "-"
                    for n, size in zip(known, given, strict=True)
                )
                opened.patterns[name] = Pattern(array.dtype, array.shape, signs)
                opened.numbers[name] = tuple(size for size in given if size is not None)
        return opened

    def _names(self, name: str, rank: int) -> tuple[int | str, ...]:
        """The name of each size of an input: one of its own where the model has none."""
        kind = self._declared.get(name)
        if kind is None or kind.shape in (UNRANKED, SEQUENCE):
            return tuple(f"{name}{JOINT}{axis}" for axis in range(rank))
        return kind.shape


def _integers(array: Array) -> list[int]:
    """The elements that may become symbols; none of contents that are no few integers."""
    if array.dtype not in _INTEGERS or array.size > _MOST_NUMBERS:
        return []
    return [int(number) for number in array.flat]


def _sized(symbol: Callable[[str, int], int], name: str, number: int) -> int:
    """An element of contents, with a symbol where it may be a size."""
    if abs(number) >= _HUGE:
        return number
    return -symbol(f"{name}-", -number) if number < 0 else symbol(name, number)


def _size_in(size: int) -> int | None:
    """The symbol in what `_sized` gives."""
    if not isinstance(size, Size):
        return None
    return size if min(size.terms.values()) > 0 else -size


def _numbers(
    session: PartSession,
    patterns: Mapping[str, Pattern],
    arrays: Mapping[str, Array],
    contents: Mapping[str, Array],
) -> Numbers | None:
    """The numbers of a run; None where the plan is for others."""
    shapes = {name: array.shape for name, array in arrays.items()}
    for name, array in contents.items():
        found = patterns[name].numbers(array)
        if found is None:
            return None
        if found:
            shapes[_as_shape(name)] = found
    return session.numbers(shapes)


def _as_shape(name: str) -> str:
    return f"{name}{JOINT}shape"
