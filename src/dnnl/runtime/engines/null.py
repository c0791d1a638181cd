"""An engine that takes code for any machine and runs none: to compile without the hardware."""

from __future__ import annotations

import platform
from collections.abc import Sequence

from dnnl.runtime.backend import Backend, Executable, Features, Queue
from dnnl.runtime.event import COMPLETE, Event, wait_for
from dnnl.runtime.image import Image


class _NullQueue(Queue[Executable]):
    """Leaves all memory as it is."""

    def submit(
        self,
        executable: Executable,
        arguments: Sequence[int],
        threads: int,
        after: Sequence[Event] = (),
    ) -> Event:
        wait_for(after)
        return COMPLETE

    def wait(self) -> None:
        """Returns at once."""


class Engine(Backend):
    """Accepts every image; its memory is the host's."""

    @classmethod
    def count(cls) -> int:
        return 1

    def features(self) -> Features:
        arch = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
        return Features(arch, "generic", frozenset(), universal=True)

    def load(self, image: Image) -> Executable:
        return Executable()

    def make_queue(self, in_order: bool, profiling: bool = False) -> Queue[Executable]:
        return _NullQueue()
