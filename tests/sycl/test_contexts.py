"""Several contexts on one device, and parts of a device: reorders between them, order by events,
and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dnnl
from dnnl import (
    Arg,
    Engine,
    InvalidArguments,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveAttr,
    PrimitiveDesc,
    Stream,
)
from tests.check import POISON
from tests.sycl.test_interop import device, other_context, usm

sycl = pytest.importorskip("dnnl.sycl")
dpctl = pytest.importorskip("dpctl")

DIMS = (3, 19, 7)
VALUES = np.random.default_rng(1).standard_normal(DIMS).astype(np.float32)


def own_engine() -> Engine:
    """The device in a context of its own."""
    made: Engine = sycl.make_engine(device(), other_context())
    return made


def parts() -> tuple[Engine, Engine]:
    """Engines of two parts of the device, in one context."""
    try:
        found = device().create_sub_devices(partition=[1, 1])
        context = dpctl.SyclContext(found)
    except (dpctl.SyclSubDeviceCreationError, ValueError) as error:
        pytest.skip(f"the device has no two parts: {error}")
    first, second = (sycl.make_engine(part, context) for part in found)
    return first, second


PAIRS: dict[str, Callable[[], tuple[Engine, Engine]]] = {
    "cpu to sycl": lambda: (Engine("cpu"), Engine("sycl")),
    "sycl to cpu": lambda: (Engine("sycl"), Engine("cpu")),
    "two contexts": lambda: (Engine("sycl"), own_engine()),
    "two own contexts": lambda: (own_engine(), own_engine()),
    "two parts": parts,
    "part to whole": lambda: (parts()[0], Engine("sycl")),
    "cpu to part": lambda: (Engine("cpu"), parts()[1]),
}


@pytest.mark.parametrize(
    "tags", [("abc", "acb"), ("cba", "aBc8b"), ("aBc16b", "bac")], ids="-".join
)
@pytest.mark.parametrize("name", PAIRS)
def test_reorders(name: str, tags: tuple[str, str]) -> None:
    there, here = PAIRS[name]()
    src = Memory.from_numpy(VALUES, tags[0], there)
    dst = Memory(MemoryDesc(DIMS, "f16", tags[1]), here)
    dnnl.reorder(src, dst)
    assert (dst.numpy() == VALUES.astype(np.float16)).all()


@pytest.mark.parametrize("name", PAIRS)
def test_reorders_with_sums_and_gaps(name: str) -> None:
    there, here = PAIRS[name]()
    desc = MemoryDesc(DIMS, "f32", (300, 15, 2))
    dst = Memory(desc, here)
    dst.write(np.full(desc.size, POISON, np.uint8))
    before = dst.numpy().copy()
    attr = PrimitiveAttr()
    attr.set_scales(Arg.SRC)
    attr.post_ops.append_sum(0.5)
    pd = PrimitiveDesc(
        dnnl.ReorderDesc(MemoryDesc(DIMS, "f32", "bca"), desc), here, attr, src_engine=there
    )
    scale = Memory.from_numpy(np.array([4], np.float32), engine=pd.engine)
    args: dict[int, Memory] = {
        Arg.SRC: Memory.from_numpy(VALUES, "bca", there),
        Arg.DST: dst,
        Arg.SCALES | Arg.SRC: scale,
    }
    Primitive(pd).execute(Stream(pd.engine), args).wait()
    np.testing.assert_allclose(dst.numpy(), 4 * VALUES + before / 2, rtol=1e-6)
    steps = np.reshape(desc.strides, (3, 1, 1, 1))
    gaps = np.delete(dst.read().view(np.uint32), (np.indices(DIMS) * steps).sum(0).ravel())
    assert (gaps.view(np.uint8) == POISON).all()


def square(engine: Engine, desc: MemoryDesc) -> Primitive:
    made = dnnl.EltwiseDesc.forward("forward_inference", "eltwise_square", desc, desc)
    return Primitive(PrimitiveDesc(made, engine))


def test_events_of_another_context() -> None:
    """An execution waits for one in another context, on a queue out of order."""
    desc = MemoryDesc((1 << 20,), "f32")
    first, second = own_engine(), own_engine()
    a = Memory.from_numpy(np.full(1 << 20, 1.01, np.float32), engine=first)
    b = Memory.from_numpy(np.full(1 << 20, 1.02, np.float32), engine=second)
    event: Any = None
    for engine, memory in ((first, a), (second, b), (first, a), (second, b)):
        stream = Stream(engine, in_order=False)
        args = {Arg.SRC: memory, Arg.DST: memory}
        event = square(engine, desc).execute(stream, args, after=[event] if event else [])
    event.wait()
    np.testing.assert_allclose(a.numpy(), 1.01**4, rtol=1e-5)
    np.testing.assert_allclose(b.numpy(), 1.02**4, rtol=1e-5)


def test_queues_out_of_order_by_events() -> None:
    """Each execution is after its sources alone, whatever the order of submission."""
    desc = MemoryDesc((1 << 18,), "f32")
    queue = dpctl.SyclQueue(other_context(), device())
    stream = sycl.make_stream(queue)
    assert not stream.in_order
    engine, primitive = stream.engine, square(stream.engine, desc)
    for _ in range(3):
        chains = []
        for number in range(3):
            values = np.full(desc.dims, 1 + number / 100, np.float32)
            made = dpctl.memory.MemoryUSMDevice(desc.size, queue=queue)
            filled = queue.memcpy_async(made, values.view(np.uint8), desc.size)
            chains.append((values, sycl.make_memory(desc, engine, made), [filled]))
        for _ in range(5):
            for _, memory, events in chains:
                args = {Arg.SRC: memory, Arg.DST: memory}
                events.append(sycl.execute(primitive, stream, args, events[-1:]))
        for values, memory, events in chains:
            back = np.empty_like(values)
            queue.memcpy_async(
                back.view(np.uint8), sycl.get_usm(memory), desc.size, events[-1:]
            ).wait()
            np.testing.assert_allclose(back, values.astype(np.float64) ** 32, rtol=1e-4)


def test_what_belongs_to_another_context_is_refused_by_name() -> None:
    engine, own = Engine("sycl"), own_engine()
    desc = MemoryDesc(DIMS, "f32")
    primitive = square(own, desc)
    here, there = Memory(desc, own), Memory(desc, engine)
    other = r"Engine\('sycl', 0, of another context\)"
    with pytest.raises(InvalidArguments, match=rf"args\[SRC\] = .*must be on {other}"):
        primitive.execute(Stream(own), {Arg.SRC: there, Arg.DST: here})
    with pytest.raises(InvalidArguments, match=rf"args\[DST\] = .*must be on {other}"):
        primitive.execute(Stream(own), {Arg.SRC: here, Arg.DST: there})
    with pytest.raises(InvalidArguments, match=rf"stream = .*must be a stream of {other}"):
        primitive.execute(Stream(engine), {Arg.SRC: here, Arg.DST: here})
    queue = dpctl.SyclQueue(other_context(), device())
    with pytest.raises(InvalidArguments, match=r"queue = .*another device or context"):
        sycl.make_stream(queue, own)
    foreign = usm("MemoryUSMShared", queue, VALUES)
    for target in (engine, own):
        with pytest.raises(InvalidArguments, match=r"buffer = .*another context.*make_engine"):
            sycl.make_memory(desc, target, foreign)
    with pytest.raises(InvalidArguments, match="context does not contain the device"):
        sycl.make_engine(sycl.get_device(parts()[0]), other_context())
    assert (here.engine, there.engine) == (own, engine)
