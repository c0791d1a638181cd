"""An engine ``far`` with memory of its own, which nobody reaches but by its read and write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from numpy.typing import NDArray

from dnnl.errors import InvalidArguments
from dnnl.runtime import engine as engines
from dnnl.runtime.backend import Backend, Buffer, Executable, Features
from dnnl.runtime.engine import Engine
from dnnl.runtime.image import Image


class FarBackend(Backend):
    """Keeps bytes under addresses that mean nothing to the host."""

    host_memory = False

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.kept: dict[int, bytes] = {}
        self.reads = self.writes = 0

    @classmethod
    def count(cls) -> int:
        return 2

    def features(self) -> Features:
        return Features("none", "far", frozenset())

    def load(self, image: Image) -> Executable:
        raise InvalidArguments("image.target", image.target, "engine 'far' runs nothing")

    def allocate(self, nbytes: int) -> Buffer:
        pointer = 64 * (1 + len(self.kept))
        self.kept[pointer] = b"\xcd" * nbytes
        return Buffer(pointer, None, self)

    def read(self, buffer: Buffer) -> NDArray[np.uint8]:
        self.reads += 1
        return np.frombuffer(self.kept[buffer.pointer], np.uint8).copy()

    def write(self, buffer: Buffer, data: NDArray[np.uint8]) -> None:
        self.writes += 1
        assert len(data) == len(self.kept[buffer.pointer])
        self.kept[buffer.pointer] = data.tobytes()


@contextmanager
def far_engines() -> Iterator[tuple[Engine, FarBackend]]:
    """Such engines for a while: the first one, and what is behind it."""
    classes = engines._backend_class
    backends = [FarBackend(index) for index in range(FarBackend.count())]

    def backend(kind: str, index: int) -> Backend:
        return backends[index] if kind == "far" else engines_backend(kind, index)

    engines_backend = engines._backend
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            engines, "_backend_class", lambda kind: FarBackend if kind == "far" else classes(kind)
        )
        patch.setattr(engines, "_backend", backend)
        yield Engine("far"), backends[0]
