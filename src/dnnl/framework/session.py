"""A compiled model: bound primitives in a row, and the memory that they work in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter_ns
from typing import Any, Never

import numpy as np

from dnnl import config
from dnnl.errors import InvalidArguments
from dnnl.framework.bound import Binder
from dnnl.framework.progress import Progress, Report
from dnnl.framework.requests import Binders, Budget, awaited
from dnnl.graph.expressions import Numbers, OpenInputs, conditions
from dnnl.graph.graph import Array, Graph, Pass, Shape, TensorType, blamed_on
from dnnl.lowering.graphs import Lowering, Prepared, Ref, Step
from dnnl.lowering.policy import POLICIES
from dnnl.operators.table import operator_of
from dnnl.passes.affine import fold_affine
from dnnl.passes.constants import fold_constants
from dnnl.passes.deconvolutions import deconvolutions_by_products
from dnnl.passes.expand import expand
from dnnl.passes.functions.exact import join_exact, join_integers
from dnnl.passes.functions.joined import join_functions
from dnnl.passes.functions.regions import fuse_functions
from dnnl.passes.fusion import fuse_post_ops
from dnnl.passes.identities import drop_identities, split_variadic
from dnnl.passes.precision import fuse_conversions, in_precision, rounding_of, within_range
from dnnl.passes.quantized.conversions import move_conversions, prefer_unsigned
from dnnl.passes.quantized.functions import convert_by_functions
from dnnl.passes.quantized.products import fuse_products
from dnnl.passes.views import factors_behind_products, sink_views
from dnnl.primitives.primitive import Primitive, build_ahead
from dnnl.primitives.primitive_desc import PrimitiveDesc, select_isa
from dnnl.primitives.reorder import ReorderDesc
from dnnl.runtime.engine import Engine
from dnnl.runtime.memory import Memory
from dnnl.runtime.storage import allocating, check_capacity
from dnnl.runtime.stream import Stream
from dnnl.runtime.threads import checked_num_threads
from dnnl.runtime.wrap import ArrayLike
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.shaped_layout import same_places
from dnnl.types.size import is_known

PASSES: tuple[Pass, ...] = (
    drop_identities,
    split_variadic,
    expand,
    drop_identities,
    fold_constants,
    move_conversions,
    prefer_unsigned,
    fuse_products,
    convert_by_functions,
    join_integers,
    fuse_functions,
    factors_behind_products,
    sink_views,
    fold_affine,
    join_functions,
    join_exact,
    fuse_post_ops,
    deconvolutions_by_products,
    fuse_conversions,
)
"""What happens to a specialized graph before it is lowered, in this order."""


@dataclass(frozen=True, slots=True)
class Layer:
    """What one step of a session does: for tables and profiles.

    ``layouts`` maps src, weights and dst, as far as the primitive has them, to their format tags.
    """

    name: str
    primitive: str
    implementation: str
    layouts: Mapping[str, str]
    flops: float
    fused: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """When a layer ran, in nanoseconds of ``time.perf_counter_ns``."""

    start: int
    stop: int


def optimize(graph: Graph, kind: DataType = DataType.f32) -> Graph:
    """A specialized graph after all passes, in the precision of a type of floats."""
    narrow = kind is not DataType.f32
    if narrow:
        graph = within_range(graph, kind)
    for rewrite in PASSES:
        graph = rewrite(graph)
    return in_precision(graph, kind) if narrow else graph


def lower(graph: Graph, engine: Engine, layout: str = "propagate") -> Lowering:
    """The steps of an optimized graph."""
    if str(layout) not in POLICIES:
        raise InvalidArguments("layout", layout, f"must be one of {', '.join(POLICIES)}")
    check_environment(engine)
    lowering = Lowering(graph, engine, POLICIES[str(layout)])
    for node in graph.nodes:
        with blamed_on(node):
            operator_of(node).lower(lowering, node)
        lowering.advance()
    for value in graph.outputs.values():
        lowering.settle(value)
    return lowering


def check_environment(engine: Engine) -> None:
    """Raise InvalidArguments for a bad knob, before a node could be blamed for it."""
    for knob in config.KNOBS:
        config.get(knob.name)
    select_isa(engine)


class Session:
    """Runs a model on inputs of the sizes that it was compiled for.

    Made by :meth:`Model.compile`. ``inputs`` says what :meth:`run` takes, ``layers`` what a run
    does, ``nbytes`` how much memory activations and constants have, ``activation_nbytes`` the
    former alone, ``rounding`` what is rounded to types smaller than f32. Several threads may run it
    at the same time: each run has memory for activations of its own, which later runs use again.
    """

    def __init__(
        self,
        graph: Graph,
        engine: Engine,
        layout: str = "propagate",
        num_threads: int | None = None,
        kind: DataType = DataType.f32,
        progress: Report | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.engine = engine
        self._progress = Progress(progress)
        self.inputs: Mapping[str, TensorType] = dict(graph.inputs)
        self._stream = Stream(engine, num_threads)
        self._primitives: dict[object, Primitive] = {}  # steps that do the same share one
        optimized = optimize(graph, kind)
        self.rounding = rounding_of(optimized)
        lowering = lower(optimized, engine, layout)
        self._serves = None if lowering.symbols is None else conditions(lowering.symbols)
        self._constant_nbytes = sum(key.desc.size for key in lowering.prepared)
        check_capacity(self._constant_nbytes)
        preparations = {key: _preparation(key, engine) for key in lowering.prepared}
        constants = [(key.value, pd) for key, pd in preparations.items() if pd is not None]
        kernels = [*constants, *((step.name, step.pd) for step in lowering.steps)]
        self._progress.expect(kernels)
        self._images = build_ahead((pd for _, pd in kernels), self._progress.ready)
        constants_by_storage: dict[int, Memory] = {}
        for key, storage in lowering.prepared.items():
            constant = optimized.constants[key.value]
            constants_by_storage[storage] = self._prepare(key, preparations[key], constant)
        self.layers = tuple(_layer(step) for step in lowering.steps)
        primitives = [self._primitive(step.pd) for step in lowering.steps]
        self._stream.wait()  # runs have streams of their own
        self._images, self._primitives, self._progress = {}, {}, Progress(None)
        self.outputs = tuple(optimized.outputs)
        self._sizes = OpenInputs(self.inputs)
        binder = partial(Binder, lowering, primitives, constants_by_storage)
        self._binders = Binders(
            lambda: binder(Stream(engine, num_threads)), budget, counted=engine.kind == "cpu"
        )
        if lowering.symbols is None:
            with self._binders.taken(()) as first:
                first.bound(())

    @property
    def activation_nbytes(self) -> int:
        """The memory of what is computed, in bytes, of all runs that there were at the same time;
        values that are not needed at once share it."""
        return self._binders.nbytes

    @property
    def nbytes(self) -> int:
        """The memory of activations and constants, in bytes."""
        return self.activation_nbytes + self._constant_nbytes

    @property
    def num_threads(self) -> int:
        """The number of threads that a primitive is spread over."""
        return self._stream.num_threads

    def __call__(
        self, *arrays: ArrayLike | Mapping[str, ArrayLike], num_threads: int | None = None
    ) -> Array | dict[str, Array]:
        """Run on arrays in the order of ``inputs``, or on one mapping from their names.

        The result is a new array, or a dict of them where there are several outputs.
        ``num_threads`` and what is raised are as of :meth:`run`.
        """
        results = self.run(named(arrays, self.inputs), num_threads=num_threads)
        return results if len(results) > 1 else results.popitem()[1]

    async def run_async(
        self, *arrays: ArrayLike | Mapping[str, ArrayLike], num_threads: int | None = None
    ) -> Array | dict[str, Array]:
        """What a call of the session returns or raises, computed in another thread.

        There are as many such threads as cpus, for all sessions; further runs wait for one. A run
        that is cancelled before it begins does not take place. The arrays must not change until the
        end.
        """
        return await awaited(partial(self, *arrays, num_threads=num_threads))

    @allocating
    def run(
        self, feeds: Mapping[str, ArrayLike], *, num_threads: int | None = None
    ) -> dict[str, Array]:
        """The outputs for one array per input, as new arrays.

        ``num_threads`` is that of this run, by default that of the session. With 1 the calling
        thread does all. The result has the same bits.

        Raises InvalidArguments for a missing, unknown or unfitting array, and OutOfMemory where
        activations need more than the memory budget.
        """
        threads = checked_if_any(num_threads)
        arrays = self._checked(feeds)
        return self.execute(arrays, self._served(arrays), threads)

    @allocating
    def run_timed(self, feeds: Mapping[str, ArrayLike]) -> tuple[dict[str, Array], list[Span]]:
        """As :meth:`run`, with the time of each layer."""
        arrays, spans = self._checked(feeds), list[Span]()
        return self.execute(arrays, self._served(arrays), None, spans), spans

    def execute(
        self,
        arrays: Mapping[str, Array],
        numbers: Numbers,
        num_threads: int | None = None,
        spans: list[Span] | None = None,
    ) -> dict[str, Array]:
        """The outputs, as new arrays, for inputs that fit and say these ``numbers``; ``spans`` gets
        the time of each layer."""
        with self._binders.taken(numbers) as binder:
            run, threads = binder.bound(numbers).run(arrays), num_threads or self.num_threads
            for call in run.calls:
                start = perf_counter_ns()
                call(threads)
                if spans is not None:
                    binder.stream.wait()
                    spans.append(Span(start, perf_counter_ns()))
            binder.stream.wait()
            return run.results()

    def __reduce__(self) -> Never:
        rule = "a Session holds machine code and cannot be copied or pickled"
        raise TypeError(f"{rule}: copy the Model and compile it where it is needed")

    def _checked(self, feeds: Mapping[str, ArrayLike]) -> dict[str, Array]:
        arrays = arrays_of(feeds, self.inputs)
        for name, expected in self.inputs.items():
            check_input(name, arrays[name], expected)
        return arrays

    @property
    def is_open(self) -> bool:
        """Whether inputs may have several sizes."""
        return self._serves is not None

    def numbers(self, shapes: Mapping[str, Shape]) -> Numbers | None:
        """What inputs of these shapes say of the sizes that are open; None if the session does not
        serve them."""
        numbers = self._sizes.numbers(shapes)
        if numbers is None or self._serves is None:
            return numbers
        return numbers if self._serves(*numbers) else None

    def _served(self, arrays: Mapping[str, Array]) -> Numbers:
        """The numbers of a run, which the session serves."""
        shapes = {name: array.shape for name, array in arrays.items()}
        numbers = self.numbers(shapes)
        if numbers is None:
            raise InvalidArguments("sizes of inputs", shapes, "this plan is for others")
        return numbers

    def _prepare(self, key: Prepared, pd: PrimitiveDesc | None, array: Array) -> Memory:
        """A constant in the layout that its readers want."""
        wanted = Memory(key.desc, self.engine)
        content = np.require(array, requirements=["C", "W"]).reshape(-1).view(np.uint8)
        if pd is None:
            wanted.write(content)
            return wanted
        if self.engine.host_memory:
            source = Memory(key.source, self.engine, content)
        else:
            source = Memory(key.source, self.engine)
            source.write(content)
        self._primitive(pd).execute(self._stream, {Arg.FROM: source, Arg.TO: wanted})
        return wanted

    def _primitive(self, pd: PrimitiveDesc) -> Primitive:
        primitive = self._primitives.get(pd.key)
        if primitive is None:
            self._primitives[pd.key] = primitive = Primitive(pd, images=self._images)
        self._progress.ready(pd)
        return primitive


def checked_if_any(num_threads: int | None) -> int | None:
    """The threads of a run; raises InvalidArguments for what is no number of them."""
    return None if num_threads is None else checked_num_threads(num_threads)


def named(arrays: Sequence[Any], inputs: Mapping[str, TensorType]) -> Mapping[str, ArrayLike]:
    """The arguments of a call by name: the only one, if it is a mapping, or one for each input."""
    if len(arrays) == 1 and isinstance(arrays[0], Mapping):
        return arrays[0]
    if len(arrays) != len(inputs):
        rule = f"expected {len(inputs)} arrays for {', '.join(inputs)}, or one mapping by name"
        raise InvalidArguments("number of arrays", len(arrays), rule)
    return dict(zip(inputs, arrays, strict=True))


def arrays_of(feeds: Mapping[str, ArrayLike], inputs: Mapping[str, TensorType]) -> dict[str, Array]:
    """A NumPy array for each input.

    Raises InvalidArguments for a missing or unknown name, and for what is no array.
    """
    if not isinstance(feeds, Mapping):
        hint = "session(x) takes arrays in the order of the inputs"
        given = type(feeds).__name__
        raise InvalidArguments("feeds", given, "expected a mapping from names to arrays", hint)
    for name in feeds.keys() - inputs.keys():
        raise InvalidArguments("input", name, f"no such input; there are {', '.join(inputs)}")
    arrays = {}
    for name, expected in inputs.items():
        if name not in feeds:
            rule = f"missing: the model expects {expected}"
            raise InvalidArguments(f"input {name!r}", None, rule)
        arrays[name] = _array(name, feeds[name], expected)
    return arrays


def _array(name: str, value: object, expected: TensorType) -> Array:
    given = type(value).__name__
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged lists, tensors with a grad
        raise InvalidArguments(f"input {name!r}", given, f"is no array: {error}") from error
    if array.dtype == object:
        rule = f"is no array of numbers: the model expects {expected}"
        raise InvalidArguments(f"input {name!r}", given, rule)
    return array


def check_input(name: str, array: np.ndarray, expected: TensorType) -> None:
    """Raise InvalidArguments where an array is not what input ``name`` expects."""
    given = TensorType(array.dtype, array.shape)
    if given.dtype != expected.dtype:
        rule = f"wrong data type: the model expects {expected}"
        hint = f"array.astype({expected.dtype.name!r}) converts it"
        raise InvalidArguments(f"input {name!r}", str(given), rule, hint)
    sizes = zip(given.sizes, expected.sizes, strict=False)
    known = all(not is_known(wanted) or size == wanted for size, wanted in sizes)
    if len(given.shape) != len(expected.shape) or not known:
        rule = f"wrong shape: the model expects {expected}"
        raise InvalidArguments(f"input {name!r}", str(given), rule)


def _preparation(key: Prepared, engine: Engine) -> PrimitiveDesc | None:
    """The reorder of a constant to the layout that its readers want; None where it is that."""
    if same_places(key.source, key.desc):
        return None
    return PrimitiveDesc(ReorderDesc(key.source, key.desc), engine)


def _layer(step: Step) -> Layer:
    named = {"src": Arg.SRC, "weights": Arg.WEIGHTS, "dst": Arg.DST}
    refs = {name: step.args.get(arg) for name, arg in named.items()}
    if refs["src"] is None:
        refs["src"] = step.args.get(Arg.MULTIPLE_SRC)
    layouts = {name: layout_name(ref) for name, ref in refs.items() if ref is not None}
    pd = step.pd
    return Layer(step.name, step.kind, pd.impl_info, layouts, step.flops, step.fused)


def layout_name(ref: Ref) -> str:
    """The tag of a memory's layout, or its strides where no tag spells it."""
    tag = ref.desc.tag
    strides = (str(n) if is_known(n) else "*" for n in ref.desc.strides)
    return str(tag) if tag is not None else "x".join(strides)
