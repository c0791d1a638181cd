"""An engine ``far``, as a device is: memory that the host cannot touch, work that is done later.

Memory is known by objects that mean nothing to the host, and tensors begin somewhere within. What
is freed is overwritten. Work is done when somebody waits for it, or a little later than it could
be, by a thread of the device: one phase at a time, each of any launch that may run, by chance. So a
result that nobody waited for is missing, and two launches that share what they must not meet there.

It runs the images of the cpu, and has the features of that.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from dnnl.runtime.backend import Backend, Buffer, Executable, Features, Queue
from dnnl.runtime.engine import Engine, register
from dnnl.runtime.event import Event, checked_events
from dnnl.runtime.image import Image
from dnnl.runtime.storage import address_of, allocate
from tests.far_arrays import FarArray, Found
from tests.repeats import in_order

FRESH, FREED = 0xCD, 0xEF  # what is in memory that nobody wrote, and that is nobody's any more
PATIENCE = 1e-3  # seconds that work may be put off while nobody waits for it
_KEPT = 64

_CPU = Engine("cpu")
_RUNNER = _CPU.make_queue(in_order=True)


class Block:
    """What the device calls a piece of its memory."""

    def __init__(self, nbytes: int) -> None:
        self.bytes = allocate(nbytes)
        self.bytes[:] = FRESH


class _Owner:
    """Frees a block when nobody has it any more."""

    def __init__(self, device: FarBackend, block: Block) -> None:
        self._device, self._block = device, block

    def __del__(self) -> None:
        self._block.bytes[:] = FREED
        self._device.freed.append(self._block)


class FarExecutable(Executable):
    """Code of the cpu for each phase, and the ``order`` of the phases."""

    __slots__ = ("_image", "order", "phases")

    def __init__(self, image: Image) -> None:
        images = (replace(image, phases=(phase,), repeats=()) for phase in image.phases)
        self.phases = tuple(_CPU.load(one) for one in images)
        self.order, self._image = in_order(image), image

    def sized(self, counts: Sequence[int]) -> FarExecutable:
        """The same with so many items of each phase and iterations of each repeat."""
        made = object.__new__(FarExecutable)
        items, times = counts[: len(self.phases)], counts[len(self.phases) :]
        pairs = zip(self.phases, items, strict=True)
        made.phases = tuple(_CPU.sized(phase, (count,)) for phase, count in pairs)
        both = zip(self._image.repeats, times, strict=True)
        repeats = tuple(replace(repeat, count=count) for repeat, count in both)
        made._image = replace(self._image, repeats=repeats)
        made.order = in_order(made._image)
        return made


class Launch(Event):
    """A launch until it is done; then only its error, if there is one, is left of it."""

    def __init__(
        self,
        device: FarBackend,
        executable: FarExecutable,
        arguments: Sequence[Buffer],
        threads: int,
        after: Sequence[Event],
    ) -> None:
        self._device = device
        self.arguments: tuple[Buffer, ...] = tuple(arguments)
        self.after = tuple(after)
        self.phases = [executable.phases[number] for number in executable.order]
        self._threads = threads
        self.error: Exception | None = None
        self._over = False

    @property
    def done(self) -> bool:
        return self._over

    def wait(self) -> None:
        self._device.finish(self)
        if self.error is not None:
            raise self.error

    def advance(self) -> None:
        """Do the next phase, if ``after`` allows it, and end behind the last one."""
        try:
            for event in self.after:
                event.wait()  # raises, if it failed
            if self._device.failure is not None:
                error, self._device.failure = self._device.failure, None
                raise error
            if self.phases:
                places = [buffer.handle.bytes[buffer.offset :] for buffer in self.arguments]
                _RUNNER.submit(self.phases.pop(0), list(map(address_of, places)), self._threads)
        except Exception as error:
            self.error = error
            self.phases.clear()
        if not self.phases:
            self.arguments = self.after = ()
            self._over = True


class FarQueue(Queue[FarExecutable]):
    """Passes launches on to the device."""

    def __init__(self, device: FarBackend, in_order: bool) -> None:
        self._device, self._in_order = device, in_order
        self._launches: list[Launch] = []  # since the last wait
        self._last: tuple[Launch, ...] = ()
        self._lock = threading.Lock()

    def submit(
        self,
        executable: FarExecutable,
        arguments: Sequence[Buffer],
        threads: int,
        after: Sequence[Event] = (),
    ) -> Launch:
        before = checked_events(after)
        with self._lock:
            launch = Launch(self._device, executable, arguments, threads, (*before, *self._last))
            self._last = (launch,) if self._in_order else ()
            self._launches.append(launch)
            self._device.add(launch)
        return launch

    def wait(self) -> None:
        with self._lock:
            launches, self._launches = self._launches, []
        for launch in launches:
            self._device.finish(launch)
        with self._lock:
            if launches and self._last == (launches[-1],):
                self._last = ()
        for launch in launches:
            if launch.error is not None:
                raise launch.error


class FarBackend(Backend):
    """Such a device. ``failure`` is what the next phase of any launch fails with."""

    host_memory = False

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.reads = self.writes = 0
        self.freed: deque[Block] = deque(maxlen=_KEPT)  # who is late writes there, not elsewhere
        self.failure: Exception | None = None
        self.chance = random.Random(index)
        self._changed = threading.Condition()
        self._pending: list[Launch] = []
        self._waiting = 0
        self._held = False
        self._worker: threading.Thread | None = None

    @classmethod
    def count(cls) -> int:
        return 2

    def features(self) -> Features:
        return _CPU.features

    def load(self, image: Image) -> FarExecutable:
        return FarExecutable(image)

    def sized(self, executable: Executable, counts: Sequence[int]) -> FarExecutable:
        assert isinstance(executable, FarExecutable)
        return executable.sized(counts)

    def make_queue(self, in_order: bool, profiling: bool = False) -> FarQueue:
        return FarQueue(self, in_order)

    @classmethod
    def find(cls, array: object) -> Found | None:
        return Found(array) if isinstance(array, FarArray) else None

    def in_order(self, queue: Hashable) -> FarQueue:
        assert isinstance(queue, FarQueue), "the library of these arrays has no others"
        return queue

    def allocate(self, nbytes: int) -> Buffer:
        offset = 64 * self.chance.randrange(4)
        block = Block(offset + nbytes)
        return Buffer(block, offset, None, _Owner(self, block))

    def read(self, buffer: Buffer, nbytes: int) -> NDArray[np.uint8]:
        self.reads += 1
        return self._bytes(buffer, nbytes).copy()

    def write(self, buffer: Buffer, data: NDArray[np.uint8]) -> None:
        self.writes += 1
        self._bytes(buffer, data.size)[:] = data

    def _bytes(self, buffer: Buffer, nbytes: int) -> NDArray[np.uint8]:
        """Bytes that no launch uses any more."""
        with self._changed:
            users = [
                launch
                for launch in self._pending
                if any(given.handle is buffer.handle for given in launch.arguments)
            ]
        for launch in users:
            self.finish(launch)
        found: NDArray[np.uint8] = buffer.handle.bytes[buffer.offset :][:nbytes]
        assert found.size == nbytes
        return found

    def add(self, launch: Launch) -> None:
        """Put a launch behind those that are pending."""
        with self._changed:
            if self._worker is None:
                self._worker = threading.Thread(target=self._work, daemon=True)
                self._worker.start()
            self._pending.append(launch)
            self._changed.notify_all()

    def finish(self, launch: Launch) -> None:
        """Return when a launch is done, well or not."""
        with self._changed:
            self._waiting += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: launch.done)
            self._waiting -= 1

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nothing more is begun within it; so nobody may wait there."""
        with self._changed:
            self._held = True
        try:
            yield
        finally:
            with self._changed:
                self._held = False
                self._changed.notify_all()

    def _work(self) -> None:
        while True:
            launch = self._next()
            launch.advance()
            with self._changed:
                if launch.done:
                    self._pending.remove(launch)
                self._changed.notify_all()
            del launch  # and with it what it keeps

    def _next(self) -> Launch:
        """One of those that can go on, when somebody waits or the time has come."""
        with self._changed:
            self._changed.wait_for(lambda: self._pending and not self._held)
            self._changed.wait_for(lambda: self._waiting, self.chance.uniform(0, PATIENCE))
            while True:
                self._changed.wait_for(lambda: not self._held)
                ready = [each for each in self._pending if all(e.done for e in each.after)]
                if ready:
                    return self.chance.choice(ready)
                self._changed.wait(PATIENCE)  # for an event of another engine


def backend_of(engine: Engine) -> FarBackend:
    """The device itself."""
    return cast("FarBackend", engine._backend)


register("far", FarBackend)
FAR = Engine("far")
