"""SYCL objects of `dpctl` as objects of the library, and the other way round.

======================  ==========================================  ==============================
object                  made of SYCL's                              gives SYCL's
======================  ==========================================  ==============================
`Engine`                ``make_engine(device, context)``            `get_device`, `get_context`
`Stream`                ``make_stream(queue)``                      `get_queue`
`Memory`                ``make_memory(desc, engine, usm)``          `get_usm`
`Event`                 ``make_event(sycl_event)``                  `get_event`
======================  ==========================================  ==============================

It needs the extra ``dnnl[sycl]``. ``dpctl()`` is the module `dpctl`, once pip's OpenCL driver for
processors is announced to the loader: import it so where there is no other driver. dpctl carries
USM of every kind (device, shared, host), and no ``sycl::buffer``: that is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dnnl.errors import InvalidArguments
from dnnl.primitives.primitive import Primitive
from dnnl.runtime.engine import Engine, checked_engine
from dnnl.runtime.engines import sycl, sycl_usm
from dnnl.runtime.engines.sycl_devices import dpctl
from dnnl.runtime.event import Event
from dnnl.runtime.memory import Memory
from dnnl.runtime.stream import Stream
from dnnl.types.memory_desc import MemoryDesc

__all__ = [
    "dpctl",
    "execute",
    "get_context",
    "get_device",
    "get_event",
    "get_queue",
    "get_usm",
    "make_engine",
    "make_event",
    "make_memory",
    "make_stream",
]

KIND = "sycl"


def make_engine(device: Any, context: Any = None) -> Engine:
    """The engine of a `dpctl.SyclDevice` in a `dpctl.SyclContext`, by default that of its platform.

    Engines of one device in one context are equal. Raises `InvalidArguments` for a device that is
    not in the context, or takes no SPIR-V or has no USM.
    """
    if not isinstance(device, dpctl().SyclDevice):
        raise InvalidArguments("device", device, "expected a dpctl.SyclDevice")
    if not isinstance(context, dpctl().SyclContext | None):
        raise InvalidArguments("context", context, "expected a dpctl.SyclContext")
    if context is None and device.parent_device is not None:
        context = dpctl().SyclQueue(device).sycl_context
    if context is not None and device not in context.get_devices():
        rule = f"the context does not contain the device {device.name}"
        raise InvalidArguments("context", context, rule)
    index, backend = sycl.of_context(device, context)
    return Engine(KIND, index) if backend is None else Engine.of(KIND, backend)


def make_stream(queue: Any, engine: Engine | None = None) -> Stream:
    """The stream of a `dpctl.SyclQueue`, in order or not as that is; the engine follows from it.

    Raises `InvalidArguments` for a queue of another device or context than ``engine``.
    """
    if not isinstance(queue, dpctl().SyclQueue):
        raise InvalidArguments("queue", queue, "expected a dpctl.SyclQueue")
    own = make_engine(queue.sycl_device, queue.sycl_context)
    if engine is not None and engine != own:
        rule = f"the queue belongs to another device or context than {engine!r}"
        raise InvalidArguments("queue", queue.sycl_device.filter_string, rule)
    return Stream.of(
        own,
        _backend(own).adopt(queue),
        in_order=queue.is_in_order,
        profiling=queue.has_enable_profiling,
    )


def make_memory(desc: MemoryDesc, engine: Engine, usm: Any) -> Memory:
    """The memory of USM: a `dpctl.memory` object, or whatever has `__sycl_usm_array_interface__`,
    such as an array of dpnp. It is not copied, and stays alive with the memory.

    Raises `InvalidArguments` where it belongs to another context, or does not fit ``desc``.
    """
    _backend(engine)
    if not hasattr(usm, "__sycl_usm_array_interface__"):
        rule = "expected USM; dpctl carries no sycl::buffer"
        raise InvalidArguments("usm", type(usm).__name__, rule, "dpctl.memory.MemoryUSMDevice")
    return Memory(desc, engine, usm)


def make_event(event: Any) -> Event:
    """A `dpctl.SyclEvent` as an event that executions can be ``after``."""
    if not isinstance(event, dpctl().SyclEvent):
        raise InvalidArguments("event", event, "expected a dpctl.SyclEvent")
    return sycl.Launch(None, event, None)


def get_device(engine: Engine) -> Any:
    """The `dpctl.SyclDevice` of an engine."""
    return _backend(engine).device


def get_context(engine: Engine) -> Any:
    """The `dpctl.SyclContext` of an engine."""
    return _backend(engine).context


def get_queue(stream: Stream) -> Any:
    """The `dpctl.SyclQueue` of a stream."""
    if not isinstance(stream.queue, sycl.SyclQueue):
        raise InvalidArguments("stream", stream, "expected a stream of an engine of kind 'sycl'")
    return stream.queue.sycl


def get_usm(memory: Memory) -> Any:
    """The USM memory of dpctl with the bytes of a tensor, the first of them at its beginning."""
    _backend(memory.engine)
    buffer = memory.buffer
    if buffer.offset == 0:
        return buffer.handle
    return sycl_usm.part(buffer.handle, buffer.offset, memory.desc.size)


def get_event(event: Event) -> Any:
    """The `dpctl.SyclEvent` of an execution on a SYCL engine."""
    if not isinstance(event, sycl.Launch) or event.event is None:
        raise InvalidArguments("event", event, "expected the event of an execution on SYCL")
    return event.event


def execute(
    primitive: Primitive, stream: Stream, args: Mapping[int, Memory], deps: Sequence[Any] = ()
) -> Any:
    """`Primitive.execute` after `dpctl.SyclEvent` objects; the result is one too."""
    event = primitive.execute(stream, args, after=[make_event(dep) for dep in deps])
    return get_event(event)


def _backend(engine: Engine) -> sycl.Engine:
    backend = checked_engine(engine).backend
    if not isinstance(backend, sycl.Engine):
        raise InvalidArguments("engine", engine, "expected an engine of kind 'sycl'")
    return backend
