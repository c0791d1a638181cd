"""Reorder between engines: one whose memory the host cannot touch, and the cpu."""

from __future__ import annotations

import numpy as np
import pytest

import dnnl
from dnnl import (
    RUNTIME_DIM,
    Arg,
    BinaryDesc,
    Engine,
    InvalidArguments,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveAttr,
    PrimitiveDesc,
    ReorderDesc,
    Stream,
)
from tests.check import POISON, logical, memory_of, random_memory
from tests.device import FAR, FarBackend, backend_of
from tests.primitives.harness import ENGINE, describe

STREAM = Stream(ENGINE, 1)
DIMS = (2, 19, 3, 5)


@pytest.fixture
def far() -> tuple[Engine, FarBackend]:
    return FAR, backend_of(FAR)


def moved(memory: Memory, engine: Engine) -> Memory:
    """A copy of the bytes on another engine."""
    copy = Memory(memory.desc, engine)
    copy.write(memory.read())
    return copy


def poisoned(desc: MemoryDesc, engine: Engine) -> Memory:
    memory = Memory(desc, engine)
    memory.write(np.full(desc.size, POISON, np.uint8))
    return memory


@pytest.mark.parametrize("dst", ["nhwc", "nChw8c", "gaps", "part"])
def test_between_two_devices(dst: str) -> None:
    """Bytes go from one to the other, and the device of dst executes."""
    first, second = Engine("far", 0), Engine("far", 1)
    here = random_memory(describe(DIMS, "nchw"), ENGINE)
    src, target = moved(here, first), poisoned(describe(DIMS, dst), second)
    pd = PrimitiveDesc(ReorderDesc(src.desc, target.desc), second, src_engine=first)
    assert (pd.engine, pd.src_engine, pd.dst_engine) == (second, first, second)
    reads, writes = backend_of(first).reads, backend_of(second).writes
    Primitive(pd).execute(Stream(second), {Arg.SRC: src, Arg.DST: target})
    assert (backend_of(first).reads, backend_of(second).writes) == (reads + 1, writes + 1)
    near = poisoned(target.desc, ENGINE)
    beside = Primitive(PrimitiveDesc(ReorderDesc(here.desc, near.desc), ENGINE))
    beside.execute(STREAM, {Arg.SRC: here, Arg.DST: near})
    assert (target.read() == near.data).all()  # what is in gaps too
    dnnl.reorder(src, target).wait()
    assert (target.read() == near.data).all()


@pytest.mark.parametrize(("dst", "reads"), [("nhwc", 0), ("nChw8c", 0), ("gaps", 1)])
def test_what_is_written_whole_is_not_read(dst: str, reads: int) -> None:
    here = random_memory(describe(DIMS, "nchw"), ENGINE)
    there = poisoned(describe(DIMS, dst), FAR)
    before = backend_of(FAR).reads
    dnnl.reorder(here, there)
    assert backend_of(FAR).reads == before + reads


@pytest.mark.parametrize("dst", ["nhwc", "nChw8c", "gaps", "part"])
def test_there_and_back(far: tuple[Engine, FarBackend], dst: str) -> None:
    engine, _ = far
    here = random_memory(describe(DIMS, "nchw"), ENGINE)
    there = poisoned(describe(DIMS, dst), engine)
    away = PrimitiveDesc(ReorderDesc(here.desc, there.desc), engine, src_engine=ENGINE)
    assert (away.engine, away.src_engine, away.dst_engine) == (ENGINE, ENGINE, engine)
    Primitive(away).execute(STREAM, {Arg.SRC: here, Arg.DST: there})
    near = poisoned(there.desc, ENGINE)
    beside = Primitive(PrimitiveDesc(ReorderDesc(here.desc, near.desc), ENGINE))
    beside.execute(STREAM, {Arg.SRC: here, Arg.DST: near})
    assert (there.read() == near.data).all()  # what lies in gaps too
    back = Memory(here.desc, ENGINE)
    home = PrimitiveDesc(ReorderDesc(there.desc, here.desc), ENGINE, src_engine=engine)
    assert home.engine == ENGINE
    Primitive(home).execute(STREAM, {Arg.SRC: there, Arg.DST: back})
    assert (logical(back) == logical(here)).all()


def test_with_attributes_and_bound(far: tuple[Engine, FarBackend]) -> None:
    engine, backend = far
    here = random_memory(MemoryDesc((3, 20), "f32"), ENGINE)
    old = random_memory(MemoryDesc((3, 20), "f32", "ba"), ENGINE, 2)
    there = moved(old, engine)
    attr = PrimitiveAttr()
    attr.set_scales(Arg.SRC)
    attr.post_ops.append_sum(0.5)
    pd = PrimitiveDesc(ReorderDesc(here.desc, there.desc), engine, attr, src_engine=ENGINE)
    scale = memory_of([4.0], MemoryDesc((1,), "f32"), ENGINE)
    args = {int(Arg.SRC): here, int(Arg.DST): there, Arg.SCALES | Arg.SRC: scale}
    run = Primitive(pd).bind(STREAM, args)
    before = backend.writes
    want = logical(old)
    for _ in range(2):
        run()
        want = 4 * logical(here) + 0.5 * want
    assert backend.writes == before + 2
    np.testing.assert_allclose(there.numpy(), want, rtol=1e-6)


def test_sizes_of_the_execution(far: tuple[Engine, FarBackend]) -> None:
    engine, _ = far
    plain = MemoryDesc((RUNTIME_DIM, RUNTIME_DIM), "f32")
    desc = ReorderDesc(plain, plain.permute_axes((1, 0)))
    primitive = Primitive(PrimitiveDesc(desc, engine, src_engine=ENGINE))
    for dims in ((3, 4), (17, 40)):
        here = random_memory(MemoryDesc(dims, "f32"), ENGINE)
        there = Memory(MemoryDesc(dims, "f32", "ba"), engine)
        primitive.execute(STREAM, {Arg.SRC: here, Arg.DST: there})
        assert (there.numpy() == here.numpy()).all()


def test_sizes_of_the_execution_there(far: tuple[Engine, FarBackend]) -> None:
    """What the library tells the kernel about them lies there too, and lives as long as it must."""
    engine, device = far
    plain = MemoryDesc((RUNTIME_DIM, RUNTIME_DIM), "f32")
    primitive = Primitive(PrimitiveDesc(ReorderDesc(plain, plain.permute_axes((1, 0))), engine))
    stream = Stream(engine, in_order=False)
    pairs = []
    with device.held():
        for rows in range(1, 300):  # more than are kept prepared
            here = random_memory(MemoryDesc((rows, 40), "f32"), ENGINE)
            there = Memory(MemoryDesc((rows, 40), "f32", "ba"), engine)
            primitive.execute(stream, {Arg.SRC: moved(here, engine), Arg.DST: there})
            pairs.append((here, there))
    for here, there in pairs:
        assert (there.numpy() == here.numpy()).all()


def test_wrong_uses_are_named(far: tuple[Engine, FarBackend]) -> None:
    engine, _ = far
    plain = MemoryDesc((3, 4), "f32")
    desc = ReorderDesc(plain, plain)
    here, there = Memory(plain, ENGINE), Memory(plain, engine)
    primitive = Primitive(PrimitiveDesc(desc, engine, src_engine=ENGINE))
    with pytest.raises(InvalidArguments, match=r"args\[DST\].*must be on Engine\('far', 0\)"):
        primitive.execute(STREAM, {Arg.SRC: here, Arg.DST: Memory(plain, ENGINE)})
    with pytest.raises(InvalidArguments, match=r"args\[SRC\].*must be on Engine\('cpu', 0\)"):
        primitive.execute(STREAM, {Arg.SRC: there, Arg.DST: there})
    with pytest.raises(InvalidArguments, match=r"args\[DST\].*missing"):
        primitive.execute(STREAM, {Arg.SRC: here})
    with pytest.raises(InvalidArguments, match=r"stream.*must be a stream of Engine\('cpu', 0\)"):
        primitive.execute(Stream(engine), {Arg.SRC: here, Arg.DST: there})
    with pytest.raises(InvalidArguments, match="all tensors of a binary are on one engine"):
        PrimitiveDesc(BinaryDesc("binary_add", plain, plain, plain), ENGINE, src_engine=engine)
    with pytest.raises(InvalidArguments, match=r"src_engine.*expected a dnnl.Engine"):
        PrimitiveDesc(desc, ENGINE, src_engine="cpu")  # type: ignore[arg-type]
