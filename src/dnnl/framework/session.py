"""A compiled model: a plan whose steps are bound to memory, and runs of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter_ns
from typing import Any, NamedTuple, Never

from dnnl.errors import InvalidArguments
from dnnl.framework.bound import Binder, Bound
from dnnl.framework.feeds import arrays_of, as_given, check_input, named
from dnnl.framework.launched import Arrays, Call
from dnnl.framework.plan import Compiled
from dnnl.framework.requests import Binders, Budget, awaited
from dnnl.graph.expressions import Numbers, OpenInputs, Values, evaluation, holding
from dnnl.graph.graph import Array, Node, Shape, TensorType
from dnnl.runtime.storage import allocating
from dnnl.runtime.stream import Stream
from dnnl.runtime.threads import checked_num_threads
from dnnl.runtime.wrap import ArrayLike


@dataclass(frozen=True, slots=True)
class PlanRun:
    """A plan in one run; ``values`` are the values of its expressions."""

    compiled: Compiled
    values: Values


@dataclass(frozen=True, slots=True)
class Span:
    """When a layer ran, in nanoseconds of ``time.perf_counter_ns``."""

    start: int
    stop: int


class Spans(list[Span]):
    """The times of the layers of a run. ``of`` has their owners in order: runs of plans, with a
    span for each step, and nodes between parts, with one span."""

    def __init__(self) -> None:
        super().__init__()
        self.of: list[PlanRun | Node] = []


class AtAddresses(NamedTuple):
    """What runs a plan of known sizes on the addresses of its inputs and outputs by storage, as
    long as ``bound`` and the session exist; ``written`` has the sizes of outputs."""

    call: Call
    written: Mapping[int, Shape]
    bound: Bound


class Session:
    """Runs a model on inputs of the sizes that it was compiled for.

    Made by :meth:`Model.compile`; ``compiled`` is the plan and its kernels. ``inputs`` says what
    :meth:`run` takes, ``layers`` what a run does, ``nbytes`` how much memory activations and
    constants have, ``activation_nbytes`` the former alone, ``rounding`` what is rounded to types
    smaller than f32. Several threads may run it at the same time: each run has memory for
    activations of its own, which later runs use again.
    """

    def __init__(
        self, compiled: Compiled, num_threads: int | None = None, budget: Budget | None = None
    ) -> None:
        self.compiled, plan = compiled, compiled.plan
        self.engine = engine = compiled.engine
        self.inputs: Mapping[str, TensorType] = plan.inputs
        self.outputs, self.layers = tuple(plan.outputs), plan.layers
        self.rounding = plan.rounding
        self._stream = Stream(engine, num_threads)
        self._compute = compute = evaluation(plan.symbols, plan.expressions)
        self._serves = holding(plan.symbols, plan.condition) if plan.is_open else None
        self._constant_nbytes = sum(own.desc.size for own in compiled.constants.values())
        self._sizes = OpenInputs(self.inputs)
        self._binders = Binders(
            lambda: Binder(compiled, compute, Stream(engine, num_threads)),
            budget,
            counted=engine.kind == "cpu",
        )
        if not plan.is_open:
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
        self,
        /,
        *arrays: ArrayLike | Mapping[str, ArrayLike],
        num_threads: int | None = None,
        **keywords: ArrayLike,
    ) -> Any:
        """Run on arrays in the order of ``inputs``, by keyword, or on one mapping by name.

        The result is a new array, or a dict of arrays if there are several outputs; tensors of
        PyTorch if an argument is one. ``num_threads`` and errors are as for :meth:`run`.
        """
        given = named(arrays, keywords, self.inputs)
        return as_given(self.run(given, num_threads=num_threads), given.values())

    async def run_async(
        self,
        /,
        *arrays: ArrayLike | Mapping[str, ArrayLike],
        num_threads: int | None = None,
        **keywords: ArrayLike,
    ) -> Any:
        """What a call of the session returns or raises, computed in another thread.

        There are as many such threads as cpus, for all sessions; further runs wait for one. A run
        that is cancelled before it begins does not take place. The arrays must not change until the
        end.
        """
        return await awaited(partial(self, *arrays, num_threads=num_threads, **keywords))

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
    def run_timed(self, feeds: Mapping[str, ArrayLike]) -> tuple[dict[str, Array], Spans]:
        """As :meth:`run`, with the time of each layer."""
        arrays, spans = self._checked(feeds), Spans()
        return self.execute(arrays, self._served(arrays), None, spans), spans

    def execute(
        self,
        arrays: Mapping[str, Array],
        numbers: Numbers,
        num_threads: int | None = None,
        spans: Spans | None = None,
    ) -> dict[str, Array]:
        """The outputs, as new arrays, for inputs that fit and say these ``numbers``; ``spans`` gets
        the time of each layer."""
        threads = num_threads or self.num_threads
        with self._binders.taken(numbers) as binder:
            bound, wait = binder.bound(numbers), binder.stream.wait
            run = bound.arrays(arrays)
            if spans is None:
                for call in bound.begin():
                    call(run, threads)
            else:
                self._time(bound.calls, run, threads, wait, spans)
                spans.of.append(PlanRun(self.compiled, self._compute(numbers)))
            wait()
            return bound.results(run)

    def at_addresses(self, numbers: Numbers = ()) -> AtAddresses:
        """A run of a plan that `is_direct` for inputs that say these numbers, on the cpu, where a
        submission returns at the end."""
        with self._binders.taken(numbers) as binder:
            bound = binder.bound(numbers)
        call = bound.alone or partial(self._in_turn, numbers)
        written = {storage: dims for storage, (_, dims) in bound.written.items()}
        return AtAddresses(call, written, bound)

    def _in_turn(self, numbers: Numbers, run: Arrays, threads: int) -> None:
        with self._binders.taken(numbers) as binder:
            for call in binder.bound(numbers).begin():
                call(run, threads)

    def _time(
        self,
        calls: Sequence[Call],
        run: Arrays,
        threads: int,
        wait: Callable[[], None],
        spans: Spans,
    ) -> None:
        """Make the calls of a run, and add the time of each step."""
        before = len(self.compiled.plan.counted)  # what is written ahead of the first step
        for number, call in enumerate(calls):
            start = perf_counter_ns()
            call(run, threads)
            if number >= before:
                wait()
                spans.append(Span(start, perf_counter_ns()))

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

    def prepare(self, numbers: Numbers) -> None:
        """Have the kernels for a run of these numbers, without memory for it.

        Raises Unimplemented where some are missing that nothing may make.
        """
        values = self._compute(numbers)
        for kernels in self.compiled.kernels:
            kernels.launch(values)

    def _served(self, arrays: Mapping[str, Array]) -> Numbers:
        """The numbers of a run, which the session serves."""
        shapes = {name: array.shape for name, array in arrays.items()}
        numbers = self.numbers(shapes)
        if numbers is None:
            raise InvalidArguments("sizes of inputs", shapes, "this plan is for others")
        return numbers


def checked_if_any(num_threads: int | None) -> int | None:
    """The threads of a run; raises InvalidArguments for what is no number of them."""
    return None if num_threads is None else checked_num_threads(num_threads)
