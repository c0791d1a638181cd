"""Engines: the devices that execute, the files in `runtime.engines` and what is registered."""

from __future__ import annotations

import importlib
import operator
import pkgutil
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dnnl.errors import InvalidArguments
from dnnl.onednn import Property
from dnnl.runtime.backend import (
    Backend,
    Buffer,
    DeviceArray,
    Executable,
    Features,
    Queue,
    Shared,
)
from dnnl.runtime.image import Image
from dnnl.types.memory_desc import MemoryDesc

_ENGINES = Path(__file__).with_name("engines")
_added: dict[str, type[Backend]] = {}


def register(kind: str, backend: type[Backend]) -> None:
    """Add a kind of engine to this process, for one that is no file of `runtime.engines`.

    Raises `InvalidArguments` if there is one of that name already, unless it is the same class.
    """
    if kind in _files() or _added.get(kind, backend) is not backend:
        raise InvalidArguments("kind", kind, "there is an engine kind of that name")
    _added[kind] = backend
    _finders.cache_clear()


def engine_kinds() -> tuple[str, ...]:
    """The engine kinds: the files of `runtime.engines` whose names hold no underscore, and what
    was registered."""
    return tuple(sorted({*_files(), *_added}))


@cache
def _files() -> frozenset[str]:
    names = (module.name for module in pkgutil.iter_modules([str(_ENGINES)]))
    return frozenset(name for name in names if "_" not in name)


def missing(kind: str) -> str:
    """What to do where there is no engine of a kind; empty where there is one."""
    own = _backend_class(kind)
    return "" if own.count() else own.missing()


def _backend_class(kind: object) -> type[Backend]:
    if not isinstance(kind, str) or kind not in {*_files(), *_added}:
        rule = f"no such engine kind; there are {', '.join(engine_kinds())}"
        raise InvalidArguments("kind", kind, rule)
    if kind in _added:
        return _added[kind]
    module = importlib.import_module(f"dnnl.runtime.engines.{kind}")
    return cast("type[Backend]", module.Engine)


@cache
def _backend(kind: str, index: int) -> Backend:
    return _backend_class(kind)(index)


class Engine(Property):
    """Device number ``index`` of a kind. Equal engines share everything; hashable, picklable.

    ``features`` says what code it executes. Given ones are fewer than its device has, for code that
    is to run elsewhere too; an engine that executes nothing (``null``) pretends to have any.
    """

    __slots__ = ("_backend", "_pretended", "index", "kind")

    def __init__(self, kind: str, index: int = 0, *, features: Features | None = None) -> None:
        self.kind = kind
        self.index = _checked_index(kind, index)
        self._backend = _backend(kind, self.index)
        if not isinstance(features, Features | None):
            raise InvalidArguments("features", features, "expected those of another engine")
        self._pretended = None if features is None else self._checked(features)

    @classmethod
    def of(cls, kind: str, backend: Backend) -> Engine:
        """The engine of a backend that was made apart, of a context of its own for example."""
        made = cls.__new__(cls)
        made.kind, made.index, made._backend = kind, backend.index, backend
        made._pretended = None
        return made

    def _checked(self, features: Features) -> Features | None:
        """The features that this engine pretends to have; None if these are its own."""
        own = self._backend.features()
        if features == own:
            return None
        if not own.universal and not own.includes(features):
            rule = f"engine {self.kind!r} may leave out features of its device, and has no others"
            raise InvalidArguments("features", features, rule, "use engine 'null' to pretend")
        return features

    @property
    def features(self) -> Features:
        """What code the engine executes."""
        return self._backend.features() if self._pretended is None else self._pretended

    @property
    def backend(self) -> Backend:
        """What drives the device."""
        return self._backend

    @staticmethod
    def count(kind: str) -> int:
        """How many engines of this kind there are; `InvalidArguments` for an unknown kind."""
        return _backend_class(kind).count()

    def load(self, image: Image) -> Executable:
        """Make an image executable. Loading equal images again costs and keeps nothing new."""
        return self._backend.load(image)

    def sized(self, executable: Executable, counts: Sequence[int]) -> Executable:
        """The executable for an execution with these numbers of items and iterations: see
        `Backend.sized`."""
        return self._backend.sized(executable, counts) if counts else executable

    @property
    def host_memory(self) -> bool:
        """Whether the host can address the engine's memory, and the engine the host's."""
        return self._backend.host_memory

    def allocate(self, nbytes: int) -> Buffer:
        """A new buffer of the engine, 64-byte aligned."""
        return self._backend.allocate(nbytes)

    def wrap(self, desc: MemoryDesc, buffer: object) -> object:
        """Memory of another library on this device as a `Buffer` with the bytes of a tensor; other
        objects stay as they are."""
        return self._backend.wrap(desc, buffer)

    def share(self, buffer: Buffer, nbytes: int) -> Shared | None:
        """The first bytes of a buffer for other libraries, None where the engine shares none."""
        return self._backend.share(buffer, nbytes)

    def read(self, buffer: Buffer, nbytes: int) -> NDArray[np.uint8]:
        """The first bytes of a buffer, in a copy; ``data`` where there is such."""
        return self._backend.read(buffer, nbytes)

    def write(self, buffer: Buffer, data: NDArray[np.uint8]) -> None:
        """Copy bytes to the beginning of a buffer."""
        self._backend.write(buffer, data)

    def copy(self, buffer: Buffer, other: Engine, source: Buffer, nbytes: int) -> None:
        """Copy the first bytes of a buffer of another engine to the beginning of one."""
        self._backend.copy(buffer, other._backend, source, nbytes)

    def make_queue(self, in_order: bool, profiling: bool = False) -> Queue[Any]:
        """A new queue, for a stream."""
        return self._backend.make_queue(in_order, profiling)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Engine):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        own = "" if self._backend.identity is None else ", of another context"
        return f"Engine({self.kind!r}, {self.index}{own})"

    def __reduce__(self) -> tuple[object, ...]:
        if self._backend.identity is not None:
            raise TypeError(f"{self!r} belongs to a context of this process: it has no pickle")
        return _unpickle, (self.kind, self.index, self._pretended)

    def _key(self) -> tuple[object, ...]:
        return self.kind, self.index, self._pretended, self._backend.identity


def find_array(array: object) -> tuple[Engine, DeviceArray] | None:
    """An array of another library on a device, and the engine of that; None for other objects."""
    for kind, find in _finders():
        found = find(array)
        if found is not None:
            own = found.backend
            return (_engine(kind, found.index) if own is None else Engine.of(kind, own)), found
    return None


@cache
def _engine(kind: str, index: int) -> Engine:
    return Engine(kind, index)


@cache
def _finders() -> tuple[tuple[str, Callable[[object], DeviceArray | None]], ...]:
    """How each kind that knows arrays of other libraries finds them."""
    classes = {kind: _backend_class(kind) for kind in engine_kinds()}
    unknown = Backend.find.__func__  # type: ignore[attr-defined]
    return tuple(
        (kind, own.find)
        for kind, own in classes.items()
        if own.find.__func__ is not unknown  # type: ignore[attr-defined]
    )


@cache
def first_cpu() -> Engine:
    """The engine that is taken where none is given."""
    return Engine("cpu")


def _unpickle(kind: str, index: int, pretended: Features | None) -> Engine:
    """An engine out of its pickle, in any process; a real device has the features of the machine
    that reads it, but for those left out."""
    return Engine(kind, index, features=pretended)


def _checked_index(kind: str, index: object) -> int:
    """The number of a device that there is, as an int."""
    count = Engine.count(kind)
    try:
        number = operator.index(index)  # type: ignore[arg-type]
    except TypeError:
        rule = f"expected an integer below {count}, the engines of kind {kind!r}"
        raise InvalidArguments("index", index, rule) from None
    if not 0 <= number < count:
        hint = missing(kind)
        rule = f"there are {count} engines of kind {kind!r}"
        raise InvalidArguments("index", index, rule, hint)
    return number


def checked_engine(engine: object) -> Engine:
    """The engine itself; `InvalidArguments` for anything else, such as the name of one."""
    if not isinstance(engine, Engine):
        raise InvalidArguments("engine", engine, "expected an Engine", "Engine('cpu')")
    return engine
