"""A compiled model on inputs of known sizes: launches in a row, and the memory that they work in.

Inputs are read and outputs are written where they are: an execution gets the address of each array
of its run. What is between them has places in memory that is used again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from dnnl.errors import InvalidArguments
from dnnl.framework.memory_plan import Arena, lifetimes, place
from dnnl.graph.expressions import Expressions, Numbers, SizedDesc, Values
from dnnl.graph.graph import Array, TensorType
from dnnl.graph.sizes import is_open
from dnnl.lowering.graphs import Lowering, Step
from dnnl.primitives.primitive import Primitive
from dnnl.primitives.sized_slots import Launch
from dnnl.runtime.backend import Argument
from dnnl.runtime.elements import plain_view
from dnnl.runtime.memory import Memory
from dnnl.runtime.shaped_buffer import ShapedBuffer
from dnnl.runtime.storage import address_of, allocate, bytes_at, check_capacity
from dnnl.runtime.stream import Stream
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import surely_equal

Call = Callable[[int], object]
"""One execution on so many threads."""
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


class Bound:
    """What a run on inputs of some sizes does, in the memory of a binder.

    ``fills`` write inputs that are not read where they are, ``calls`` compute, of which ``moving``
    depend on where the arrays of a run are: these take the address of each storage in
    ``arrays``. ``outputs`` are the storages that become results, with their descriptors.
    """

    def __init__(
        self,
        fills: Mapping[str, Callable[[Array], object]],
        calls: Sequence[Call],
        moving: Mapping[int, Callable[[Mapping[int, int]], Call]],
        read: Mapping[str, int],
        written: Mapping[int, MemoryDesc],
        results: Mapping[str, int | Array | Shown],
    ) -> None:
        self._fills, self._calls, self._moving = fills, calls, moving
        self._read, self._written, self._results = read, written, results

    def run(self, feeds: Mapping[str, Array]) -> Run:
        """One run on these inputs, which must not change before its end."""
        for name, fill in self._fills.items():
            fill(feeds[name])
        kept, addresses = [], dict[int, int]()
        for name, storage in self._read.items():
            array = feeds[name]
            if not (array.flags.c_contiguous and array.flags.aligned):
                array = np.array(array, order="C")
            kept.append(array)
            addresses[storage] = array.__array_interface__["data"][0]
        made = dict[int, Bytes]()
        for storage, desc in self._written.items():
            made[storage] = data = allocate(desc.size)
            addresses[storage] = address_of(data)
        calls = list(self._calls)
        for number, place_at in self._moving.items():
            calls[number] = place_at(addresses)
        return Run(calls, partial(self._shown, made, addresses, kept))

    def _shown(
        self, made: Mapping[int, Bytes], addresses: Mapping[int, int], kept: Sequence[Array]
    ) -> dict[str, Array]:
        """The outputs as arrays of their own; ``kept`` are inputs that were read until now."""
        shown: dict[str, Array] = {}
        for name, result in self._results.items():
            if isinstance(result, int):
                desc = self._written[result]
                shown[name] = made[result].view(desc.data_type.numpy).reshape(desc.dims)
            else:
                shown[name] = np.array(result) if isinstance(result, Array) else result(addresses)
        return shown


class _SizedStep:
    """A step, some of whose sizes only a run knows."""

    def __init__(self, step: Step, primitive: Primitive, expressions: Expressions) -> None:
        self.name, self.primitive = step.name, primitive
        self.descs = {arg: expressions.sized(ref.desc) for arg, ref in step.args.items()}
        self.storages = {arg: ref.storage for arg, ref in step.args.items()}
        self.indexed = None if step.indexed is None else expressions.place(step.indexed)
        patterns = step.pd.patterns if step.pd.variants is not None else ()
        self._numbers = expressions.pick([p for arg in patterns for p in self.descs[arg].places])

    def launch(self, values: Values) -> Launch:
        """What an execution in a run of these numbers is."""
        descs = partial(self._descs_of, values)
        return self.primitive.launch(self._numbers(values), descs)

    def _descs_of(self, values: Values) -> dict[int, MemoryDesc]:
        return {arg: desc.of(values) for arg, desc in self.descs.items()}


class _Contents:
    """A constant, whose elements may be expressions."""

    def __init__(self, kind: TensorType, expressions: Expressions, array: Array) -> None:
        self._kind, self._array = kind, array
        self._places = [expressions.place(n) for n in array.ravel()] if is_open(array) else None

    def of(self, values: Values) -> Array:
        """The contents in a run."""
        if self._places is None:
            return self._array
        numbers = np.array([values[place] for place in self._places], np.int64)
        return numbers.astype(self._kind.dtype).reshape(self._kind.sizes)  # s32 wraps around


class Binder:
    """Binds the steps of a model to memory for one run at a time, which grows with the largest
    sizes."""

    def __init__(
        self,
        lowering: Lowering,
        primitives: Sequence[Primitive],
        constants: Mapping[int, Memory],
        stream: Stream,
    ) -> None:
        graph = lowering.graph
        self.stream, self._constants = stream, constants
        self._expressions = made = Expressions(lowering.symbols)
        self._steps = [
            _SizedStep(step, primitive, made)
            for step, primitive in zip(lowering.steps, primitives, strict=True)
        ]
        self._counted = [
            (made.sized(own.ref.desc), own.ref.storage, made.place(own.first), own.step)
            for own in lowering.counted
        ]
        self._outputs = graph.outputs
        self._constant_results = {
            public: _Contents(graph.type_of(value), made, graph.constants[value])
            for public, value in graph.outputs.items()
            if value in graph.constants
        }
        values = {*graph.inputs, *graph.outputs.values()}
        self._tensors = {
            value: (made.sized(tensor.layout.desc), tensor.layout.permutation, tensor.storage)
            for value, tensor in lowering.tensors.items()
            if value in values
        }
        host = stream.engine.host_memory
        self._read = {
            name: lowering.tensors[name].storage
            for name in (graph.inputs if host else ())
            if lowering.tensors[name].layout.desc.data_type.bits >= 8
        }
        self._filled = [name for name in graph.inputs if name not in self._read]
        known = {*self._read.values(), *lowering.prepared.values()}
        counted = [own.ref.storage for own in lowering.counted]  # written before the first step
        self._written = _written_in_place(lowering, known.union(counted)) if host else {}
        elsewhere = known.union(self._written)
        self._sizes = {s: made.place(n) for s, n in lowering.sizes.items() if s not in elsewhere}
        touched = [[ref.storage for ref in step.args.values()] for step in lowering.steps]
        self._touched = [[s for s in storages if s not in elsewhere] for storages in touched]
        self._scratchpad = Memory(MemoryDesc((0,), "u8"), stream.engine)
        self._activations = Memory(MemoryDesc((0,), "u8"), stream.engine)
        self._arenas: dict[tuple[int, ...], Arena] = {}
        self._bound_before: dict[Numbers, Bound] = {}

    @property
    def nbytes(self) -> int:
        """The memory of activations, in bytes."""
        return self._activations.desc.size

    def needed(self, numbers: Numbers) -> int:
        """The memory of activations that a run of these numbers needs, in bytes."""
        return self._arena(self._expressions.compute(numbers)).size

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
        values = self._expressions.compute(numbers)
        arena = self._arena(values)
        launches = [step.launch(values) for step in self._steps]
        self._reserve(arena.size, max((own.scratchpad_size for own in launches), default=0))
        calls: list[Call] = [self._count(own, arena, values) for own in self._counted]
        moving: dict[int, Callable[[Mapping[int, int]], Call]] = {}
        addresses = self._addresses(arena)
        for step, launch in zip(self._steps, launches, strict=True):
            call_at = self._call_at(step, launch, values, addresses)
            if any(step.storages.get(arg) not in addresses for arg in launch.order):
                moving[len(calls)] = call_at
                calls.append(_unplaced)
            else:
                calls.append(call_at({}))
        written = {s: self._tensors[value][0].of(values) for s, value in self._written.items()}
        check_capacity(arena.size + sum(desc.size for desc in written.values()))
        results: dict[str, int | Array | Shown] = {}
        left = set(self._written.values())  # a value of a second name is copied
        for public, value in self._outputs.items():
            if public in self._constant_results:
                results[public] = self._constant_results[public].of(values)
            elif value in left:
                left.remove(value)
                results[public] = self._tensors[value][2]
            else:
                results[public] = partial(self._copied, value, arena, values)
        fills = {name: self._buffer(name, arena, values).view().fill for name in self._filled}
        return Bound(fills, calls, moving, self._read, written, results)

    def _arena(self, values: Values) -> Arena:
        """The storage of each activation; those of outputs that are copied stay until the end."""
        known = self._expressions.is_known
        sizes = {s: values[at] if known else _rounded(values[at]) for s, at in self._sizes.items()}
        key = () if known else tuple(sizes.values())
        arena = self._arenas.get(key)
        if arena is None:
            before = [self._tensors[name][2] for name in self._filled]
            before += [storage for _, storage, _, _ in self._counted]
            ends = [self._tensors[v][2] for v in self._outputs.values() if v in self._tensors]
            after = [storage for storage in ends if storage in sizes]
            arena = place(lifetimes(sizes, self._touched, before, after))
            if len(self._arenas) >= _MOST_BOUND:
                self._arenas.clear()
            self._arenas[key] = arena
        return arena

    def _reserve(self, activations: int, scratchpad: int) -> None:
        """Have memory of at least so many bytes. All steps share one scratchpad: no two of them run
        at a time."""
        engine = self.stream.engine
        if activations > self._activations.desc.size:
            check_capacity(activations)
            self._bound_before.clear()
            self._activations = Memory(MemoryDesc((0,), "u8"), engine)  # not both at a time
            self._activations = Memory(MemoryDesc((activations,), "u8"), engine)
        if scratchpad > self._scratchpad.desc.size:
            self._bound_before.clear()
            self._scratchpad = Memory(MemoryDesc((scratchpad,), "u8"), engine)

    def _addresses(self, arena: Arena) -> dict[int, Argument]:
        """Where each storage is that belongs to the binder, as a queue takes it."""
        made: dict[int, Argument] = {s: own.argument for s, own in self._constants.items()}
        begin = self._activations.argument
        for storage, offset in arena.offsets.items():
            host = isinstance(begin, int)
            made[storage] = begin + offset if host else begin._replace(offset=begin.offset + offset)
        made[_SCRATCHPAD] = self._scratchpad.argument
        return made

    def _count(
        self, counted: tuple[SizedDesc, int, int, int], arena: Arena, values: Values
    ) -> Call:
        """What writes numbers at equal distances."""
        desc, storage, start, step = counted
        memory = self._memory(storage, desc.of(values), arena)
        numbers = values[start] + step * np.arange(memory.desc.dims[0])
        host = self.stream.engine.host_memory
        write = partial(np.copyto, memory.numpy()) if host else memory.fill
        return partial(_write, write, numbers.astype(memory.desc.data_type.numpy))

    def _call_at(
        self,
        step: _SizedStep,
        launch: Launch,
        values: Values,
        addresses: Mapping[int, Argument],
    ) -> Callable[[Mapping[int, int]], Call]:
        """One execution of a step, with the storages of a run's arrays where these are."""
        storages = [step.storages.get(arg, _SCRATCHPAD) for arg in launch.order]
        fixed = [addresses.get(storage) for storage in storages]
        holes = [(n, storages[n]) for n, address in enumerate(fixed) if address is None]
        tail = [] if launch.sizes is None else [launch.sizes.argument]
        submit = step.primitive.submitting(self.stream, launch)

        def call_at(arrays: Mapping[int, int]) -> Call:
            arguments = [*fixed, *tail]
            for number, storage in holes:
                arguments[number] = arrays[storage]
            return partial(submit, arguments)

        if step.indexed is None:
            return call_at
        desc, storage = step.descs[Arg.SRC_1].of(values), step.storages[Arg.SRC_1]
        extent = values[step.indexed]

        def checked_at(arrays: Mapping[int, int]) -> Call:
            address = arrays.get(storage, addresses.get(storage))
            assert address is not None
            indices = self._view(desc, address)
            return partial(_checked_call, step.name, indices, extent, call_at(arrays))

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
        desc, permutation, storage = self._tensors[value]
        if storage not in addresses:
            return np.array(self._buffer(value, arena, values).view().numpy())
        own = desc.of(values)
        data = bytes_at(addresses[storage], own.size, self)
        return np.array(
            ShapedBuffer(Memory(own, self.stream.engine, data), permutation).view().numpy()
        )

    def _buffer(self, value: str, arena: Arena, values: Values) -> ShapedBuffer:
        desc, permutation, storage = self._tensors[value]
        return ShapedBuffer(self._memory(storage, desc.of(values), arena), permutation)


def _written_in_place(lowering: Lowering, elsewhere: Collection[int]) -> dict[int, str]:
    """The storages that a run has as new arrays, each with the output that it becomes: those of
    exactly one layout, row-major and without gaps."""
    found: dict[int, str] = {}
    for value in dict.fromkeys(lowering.graph.outputs.values()):
        tensor = lowering.tensors.get(value)
        if tensor is None or tensor.constant or tensor.storage in elsewhere:
            continue
        desc, shape = tensor.layout.desc, lowering.graph.shape_of(value)
        plain = MemoryDesc(shape, desc.data_type)
        same = desc.kind == plain.kind and desc.data_type.bits >= 8
        same = same and tuple(tensor.layout.permutation) == tuple(range(len(shape)))
        numbers = zip(desc.layout_numbers, plain.layout_numbers, strict=True) if same else ()
        whole = same and surely_equal(lowering.sizes[tensor.storage], plain.size)
        if whole and all(surely_equal(a, b) for a, b in numbers):
            found[tensor.storage] = value
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
    outside = numbers[(numbers < -extent) | (numbers >= extent)]
    if outside.size:
        rule = f"must be in {-extent}..{extent - 1}"
        raise InvalidArguments(f"indices of node {name!r}", int(outside[0]), rule)
    call(threads)
