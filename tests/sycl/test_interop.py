"""Objects of SYCL in the library's, and back."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import dnnl
from dnnl import Arg, Engine, InvalidArguments, Memory, MemoryDesc, Primitive, PrimitiveDesc, Stream

sycl = pytest.importorskip("dnnl.sycl")
dpctl = pytest.importorskip("dpctl")

DESC = MemoryDesc((6, 35), "f32")
USM = ["MemoryUSMDevice", "MemoryUSMShared", "MemoryUSMHost"]


def device() -> Any:
    return sycl.get_device(Engine("sycl"))


def other_context() -> Any:
    """A context with the first device that is not the default one."""
    return dpctl.SyclContext([device()])


def square(engine: Engine) -> Primitive:
    desc = dnnl.EltwiseDesc.forward("forward_inference", "eltwise_square", DESC, DESC)
    return Primitive(PrimitiveDesc(desc, engine))


def numbers(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(DESC.dims, np.float32)


def usm(kind: str, queue: Any, array: np.ndarray) -> Any:
    made = getattr(dpctl.memory, kind)(array.nbytes, queue=queue)
    made.copy_from_host(array.reshape(-1).view(np.uint8))
    return made


def test_engines_of_devices_and_contexts() -> None:
    context = other_context()
    own = sycl.make_engine(device(), context)
    assert sycl.make_engine(device()) == Engine("sycl") != own
    assert own == sycl.make_engine(device(), context)
    assert hash(own) == hash(sycl.make_engine(device(), context))
    assert sycl.get_device(own) == device()
    assert sycl.get_context(own) == context
    assert pickle.loads(pickle.dumps(Engine("sycl"))) == Engine("sycl")
    with pytest.raises(TypeError, match="no pickle"):
        pickle.dumps(own)


@pytest.mark.parametrize("in_order", [True, False])
def test_streams_of_queues(in_order: bool) -> None:
    queue = dpctl.SyclQueue(other_context(), device(), property=["in_order"] if in_order else [])
    stream = sycl.make_stream(queue)
    assert sycl.get_queue(stream) is queue
    assert stream.in_order == in_order
    assert stream.engine == sycl.make_engine(device(), queue.sycl_context)
    with pytest.raises(InvalidArguments, match=r"queue = .*another device or context"):
        sycl.make_stream(queue, Engine("sycl"))
    own = Stream(Engine("sycl"), in_order=in_order)
    assert sycl.get_queue(own).is_in_order == in_order


@pytest.mark.parametrize("kind", USM)
def test_memories_of_usm(kind: str) -> None:
    stream = sycl.make_stream(dpctl.SyclQueue(other_context(), device()))
    engine, given = stream.engine, numbers(1)
    src = sycl.make_memory(DESC, engine, usm(kind, sycl.get_queue(stream), given))
    dst = Memory(DESC, engine)
    square(engine).execute(stream, {Arg.SRC: src, Arg.DST: dst}).wait()
    back = np.frombuffer(sycl.get_usm(dst).tobytes(), np.float32).reshape(DESC.dims)
    assert (back == given * given).all()
    assert (dst.numpy() == back).all()


def test_a_part_of_usm() -> None:
    engine, given = Engine("sycl"), numbers(2)
    whole = Memory(MemoryDesc((2, *DESC.dims), "f32"), engine)
    whole.write(np.stack([given, -given]).reshape(-1).view(np.uint8))
    own = whole.buffer
    half = Memory(DESC, engine, own._replace(offset=DESC.size))
    assert (half.numpy() == -given).all()
    square(engine).execute(Stream(engine), {Arg.SRC: half, Arg.DST: half}).wait()
    assert (whole.numpy() == np.stack([given, given * given])).all()
    assert np.frombuffer(sycl.get_usm(half).tobytes(), np.float32)[0] == (given * given)[0, 0]


def test_events_of_sycl() -> None:
    engine = Engine("sycl")
    stream, given = Stream(engine, in_order=False), numbers(3)
    memory = Memory.from_numpy(given, engine=engine)
    args = {Arg.SRC: memory, Arg.DST: memory}
    events: list[Any] = []
    for _ in range(3):
        events.append(sycl.execute(square(engine), stream, args, events[-1:]))
    event = events[-1]
    assert isinstance(event, dpctl.SyclEvent)
    event.wait()
    assert np.allclose(memory.numpy(), given**8, rtol=1e-5)
    later = square(engine).execute(stream, args, after=[sycl.make_event(event)])
    later.wait()
    assert later.done
    assert sycl.get_event(later).execution_status.name == "complete"


def test_what_belongs_elsewhere_is_refused() -> None:
    engine = Engine("sycl")
    queue = dpctl.SyclQueue(other_context(), device())
    foreign = usm("MemoryUSMDevice", queue, numbers(4))
    with pytest.raises(InvalidArguments, match=r"buffer = .*another context.*make_engine"):
        sycl.make_memory(DESC, engine, foreign)
    with pytest.raises(InvalidArguments, match=r"usm = 'ndarray'.*no sycl::buffer"):
        sycl.make_memory(DESC, engine, numbers(4))
    short = dpctl.memory.MemoryUSMDevice(836, queue=sycl.get_queue(Stream(engine)))
    with pytest.raises(InvalidArguments, match=r"836 bytes.*needs 840"):
        sycl.make_memory(DESC, engine, short)
    with pytest.raises(InvalidArguments, match="expected an engine of kind 'sycl'"):
        sycl.make_memory(DESC, Engine("cpu"), foreign)
    with pytest.raises(InvalidArguments, match=r"device = .*SyclDevice"):
        sycl.make_engine("gpu")
    with pytest.raises(InvalidArguments, match="event of an execution on SYCL"):
        sycl.get_event(dnnl.runtime.event.COMPLETE)


class _Capsule:
    """Somebody's tensor of which only DLPack is known."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def __dlpack__(self, **options: Any) -> object:
        return self._memory.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._memory.__dlpack_device__()


@pytest.mark.parametrize("kind", ["f32", "bf16", "s8"])
@pytest.mark.parametrize("strides", [(35, 1), (1, 6)])
def test_memories_share_theirs(kind: str, strides: tuple[int, int]) -> None:
    engine = Engine("sycl")
    desc = MemoryDesc(DESC.dims, kind, strides)
    own = Memory(desc, engine)
    data = np.random.default_rng(5).integers(0, 100, desc.size, np.uint8)
    own.write(data)
    interface = own.__sycl_usm_array_interface__
    assert interface["shape"] == desc.dims
    assert interface["strides"] == strides
    assert _Capsule(own).__dlpack_device__() == (14, device().get_device_id())
    shared = Memory(desc, engine, _Capsule(own))
    assert shared.__sycl_usm_array_interface__["data"] == interface["data"]
    shared.write(data[::-1])
    assert (own.read() == data[::-1]).all()
    if kind != "bf16":  # a type that the interface has no code for
        again = Memory(desc, engine, own)
        assert again.__sycl_usm_array_interface__["data"] == interface["data"]


def test_memories_of_the_host_have_no_usm() -> None:
    assert not hasattr(Memory(DESC, Engine("cpu")), "__sycl_usm_array_interface__")


def test_arrays_of_dpnp() -> None:
    engine = Engine("sycl")
    dpnp = pytest.importorskip("dpnp")
    given = dpnp.asarray(np.arange(210, dtype=np.float32).reshape(6, 35))
    part = given[1:3, 5:20]
    md = MemoryDesc((2, 15), "f32", (35, 1))
    src = Memory(md, engine, part)
    assert (src.numpy() == dpnp.asnumpy(part)).all()
    dst = Memory(DESC, engine)
    arguments = {Arg.SRC: Memory(DESC, engine, given), Arg.DST: dst}
    square(engine).execute(Stream(engine), arguments).wait()
    assert (dpnp.asnumpy(dpnp.asarray(dst)) == dpnp.asnumpy(given * given)).all()
    assert (dpnp.asnumpy(dpnp.from_dlpack(dst)) == dst.numpy()).all()
