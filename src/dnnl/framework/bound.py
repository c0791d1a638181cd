"""A compiled model on inputs of known sizes: calls in a row, and the memory that they work in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from dnnl.errors import InvalidArguments
from dnnl.framework.expressions import Expressions, Numbers, SizedDesc
from dnnl.framework.graph import Array, TensorType
from dnnl.framework.lowering import Lowering
from dnnl.framework.memory_plan import Arena, lifetimes, place
from dnnl.framework.sizes import is_open
from dnnl.primitives.primitive import Primitive
from dnnl.runtime.memory import Memory
from dnnl.runtime.shaped_buffer import ShapedBuffer
from dnnl.runtime.storage import check_capacity
from dnnl.runtime.stream import Stream
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc

Call = Callable[[], object]


@dataclass(frozen=True)
class Bound:
    """What a run on inputs of some sizes does: ``feeds`` writes each input, ``calls`` compute, and
    ``results`` has each output."""

    feeds: Mapping[str, Callable[[Array], object]]
    calls: Sequence[Call]
    results: Mapping[str, ShapedBuffer | Array]


_Place = tuple[Numbers, int]
"""The numbers of a descriptor, and the offset of its storage."""
_MOST_BOUND = 64
"""Sets of sizes whose memory is laid out at a time."""
_MOST_CALLS = 64
"""Calls of a step that are held, for the sizes and places that it had."""
_STEPS_OF_SIZES = 8
"""Storages get sizes up to an eighth larger, so that similar runs have one layout of memory."""


@dataclass(frozen=True)
class _SizedStep:
    name: str
    primitive: Primitive
    args: Sequence[tuple[int, SizedDesc, int]]
    indexed: int | str | None
    calls: dict[tuple[object, ...], Call] = field(default_factory=dict)


class _Contents:
    """A constant, whose elements may be expressions."""

    def __init__(self, kind: TensorType, expressions: Expressions, array: Array) -> None:
        self._kind, self._array = kind, array
        self._places = [expressions.place(n) for n in array.ravel()] if is_open(array) else None

    def of(self, values: Mapping[str, int]) -> Array:
        """The contents in a run."""
        if self._places is None:
            return self._array
        numbers = [values[n] if isinstance(n, str) else n for n in self._places]
        return np.array(numbers, self._kind.dtype).reshape(self._kind.sizes)


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
            _SizedStep(
                step.name,
                primitive,
                [(arg, made.sized(ref.desc), ref.storage) for arg, ref in step.args.items()],
                None if step.indexed is None else made.place(step.indexed),
            )
            for step, primitive in zip(lowering.steps, primitives, strict=True)
        ]
        self._counted = [
            (made.sized(own.ref.desc), own.ref.storage, made.place(own.first), own.step)
            for own in lowering.counted
        ]
        held = set(lowering.prepared.values())
        self._sizes = {s: made.place(size) for s, size in lowering.sizes.items() if s not in held}
        self._touched = [[ref.storage for ref in step.args.values()] for step in lowering.steps]
        self._inputs, self._outputs = tuple(graph.inputs), graph.outputs
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
        self._scratchpad = Memory(MemoryDesc((0,), "u8"), stream.engine)
        self._activations = Memory(MemoryDesc((0,), "u8"), stream.engine)
        self._arenas: dict[tuple[int, ...], Arena] = {}
        self._outdated = False
        self._bound_before: dict[Numbers, Bound] = {}

    @property
    def nbytes(self) -> int:
        """The memory of activations, in bytes."""
        return self._activations.desc.size

    def bound(self, numbers: Numbers) -> Bound:
        """What a run of these numbers does."""
        found = self._bound_before.get(numbers)
        if found is None:
            self._outdated = False
            found = self._bind(numbers)
            if self._outdated or len(self._bound_before) >= _MOST_BOUND:
                self._bound_before.clear()
            self._bound_before[numbers] = found
        return found

    def _bind(self, numbers: Numbers) -> Bound:
        values = self._expressions.compute(numbers)
        arena = self._arena(values)
        if arena.size > self._activations.desc.size:
            check_capacity(arena.size)
            self._activations = Memory(MemoryDesc((arena.size,), "u8"), self.stream.engine)
            self._forget()
        calls = [self._count(own, arena, values) for own in self._counted]
        calls += [self._call(step, arena, values) for step in self._steps]
        feeds = {name: _filler(self._buffer(name, arena, values).view()) for name in self._inputs}
        known = self._constant_results
        results = {
            public: known[public].of(values)
            if public in known
            else self._buffer(value, arena, values)
            for public, value in self._outputs.items()
        }
        return Bound(feeds, calls, results)

    def _arena(self, values: Mapping[str, int]) -> Arena:
        """The storage of each activation: outputs stay until the end of a run."""
        known = not values
        sizes = {
            storage: size if isinstance(size, int) else _rounded(values[size])
            for storage, size in self._sizes.items()
        }
        key = () if known else tuple(sizes.values())
        arena = self._arenas.get(key)
        if arena is None:
            before = [self._tensors[name][2] for name in self._inputs]
            before += [storage for _, storage, _, _ in self._counted]
            after = [self._tensors[v][2] for v in self._outputs.values() if v in self._tensors]
            arena = place(lifetimes(sizes, self._touched, before, after))
            if len(self._arenas) >= _MOST_CALLS:
                self._arenas.clear()
            self._arenas[key] = arena
        return arena

    def _count(
        self,
        counted: tuple[SizedDesc, int, int | str, int],
        arena: Arena,
        values: Mapping[str, int],
    ) -> Call:
        """What writes numbers at equal distances."""
        desc, storage, start, step = counted
        memory = self._memory(storage, desc.of(desc.numbers(values)), arena)
        first = values[start] if isinstance(start, str) else start
        numbers = first + step * np.arange(memory.desc.dims[0])
        return partial(_filler(memory), numbers.astype(memory.desc.data_type.numpy))

    def _call(self, step: _SizedStep, arena: Arena, values: Mapping[str, int]) -> Call:
        """One execution of a step, which was bound before where its sizes and places are those of
        another run."""
        places = [
            (desc.numbers(values), arena.offsets.get(storage, 0)) for _, desc, storage in step.args
        ]
        indexed = step.indexed
        extent = values[indexed] if isinstance(indexed, str) else indexed
        key = (*places, extent)
        found = step.calls.get(key)
        if found is None:
            if len(step.calls) >= _MOST_CALLS:
                step.calls.clear()
            step.calls[key] = found = self._bound_call(step, arena, places, extent)
        return found

    def _bound_call(
        self, step: _SizedStep, arena: Arena, places: Sequence[_Place], extent: int | None
    ) -> Call:
        args = {
            arg: self._memory(storage, desc.of(numbers), arena)
            for (arg, desc, storage), (numbers, _) in zip(step.args, places, strict=True)
        }
        nbytes = step.primitive.scratchpad_size(args)
        if nbytes:
            args[Arg.SCRATCHPAD] = self._temporary(nbytes)
        call = step.primitive.bind(self.stream, args)
        if extent is None:
            return call
        return _checked_call(step.name, args[Arg.SRC_1], extent, call)

    def _memory(self, storage: int, desc: MemoryDesc, arena: Arena) -> Memory:
        if storage in self._constants:
            whole = self._constants[storage]
            return whole if whole.desc == desc else whole.part(desc)
        return self._activations.part(desc, arena.offsets[storage])

    def _temporary(self, nbytes: int) -> Memory:
        """Temporary memory of a step, which all share: no two of them run at a time."""
        if nbytes > self._scratchpad.desc.size:
            self._scratchpad = Memory(MemoryDesc((nbytes,), "u8"), self.stream.engine)
            self._forget()  # they hold the smaller one
        return self._scratchpad.part(MemoryDesc((nbytes,), "u8"))

    def _forget(self) -> None:
        """What was bound before has memory that is not used any more."""
        for step in self._steps:
            step.calls.clear()
        self._outdated = True

    def _buffer(self, value: str, arena: Arena, values: Mapping[str, int]) -> ShapedBuffer:
        desc, permutation, storage = self._tensors[value]
        return ShapedBuffer(
            self._memory(storage, desc.of(desc.numbers(values)), arena), permutation
        )


def _rounded(nbytes: int) -> int:
    """A size at least as large, of which there are few."""
    step = max(1, 1 << max(0, nbytes.bit_length() - 1)) // _STEPS_OF_SIZES
    return -(-nbytes // step) * step if step else nbytes


def _filler(memory: Memory) -> Callable[[Array], None]:
    """What writes an array into a memory, prepared once."""
    return partial(np.copyto, memory.numpy()) if memory.engine.host_memory else memory.fill


def _checked_call(
    name: str, indices: Memory, extent: int, call: Callable[[], object]
) -> Callable[[], None]:
    """A call that refuses indices outside of ``-extent..extent - 1``."""

    def run() -> None:
        numbers = indices.numpy()
        outside = numbers[(numbers < -extent) | (numbers >= extent)]
        if outside.size:
            rule = f"must be in {-extent}..{extent - 1}"
            raise InvalidArguments(f"indices of node {name!r}", int(outside[0]), rule)
        call()

    return run
