"""What a kind of engine must provide; a file of `dnnl.runtime.engines` implements it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dnnl.runtime.image import Image
from dnnl.runtime.storage import address_of, allocate


class CacheSizes(NamedTuple):
    """Bytes and ways of the first-level data cache, bytes of the second level."""

    l1: int
    l1_ways: int
    l2: int


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


class Buffer(NamedTuple):
    """Bytes of an engine's memory.

    ``pointer`` is the address that code of the engine is given, ``data`` the same bytes for the
    host, None where it cannot touch them. They exist as long as ``owner`` does.
    """

    pointer: int
    data: NDArray[np.uint8] | None
    owner: object


class Executable(ABC):
    """An image that an engine has loaded. Stateless: any thread may launch it at any time."""

    @abstractmethod
    def launch(self, pointers: Sequence[int], num_threads: int) -> None:
        """Run all phases on the addresses given in the order of ``Image.arguments``.

        Returns when the work is done. At most ``num_threads`` threads take part, the calling one
        included.
        """

    @abstractmethod
    def bind(self, pointers: Sequence[int], num_threads: int) -> Callable[[], Any]:
        """`launch` with the arguments prepared once. The buffers must outlive the callable."""


class Backend(ABC):
    """One device of an engine kind. ``Backend(index)`` is made once per process and device.

    One with memory of its own sets ``host_memory`` to False and defines `allocate`, `read` and
    `write`.
    """

    #: Whether the host can address the engine's memory, and the engine the host's.
    host_memory: ClassVar[bool] = True

    def __init__(self, index: int) -> None:
        self.index = index

    @classmethod
    @abstractmethod
    def count(cls) -> int:
        """How many devices of this kind there are."""

    @abstractmethod
    def features(self) -> Features:
        """What the device can execute."""

    @abstractmethod
    def load(self, image: Image) -> Executable:
        """Make the image's code executable; it stays so for the life of the process."""

    def allocate(self, nbytes: int) -> Buffer:
        """A new 64-byte aligned buffer, or `OutOfMemory`."""
        data = allocate(nbytes)
        return Buffer(address_of(data), data, data)

    def read(self, buffer: Buffer) -> NDArray[np.uint8]:
        """What is in a buffer: its bytes themselves where the host can address them, or a copy."""
        assert buffer.data is not None
        return buffer.data

    def write(self, buffer: Buffer, data: NDArray[np.uint8]) -> None:
        """Fill a buffer with as many bytes."""
        assert buffer.data is not None
        buffer.data[:] = data
