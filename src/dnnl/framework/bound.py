"""A plan on inputs of known sizes: launches in a row, and the memory that they work in.

Inputs are read and outputs are written where they are: an execution gets the address of each array
of its run. What is between them has places in memory that is used again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np
import numpy.typing as npt

from dnnl.errors import InvalidArguments
from dnnl.framework.memory_plan import Arena, lifetimes, place
from dnnl.framework.plan import Compiled, Contents, Counted
from dnnl.graph.expressions import Form, Numbers, SizedDesc, Values, picked
from dnnl.graph.graph import Array
from dnnl.runtime.backend import Argument
from dnnl.runtime.elements import plain_view
from dnnl.runtime.launch import Launch
from dnnl.runtime.memory import Memory
from dnnl.runtime.shaped_buffer import ShapedBuffer
from dnnl.runtime.storage import address_of, allocate, bytes_at, check_capacity
from dnnl.runtime.stream import Stream
from dnnl.types.memory_desc import MemoryDesc

Call = Callable[[int], object]
"""One execution on so many threads."""
CallAt = Callable[[Mapping[int, int]], Call]
"""A call with the addresses of the arrays of a run, by storage."""
Latest = tuple[Launch | None, object, tuple[Call, "CallAt | None"]]
Shown = Callable[[Mapping[int, int]], Array]
"""A copy of a result, in memory of the binder or where the arrays of a run are."""
Bytes = npt.NDArray[np.uint8]

_MOST_BOUND = 64
"""Sets of sizes whose launches are prepared at a time."""
_SCRATCHPAD = -1
"""The storage of temporary memory."""
_STEPS_OF_SIZES = 8
"""Storages get sizes up to an eighth larger, so that similar runs have one layout of memory."""


@dataclass(frozen=True)
class Run:
    """``calls`` compute the outputs of one run, which ``results`` gives behind them."""

    calls: Sequence[Call]
    results: Callable[[], dict[str, Array]]


@dataclass(frozen=True, slots=True)
class Output:
    """A new array that a run writes."""

    dtype: np.dtype
    dims: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Its bytes."""
        return prod(self.dims) * self.dtype.itemsize


class Bound:
    """What a run on inputs of some sizes does, in the memory of a binder.

    ``fills`` write inputs that are not read where they are, ``calls`` compute, of which ``moving``
    depend on where the arrays of a run are: these take the address of each storage in
    ``arrays``. ``read`` are the storages of inputs, ``written`` those of new arrays.
    """

    def __init__(
        self,
        fills: Mapping[str, Callable[[Array], object]],
        calls: Sequence[Call],
        moving: Mapping[int, CallAt],
        read: Mapping[str, int],
        written: Mapping[int, Output],
        results: Mapping[str, int | Array | Shown],
        launches: Sequence[Launch],
    ) -> None:
        self._fills, self._calls, self._moving = fills, calls, moving
        self._read, self._written, self._results = read, written, results
        self._launches = launches  # whose numbers calls have by their addresses alone

    def run(self, feeds: Mapping[str, Array]) -> Run:
        """One run on these inputs, which must not change before its end."""
        for name, fill in self._fills.items():
            fill(feeds[name])
        held, addresses = [], dict[int, int]()
        for name, storage in self._read.items():
            array = feeds[name]
            if not (array.flags.c_contiguous and array.flags.aligned):
                array = np.array(array, order="C")
            held.append(array)
            addresses[storage] = array.__array_interface__["data"][0]
        made = dict[int, Bytes]()
        for storage, output in self._written.items():
            made[storage] = data = allocate(output.nbytes)
            addresses[storage] = address_of(data)
        calls = list(self._calls)
        for number, place_at in self._moving.items():
            calls[number] = place_at(addresses)
        return Run(calls, partial(self._shown, made, addresses, held))

    def _shown(
        self, made: Mapping[int, Bytes], addresses: Mapping[int, int], held: Sequence[Array]
    ) -> dict[str, Array]:
        """The outputs as arrays of their own; ``held`` are inputs that were read until now."""
        shown: dict[str, Array] = {}
        for name, result in self._results.items():
            if isinstance(result, int):
                output = self._written[result]
                shown[name] = made[result].view(output.dtype).reshape(output.dims)
            else:
                shown[name] = np.array(result) if isinstance(result, Array) else result(addresses)
        return shown


class _Contents:
    """An output that no step computes."""

    def __init__(self, contents: Contents) -> None:
        self._kind, self._array, self._places = contents.kind, contents.array, contents.places

    def of(self, values: Values) -> Array:
        """The contents in a run."""
        if self._array is not None:
            return self._array
        numbers = np.array([values[place] for place in self._places], np.int64)
        return numbers.astype(self._kind.dtype).reshape(self._kind.sizes)  # s32 wraps around


class Binder:
    """Binds the steps of a plan to memory for one run at a time, which grows with the largest
    sizes."""

    def __init__(self, compiled: Compiled, compute: Callable[[Numbers], Values], stream: Stream):
        self.plan, self.stream, self._compute = compiled.plan, stream, compute
        self._kernels, self._constants = compiled.kernels, compiled.constants
        plan, descs = compiled.plan, Descs()
        self._tensors = {value: (descs.of(own.form), own) for value, own in plan.tensors.items()}
        self._counted = [(descs.of(own.form), own) for own in plan.counted]
        self._indices = [
            None if step.indices is None else descs.of(step.indices.form) for step in plan.steps
        ]
        self._contents = {public: _Contents(own) for public, own in plan.contents.items()}
        self._filled = [name for name in plan.inputs if name not in plan.read]
        self._written = {
            storage: (form.like.data_type.numpy, _dims(form))
            for storage, value in plan.written.items()
            for form in (plan.tensors[value].form,)
        }
        self._latest: list[Latest] = [(None, None, (_unplaced, None))] * len(plan.steps)
        self._scratchpad = Memory(MemoryDesc((0,), "u8"), stream.engine)
        self._activations = Memory(MemoryDesc((0,), "u8"), stream.engine)
        self._arenas: dict[tuple[int, ...], Arena] = {}
        self._places: dict[int, dict[int, Argument]] = {}
        self._bound_before: dict[Numbers, Bound] = {}

    @property
    def nbytes(self) -> int:
        """The memory of activations, in bytes."""
        return self._activations.desc.size

    def needed(self, numbers: Numbers) -> int:
        """The memory of activations that a run of these numbers needs, in bytes."""
        return self._arena(self._compute(numbers)).size

    def bound(self, numbers: Numbers) -> Bound:
        """What a run of these numbers does."""
        found = self._bound_before.get(numbers)
        if found is None:
            found = self._bind(numbers)
            if len(self._bound_before) >= _MOST_BOUND:
                self._bound_before.clear()
            self._bound_before[numbers] = found
        return found

    def _bind(self, numbers: Numbers) -> Bound:
        values, plan = self._compute(numbers), self.plan
        arena = self._arena(values)
        launches = [kernels.launch(values) for kernels in self._kernels]
        self._reserve(arena.size, max((own.scratchpad_size for own in launches), default=0))
        calls: list[Call] = [self._count(own, desc, arena, values) for desc, own in self._counted]
        moving: dict[int, CallAt] = {}
        addresses = self._addresses(arena)
        for number, launch in enumerate(launches):
            call, call_at = self._call(number, launch, values, addresses)
            if call_at is not None:
                moving[len(calls)] = call_at
            calls.append(call)
        written = {
            storage: Output(dtype, dims(values)) for storage, (dtype, dims) in self._written.items()
        }
        check_capacity(arena.size + sum(output.nbytes for output in written.values()))
        results: dict[str, int | Array | Shown] = {}
        left = set(plan.written.values())  # a value of a second name is copied
        for public, value in plan.outputs.items():
            if public in self._contents:
                results[public] = self._contents[public].of(values)
            elif value in left:
                left.remove(value)
                results[public] = plan.tensors[value].storage
            else:
                results[public] = partial(self._copied, value, arena, values)
        fills = {name: self._buffer(name, arena, values).view().fill for name in self._filled}
        return Bound(fills, calls, moving, plan.read, written, results, launches)

    def _arena(self, values: Values) -> Arena:
        """The storage of each activation; those of outputs that are copied stay until the end."""
        plan, known = self.plan, not self.plan.is_open
        sizes = {s: values[at] if known else _rounded(values[at]) for s, at in plan.sizes.items()}
        key = () if known else tuple(sizes.values())
        arena = self._arenas.get(key)
        if arena is None:
            before = [plan.tensors[name].storage for name in self._filled]
            before += [own.storage for own in plan.counted]
            shown = plan.outputs.values()
            ends = [plan.tensors[value].storage for value in shown if value in plan.tensors]
            after = [storage for storage in ends if storage in sizes]
            arena = place(lifetimes(sizes, plan.touched, before, after))
            if len(self._arenas) >= _MOST_BOUND:
                self._arenas.clear()
                self._places.clear()
            self._arenas[key] = arena
        return arena

    def _reserve(self, activations: int, scratchpad: int) -> None:
        """Have memory of at least so many bytes. All steps share one scratchpad: no two of them run
        at a time."""
        engine = self.stream.engine
        if activations > self._activations.desc.size or scratchpad > self._scratchpad.desc.size:
            self._bound_before.clear()
            self._places.clear()
        if activations > self._activations.desc.size:
            check_capacity(activations)
            self._activations = Memory(MemoryDesc((0,), "u8"), engine)  # not both at a time
            self._activations = Memory(MemoryDesc((activations,), "u8"), engine)
        if scratchpad > self._scratchpad.desc.size:
            self._scratchpad = Memory(MemoryDesc((scratchpad,), "u8"), engine)

    def _addresses(self, arena: Arena) -> dict[int, Argument]:
        """Where each storage is that belongs to the binder, as a queue takes it."""
        found = self._places.get(id(arena))
        if found is not None:
            return found
        made: dict[int, Argument] = {s: own.argument for s, own in self._constants.items()}
        begin = self._activations.argument
        for storage, offset in arena.offsets.items():
            host = isinstance(begin, int)
            made[storage] = begin + offset if host else begin._replace(offset=begin.offset + offset)
        made[_SCRATCHPAD] = self._scratchpad.argument
        self._places[id(arena)] = made
        return made

    def _count(self, counted: Counted, desc: SizedDesc, arena: Arena, values: Values) -> Call:
        """What writes numbers at equal distances."""
        memory = self._memory(counted.storage, desc.of(values), arena)
        numbers = values[counted.first] + counted.step * np.arange(memory.desc.dims[0])
        host = self.stream.engine.host_memory
        write = partial(np.copyto, memory.numpy()) if host else memory.fill
        return partial(_write, write, numbers.astype(memory.desc.data_type.numpy))

    def _call(
        self, number: int, launch: Launch, values: Values, addresses: Mapping[int, Argument]
    ) -> tuple[Call, CallAt | None]:
        """One execution of a step, and what makes it where it depends on the arrays of a run: that
        of the run before, if it is the same in the same places."""
        step, (before, there, found) = self.plan.steps[number], self._latest[number]
        if before is launch and there is addresses and step.indices is None:
            return found
        call_at = self._call_at(number, launch, values, addresses)
        moves = any(step.storages.get(arg, _SCRATCHPAD) not in addresses for arg in launch.order)
        made = (_unplaced, call_at) if moves else (call_at({}), None)
        self._latest[number] = launch, addresses, made
        return made

    def _call_at(
        self,
        number: int,
        launch: Launch,
        values: Values,
        addresses: Mapping[int, Argument],
    ) -> CallAt:
        """One execution of a step, with the storages of a run's arrays where these are."""
        step = self.plan.steps[number]
        storages = [step.storages.get(arg, _SCRATCHPAD) for arg in launch.order]
        fixed = [addresses.get(storage) for storage in storages]
        holes = [(n, storages[n]) for n, address in enumerate(fixed) if address is None]
        tail = [] if launch.sizes is None else [launch.sizes.argument]
        submit = launch.on(self.stream)

        def call_at(arrays: Mapping[int, int]) -> Call:
            arguments = [*fixed, *tail]
            for hole, storage in holes:
                arguments[hole] = arrays[storage]
            return partial(submit, arguments)

        indices, sized = step.indices, self._indices[number]
        if indices is None or sized is None:
            return call_at
        desc, storage, extent = sized.of(values), indices.storage, values[indices.extent]

        def checked_at(arrays: Mapping[int, int]) -> Call:
            address = arrays.get(storage, addresses.get(storage))
            assert address is not None
            view = self._view(desc, address)
            return partial(_checked_call, step.name, view, extent, call_at(arrays))

        return checked_at

    def _view(self, desc: MemoryDesc, address: Argument) -> Callable[[], Array]:
        """What gives the elements at an address."""
        if not isinstance(address, int):
            return Memory(desc, self.stream.engine, address).numpy
        view = plain_view(desc, bytes_at(address, desc.size, self))
        assert view is not None, "indices are laid out without blocks"
        return lambda: view

    def _memory(self, storage: int, desc: MemoryDesc, arena: Arena) -> Memory:
        if storage in self._constants:
            whole = self._constants[storage]
            return whole if whole.desc == desc else whole.part(desc)
        return self._activations.part(desc, arena.offsets[storage])

    def _copied(
        self, value: str, arena: Arena, values: Values, addresses: Mapping[int, int]
    ) -> Array:
        """A value as a new array."""
        sized, placed = self._tensors[value]
        if placed.storage not in addresses:
            return np.array(self._buffer(value, arena, values).view().numpy())
        desc = sized.of(values)
        data = bytes_at(addresses[placed.storage], desc.size, self)
        memory = Memory(desc, self.stream.engine, data)
        return np.array(ShapedBuffer(memory, placed.permutation).view().numpy())

    def _buffer(self, value: str, arena: Arena, values: Values) -> ShapedBuffer:
        sized, placed = self._tensors[value]
        memory = self._memory(placed.storage, sized.of(values), arena)
        return ShapedBuffer(memory, placed.permutation)


def _dims(form: Form) -> Callable[[Values], tuple[int, ...]]:
    """What gives the dims of a descriptor in a run."""
    if not form.places:
        return lambda _: form.like.dims
    return picked(form.places[: form.like.ndims])


class Descs:
    """The descriptors of forms: those of one form are one object."""

    def __init__(self) -> None:
        self._made: dict[Form, SizedDesc] = {}

    def of(self, form: Form) -> SizedDesc:
        """What gives the descriptor in each run."""
        found = self._made.get(form)
        if found is None:
            self._made[form] = found = SizedDesc(form)
        return found


def _rounded(nbytes: int) -> int:
    """A size at least as large, of which there are few."""
    step = max(1, 1 << max(0, nbytes.bit_length() - 1)) // _STEPS_OF_SIZES
    return -(-nbytes // step) * step if step else nbytes


def _write(write: Callable[[Array], object], numbers: Array, _threads: int) -> None:
    write(numbers)


def _unplaced(_threads: int) -> None:
    raise AssertionError("a run has not said where its arrays are")


def _checked_call(
    name: str, indices: Callable[[], Array], extent: int, call: Call, threads: int
) -> None:
    """A call that refuses indices outside of ``-extent..extent - 1``."""
    numbers = indices()
    if numbers.size and (numbers.min() < -extent or numbers.max() >= extent):
        outside = numbers[(numbers < -extent) | (numbers >= extent)]
        rule = f"must be in {-extent}..{extent - 1}"
        raise InvalidArguments(f"indices of node {name!r}", int(outside[0]), rule)
    call(threads)
