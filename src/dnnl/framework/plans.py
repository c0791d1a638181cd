"""Plans of one part of a model, for the shapes and the contents that come.

The first has all of them as numbers. Later ones have a symbol for each open size of 2 or more, and
for such numbers and their negatives among integers that are contents. They also serve a size of 1
unless something asks for it. 0, 1, -1 and what is beyond any size have meanings: a plan for each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from dnnl import forks, lazy, log
from dnnl.errors import Error, Unimplemented
from dnnl.framework.part_plan import HUGE, PartPlan, Pattern, as_shape
from dnnl.framework.plan import Compiled
from dnnl.framework.progress import Report
from dnnl.framework.requests import Budget
from dnnl.framework.session import Session, Spans
from dnnl.framework.special import SpecialKernels, SpecialPlans, Use, Uses
from dnnl.framework.steps import Part
from dnnl.graph.expressions import Numbers, named_symbols
from dnnl.graph.graph import JOINT, SEQUENCE, UNRANKED, Array, Graph, Shape, TensorType
from dnnl.graph.input_sizes import derived_size
from dnnl.graph.sizes import INT64
from dnnl.runtime.engine import Engine, first_cpu
from dnnl.runtime.memory import Memory
from dnnl.types.dtype import DataType
from dnnl.types.runtime_dim import RuntimeDim
from dnnl.types.size import Size
from dnnl.types.symbols import LEAST, Symbols

if TYPE_CHECKING:
    from dnnl.framework import background, compiler
    from dnnl.passes import specialize
else:  # plans of a file need none of them
    background = lazy.Module("dnnl.framework.background")
    compiler = lazy.Module("dnnl.framework.compiler")
    specialize = lazy.Module("dnnl.passes.specialize")

_MOST_PLANS = 8
"""The maximum number of plans for open sizes of a part; the latest stay."""
_TRIES = 3
"""Failures after which no further plan for open sizes is attempted."""
_FOUND = 1024
"""Shapes and contents for which the plan that serves them is remembered."""
_MOST_BYTES = 128
"""The size of results that are remembered."""
_MOST_NUMBERS = 64
"""Elements of contents beyond which a plan is for their numbers."""
_INTEGERS = (np.dtype(np.int64), np.dtype(np.int32))

Key = tuple[Any, ...]


@dataclass(frozen=True)
class Settings:
    """What all plans of a model have in common.

    ``promises`` are ranges of named sizes. With ``opens`` even the first plan is for open sizes. A
    ``file`` is set if only the plans in it may be used. ``special`` says when a size gets a plan of
    its own.
    """

    engine: Engine
    layout: str = "propagate"
    num_threads: int | None = None
    kind: DataType = DataType.f32
    progress: Report | None = None
    budget: Budget | None = None
    promises: Mapping[str, RuntimeDim] = field(default_factory=dict)
    opens: bool = False
    file: str = ""
    special: SpecialKernels = field(default_factory=SpecialKernels)


class PartSession(Session):
    """A session of the plan of a part, whose symbols may also be elements of its contents."""

    def __init__(self, plan: PartPlan, settings: Settings) -> None:
        super().__init__(plan.compiled, settings.num_threads, settings.budget)
        self.plan, self._sizes = plan, plan.sizes


class _Stored:
    """A plan of a file, whose session is created for the first run that it may serve."""

    def __init__(self, plan: PartPlan, settings: Settings) -> None:
        self.plan, self._settings = plan, settings

    @cached_property
    def session(self) -> PartSession:
        return PartSession(self.plan, self._settings)

    def serving(
        self, arrays: Mapping[str, Array], contents: Mapping[str, Array]
    ) -> tuple[PartSession, Numbers] | str:
        """The session and the numbers of a run, or the reason why the plan does not serve it."""
        kinds = self.plan.compiled.plan.inputs
        if all(_fits(array, kinds[name]) for name, array in arrays.items()):
            numbers = _numbers(self.session, self.plan.patterns, arrays, contents)
            if numbers is not None:
                try:
                    self.session.prepare(numbers)
                except Unimplemented as error:
                    return error.message
                return self.session, numbers
        listed = ", ".join(f"{name} {kind}" for name, kind in kinds.items()) or "no inputs"
        return f"it is for {listed}" + (", and for other contents" if contents else "")


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
        self._stored = [_Stored(plan, settings) for plan in part.plans]
        self._special: SpecialPlans[Key, PartSession] = SpecialPlans(settings.special)
        self._open: list[tuple[Key, Mapping[str, Pattern], PartSession]] = []
        self._uses: Uses[Key, PartSession] = Uses(_FOUND)
        self._results: dict[Key, tuple[PartSession, dict[str, Array]]] = {}
        self._lock = forks.Lock()

    @property
    def sessions(self) -> tuple[PartSession, ...]:
        """All current plans, including those of a file."""
        stored = (own.session for own in self._stored)
        return (*stored, *self._special.sessions, *(session for _, _, session in self._open))

    @property
    def special_sizes(self) -> tuple[dict[str, Shape], ...]:
        """The input shapes of the plans for one size."""
        own = [session.inputs for session in self._special.sessions]
        return tuple({name: kind.sizes for name, kind in inputs.items()} for inputs in own)

    def prepare(self, values: Mapping[str, Any]) -> PartSession:
        """The plan for these arrays, compiled if there is none."""
        return self.use(values).session

    def use(self, values: Mapping[str, Any]) -> Use[PartSession]:
        """The plan for these arrays, as `prepare`; its user counts the time of runs."""
        arrays, contents = self._given(values)
        return self._use(_key(arrays, contents), arrays, contents)

    def build_special(self, values: Mapping[str, Any], session: PartSession) -> None:
        """Compile a plan for the sizes of these arrays, in the background, when runs of ``session``
        have served them so long that it is worth one."""
        arrays, contents = self._given(values)
        self._build_special(_key(arrays, contents), arrays, contents, session)

    def run(
        self,
        values: Mapping[str, Any],
        num_threads: int | None = None,
        spans: Spans | None = None,
    ) -> tuple[PartSession, dict[str, Array]]:
        """The outputs for these arrays, and the plan that computed them. Those of a small part are
        remembered."""
        arrays, contents = self._given(values)
        if not self.part.small:
            return self._run(arrays, contents, num_threads, spans)
        numbers = _key({}, {**arrays, **contents})
        found = self._results.get(numbers)
        if found is None or spans is not None:
            found = self._run(arrays, contents, num_threads, spans)
            nbytes = sum(array.nbytes for array in found[1].values())
            if nbytes <= _MOST_BYTES and len(self._results) < _FOUND:
                self._results[numbers] = found
        session, results = found
        return session, {name: array.copy() for name, array in results.items()}

    def _run(
        self,
        arrays: Mapping[str, Array],
        contents: Mapping[str, Array],
        num_threads: int | None,
        spans: Spans | None,
    ) -> tuple[PartSession, dict[str, Array]]:
        key = _key(arrays, contents)
        use = self._use(key, arrays, contents)
        session, start = use.session, perf_counter()
        results = session.execute(arrays, use.numbers, num_threads, spans)
        if use.ran(perf_counter() - start):
            self._build_special(key, arrays, contents, session)
        return session, results

    def _given(self, values: Mapping[str, Any]) -> tuple[dict[str, Array], dict[str, Array]]:
        """The arrays whose sizes select the plan, and those whose contents do."""
        arrays = {name: values[name] for name in self.part.inputs}
        return arrays, {name: values[own] for name, own in self.part.contents.items()}

    def _use(
        self, key: Key, arrays: Mapping[str, Array], contents: Mapping[str, Array]
    ) -> Use[PartSession]:
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
        """Total seconds of one size after which it gets a plan of its own; inf for never."""
        own, policy = self._settings, self._settings.special
        often = policy.decided == "often" and not own.file and own.engine == first_cpu()
        return policy.seconds if often else inf

    def _build_special(
        self,
        key: Key,
        arrays: Mapping[str, Array],
        contents: Mapping[str, Array],
        session: PartSession,
    ) -> None:
        """Compile a plan for one size in the background; it shares the constants of ``session``."""
        own, settings = ref(self), self._settings

        def source() -> background.Source | None:
            plans = own()
            if plans is None or plans._has_special(key):  # two calls may have asked at once
                return None
            if plans._source is None:
                prepared = tuple(session.compiled.constants.values())
                how = settings.engine, settings.layout, settings.kind.name
                plans._source = background.Source(plans.part.graph(), *how, prepared)
            return plans._source

        def take(made: Compiled) -> None:
            plans = own()
            if plans is not None:
                plans._add_special(key, PartSession(PartPlan(made, patterns, {}), settings))

        inputs = {name: TensorType(a.dtype, a.shape) for name, a in arrays.items()}
        patterns = {name: Pattern.of(array) for name, array in contents.items()}
        background.build(source, inputs, {n: a.copy() for n, a in contents.items()}, take)

    def _has_special(self, key: Key) -> bool:
        with self._lock.own:
            return self._special.find(key) is not None

    def _add_special(self, key: Key, session: PartSession) -> None:
        """Use a plan of its own for ``key`` from now on."""
        with self._lock.own:
            self._uses.forget(key=key, sessions=self._special.add(key, session))

    def _search(
        self, key: Key, arrays: Mapping[str, Array], contents: Mapping[str, Array]
    ) -> tuple[PartSession, Numbers]:
        known = self._special.find(key)
        if known is not None:
            return known, ()
        reasons = list[str]()
        for stored in self._stored:
            serving = stored.serving(arrays, contents)
            if not isinstance(serving, str):
                return serving
            reasons.append(f"plan {len(reasons)}: {serving}")
        always = self._settings.special.decided == "always"
        dtypes = tuple(array.dtype for array in arrays.values())
        ordered = sorted(self._open, key=lambda own: -own[2].compiled.plan.symbols)
        for own, patterns, session in () if always else reversed(ordered):  # few symbols first
            numbers = _numbers(session, patterns, arrays, contents) if own == dtypes else None
            if numbers is not None:
                return session, numbers
        if self._check is not None:
            self._check(arrays)
        if self._settings.file:
            named = [f"{name} {list(array.shape)}" for name, array in arrays.items()]
            for name, array in contents.items():
                text = np.array2string(array, separator=", ", threshold=8)
                named.append(f"{self.part.contents[name]} = {text}")
            rule = f"{self._settings.file} has no kernels for {', '.join(named) or 'a part'}"
            raise Unimplemented(rule, reasons or ["it has no plan of this part"])
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
        failure = ""
        if opens and not always and self._failed[kinds] < _TRIES:
            try:
                return self._with_symbols(arrays, contents)
            except Error as error:
                failure = str(error)
        inputs = {name: TensorType(a.dtype, a.shape) for name, a in arrays.items()}
        graph = specialize.specialize(self._graph(inputs, contents))
        patterns = {name: Pattern.of(array) for name, array in contents.items()}
        made = self._session(graph, patterns, {})
        if failure:  # not by these sizes: it is symbols that fail
            self._failed[kinds] += 1
            log.warn(f"no plan for open sizes: {failure}")
        return _Opened(), made

    def _session(
        self,
        graph: Graph,
        patterns: Mapping[str, Pattern],
        numbers: Mapping[str, tuple[int, ...]],
    ) -> PartSession:
        own = self._settings
        made = compiler.compiled(graph, own.engine, own.layout, own.kind, own.progress)
        made = made.sharing(self._constants())
        named = {n: named_symbols(TensorType(INT64, own)).shape for n, own in numbers.items()}
        return PartSession(PartPlan(made, patterns, named), own)

    def _constants(self) -> Iterator[Memory]:
        """Those of the plans that were compiled before."""
        for session in (*self._special.sessions, *(own for _, _, own in self._open)):
            yield from session.compiled.constants.values()

    def _graph(
        self,
        inputs: Mapping[str, TensorType],
        contents: Mapping[str, Array],
        types: Mapping[str, TensorType] | None = None,
    ) -> Graph:
        graph = self.part.graph()
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
            open_graph = self._graph(inputs, opened.contents, types)
            graph = specialize.specialize(open_graph, opened.shapes)
            settled = {names[place] for place in symbols.settled}
            if not settled:
                if fixed:
                    log.warn(f"a plan for one size of {', '.join(sorted(fixed))}")
                return opened, self._session(graph, opened.patterns, opened.numbers)
            fixed |= settled

    def _opened(
        self,
        arrays: Mapping[str, Array],
        contents: Mapping[str, Array],
        symbols: Symbols,
        names: list[str],
        fixed: Collection[str],
    ) -> _Opened:
        """Shapes and contents with a symbol for each name that is no expression of others, and not
        one of ``fixed``."""
        made = dict[str, int]()
        sizes_of = {name: self._names(name, array.ndim) for name, array in arrays.items()}
        extents = {
            size: extent
            for name, array in arrays.items()
            for size, extent in zip(sizes_of[name], array.shape, strict=True)
            if isinstance(size, str)
        }

        def symbol(name: str, number: int) -> int:
            if number < LEAST or name in fixed:
                return number
            if name not in made:
                names.append(name)
                promised = self._settings.promises.get(name, RuntimeDim())
                most = inf if promised.max > HUGE else promised.max
                least = max(1, promised.min)
                made[name] = symbols.size(number, least, most, promised.multiple)
            return made[name]

        def sized(name: int | str, extent: int) -> int:
            if not isinstance(name, str):
                return extent
            found = derived_size(name, extent, extents)
            if found is None:
                return symbol(name, extent)
            others, function = found
            return function(*(symbol(other, extents[other]) for other in others))

        opened = _Opened()
        for name, array in arrays.items():
            opened.shapes[name] = tuple(map(sized, sizes_of[name], array.shape))
        for name, array in contents.items():
            known = _integers(array)
            sizes = [_sized(symbol, f"{name}{JOINT}{i}", n) for i, n in enumerate(known)]
            given = [_size_in(size) for size in sizes]
            opened.contents[name] = array
            opened.patterns[name] = Pattern.of(array)
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


def _fits(array: Array, kind: TensorType) -> bool:
    """Whether an array has the type, rank and known sizes of ``kind``."""
    sizes = zip(array.shape, kind.shape, strict=False)
    known = all(isinstance(wanted, str) or size == wanted for size, wanted in sizes)
    return known and array.dtype == kind.dtype and array.ndim == len(kind.shape)


def _integers(array: Array) -> list[int]:
    """The elements that may become symbols; none of contents that are no few integers."""
    if array.dtype not in _INTEGERS or array.size > _MOST_NUMBERS:
        return []
    return [int(number) for number in array.flat]


def _sized(symbol: Callable[[str, int], int], name: str, number: int) -> int:
    """An element of contents, with a symbol where it may be a size."""
    if abs(number) >= HUGE:
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
            shapes[as_shape(name)] = found
    return session.numbers(shapes)
