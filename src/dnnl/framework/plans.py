"""Plans of one part of a model, for the shapes and the contents that come.

The first has all of them as numbers. Later ones have a symbol for each size that is open, and for
each number of 2 or more, or -2 or less, among integers that are contents. 0, 1 and -1 decide what
is empty, broadcast or the rest, and numbers beyond any size mean the end of an axis: a plan is for
these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from time import perf_counter
from typing import Any
from weakref import ref

import numpy as np

from dnnl import forks
from dnnl.errors import Error
from dnnl.framework import background
from dnnl.framework.compiler import compiled
from dnnl.framework.parts import Part
from dnnl.framework.plan import Compiled
from dnnl.framework.progress import Report
from dnnl.framework.requests import Budget
from dnnl.framework.session import Session, Spans
from dnnl.framework.special import SpecialKernels, SpecialPlans, Use, Uses
from dnnl.graph.expressions import Numbers, OpenInputs, named_symbols
from dnnl.graph.graph import JOINT, SEQUENCE, UNRANKED, Array, Graph, Shape, TensorType
from dnnl.graph.sizes import INT64
from dnnl.passes.specialize import specialize
from dnnl.runtime.engine import Engine, first_cpu
from dnnl.types.dtype import DataType
from dnnl.types.runtime_dim import RuntimeDim
from dnnl.types.size import LEAST, Size, Symbols

_MOST_PLANS = 8
"""Plans for open sizes that a part has at most: the latest."""
_TRIES = 3
"""Sizes after which no plan for open ones is tried any more."""
_FOUND = 128
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
    for. With ``opens`` the first plan is for open sizes as well. ``special`` says when a size gets
    a plan of its own."""

    engine: Engine
    layout: str = "propagate"
    num_threads: int | None = None
    kind: DataType = DataType.f32
    progress: Report | None = None
    budget: Budget | None = None
    promises: Mapping[str, RuntimeDim] = field(default_factory=dict)
    opens: bool = False
    special: SpecialKernels = field(default_factory=SpecialKernels)


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
        self._source: background.Source | None = None
        self._failed: Counter[Key] = Counter()
        self._special: SpecialPlans[Key] = SpecialPlans(settings.special)
        self._open: list[tuple[Key, Mapping[str, Pattern], PartSession]] = []
        self._uses: Uses[Key] = Uses(_FOUND)
        self._lock = forks.Lock()

    @property
    def sessions(self) -> tuple[Session, ...]:
        """All plans that there are now."""
        return (*self._special.sessions, *(session for _, _, session in self._open))

    @property
    def special_sizes(self) -> tuple[dict[str, Shape], ...]:
        """The shapes for which there are plans for one size."""
        own = [session.inputs for session in self._special.sessions]
        return tuple({name: kind.sizes for name, kind in inputs.items()} for inputs in own)

    def prepare(self, values: Mapping[str, Any]) -> Session:
        """The plan for some arrays, which is made where there is none."""
        arrays, contents = self._given(values)
        return self._use(_key(arrays, contents), arrays, contents).session

    def run(
        self,
        values: Mapping[str, Any],
        num_threads: int | None = None,
        spans: Spans | None = None,
    ) -> tuple[Session, dict[str, Array]]:
        """The outputs for some arrays, and the plan that computed them."""
        arrays, contents = self._given(values)
        key = _key(arrays, contents)
        use = self._use(key, arrays, contents)
        session, start = use.session, perf_counter()
        own = {name: arrays[name] for name in session.inputs}
        results = session.execute(own, use.numbers, num_threads, spans)
        if use.ran(perf_counter() - start):
            self._build_special(key, arrays, contents, session)
        return session, results

    def _given(self, values: Mapping[str, Any]) -> tuple[dict[str, Array], dict[str, Array]]:
        """The arrays whose sizes, and those whose contents, decide the plan."""
        arrays = {name: values[name] for name in self.part.inputs}
        return arrays, {name: values[own] for name, own in self.part.contents.items()}

    def _use(self, key: Key, arrays: Mapping[str, Array], contents: Mapping[str, Array]) -> Use:
        with self._lock.own:
            found = self._uses.find(key)
            if found is None:
                session, numbers = self._search(key, arrays, contents)
                limit = self._limit if session.is_open else inf
                found = self._uses.add(key, Use(session, numbers, limit))
            elif not found.session.is_open:
                self._special.find(key)
            return found

    @cached_property
    def _limit(self) -> float:
        """Seconds of one size after which it is due for a plan of its own."""
        policy, engine = self._settings.special, self._settings.engine
        often = policy.decided == "often" and engine == first_cpu()
        return policy.seconds if often else inf

    def _build_special(
        self,
        key: Key,
        arrays: Mapping[str, Array],
        contents: Mapping[str, Array],
        session: Session,
    ) -> None:
        """Have a plan for one size compiled in the background, with the constants of another."""
        own, settings = ref(self), self._settings

        def source() -> background.Source | None:
            plans = own()
            if plans is None:
                return None
            if plans._source is None:
                prepared = tuple(session.compiled.constants.values())
                plans._source = background.Source(
                    plans.part.graph, settings.engine, settings.layout, settings.kind.name, prepared
                )
            return plans._source

        def take(made: Compiled) -> None:
            plans = own()
            if plans is not None:
                plans._add_special(key, Session(made, settings.num_threads, settings.budget))

        inputs = {name: TensorType(a.dtype, a.shape) for name, a in arrays.items()}
        background.build(source, inputs, {n: a.copy() for n, a in contents.items()}, take)

    def _add_special(self, key: Key, session: Session) -> None:
        """Serve a key by a plan of its own from now on."""
        with self._lock.own:
            self._uses.forget(key=key, sessions=self._special.add(key, session))

    def _search(
        self, key: Key, arrays: Mapping[str, Array], contents: Mapping[str, Array]
    ) -> tuple[Session, Numbers]:
        known = self._special.find(key)
        if known is not None:
            return known, ()
        always = self._settings.special.decided == "always"
        dtypes = tuple(array.dtype for array in arrays.values())
        for own, patterns, session in () if always else reversed(self._open):
            numbers = _numbers(session, patterns, arrays, contents) if own == dtypes else None
            if numbers is not None:
                return session, numbers
        if self._check is not None:
            self._check(arrays)
        opened, made = self._made(arrays, contents, always)
        if not made.is_open:
            self._uses.forget(sessions=self._special.add(key, made))
            return made, ()
        self._open = [*self._open, (dtypes, opened.patterns, made)]
        gone, self._open = self._open[:-_MOST_PLANS], self._open[-_MOST_PLANS:]
        self._uses.forget(sessions=[session for _, _, session in gone])
        numbers = _numbers(made, opened.patterns, arrays, contents)
        assert numbers is not None, "a plan serves what it was made for"
        return made, numbers

    def _made(
        self, arrays: Mapping[str, Array], contents: Mapping[str, Array], always: bool
    ) -> tuple[_Opened, PartSession]:
        opens = bool(self._special.sessions) or self._settings.opens
        kinds = tuple((a.dtype, a.ndim) for a in (*arrays.values(), *contents.values()))
        if opens and not always and self._failed[kinds] < _TRIES:
            try:
                return self._with_symbols(arrays, contents)
            except Error:  # of these sizes, with numbers in the message, or only of symbols
                self._failed[kinds] += 1
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


def _key(arrays: Mapping[str, Array], contents: Mapping[str, Array]) -> Key:
    return (
        tuple((array.dtype, array.shape) for array in arrays.values()),
        tuple((array.dtype, array.shape, array.tobytes()) for array in contents.values()),
    )


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
