"""An engine that takes code for any machine and runs none: to compile without the hardware."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from typing import Any

from dnnl.runtime.backend import Backend, Executable, Features
from dnnl.runtime.image import Image


def _nothing() -> None:
    """The work of a null executable."""


class _NullExecutable(Executable):
    def launch(self, pointers: Sequence[int], num_threads: int) -> None:
        """Leaves all memory as it is."""

    def bind(self, pointers: Sequence[int], num_threads: int) -> Callable[[], Any]:
        return _nothing


class Engine(Backend):
    """Accepts every image; its memory is the host's."""

    @classmethod
    def count(cls) -> int:
        return 1

    def features(self) -> Features:
        arch = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
        return Features(arch, "generic", frozenset(), universal=True)

    def load(self, image: Image) -> Executable:
        return _NullExecutable()
