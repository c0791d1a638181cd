"""A plan on inputs of known sizes: launches in a row, and the memory that they work in.

Inputs are read and outputs are written where they are: an execution gets the address of each array
of its run. What is between them has places in memory that is used again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from math import prod

import numpy as np

from dnnl.errors import InvalidArguments
from dnnl.framework.launched import Arrays, Call, Placed, Step, joined
from dnnl.framework.memory_plan import Arena, lifetimes, place
from dnnl.framework.plan import Compiled, Contents, Counted
from dnnl.graph.expressions import Form, Numbers, SizedDesc, Values, picked
from dnnl.graph.graph import Array, Shape
from dnnl.runtime.backend import Argument
from dnnl.runtime.elements import elements_of, plain_view
from dnnl.runtime.launch import Launch
from dnnl.runtime.memory import Memory
from dnnl.runtime.shaped_buffer import ShapedBuffer
from dnnl.runtime.storage import allocate_array, check_capacity
from dnnl.runtime.stream import Stream
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.shaped_layout import ShapedLayout

_LEAST_BOUND, _MOST_LAUNCHES = 64, 4096
"""The number of sets of sizes whose launches stay prepared: the first at least, and more as long as
their launches do not exceed the second. A loop with a growing value has one set per iteration."""
_SCRATCHPAD = -1
"""The storage of temporary memory."""
_STEPS_OF_SIZES = 8
"""Storages get sizes up to an eighth larger, so that similar runs have one layout of memory."""


Shown = Callable[[Arrays], Array]
"""Returns a result of a run: a copy from memory of the binder, or a new array of the run."""


class Bound:
    """The prepared launches of a plan for one set of sizes, in the memory of a binder.

    ``fills`` copy inputs that kernels cannot read in place; then ``calls`` execute the steps in
    order. ``read`` has the storages of inputs, ``written`` the types and sizes of new arrays by
    storage. ``steps`` has the launch of each call that is nothing else. With ``shares`` no call
    uses memory of the binder.
    """

    def __init__(
        self,
        fills: Mapping[str, Callable[[Array], object]],
        calls: Sequence[Call],
        read: Mapping[str, int],
        written: Mapping[int, tuple[np.dtype, Shape]],
        results: Mapping[str, int | Array | Shown],
        launches: Sequence[Launch],
        steps: Sequence[Step | None],
        stream: Stream,
        shares: bool,
    ) -> None:
        self._fills, self.calls, self._read = list(fills.items()), calls, list(read.items())
        self.written, self._results = written, list(results.items())
        self._launches = launches  # whose numbers calls have by their addresses alone
        self._steps, self._stream = steps, stream
        self._shares, self._has_run = shares and not fills, False

    @cached_property
    def joined(self) -> Sequence[Call]:
        """The calls, of which launches in a row are one."""
        return joined(self.calls, self._steps, self._stream)

    def begin(self) -> Sequence[Call]:
        """The calls of a run that begins. Joining them is worth it for the second one."""
        if self._has_run:
            return self.joined
        self._has_run = True
        return self.calls

    @property
    def alone(self) -> Call | None:
        """The whole run, if it is one call without memory of the binder: several runs may execute
        it at a time."""
        return self.joined[0] if self._shares and len(self.joined) == 1 else None

    def arrays(self, feeds: Mapping[str, Array]) -> Arrays:
        """The arrays of one run on ``feeds``, which must not change until it ends."""
        for name, fill in self._fills:
            fill(feeds[name])
        arrays, addresses = dict[int, Array](), dict[int, int]()
        for name, storage in self._read:
            array = feeds[name]
            flags = array.flags
            if not (flags.c_contiguous and flags.aligned):
                array = np.array(array, order="C")
            arrays[storage], addresses[storage] = array, array.__array_interface__["data"][0]
        for storage, (dtype, dims) in self.written.items():
            arrays[storage], addresses[storage] = allocate_array(dtype, dims)
        return Arrays(arrays, addresses)

    def results(self, run: Arrays) -> dict[str, Array]:
        """The outputs of a run after its calls, as arrays that no other run writes."""
        shown: dict[str, Array] = {}
        for name, result in self._results:
            if isinstance(result, int):
                shown[name] = run.arrays[result]
            else:
                shown[name] = result.copy() if isinstance(result, Array) else result(run)
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
            (number, step.indices, descs.of(step.indices.form))
            for number, step in enumerate(plan.steps)
            if step.indices is not None
        ]
        self._contents = {public: _Contents(own) for public, own in plan.contents.items()}
        self._filled = [name for name in plan.inputs if name not in plan.read]
        self._written = [
            (storage, placed.dtype, _dims(placed.form))
            for storage, value in plan.written.items()
            for placed in (plan.tensors[value],)
        ]
        self._latest: dict[int, Placed] = {}
        self._scratchpad = Memory(MemoryDesc((0,), "u8"), stream.engine)
        self._activations = Memory(MemoryDesc((0,), "u8"), stream.engine)
        self._arenas: dict[tuple[int, ...], Arena] = {}
        self._places: dict[int, dict[int, Argument]] = {}
        self._bound_before: dict[Numbers, Bound] = {}
        self._most_bound = max(_LEAST_BOUND, _MOST_LAUNCHES // (1 + len(plan.steps)))

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
            if len(self._bound_before) >= self._most_bound:
                self._bound_before.clear()
            self._bound_before[numbers] = found
        return found

    def _bind(self, numbers: Numbers) -> Bound:
        values, plan = self._compute(numbers), self.plan
        arena = self._arena(values)
        launches = [kernels.launch(values) for kernels in self._kernels]
        scratchpad = max((own.scratchpad_size for own in launches), default=0)
        self._reserve(arena.size, scratchpad)
        calls: list[Call] = [self._count(own, desc, arena, values) for desc, own in self._counted]
        addresses = self._addresses(arena)
        steps: list[Step | None] = [None] * len(calls)
        for number, launch in enumerate(launches):
            step = self._step(number, launch, addresses)
            calls.append(step.call)
            steps.append(step)
        for number, own, desc in self._indices:
            place, extent = number - len(launches), values[own.extent]
            indices = self._view(own.storage, desc.of(values), arena)
            name, call = plan.steps[number].name, calls[place]
            calls[place] = partial(_checked_call, name, indices, extent, call)
            steps[place] = None
        written = {storage: (dtype, dims(values)) for storage, dtype, dims in self._written}
        nbytes = sum(prod(dims) * dtype.itemsize for dtype, dims in written.values())
        check_capacity(arena.size + nbytes)
        results: dict[str, int | Array | Shown] = {}
        left = set(plan.written.values())  # a value of a second name is copied
        for public, value in plan.outputs.items():
            if public in self._contents:
                results[public] = self._contents[public].of(values)
            elif value in left:
                left.remove(value)
                results[public] = plan.tensors[value].storage
            else:
                results[public] = self._copy(value, arena, values)
        fills = {name: self._filling(name, arena, values) for name in self._filled}
        shares = not (arena.size or scratchpad)
        return Bound(
            fills, calls, plan.read, written, results, launches, steps, self.stream, shares
        )

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
            if len(self._arenas) >= _LEAST_BOUND:
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
        typed = numbers.astype(memory.desc.data_type.numpy)
        return lambda _run, _threads: write(typed)

    def _step(self, number: int, launch: Launch, addresses: Mapping[int, Argument]) -> Step:
        """The execution of a step, reused if the latest one has the same launch and addresses."""
        before = self._latest.get(number)
        if before is None or before.addresses is not addresses or before.order != launch.order:
            storages = self.plan.steps[number].storages
            every = [storages.get(arg, _SCRATCHPAD) for arg in launch.order]
            before = Placed(addresses, launch.order, every)
            self._latest[number] = before
        if before.launch is not launch:
            before.launch, before.step = launch, before.placed(launch, self.stream)
        return before.step

    def _view(self, storage: int, desc: MemoryDesc, arena: Arena) -> Shown:
        """A function that returns the elements of a storage in a run."""
        if storage not in self._addresses(arena):
            return lambda run: _elements(desc, run.arrays[storage])
        memory = self._memory(storage, desc, arena)
        return lambda _run: memory.numpy()

    def _memory(self, storage: int, desc: MemoryDesc, arena: Arena) -> Memory:
        if storage in self._constants:
            whole = self._constants[storage]
            return whole if whole.desc == desc else whole.part(desc)
        return self._activations.part(desc, arena.offsets[storage])

    def _copy(self, value: str, arena: Arena, values: Values) -> Shown:
        """A function that returns a value as a new array."""
        sized, placed = self._tensors[value]
        desc = ShapedLayout(sized.of(values), placed.permutation).view()
        view = self._view(placed.storage, desc, arena)
        return lambda run: view(run).copy().view(placed.dtype)

    def _filling(self, name: str, arena: Arena, values: Values) -> Callable[[Array], object]:
        """A function that copies an input into its storage."""
        stored = self._tensors[name][1].form.like.data_type.numpy
        fill = self._buffer(name, arena, values).view().fill
        return lambda array: fill(array.view(stored))

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


def _elements(desc: MemoryDesc, array: Array) -> Array:
    """The elements of a tensor ``desc`` that is stored in the bytes of ``array``."""
    data = array.reshape(-1).view(np.uint8)
    view = plain_view(desc, data)
    return elements_of(desc, data) if view is None else view


def _checked_call(
    name: str, indices: Shown, extent: int, call: Call, run: Arrays, threads: int
) -> None:
    """A call that refuses indices outside of ``-extent..extent - 1``."""
    numbers = indices(run)
    if numbers.size:
        least, most = (numbers.min(), numbers.max()) if numbers.size > 1 else (numbers.item(),) * 2
        if least < -extent or most >= extent:
            outside = numbers[(numbers < -extent) | (numbers >= extent)]
            rule = f"must be in {-extent}..{extent - 1}"
            raise InvalidArguments(f"indices of node {name!r}", int(outside[0]), rule)
    call(run, threads)
