"""A compiled model on inputs of known sizes: calls in a row, and the memory that they work in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from dnnl.errors import InvalidArguments
from dnnl.framework.expressions import Expressions, Numbers, SizedDesc
from dnnl.framework.graph import Array
from dnnl.framework.lowering import Lowering
from dnnl.framework.memory_plan import Arena, lifetimes, place
from dnnl.framework.shaped_buffer import ShapedBuffer
from dnnl.primitives.primitive import Primitive
from dnnl.primitives.primitive_desc import PrimitiveDesc
from dnnl.runtime.memory import Memory
from dnnl.runtime.storage import check_capacity
from dnnl.runtime.stream import Stream
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True)
class Bound:
    """What a run on inputs of some sizes does: ``feeds`` writes each input, ``calls`` compute, and
    ``results`` has each output."""

    feeds: Mapping[str, Callable[[Array], object]]
    calls: Sequence[Callable[[], object]]
    results: Mapping[str, ShapedBuffer | Array]


@dataclass(frozen=True)
class _SizedStep:
    name: str
    primitive: Primitive
    args: Sequence[tuple[int, SizedDesc, int]]
    indexed: int | str | None


class Binder:
    """Binds the steps of a model to the memory of a run, which grows with the largest sizes."""

    def __init__(
        self,
        lowering: Lowering,
        primitives: Sequence[Primitive],
        constants: Mapping[int, Memory],
        stream: Stream,
    ) -> None:
        graph = lowering.graph
        self._stream, self._constants = stream, constants
        self._expressions = made = Expressions(lowering.symbols)
        self._steps = [
            _SizedStep(
                step.name,
                primitive,
                [(arg, SizedDesc(ref.desc, made), ref.storage) for arg, ref in step.args.items()],
                None if step.indexed is None else made.place(step.indexed),
            )
            for step, primitive in zip(lowering.steps, primitives, strict=True)
        ]
        held = set(lowering.prepared.values())
        self._sizes = {s: made.place(size) for s, size in lowering.sizes.items() if s not in held}
        self._touched = [[ref.storage for ref in step.args.values()] for step in lowering.steps]
        self._inputs, self._outputs = tuple(graph.inputs), graph.outputs
        self._graph_constants = graph.constants
        values = {*graph.inputs, *graph.outputs.values()}
        self._tensors = {
            value: (SizedDesc(tensor.layout.desc, made), tensor.layout.permutation, tensor.storage)
            for value, tensor in lowering.tensors.items()
            if value in values
        }
        given = (step.pd.scratchpad_desc.size for step in lowering.steps if _is_given(step.pd))
        most = max(given, default=0)
        self._scratchpad = Memory(MemoryDesc((most,), "u8"), stream.engine)
        self._activations = Memory(MemoryDesc((0,), "u8"), stream.engine)

    @property
    def nbytes(self) -> int:
        """The memory of activations, in bytes."""
        return self._activations.desc.size

    def bind(self, numbers: Numbers) -> tuple[Bound, bool]:
        """What a run of these numbers does, and whether the memory grew, so that what was bound
        before has another."""
        values = self._expressions.compute(numbers)
        arena = self._arena(values)
        grows = arena.size > self._activations.desc.size
        if grows:
            check_capacity(arena.size)
            self._activations = Memory(MemoryDesc((arena.size,), "u8"), self._stream.engine)
        calls = [self._call(step, arena, values) for step in self._steps]
        feeds = {name: _filler(self._buffer(name, arena, values).view()) for name in self._inputs}
        constants = self._graph_constants
        results: dict[str, ShapedBuffer | Array] = {
            public: constants[value] if value in constants else self._buffer(value, arena, values)
            for public, value in self._outputs.items()
        }
        return Bound(feeds, calls, results), grows

    def _arena(self, values: Mapping[str, int]) -> Arena:
        """The storage of each activation: outputs stay until the end of a run."""
        sizes = {s: values[n] if isinstance(n, str) else n for s, n in self._sizes.items()}
        before = [self._tensors[name][2] for name in self._inputs]
        after = [self._tensors[v][2] for v in self._outputs.values() if v in self._tensors]
        return place(lifetimes(sizes, self._touched, before, after))

    def _call(
        self, step: _SizedStep, arena: Arena, values: Mapping[str, int]
    ) -> Callable[[], object]:
        args = {
            arg: self._memory(storage, desc.of(values), arena) for arg, desc, storage in step.args
        }
        scratchpad = step.primitive.pd.scratchpad_desc
        if _is_given(step.primitive.pd) and scratchpad.size:
            args[Arg.SCRATCHPAD] = self._scratchpad.part(scratchpad)
        call = step.primitive.bind(self._stream, args)
        if step.indexed is None:
            return call
        extent = values[step.indexed] if isinstance(step.indexed, str) else step.indexed
        return _checked_call(step.name, args[Arg.SRC_1], extent, call)

    def _memory(self, storage: int, desc: MemoryDesc, arena: Arena) -> Memory:
        if storage in self._constants:
            whole = self._constants[storage]
            return whole if whole.desc == desc else whole.part(desc)
        return self._activations.part(desc, arena.offsets[storage])

    def _buffer(self, value: str, arena: Arena, values: Mapping[str, int]) -> ShapedBuffer:
        desc, permutation, storage = self._tensors[value]
        return ShapedBuffer(self._memory(storage, desc.of(values), arena), permutation)


def _is_given(pd: PrimitiveDesc) -> bool:
    """Whether a primitive takes its temporary memory as an argument."""
    return str(pd.attr.scratchpad_mode) == "user"


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
