"""Runs a model in parts: plans where it computes, NumPy between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import isqrt
from time import perf_counter_ns
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from dnnl import lazy
from dnnl.errors import InvalidArguments
from dnnl.framework import control, matrices, region_pooling, selections, sequences
from dnnl.framework.feeds import arrays_of, check_input
from dnnl.framework.plan import Layer
from dnnl.framework.plans import PartSession, Plans, Settings
from dnnl.framework.progress import Progress
from dnnl.framework.session import Session, Span, Spans, checked_if_any
from dnnl.framework.steps import Between, Part, Program
from dnnl.graph.graph import SEQUENCE, Array, Graph, Node, Shape, TensorType, blamed_on
from dnnl.graph.input_sizes import bound
from dnnl.graph.rounding import Rounding
from dnnl.operators.numbers import UNCHANGED
from dnnl.runtime.storage import allocating
from dnnl.runtime.stream import Stream
from dnnl.runtime.wrap import ArrayLike
from dnnl.types.runtime_dim import RuntimeDim
from dnnl.types.symbols import LEAST

if TYPE_CHECKING:
    from dnnl.framework import compiler
else:  # a loaded model needs none of them
    compiler = lazy.Module("dnnl.framework.compiler")

Values = dict[str, Any]

_ON_ARRAYS: Mapping[str, Callable[[Node, Sequence[Any]], list[Any]]] = {
    "Compress": selections.compress,
    "ConcatFromSequence": sequences.joined,
    "Det": matrices.determinant,
    "MaxRoiPool": region_pooling.max_roi_pool,
    "NonMaxSuppression": selections.non_max_suppression,
    "NonZero": selections.nonzero,
    "OptionalHasElement": lambda node, given: [np.array(True)],
    "SequenceAt": sequences.at,
    "SequenceConstruct": sequences.constructed,
    "SequenceEmpty": sequences.empty,
    "SequenceErase": sequences.erased,
    "SequenceInsert": sequences.inserted,
    "SequenceLength": sequences.length,
    "SplitToSequence": sequences.split,
    "TopK": selections.top_k,
    "Unique": selections.unique,
    **{op: lambda node, given: list(given) for op in UNCHANGED},
}
_MOST_CHECKED = 1024
"""Types and shapes of inputs that are remembered as right."""

_WITH_BODIES: Mapping[str, Callable[[Node, Sequence[Any], control.Bodies], list[Any]]] = {
    "If": control.branch,
    "Loop": control.loop,
    "SequenceMap": control.mapped,
}


@dataclass
class Record:
    """What one run uses and records: its threads, None for those of the session, and if requested
    the layers of its parts and their times."""

    threads: int | None = None
    layers: list[Layer] | None = field(default_factory=list)
    spans: Spans | None = None


class Runner:
    """A program with its plans.

    ``declared`` has the types of inputs that the model declares. ``check`` raises for inputs that
    they exclude, before a plan of a whole program is compiled. ``steps`` has the plans of each
    part, and each node between parts with the runners of its subgraphs.
    """

    def __init__(
        self,
        program: Program,
        settings: Settings,
        declared: Mapping[str, TensorType],
        opset: int,
        check: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> None:
        self.program, self._opset = program, opset
        self.steps: list[tuple[Plans | Between, Mapping[str, Runner]]] = []
        for step in program.steps:
            if isinstance(step, Part):
                self.steps.append((Plans(step, declared, settings, check), {}))
                continue
            bodies = {key: Runner(body, settings, {}, opset) for key, body in step.bodies.items()}
            self.steps.append((step, bodies))
        self._unused = _last_reads(program)

    @property
    def plans(self) -> list[Plans]:
        """The plans of all parts, those of bodies included."""
        found = []
        for step, bodies in self.steps:
            if isinstance(step, Plans):
                found.append(step)
            for body in bodies.values():
                found += body.plans
        return found

    @property
    def sessions(self) -> list[PartSession]:
        """All plans that there are now."""
        return [session for plans in self.plans for session in plans.sessions]

    def plan_first(self, values: Mapping[str, Any]) -> None:
        """Make the plan of the first step, where inputs alone decide it."""
        step = self.steps[0][0] if self.steps else None
        if isinstance(step, Plans) and not step.part.contents:
            step.prepare(values)

    def run(self, given: Sequence[Any], record: Record) -> list[Any]:
        """The outputs for a value for each input."""
        program = self.program
        named = dict(zip(program.inputs, given, strict=True))
        return self._run({**program.constants, **named}, record)

    def _run(self, values: Values, record: Record) -> list[Any]:
        """The outputs for ``values``, the inputs and constants of the program."""
        for (step, bodies), unused in zip(self.steps, self._unused, strict=True):
            if isinstance(step, Plans):
                session, results = step.run(values, record.threads, record.spans)
                values.update(results)
                if record.layers is not None:
                    record.layers += session.layers
            else:
                self._between(step, bodies, values, record)
            for name in unused:
                values.pop(name, None)
        return [values[name] for name in self.program.outputs]

    def _between(
        self, step: Between, bodies: Mapping[str, Runner], values: Values, record: Record
    ) -> None:
        node, start = step.node, perf_counter_ns()
        given = [values[name] if name else None for name in step.sources]
        calls = {key: partial(body._inside, values, record.threads) for key, body in bodies.items()}
        with blamed_on(node):
            if node.op == "Scan":
                results = control.scan(node, given, calls, self._opset)
            elif node.op in _WITH_BODIES:
                results = _WITH_BODIES[node.op](node, given, calls)
            else:
                results = _ON_ARRAYS[node.op](node, given)
        named = zip(node.outputs, results, strict=False)
        values.update((name, own) for name, own in named if name)
        if record.layers is not None:
            kind = "graphs" if bodies else "numpy"
            record.layers.append(Layer(node.name, node.op.lower(), kind, {}, 0.0, ()))
        if record.spans is not None:
            record.spans.append(Span(start, perf_counter_ns()))
            record.spans.of.append(node)

    def _inside(self, around: Values, threads: int | None) -> control.Body:
        """The body of a node as a function from its inputs to its results."""
        program, record = self.program, Record(threads, None)  # its time counts for the node
        names = program.inputs[: len(program.inputs) - len(program.captured)]
        known = {**program.constants, **{name: around[name] for name in program.captured}}

        def body(own: Sequence[Any]) -> list[Any]:
            if len(own) != len(names):
                rule = f"the graph has {len(names)}"
                raise InvalidArguments("inputs of the body", len(own), rule)
            return self._run({**known, **dict(zip(names, own, strict=True))}, record)

        return body


def _last_reads(program: Program) -> list[tuple[str, ...]]:
    """The values that no later step reads, by step."""
    needed = set(program.outputs)
    found: list[tuple[str, ...]] = []
    for step in reversed(program.steps):
        if isinstance(step, Part):
            read = {*step.inputs, *step.contents.values()}
        else:
            read = set(step.node.reads)
        found.append(tuple(sorted(read - needed)))
        needed |= read
    return found[::-1]


class OpenSession(Session):
    """A session that is planned for the sizes that come: those of ``settings.promises``, or those
    that a model in parts decides.

    It has the interface of `Session`. ``inputs`` have names where sizes are open. ``layers`` are
    those of the latest run, with one for each node between parts; ``rounding`` and the memory are
    those of all plans so far.
    """

    def __init__(self, program: Program, graph: Graph, settings: Settings) -> None:
        compiler.check_environment(settings.engine)
        self.engine = settings.engine
        self.inputs = dict(graph.inputs)
        usual = {n: _usual(kind, settings.promises) for n, kind in graph.inputs.items()}
        tensors = {n: shape for n, shape in usual.items() if shape is not None}
        known = with_sizes(graph.inputs, tensors)
        if not settings.promises:
            self.inputs = known
        self._check = _Check(self.inputs, settings.promises)
        self.outputs = tuple(graph.outputs)
        self._stream = Stream(settings.engine, settings.num_threads)
        self._layers: tuple[Layer, ...] = ()
        self._progress = Progress(settings.progress)
        self._progress.expect([])
        self._runner = Runner(program, settings, graph.inputs, graph.opset)
        self._runner.plan_first({n: np.empty(known[n].sizes, known[n].dtype) for n in tensors})
        if program.whole:
            self._layers = self._runner.sessions[-1].layers

    @property
    def layers(self) -> tuple[Layer, ...]:  # type: ignore[override]
        """What the latest run did."""
        return self._layers

    @property
    def rounding(self) -> Rounding | None:  # type: ignore[override]
        """The roundings to types smaller than f32 of all parts, one after the other."""
        every = [[own.rounding for own in plans.sessions] for plans in self._runner.plans]
        most = [max(filter(None, own), key=lambda r: r.depth) for own in every if any(own)]
        if not most:
            return None
        return Rounding(max(own.eps for own in most), sum(own.depth for own in most))

    @property
    def activation_nbytes(self) -> int:
        """The memory of what plans compute, in bytes."""
        return sum(session.activation_nbytes for session in self._runner.sessions)

    @property
    def nbytes(self) -> int:
        """The memory of activations and constants of all plans, in bytes."""
        return sum(session.nbytes for session in self._runner.sessions)

    @property
    def is_open(self) -> bool:
        """Whether inputs may have several sizes."""
        return True

    @allocating
    def run(
        self, feeds: Mapping[str, ArrayLike], *, num_threads: int | None = None
    ) -> dict[str, Array]:
        """The outputs for one array per input, or a list of them where that is declared.

        Raises InvalidArguments for a missing, unknown or unfitting array, and for contents that
        break a rule of a node.
        """
        return self._run(feeds, Record(checked_if_any(num_threads)))

    @allocating
    def run_timed(self, feeds: Mapping[str, ArrayLike]) -> tuple[dict[str, Array], Spans]:
        """As :meth:`run`, with the time of each layer."""
        spans = Spans()
        return self._run(feeds, Record(spans=spans)), spans

    def _run(self, feeds: Mapping[str, ArrayLike], record: Record) -> dict[str, Array]:
        values = values_of(feeds, self.inputs)
        self._check(values)
        results = self._runner.run([values[name] for name in self._runner.program.inputs], record)
        self._layers = tuple(record.layers or ())
        return _results(self._runner.program, self.outputs, results)


class Called:
    """A model in parts that is called with inputs of any sizes."""

    def __init__(self, program: Program, graph: Graph, settings: Settings) -> None:
        self._outputs = tuple(graph.outputs)
        # Those that a plan serves are right.
        check = partial(check_values, inputs=graph.inputs) if program.whole else None
        self.runner = Runner(program, settings, graph.inputs, graph.opset, check)
        self._check = _Check(graph.inputs)

    @property
    def only_plans(self) -> Plans | None:
        """The plans of a model that is one part; None of others."""
        steps = [step for step, _ in self.runner.steps]
        return steps[0] if len(steps) == 1 and isinstance(steps[0], Plans) else None

    @property
    def values(self) -> Mapping[str, str]:
        """The value that each output is."""
        return dict(zip(self._outputs, self.runner.program.outputs, strict=True))

    def __call__(
        self, values: Mapping[str, Any], *, num_threads: int | None = None
    ) -> dict[str, Any]:
        """The results for an array, or a list of them, for each input.

        Raises InvalidArguments as `OpenSession.run` does.
        """
        if not self.runner.program.whole:
            self._check(values)
        given = [values[name] for name in self.runner.program.inputs]
        record = Record(checked_if_any(num_threads), None)
        return _results(self.runner.program, self._outputs, self.runner.run(given, record))


class _Check:
    """`check_values`, once for arrays of the same types and shapes."""

    def __init__(
        self,
        inputs: Mapping[str, TensorType],
        promises: Mapping[str, RuntimeDim] = MappingProxyType({}),
    ) -> None:
        self._inputs, self._promises = inputs, promises
        self._right = set[tuple[Any, ...]]()

    def __call__(self, values: Mapping[str, Any]) -> None:
        arrays = [own for own in values.values() if isinstance(own, np.ndarray)]
        kinds = (*values, *((own.dtype, own.shape) for own in arrays))
        if kinds in self._right:
            return
        check_values(values, self._inputs, self._promises)
        if len(arrays) == len(values) and len(self._right) < _MOST_CHECKED:
            self._right.add(kinds)


def check_values(
    values: Mapping[str, Any],
    inputs: Mapping[str, TensorType],
    promises: Mapping[str, RuntimeDim] = MappingProxyType({}),
) -> None:
    """Raise InvalidArguments where arrays are not what inputs expect, or sizes not as promised."""
    shapes = {name: own.shape for name, own in values.items() if isinstance(own, np.ndarray)}
    for name, kind in with_sizes(inputs, shapes).items():
        if kind.shape == SEQUENCE:
            continue
        check_input(name, values[name], kind)
        for own, size in zip(inputs[name].shape, kind.sizes, strict=False):
            promised = promises.get(own) if isinstance(own, str) else None
            if promised is not None and not promised.allows(size):
                rule = f"size {own!r} must be {promised.rule}"
                raise InvalidArguments(f"input {name!r}", str(kind), rule)


def _usual(kind: TensorType, promises: Mapping[str, RuntimeDim]) -> Shape | None:
    """Sizes that an input may have, None for a list: between the ends of what is promised."""
    if kind.shape == SEQUENCE:
        return None
    sizes = []
    for size in kind.shape:
        if isinstance(size, int):
            sizes.append(size)
        elif size in promises:
            low, high, _ = promises[size].promise
            sizes.append(promises[size].near(isqrt(max(low, LEAST) * min(high, 16 * (low + 16)))))
        else:
            rule = f"the model leaves {size!r} open"
            hint = f"compile(sizes={{{size!r}: (2, 512)}}), or model(x) takes any"
            raise InvalidArguments("sizes", None, rule, hint)
    return tuple(sizes)


def with_sizes(
    inputs: Mapping[str, TensorType], shapes: Mapping[str, Shape]
) -> dict[str, TensorType]:
    """The inputs with every size known."""
    tensors = {name: kind for name, kind in inputs.items() if kind.shape != SEQUENCE}
    return {**inputs, **bound(tensors, {n: s for n, s in shapes.items() if n in tensors})}


def values_of(feeds: Mapping[str, Any], inputs: Mapping[str, TensorType]) -> dict[str, Any]:
    """An array, or a list of them, for each input.

    Raises InvalidArguments for a missing or unknown name, and for what is neither.
    """
    lists = {name: kind for name, kind in inputs.items() if kind.shape == SEQUENCE}
    if not lists or not isinstance(feeds, Mapping):
        return dict(arrays_of(feeds, inputs))
    tensors = {name: kind for name, kind in inputs.items() if name not in lists}
    found: dict[str, Any] = dict(
        arrays_of({name: own for name, own in feeds.items() if name not in lists}, tensors)
    )
    for name, kind in lists.items():
        given = feeds.get(name)
        if not isinstance(given, list | tuple):
            rule = f"the model expects a list of tensors of {kind.dtype}"
            raise InvalidArguments(f"input {name!r}", type(given).__name__, rule)
        items = {f"{name}[{place}]": item for place, item in enumerate(given)}
        arrays = arrays_of(items, dict.fromkeys(items, replace(kind, shape=("...",))))
        for own, array in arrays.items():
            if array.dtype != kind.dtype:
                rule = f"wrong data type: the model expects {kind.dtype}"
                raise InvalidArguments(f"input {own!r}", str(array.dtype), rule)
        found[name] = list(arrays.values())
    return found


def _results(program: Program, names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    """Outputs of several parts are copied, which may be inputs; those of one plan are new."""
    if program.whole:
        return dict(zip(names, values, strict=True))
    return {
        name: [*map(np.array, value)] if isinstance(value, list) else np.array(value)
        for name, value in zip(names, values, strict=True)
    }
