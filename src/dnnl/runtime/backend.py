"""What a kind of engine must provide; a file of `dnnl.runtime.engines` implements it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from dnnl.runtime.event import Event
from dnnl.runtime.image import Image
from dnnl.runtime.storage import address_of, allocate
from dnnl.types.memory_desc import MemoryDesc

HOST = (1, 0)
"""The host as DLPack numbers devices."""


class CacheSizes(NamedTuple):
    """Bytes and ways of the first-level data cache, bytes of the second level, and of the third,
    of which there may be none."""

    l1: int
    l1_ways: int
    l2: int
    l3: int = 0


@dataclass(frozen=True, slots=True)
class Features:
    """What an engine can execute: architecture, processor and LLVM's names of its features.

    ``arch`` is the first part of an LLVM triple: that of a processor (``x86_64``, ``aarch64``, ...)
    or of a device (``spirv64``, ``nvptx64``). A ``universal`` engine claims every feature of every
    processor. ``caches`` is None where the system does not tell.
    """

    arch: str
    cpu: str
    flags: frozenset[str]
    universal: bool = False
    caches: CacheSizes | None = None

    def has(self, *flags: str) -> bool:
        """Whether all of these features are there."""
        return self.universal or self.flags.issuperset(flags)

    def includes(self, other: Features) -> bool:
        """Whether the same device has all features of another one, and perhaps more."""
        same = replace(other, flags=self.flags) == self
        return same and self.flags.issuperset(other.flags)


Argument: TypeAlias = Any
"""What a queue takes of a memory: an address on the host, or the `Buffer` of a device."""


class Buffer(NamedTuple):
    """Bytes of an engine's memory: those of ``handle`` from ``offset`` on.

    ``handle`` is what the engine knows its memory by: an address, or any object of the device's
    own. ``data`` are the same bytes for the host, None where it cannot touch them; where it can,
    ``handle`` is their address and ``offset`` is 0. They exist as long as ``owner`` does.
    """

    handle: Any
    offset: int
    data: NDArray[np.uint8] | None
    owner: object

    def __sub__(self, other: Buffer) -> float:
        """How many bytes behind the other one this begins; infinite in other memory."""
        if isinstance(self.handle, int):
            distance: int = self.handle - other.handle
            return distance + self.offset - other.offset
        return self.offset - other.offset if self.handle == other.handle else math.inf


class Shared(NamedTuple):
    """Memory as other libraries may use it without copy.

    ``data`` has its address, which the host may be unable to touch. ``device`` is what DLPack calls
    the device, ``queue`` a SYCL queue of the memory's context, None on the host.
    """

    data: NDArray[np.uint8]
    device: tuple[int, int]
    queue: object


class DeviceArray(ABC):
    """An array of another library in the memory of a device, as `Backend.find` reads it.

    ``source`` is the array itself. ``shape``, ``dtype`` and ``strides``, in bytes, are NumPy's;
    ``strides`` is None where none can say the layout.
    """

    source: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: np.dtype
    readonly: bool
    #: The queue by which the library of the array orders its work; see `Backend.in_order`.
    queue: Hashable
    #: The number of the device, and what drives it; None for the engine kind's own of that number.
    index: int
    backend: Backend | None
    #: What copies an array to the device of this one, with ``{}`` for the name of the former and
    #: of the latter; for error messages.
    copying: str

    @property
    @abstractmethod
    def buffer(self) -> Buffer:
        """Where the first element is."""

    @abstractmethod
    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """A new row-major array of the same library on the same queue, not initialised."""

    def dense(self) -> Any:
        """A row-major copy, made by the library of the array."""
        made = self.empty(self.shape, self.dtype)
        made[...] = self.source
        return made


class Executable:
    """An image that a backend has loaded: what that is, its queues alone know.

    It has no state: any thread may submit it at any time. The code can be executed as long as this
    lives; a queue holds it until a launch is done, and a bound launch holds it too.
    """

    __slots__ = ()

    @property
    def nbytes(self) -> int:
        """The bytes of memory that the code takes."""
        return 0


Loaded = TypeVar("Loaded", bound=Executable)


@dataclass(frozen=True, slots=True)
class _Bound:
    """A launch and the owner of what it touches."""

    launch: Callable[..., Event]
    keep: object

    def __call__(self, after: Sequence[Event] = ()) -> Event:
        return self.launch(after)


class Queue(ABC, Generic[Loaded]):
    """Where the launches of a stream go. Any thread may submit at any time.

    In order, each launch is after the one before it. Out of order, launches run in any order, or at
    the same time, but for what each is to be ``after``.
    """

    __slots__ = ()

    @abstractmethod
    def submit(
        self,
        executable: Loaded,
        arguments: Sequence[Argument],
        threads: int,
        after: Sequence[Event] = (),
    ) -> Event:
        """Launch all phases once everything in ``after`` is done: events of any engine, which the
        queue checks by `event.checked_events`, as a user gave them.

        ``arguments`` are what `Memory.argument` says of the memories, in the order of
        ``Image.arguments``; the queue holds them, and so their owners, until the launch is done.
        The caller keeps addresses alive until this returns, for engines that are given those
        are done with them by then. On a processor at most ``threads`` threads take part, the
        calling one included.

        A launch of which something in ``after`` failed does not run, and fails with that error. A
        queue whose submissions return when all is done raises it instead.
        """

    def bind(
        self, executable: Loaded, arguments: Sequence[Argument], threads: int, keep: object
    ) -> Callable[..., Event]:
        """`submit` with the arguments prepared once: takes ``after``, returns the event.

        ``keep`` owns the memory at the addresses, if any, and lives as long as the
        callable.
        """
        return _Bound(partial(self.submit, executable, tuple(arguments), threads), keep)

    def joined(self, executables: Sequence[Loaded]) -> Loaded | None:
        """Executables in a row as one, which takes the arguments of each with a 0 between two; None
        of a queue to which that makes no difference."""

    @abstractmethod
    def wait(self) -> None:
        """Return when everything submitted so far is done.

        Raises the first error since the last call.
        """

    def follow(self, other: Queue[Any]) -> None:
        """Launches that are submitted from now on run after all that is in another queue of the
        engine."""
        other.wait()


class Backend(ABC):
    """One device of an engine kind. ``Backend(index)`` is made once per process and device.

    One with memory of its own sets ``host_memory`` to False and defines `allocate`, `read` and
    `write`. These two wait for every launch that was submitted before and touches the buffer, and
    may wait for more, but leave the errors of launches to their events and queues.
    """

    #: Whether the host can address the engine's memory, and the engine the host's.
    host_memory: ClassVar[bool] = True

    #: What a user knows the device by: its name and memory.
    description: str = ""

    #: What tells devices of one index apart, as those of several contexts.
    identity: object = None

    def __init__(self, index: int) -> None:
        self.index = index

    @classmethod
    @abstractmethod
    def count(cls) -> int:
        """How many devices of this kind there are."""

    @classmethod
    def missing(cls) -> str:
        """What to do where there is no device, for the error message."""
        return ""

    @abstractmethod
    def features(self) -> Features:
        """What the device can execute."""

    def lacking(self, features: Iterable[str]) -> tuple[str, ...]:
        """Which of these features, by LLVM's names, the device does not have."""
        have = self.features()
        return tuple(feature for feature in features if not have.has(feature))

    def startup_code(self) -> Mapping[str, bytes]:
        """Machine code of the backend's own, by keys, for a process that does not compile it."""
        return {}

    def offer(self, code: Mapping[str, bytes]) -> None:  # noqa: B027 - most have no such code
        """Code of `startup_code` in another process of the same system, used if the keys match."""

    @abstractmethod
    def load(self, image: Image) -> Executable:
        """Make the image's code executable, for as long as somebody holds what is returned."""

    def sized(self, executable: Executable, counts: Sequence[int]) -> Executable:
        """The executable for sizes that an execution decided on, which has work for so many items
        of each phase and, behind these in ``counts``, so many iterations of each repeat."""
        return executable

    @abstractmethod
    def make_queue(self, in_order: bool, profiling: bool = False) -> Queue[Any]:
        """A new queue of the device; with ``profiling`` its events have `Event.seconds`, if the
        device has a clock of its own."""

    @classmethod
    def find(cls, array: object) -> DeviceArray | None:
        """An array of another library in the memory of a device of this kind; None for any other
        object, such as an array of the host."""
        return None

    def in_order(self, queue: Hashable) -> Queue[Any]:
        """A `DeviceArray.queue` as one of the engine's, in order: a launch follows all work that
        its owner submitted before, and what is submitted later follows the launch."""
        raise NotImplementedError(f"{type(self).__name__} finds no arrays")

    def allocate(self, nbytes: int) -> Buffer:
        """A new 64-byte aligned buffer, or `OutOfMemory`."""
        data = allocate(nbytes)
        return Buffer(address_of(data), 0, data, data)

    def wrap(self, desc: MemoryDesc, buffer: object) -> object:
        """An object of the device's own, as another library has it, as a `Buffer` with the bytes of
        a tensor, not copied; what is none stays as it is."""
        return buffer

    def share(self, buffer: Buffer, nbytes: int) -> Shared | None:
        """The first bytes of a buffer for other libraries, once what was submitted is done; None
        where the engine shares none."""
        return None if buffer.data is None else Shared(buffer.data, HOST, None)

    def read(self, buffer: Buffer, nbytes: int) -> NDArray[np.uint8]:
        """The first bytes of a buffer, in a copy; those of ``data`` where there is such."""
        assert buffer.data is not None
        return buffer.data[:nbytes]

    def read_into(self, data: NDArray[np.uint8], buffer: Buffer) -> None:
        """Copy the first bytes of a buffer into an array of the host."""
        data[:] = self.read(buffer, data.size)

    def write(self, buffer: Buffer, data: NDArray[np.uint8]) -> None:
        """Copy bytes to the beginning of a buffer."""
        assert buffer.data is not None
        buffer.data[:] = data

    def copy(self, buffer: Buffer, other: Backend, source: Buffer, nbytes: int) -> None:
        """Copy the first bytes of a buffer of another backend to the beginning of one."""
        if buffer.data is not None:
            other.read_into(buffer.data[:nbytes], source)
        else:
            self.write(buffer, other.read(source, nbytes))
