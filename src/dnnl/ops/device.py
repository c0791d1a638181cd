"""Calls on arrays in the memory of a device."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from dnnl.errors import InvalidArguments
from dnnl.ops.arrays import Array, Out, Result, Shape, arrays_of, lent
from dnnl.ops.place import HOST, Place, Placed
from dnnl.ops.problem import Problem, kinds, prepared
from dnnl.ops.promotion import is_number, is_tensor, read_type
from dnnl.primitives.exact import ExactDesc
from dnnl.runtime.backend import Argument, Buffer, DeviceArray, Queue
from dnnl.runtime.elements import plain_strides
from dnnl.runtime.engine import Engine, find_array
from dnnl.runtime.event import Event
from dnnl.runtime.memory import Memory
from dnnl.runtime.stream import Stream
from dnnl.runtime.wrap import ArrayLike
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc

_CONSTANTS = 256  # memories of numbers that are remembered
_TYPES = 64  # of PyTorch's
_NEAR = {type(None), np.ndarray, float, int, bool, list, tuple}
_NUMBER = 8  # bytes of one of them, at most


class _OfMemory(DeviceArray):
    """A memory whose bytes the host cannot touch, as an array."""

    backend = queue = None
    copying = "dnnl.Memory.from_numpy({}, engine={}.engine)"

    def __init__(self, memory: Memory, name: str) -> None:
        desc = memory.desc
        if len(memory.parts) > 1 or desc.data_type.bits < 8:
            rule = "expected elements of 8 bits or more in one buffer"
            raise InvalidArguments(name, str(desc), rule, "reorder_to makes a memory of such")
        self.source, self.index, self.readonly = memory, memory.engine.index, memory.readonly
        self.shape, self.dtype = desc.dims, desc.data_type.numpy
        steps = plain_strides(desc)
        size = self.dtype.itemsize
        self.strides = None if steps is None else tuple(step * size for step in steps)

    @property
    def buffer(self) -> Buffer:
        own: Buffer = self.source.buffer
        return own._replace(offset=own.offset + self.source.desc.offset0 * self.dtype.itemsize)

    def empty(self, shape: Shape, dtype: np.dtype) -> Memory:
        return Memory(MemoryDesc(shape, DataType.from_numpy(dtype)), self.source.engine)

    def dense(self) -> Memory:
        made: Memory = self.source.reorder_to(MemoryDesc(self.shape, self.source.desc.data_type))
        return made


@dataclass(frozen=True, slots=True)
class Operand:
    """An array on the device of a call; ``source`` is the array of the caller's library."""

    device: Device
    shape: Shape
    strides: Shape
    dtype: np.dtype[Any]
    buffer: Buffer
    source: object = None

    @property
    def extent(self) -> int:
        """The bytes from the first element to the end of the last one."""
        if 0 in self.shape:
            return 0
        steps = zip(self.shape, self.strides, strict=True)
        return sum((size - 1) * step for size, step in steps) + self.dtype.itemsize


def _is_plain(array: DeviceArray) -> bool:
    """Whether executions take it as it is."""
    return array.strides is not None and min(array.strides, default=0) >= 0


@dataclass(frozen=True)
class Device(Place[Operand]):
    """The device of a call: results are arrays of the library of ``first``, one of the operands.

    Executions are submitted behind all work in the queues of the operands, and what their libraries
    submit afterwards is behind them. Memories have no queue: the host waits for their earlier
    executions, and ``waits`` for the call.
    """

    engine: Engine
    first: DeviceArray
    _stream: Stream
    others: tuple[Queue[Any], ...]
    waits: bool
    _events: list[Event] = field(default_factory=list)

    def empty(self, shape: Shape, dtype: np.dtype) -> Operand:
        return self._read(self.first.empty(shape, dtype))

    def scratch(self, shape: Shape, dtype: np.dtype) -> Operand:
        return self._read(Memory(MemoryDesc(shape, DataType.from_numpy(dtype)), self.engine))

    def constant(self, array: Array) -> Operand:
        if array.nbytes > _NUMBER:
            return self._read(Memory.from_numpy(array, engine=self.engine))
        return self._read(_constant(self.engine, array.shape, array.dtype, array.tobytes()))

    def take(self, source: object, name: str) -> Operand:
        """An array as executions take it; a copy where its strides do not do."""
        assert isinstance(source, _Located)
        if source.operand is not None:
            return source.operand
        array = source.array
        assert array is not None, "it is on the device"
        return self._operand(array) if _is_plain(array) else self._read(array.dense())

    def written(self, out: Out) -> Operand:
        found = _located(out, "out")
        assert found is not None
        array = found.array
        if array is None:
            return self.take(found, "out")
        if array.readonly or not _is_plain(array):
            rule = "expected a writable array without negative strides"
            raise InvalidArguments("out", f"{array.dtype} of strides {array.strides}", rule)
        return self.take(found, "out")

    def _read(self, source: object) -> Operand:
        """A new array of the library's own, or of its first operand."""
        found = _located(source, "x")
        assert found is not None
        assert found.array is not None
        return self._operand(found.array)

    def _operand(self, array: DeviceArray) -> Operand:
        assert array.strides is not None
        return Operand(self, array.shape, array.strides, array.dtype, array.buffer, array.source)

    def fill(self, array: Operand, number: float) -> None:
        self.put(array, self.constant(np.full((1,) * len(array.shape), number, array.dtype)))

    def converted(self, array: Operand, dtype: np.dtype) -> Operand:
        made = self.scratch(array.shape, dtype)
        self.put(made, array)
        return made

    def put(self, array: Operand, source: Operand) -> None:
        (out,) = kinds([array])
        made = prepared(_cast, ("x",), kinds([source]), out, (array.shape,), self.engine)
        made.run(self, [source], array)

    def copied(self, array: Operand) -> Operand:
        return self.converted(array, array.dtype)

    def overlap(self, a: Operand, b: Operand) -> bool:
        return -a.extent < a.buffer - b.buffer < b.extent

    def begin_together(self, a: Operand, b: Operand) -> bool:
        return a.buffer - b.buffer == 0

    def argument(self, array: Operand) -> Argument:
        return array.buffer

    def stream(self) -> Stream:
        return self._stream

    def submitted(self, event: Event) -> None:
        self._events.append(event)

    def returned(self, result: Operand, arrays: Sequence[object], out: Out) -> Result:
        if any(isinstance(array, Operand) for array in arrays):  # a step of a call
            return result
        for queue in self.others:
            queue.follow(self._stream.queue)
        if self.waits:
            self._stream.wait()
        for event in self._events:
            if event.failed:
                event.wait()
        return result.source if out is None else out


def taken(
    arrays: Sequence[object], names: Sequence[str], out: Out = None
) -> tuple[Place[Placed], list[Placed]]:
    """Where a call on arrays computes, and the arrays as that has them.

    Raises `InvalidArguments` for arrays that are not in one place.
    """
    if _is_near(out) and all(map(_is_near, arrays)):
        return HOST, arrays_of(arrays, names, lent, HOST.constant)
    found = [_located(array, name) for name, array in zip(names, arrays, strict=True)]
    whole = found if out is None else [*found, _located(out, "out")]
    known = [own for own in whole if own is not None]
    first = next((own for own in known if own.engine is not None), None)
    if first is None or first.engine is None:
        return HOST, arrays_of(arrays, names, lent, HOST.constant)
    for own in known:
        if own.engine != first.engine:
            raise _apart(own, first)
    device = first.operand.device if first.operand else _device(first.engine, known)
    sources = [array if own is None else own for array, own in zip(arrays, found, strict=True)]
    return device, arrays_of(sources, names, device.take, device.constant)


@lru_cache(_TYPES)
def _numpy_type(dtype: object) -> np.dtype | None:
    """That of a type of PyTorch; None of those that nothing computes with."""
    try:
        found = read_type(dtype)
    except InvalidArguments:
        return None
    return None if found is None else found.numpy


def _is_near(array: object) -> bool:
    """Whether it is on the host, as its type alone says."""
    kind = type(array)
    return kind in _NEAR or (is_tensor(kind) and array.is_cpu)  # type: ignore[attr-defined]


def type_of(array: ArrayLike, name: str) -> np.dtype:
    """The NumPy type of an array."""
    dtype: np.dtype
    if type(array) is np.ndarray:
        dtype = array.dtype
        return dtype
    if is_tensor(type(array)):
        known = _numpy_type(array.dtype)  # type: ignore[union-attr]
        if known is not None:
            return known
    found = _located(array, name)
    own = None if found is None else found.operand or found.array
    dtype = lent(array, name).dtype if own is None else own.dtype
    return dtype


@dataclass(frozen=True, slots=True)
class _Located:
    """An array of a call by name, and the engine of the device that has it; None on the host."""

    name: str
    source: object
    engine: Engine | None = None
    array: DeviceArray | None = None
    operand: Operand | None = None


def _located(array: object, name: str) -> _Located | None:
    """Where an array is; None for what can be anywhere, as numbers."""
    if type(array) is np.ndarray:
        return _Located(name, array)
    if is_number(array):
        return None
    if isinstance(array, Operand):
        return _Located(name, array, array.device.engine, None, array)
    if isinstance(array, Memory) and not array.engine.host_memory:
        return _Located(name, array, array.engine, _OfMemory(array, name))
    found = find_array(array)
    return _Located(name, array, *(found or ()))


def _apart(own: _Located, first: _Located) -> InvalidArguments:
    """The error for arrays of one call in two places."""
    assert first.array is not None, "steps of a call are on its device"
    where = "on the host" if own.engine is None else f"on {own.engine!r}"
    rule = f"it is {where}, and {first.name} is on {first.engine!r}"
    if own.engine is not None and repr(own.engine) == repr(first.engine):
        rule += ", another one"
    copying = first.array.copying.format(own.name, first.name)
    if isinstance(own.source, Memory) and isinstance(first.source, Memory):
        made = f"dnnl.Memory({own.name}.desc, {first.name}.engine)"
        copying = f"dnnl.reorder({own.name}, {made})"
    hint = f"copy it there: {copying}" if own.name != "out" else "without out there is a new array"
    return InvalidArguments(own.name, type(own.source).__name__, rule, hint)


def _device(engine: Engine, found: Sequence[_Located]) -> Device:
    """The device of a call on arrays of other libraries and memories."""
    arrays = [own.array for own in found if own.array is not None]
    queues = dict.fromkeys(array.queue for array in arrays if array.queue is not None)
    memories = [own.source for own in found if isinstance(own.source, Memory)]
    for memory in memories:
        engine.read(memory.buffer, 0)  # which waits for all that uses it
    if not queues:
        return Device(engine, arrays[0], _stream(engine), (), True)
    main, *others = (engine.backend.in_order(queue) for queue in queues)
    for other in others:
        main.follow(other)
    stream = Stream.of(engine, main, in_order=True)
    return Device(engine, arrays[0], stream, tuple(others), bool(memories))


_own = threading.local()


def _stream(engine: Engine) -> Stream:
    """Where the calling thread's calls on memories go."""
    streams: dict[Engine, Stream] = _own.__dict__.setdefault("streams", {})
    if engine not in streams:
        streams[engine] = Stream(engine)
    return streams[engine]


@lru_cache(_CONSTANTS)
def _constant(engine: Engine, shape: Shape, dtype: np.dtype, content: bytes) -> Memory:
    """A memory that nobody writes."""
    desc = MemoryDesc(shape, DataType.from_numpy(dtype))
    made = Memory(desc, engine)
    made.write(np.frombuffer(content, np.uint8))
    return made


def _cast(descs: Sequence[MemoryDesc], dst: MemoryDesc | None, shape: Shape) -> Problem:
    """The conversion of `Place.put`, of a source that is broadcast."""
    (src,) = descs
    desc = ExactDesc("cast", [src], dst or MemoryDesc(shape, src.data_type))
    return Problem(desc, (Arg.MULTIPLE_SRC,), shape)
