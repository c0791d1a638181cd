"""The SYCL engine: SPIR-V on devices that `dpctl` finds, memory in USM."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple
from weakref import WeakSet, WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from dnnl.errors import Error, InvalidArguments, OutOfMemory, Unimplemented
from dnnl.runtime import dlpack
from dnnl.runtime.backend import Backend, Buffer, Executable, Features, Queue, Shared
from dnnl.runtime.engines import sycl_devices, sycl_modules, sycl_usm
from dnnl.runtime.engines.cpu_caches import cache_sizes
from dnnl.runtime.engines.sycl_arrays import SyclArray
from dnnl.runtime.event import NOTHING, Event, checked_events
from dnnl.runtime.image import Image
from dnnl.runtime.memory import Memory
from dnnl.runtime.storage import bytes_at
from dnnl.runtime.wrap import check_fit
from dnnl.types.memory_desc import MemoryDesc

_ALIGNMENT = 64  # bytes
_GROUPS = 4
"""Work-groups that each compute unit gets at least, before a group is larger than the smallest."""


_QUEUES = 64
"""Queues of other libraries that an engine remembers."""

_HELD = 32
"""Launches that a queue holds before it looks which of them are done."""


class _Start(NamedTuple):
    """How a phase is started: the kernel, its arguments by slot, the invocations of an item, the
    global and local range."""

    kernel: Any
    slots: tuple[int, ...]
    members: int
    items: list[int]
    group: list[int]


class _Ready(NamedTuple):
    """A start with the arguments themselves."""

    kernel: Any
    pointers: list[Any]
    items: list[int]
    group: list[int]


class Program(Executable):
    """A built SPIR-V module."""

    __slots__ = ("_nbytes", "starts")

    def __init__(self, starts: tuple[_Start, ...], nbytes: int) -> None:
        self.starts, self._nbytes = starts, nbytes

    @property
    def nbytes(self) -> int:
        return self._nbytes

    def __repr__(self) -> str:
        phases = [
            f"{start.kernel.get_function_name()} ({start.items[0]} items by {start.group[0]})"
            for start in self.starts
        ]
        return ", ".join(phases)


class Launch(Event):
    """A submitted execution. It holds its arguments until it is known to be done."""

    __slots__ = ("_arguments", "_done", "_profiled", "_queue", "error", "event")

    def __init__(
        self,
        queue: Any,
        event: Any,
        arguments: object,
        error: Exception | None = None,
        profiled: Sequence[Any] = (),
    ) -> None:
        self._queue, self.event, self._arguments = queue, event, arguments
        self.error, self._profiled, self._done = error, profiled, event is None

    @property
    def done(self) -> bool:
        if not self._done and self.event.execution_status.name == "complete":
            self.release()
        return self._done

    @property
    def failed(self) -> bool:
        return self.error is not None

    def wait(self) -> None:
        if not self._done:
            try:
                self.event.wait()
            except Exception as error:  # dpctl has no class for what a device reports later
                self.error = sycl_devices.failed("an execution", self._queue.sycl_device, error)
        self.release()
        if self.error is not None:
            raise self.error

    def release(self) -> None:
        """Note that the execution is done, and forget its arguments."""
        self._done, self._arguments = True, None

    @property
    def seconds(self) -> float | None:
        """The time of all phases, without what is between them."""
        if not self._profiled or not self.done:
            return None
        nanoseconds = (
            int(each.profiling_info_end - each.profiling_info_start) for each in self._profiled
        )
        return sum(nanoseconds) / 1e9


class SyclQueue(Queue[Program]):
    """A queue of SYCL, ``sycl``; the launches that may not be done yet are held.

    A ``shared`` one is in order with the work of other libraries in the same queue, in order or
    not. The order of a queue does not hold for the tasks of the host that are in it, which dpnp has
    for products and more: dpctl's order manager has the events of these.
    """

    __slots__ = (
        "__weakref__",
        "_failure",
        "_launches",
        "_lock",
        "_order",
        "_profiling",
        "in_order",
        "sycl",
    )

    def __init__(self, sycl: Any, shared: bool = False) -> None:
        self.sycl, self.in_order = sycl, bool(sycl.is_in_order)
        orders = sycl_devices.dpctl().utils.SequentialOrderManager
        self._order: Any = orders[sycl] if shared else None
        self._profiling = bool(sycl.has_enable_profiling)
        self._launches: deque[Launch] = deque()
        self._failure: Exception | None = None
        self._lock = threading.Lock()

    def submit(
        self,
        executable: Program,
        arguments: Sequence[Any],
        threads: int,
        after: Sequence[Event] = (),
    ) -> Event:
        return self._launch(_ready(executable, arguments), (executable, arguments), after)

    def bind(
        self, executable: Program, arguments: Sequence[Any], threads: int, keep: object
    ) -> Callable[..., Event]:
        phases = _ready(executable, arguments)
        return partial(self._launch, phases, (executable, (arguments, keep)))

    def _launch(
        self,
        phases: Sequence[_Ready],
        held: tuple[Program, object],
        after: Sequence[Event] = NOTHING,
    ) -> Launch:
        """Submit all phases; ``held`` are the program and what owns the arguments."""
        profiled: list[Any] = []
        event = None
        before, error = ([], None) if after is NOTHING else _events(after)
        with self._lock:
            try:
                if error is not None:
                    raise error
                if self._order is not None:
                    before += self._begin()
                for kernel, pointers, items, group in phases:
                    event = self.sycl.submit_async(kernel, pointers, items, group, before)
                    before = [] if self.in_order else [event]
                    if self._profiling:
                        profiled.append(event)
                if event is None and before:
                    event = self.sycl.submit_barrier(before)
                if self._order is not None and event is not None:
                    event = self._end(event)
            except Error as own:
                error = own
            except Exception as raised:
                device = self.sycl.sycl_device
                limit = f"it has {device.local_mem_size} bytes of local memory"
                error = sycl_devices.failed(f"a launch of {held[0]}", device, raised, limit)
            launch = Launch(self.sycl, event, held, error, profiled)
            self._launches.append(launch)
            # Arrays of other libraries are dropped without notice.
            if self._order is not None or len(self._launches) > _HELD:
                self._release()
        return launch

    def _begin(self) -> list[Any]:
        """What a launch is to be after besides what it is given."""
        if self._order is None:
            return []
        barriers = [] if self.in_order else [self.sycl.submit_barrier()]
        return [*barriers, *self._order.submitted_events]

    def _end(self, event: Any) -> Any:
        """The end of a launch, before all work that is submitted later."""
        if self._order is not None:
            event = event if self.in_order else self.sycl.submit_barrier([event])
            self._order.add_event_pair(event, event)
        return event

    def follow(self, other: Queue[Any]) -> None:
        assert isinstance(other, SyclQueue), "queues of one engine"
        with other._lock:
            last = [other.sycl.submit_barrier(), *other._begin()]
        with self._lock:
            self._end(self.sycl.submit_barrier(last))

    def __del__(self) -> None:
        if self._launches:  # whose arguments would be freed
            with suppress(Exception):
                self.finish()

    def _release(self, last: Launch | None = None) -> None:
        """Forget the first launches that are done, as all up to ``last`` are."""
        launches, known = self._launches, last in self._launches
        while launches and (known or launches[0].done):
            launch = launches.popleft()
            launch.release()
            self._failure = self._failure or launch.error
            known = known and launch is not last

    def finish(self) -> None:
        """Return when all that was submitted is done, without raising its errors."""
        with self._lock:
            launches = tuple(self._launches)
        last = None
        for launch in reversed(launches):
            with suppress(Error):  # the event holds it
                launch.wait()
            if self.in_order and launch.event is not None and not launch.failed:
                last = launch  # and all before it are done
                break
        with self._lock:
            self._release(last)

    def wait(self) -> None:
        self.finish()
        with self._lock:
            error, self._failure = self._failure, None
        if error is not None:
            raise error


class Engine(Backend):
    """A device in one context: by default the default context of the device's platform."""

    host_memory = False

    def __init__(self, index: int, queue: Any = None) -> None:
        super().__init__(index)
        self._copies = sycl_devices.default_queue(index) if queue is None else queue
        self.device, self.context = self._copies.sycl_device, self._copies.sycl_context
        size = self.device.global_mem_size / 2**30
        driver = f"driver {self.device.driver_version}"
        self.description = f"{self.device.name}, {size:.1f} GiB, {driver}"
        self.identity = None if queue is None else (self.device, self.context)
        self._queues: WeakSet[SyclQueue] = WeakSet()
        self._in_order: dict[Hashable, SyclQueue] = {}

    @classmethod
    def count(cls) -> int:
        return len(sycl_devices.devices())

    @classmethod
    def find(cls, array: object) -> SyclArray | None:
        # The interface itself may wait for the device.
        if not hasattr(type(array), sycl_usm.NAME) or isinstance(array, Memory):
            return None
        found = SyclArray(array)
        return found.place(*_of_queue(found.queue))

    @classmethod
    def missing(cls) -> str:
        return sycl_devices.missing()

    def features(self) -> Features:
        return self._features

    @cached_property
    def _features(self) -> Features:
        arch, caches = "spirv64", None
        if self.device.is_cpu:
            arch, caches = f"spirv64x{self.device.native_vector_width_float}", cache_sizes()
        return Features(arch, "", sycl_devices.aspects(self.device), caches=caches)

    def load(self, image: Image) -> Program:
        if image.target != "spirv":
            rule = "engine 'sycl' runs 'spirv' images"
            raise InvalidArguments("image.target", image.target, rule)
        if image.repeats:
            raise InvalidArguments("image.repeats", image.repeats, "devices repeat no phases")
        if not image.phases:
            return Program((), 0)
        found = sycl_modules.read(image.code)
        for phase in image.phases:
            if phase.symbol not in found.kernels:
                rule = f"it has the kernels {', '.join(sorted(found.kernels))}"
                raise InvalidArguments("image.phases", phase.symbol, rule)
        lacking = sycl_devices.lacking(found, self.device)
        if lacking:
            raise Unimplemented(f"{self.device.name} has no {', '.join(lacking)}")
        module = sycl_devices.dpctl()
        try:
            program = module.program.create_program_from_spirv(self._copies, image.code)
            kernels = [program.get_sycl_kernel(phase.symbol) for phase in image.phases]
        except Exception as error:
            raise sycl_devices.not_built(self.device, image.code, error) from None
        starts = [
            _Start(
                kernel, phase.slots, phase.group, *self._ranges(phase.count, kernel, phase.group)
            )
            for kernel, phase in zip(kernels, image.phases, strict=True)
        ]
        return Program(tuple(starts), len(image.code))

    def sized(self, executable: Executable, counts: Sequence[int]) -> Program:
        assert isinstance(executable, Program)
        starts = [
            _Start(
                own.kernel, own.slots, own.members, *self._ranges(count, own.kernel, own.members)
            )
            for own, count in zip(executable.starts, counts, strict=True)
        ]
        return Program(tuple(starts), executable.nbytes)

    def _ranges(self, count: int, kernel: Any, own: int = 1) -> tuple[list[int], list[int]]:
        """The global and the local range of ``count`` items: groups of ``own`` invocations if there
        are several to an item, else as large as the device prefers while each compute unit has
        several. A work item of a processor is large enough to be one.
        """
        if own > 1:
            return [count * own], [own]
        if self.device.is_cpu:
            return [count], [1]
        least = kernel.preferred_work_group_size_multiple
        most = min(kernel.work_group_size, 8 * least)
        wanted = count // (_GROUPS * self.device.max_compute_units)
        group = min(least, kernel.work_group_size)
        while 2 * group <= min(most, wanted):
            group *= 2
        return [-(-count // group) * group], [group]

    def make_queue(self, in_order: bool, profiling: bool = False) -> SyclQueue:
        properties = ["in_order"] * in_order + ["enable_profiling"] * profiling
        module = sycl_devices.dpctl()
        return self._known(
            SyclQueue(module.SyclQueue(self.context, self.device, property=properties))
        )

    def adopt(self, queue: Any) -> SyclQueue:
        """A given queue of SYCL as one of the engine's, in order or not as that is."""
        return self._known(SyclQueue(queue, shared=queue.is_in_order))

    def _known(self, queue: SyclQueue) -> SyclQueue:
        """The queue itself, for whose launches reads and writes wait."""
        self._queues.add(queue)
        return queue

    def in_order(self, queue: Hashable) -> SyclQueue:
        found = self._in_order.get(queue)
        if found is None:
            while len(self._in_order) >= _QUEUES:
                del self._in_order[next(iter(self._in_order))]
            found = self._in_order[queue] = self._known(SyclQueue(queue, shared=True))
        return found

    def allocate(self, nbytes: int) -> Buffer:
        if nbytes > self.device.max_mem_alloc_size:
            limit = f"{self.device.name} allocates at most {self.device.max_mem_alloc_size}"
            raise OutOfMemory(f"cannot allocate {nbytes} bytes: {limit}")
        memory = sycl_devices.dpctl().memory
        try:
            usm = memory.MemoryUSMDevice(max(nbytes, 1), alignment=_ALIGNMENT, queue=self._copies)
        except memory.USMAllocationError as error:
            raise OutOfMemory(f"cannot allocate {nbytes} bytes on the device: {error}") from None
        if self.device.is_cpu:
            sycl_usm.advise_huge_pages(usm)
        return Buffer(usm, 0, None, usm)

    def wrap(self, desc: MemoryDesc, buffer: object) -> object:
        found = sycl_usm.described(buffer, self._copies)
        if found is None:
            return buffer
        usm: Any = found.owner
        if usm.sycl_context != self.context:
            rule = f"its USM belongs to another context than {self.device.name} here"
            hint = "dnnl.sycl.make_engine(device, context) makes an engine of that one"
            raise InvalidArguments("buffer", type(buffer).__name__, rule, hint)
        check_fit(desc, found)
        return Buffer(usm, found.address - sycl_usm.address(usm), None, usm)

    def share(self, buffer: Buffer, nbytes: int) -> Shared:
        self._finish()
        begin = sycl_usm.address(buffer.handle) + buffer.offset
        device = (dlpack.ONE_API, self.device.get_device_id())
        return Shared(bytes_at(begin, nbytes, buffer.owner), device, self._copies)

    def read(self, buffer: Buffer, nbytes: int) -> NDArray[np.uint8]:
        data = np.empty(nbytes, np.uint8)
        self.read_into(data, buffer)
        return data

    def read_into(self, data: NDArray[np.uint8], buffer: Buffer) -> None:
        self._finish()
        if data.size:
            self._copies.memcpy(data, _usm(buffer, data.size), data.size)

    def write(self, buffer: Buffer, data: NDArray[np.uint8]) -> None:
        self._finish()
        if data.size:
            self._copies.memcpy(_usm(buffer, data.size), np.ascontiguousarray(data), data.size)

    def _finish(self) -> None:
        """Return when everything that the library submitted is done."""
        for queue in tuple(self._queues):
            queue.finish()


def _ready(executable: Program, arguments: Sequence[Buffer]) -> list[_Ready]:
    """The phases with the USM that each takes."""
    usm = [_usm(buffer) for buffer in arguments]
    return [
        _Ready(kernel, [usm[slot] for slot in slots], items, group)
        for kernel, slots, _, items, group in executable.starts
    ]


def _events(after: Sequence[Event]) -> tuple[list[Any], Error | None]:
    """The events of SYCL that a launch is after, and the error of one that failed. Returns when all
    other events are done."""
    found = []
    for event in checked_events(after):
        if isinstance(event, Launch) and event.error is None:
            found.append(event.event)
            continue
        try:
            event.wait()
        except Error as error:
            return found, error
    return found, None


def _usm(buffer: Buffer, nbytes: int | None = None) -> Any:
    """A USM memory that begins where the buffer does."""
    usm, offset = buffer.handle, buffer.offset
    if offset == 0:
        return usm
    return sycl_usm.part(usm, offset, max(1, usm.nbytes - offset) if nbytes is None else nbytes)


_contexts: WeakValueDictionary[tuple[Any, Any], Engine] = WeakValueDictionary()


def of_context(device: Any, context: Any) -> tuple[int, Engine | None]:
    """The number of a device, or of the one that it is a part of, and the backend of the device in
    a context; None for a whole device in the default context of its platform."""
    index = sycl_devices.index_of(device)
    default = sycl_devices.default_queue(index)
    if device == default.sycl_device and context in (None, default.sycl_context):
        return index, None
    found = _contexts.get((device, context))
    if found is None:
        queue = sycl_devices.dpctl().SyclQueue(context, device, property="in_order")
        found = _contexts[device, context] = Engine(index, queue)
    return index, found


@lru_cache(_QUEUES)
def _of_queue(queue: Any) -> tuple[int, Engine | None]:
    return of_context(queue.sycl_device, queue.sycl_context)
