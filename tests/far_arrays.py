"""Arrays of a library whose arrays are on the engine ``far``, as those of dpnp are on SYCL's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dnnl import Memory, MemoryDesc
from dnnl.runtime.backend import Buffer, DeviceArray, Queue
from dnnl.runtime.engine import Engine
from dnnl.types.dtype import DataType


@dataclass(eq=False)
class FarArray:
    """Elements somewhere in a buffer, ``strides`` in bytes; ``queue`` has all work on them."""

    engine: Engine
    queue: Queue[Any]
    buffer: Buffer
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, array: np.ndarray, engine: Engine, queue: Queue[Any]) -> FarArray:
        """A copy of an array of NumPy, in its own strides where none is negative."""
        own = np.require(array, requirements=["O"])
        whole = Memory.from_numpy(own, engine=engine)
        return cls(engine, queue, whole.buffer, own.shape, own.strides, own.dtype)

    def __getitem__(self, parts: slice | tuple[slice, ...]) -> FarArray:
        """A part on the same memory, as NumPy's."""
        whole = np.empty(self._extent, np.uint8)
        view = np.ndarray(self.shape, self.dtype, whole, 0, self.strides)[parts]
        begin = view.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
        place = self.buffer._replace(offset=self.buffer.offset + begin)
        return FarArray(self.engine, self.queue, place, view.shape, view.strides, self.dtype)

    @property
    def T(self) -> FarArray:  # noqa: N802 - the name everybody gives it
        own = (self.engine, self.queue, self.buffer, self.shape[::-1], self.strides[::-1])
        return FarArray(*own, self.dtype)

    def __setitem__(self, _whole: object, source: FarArray) -> None:
        self.queue.wait()
        assert self.strides == MemoryDesc(self.shape, "u8").strides or self.dtype.itemsize > 1
        content = np.ascontiguousarray(source.numpy()).reshape(-1).view(np.uint8)
        self.engine.write(self.buffer, content)

    def numpy(self) -> np.ndarray:
        """A copy on the host, once all that is in the queue is done."""
        self.queue.wait()
        steps = zip(self.shape, self.strides, strict=True)
        before = sum((size - 1) * step for size, step in steps if step < 0 < size)
        begin = self.buffer._replace(offset=self.buffer.offset + before)
        whole = self.engine.read(begin, self._extent)
        return np.ndarray(self.shape, self.dtype, whole, -before, self.strides).copy()

    @property
    def _extent(self) -> int:
        if 0 in self.shape:
            return 0
        steps = zip(self.shape, self.strides, strict=True)
        return sum((size - 1) * abs(step) for size, step in steps) + self.dtype.itemsize


class Found(DeviceArray):
    """Such an array as the engine reads it."""

    backend = None
    readonly = False
    copying = "FarArray.of({}, {}.engine)"

    def __init__(self, source: FarArray) -> None:
        self.source, self.queue, self.index = source, source.queue, source.engine.index
        self.shape, self.strides, self.dtype = source.shape, source.strides, source.dtype

    @property
    def buffer(self) -> Buffer:
        own: Buffer = self.source.buffer
        return own

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any]) -> FarArray:
        like: FarArray = self.source
        made = Memory(MemoryDesc(shape, DataType.from_numpy(dtype)), like.engine)
        steps = tuple(step * dtype.itemsize for step in made.desc.strides)
        return FarArray(like.engine, like.queue, made.buffer, made.desc.dims, steps, dtype)
