"""Where a call computes: on the host, or on the device that has its arrays."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from typing import Any, Generic, TypeAlias

import numpy as np

from dnnl.ops.arrays import A, Array, Out, Result, Shape, address_of, same_kind, written
from dnnl.ops.promotion import is_loose, is_tensor
from dnnl.runtime.backend import Argument
from dnnl.runtime.engine import Engine, first_cpu
from dnnl.runtime.event import Event
from dnnl.runtime.stream import Stream

Placed: TypeAlias = Any
"""An array as the place of a call has it: only the call knows which."""


class Place(ABC, Generic[A]):
    """A place with arrays of a kind: the host, where the memory of all libraries is shared, or a
    device, which is one for each call."""

    #: The engine; None for that of the host.
    engine: Engine | None

    @abstractmethod
    def constant(self, array: Array) -> A:
        """An array of the library's own."""

    @abstractmethod
    def written(self, out: Out) -> A:
        """``out``, to be written."""

    @abstractmethod
    def empty(self, shape: Shape, dtype: np.dtype) -> A:
        """A new row-major array for a result."""

    @abstractmethod
    def scratch(self, shape: Shape, dtype: np.dtype) -> A:
        """A new row-major array that nobody but the library sees."""

    @abstractmethod
    def fill(self, array: A, number: float) -> None:
        """Set each element."""

    @abstractmethod
    def converted(self, array: A, dtype: np.dtype) -> A:
        """A row-major copy in another type."""

    @abstractmethod
    def put(self, array: A, source: A) -> None:
        """Write the elements of another array, converted to the type of this one: integers wrap."""

    @abstractmethod
    def copied(self, array: A) -> A:
        """A copy, in any order of its elements."""

    @abstractmethod
    def overlap(self, a: A, b: A) -> bool:
        """Whether two arrays may share memory."""

    @abstractmethod
    def begin_together(self, a: A, b: A) -> bool:
        """Whether the first elements of two arrays are one."""

    @abstractmethod
    def argument(self, array: A) -> Argument:
        """What an execution takes."""

    @abstractmethod
    def stream(self) -> Stream:
        """Where executions are submitted, one behind the other."""

    @abstractmethod
    def submitted(self, event: Event) -> None:
        """Take the event of an execution that is not over."""

    @abstractmethod
    def returned(self, result: A, arrays: Sequence[Any], out: Out) -> Result:
        """The result for who passed ``arrays``, of the kind of the first one, or ``out``."""


@cache
def _stream() -> Stream:
    return Stream(first_cpu())


class _Host(Place[Array]):
    """Executions are over when they return."""

    engine = None
    stream = staticmethod(_stream)

    def constant(self, array: Array) -> Array:
        return array

    empty = scratch = staticmethod(np.empty)  # type: ignore[assignment]

    def fill(self, array: Array, number: float) -> None:
        array.fill(number)

    def converted(self, array: Array, dtype: np.dtype) -> Array:
        return np.asarray(array, dtype, order="C")

    def put(self, array: Array, source: Array) -> None:
        np.copyto(array, source, casting="unsafe")

    def copied(self, array: Array) -> Array:
        return array.copy("K")

    def begin_together(self, a: Array, b: Array) -> bool:
        return address_of(a) == address_of(b)

    argument = staticmethod(address_of)
    overlap = staticmethod(np.may_share_memory)  # type: ignore[assignment]
    written = staticmethod(written)

    def submitted(self, event: Event) -> None:
        event.wait()

    def returned(self, result: Array, arrays: Sequence[Any], out: Out) -> Result:
        if out is not None:
            if is_tensor(type(out)) and not out.is_inference():  # type: ignore[union-attr]
                # Gradients whose formulas have its former content are then refused by PyTorch.
                sys.modules["torch"].autograd.graph.increment_version(out)
            return out
        if type(arrays[0]) is np.ndarray:
            return result
        return same_kind(result, next((each for each in arrays if not is_loose(each)), None))


HOST = _Host()
