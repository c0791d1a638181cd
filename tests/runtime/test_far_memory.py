"""Memory that the host cannot touch is copied, by the engine's own hooks."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from dnnl.errors import InvalidArguments
from dnnl.runtime.backend import Buffer
from dnnl.runtime.engine import Engine
from dnnl.runtime.memory import Memory
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc
from tests.device import FAR, FRESH, Block, FarBackend, backend_of

ARRAY = np.random.default_rng(1).standard_normal((2, 19, 3)).astype(np.float32)


@pytest.fixture
def far() -> tuple[Engine, FarBackend]:
    return FAR, backend_of(FAR)


@pytest.mark.parametrize("tag", [None, "acb", "aBc8b"])
def test_arrays_go_there_and_come_back(far: tuple[Engine, FarBackend], tag: str | None) -> None:
    engine, backend = far
    source, writes, reads = ARRAY.copy(), backend.writes, backend.reads
    memory = Memory.from_numpy(source, tag, engine)
    source[:] = 0
    assert (backend.writes, backend.reads) == (writes + 1, reads)
    assert (memory.numpy() == ARRAY).all()
    assert (np.asarray(memory) == ARRAY).all()
    assert backend.reads == reads + 2
    moved = memory.reorder_to("cba")
    assert moved.engine is engine
    assert (moved.numpy() == ARRAY).all()


def test_strides_and_small_elements_too(far: tuple[Engine, FarBackend]) -> None:
    engine, _ = far
    turned = ARRAY.transpose(2, 0, 1)
    memory = Memory.from_numpy(turned, None, engine)
    assert memory.desc == MemoryDesc(turned.shape, "f32", (1, 57, 3))
    assert (memory.numpy() == turned).all()
    nibbles = np.arange(15).astype(DataType.u4.numpy)
    assert (Memory.from_numpy(nibbles, None, engine).numpy() == nibbles).all()


def test_raw_bytes(far: tuple[Engine, FarBackend]) -> None:
    engine, _ = far
    memory = Memory(MemoryDesc((3, 5), "u8"), engine)
    content = np.arange(15, dtype=np.uint8)
    memory.write(content)
    handle, offset = memory.buffer.handle, memory.buffer.offset
    assert (handle.bytes[offset : offset + 15] == content).all()
    copy = memory.read()
    with pytest.raises(ValueError, match="read-only"):
        copy[:] = 0
    with pytest.raises(ValueError, match="read-only"):
        memory.numpy()[:] = 0
    for wrong in (content[:3], content.astype(np.int16), content.reshape(3, 5)):
        with pytest.raises(InvalidArguments, match="expected 15 bytes"):
            memory.write(wrong)  # type: ignore[arg-type]


def test_the_memory_of_the_cpu_is_not_copied() -> None:
    memory = Memory(MemoryDesc((3, 5), "u8"), Engine("cpu"))
    memory.write(np.arange(15, dtype=np.uint8))
    assert np.shares_memory(memory.read(), memory.data)
    assert (memory.numpy().ravel() == np.arange(15)).all()


def test_nothing_is_shared(far: tuple[Engine, FarBackend]) -> None:
    engine, _ = far
    desc = MemoryDesc(ARRAY.shape, "f32")
    with pytest.raises(
        InvalidArguments, match=r"buffer.*cannot use memory of the host.*from_numpy"
    ):
        Memory(desc, engine, ARRAY.copy())
    memory = Memory(desc, engine)
    with pytest.raises(InvalidArguments, match=r"host cannot touch memory of Engine\('far', 0\)"):
        _ = memory.data
    with pytest.raises(InvalidArguments, match=r"memory of Engine\('far', 0\) has no address"):
        _ = memory.pointer
    with pytest.raises(BufferError, match="cannot share"):
        np.from_dlpack(memory)
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(memory, copy=False)


def test_a_handle_of_the_device_is_wrapped_with_an_offset(far: tuple[Engine, FarBackend]) -> None:
    engine, _ = far
    block = Block(100)
    desc = MemoryDesc((3, 5), "f32")
    memory = Memory(desc, engine, Buffer(block, 16, None, owner=block))
    content = np.arange(60, dtype=np.uint8)
    memory.write(content)
    assert (block.bytes[16:76] == content).all()
    assert (block.bytes[:16] == FRESH).all()
    assert (block.bytes[76:] == FRESH).all()
    assert (memory.read() == content).all()
    assert memory.argument == memory.buffer
    for wrong in (Buffer(block, -1, None, block), Buffer(block, 0, block.bytes, block)):
        with pytest.raises(InvalidArguments, match=r"buffer.*expected a handle of Engine\('far'"):
            Memory(desc, engine, wrong)
    with pytest.raises(InvalidArguments, match=r"buffer.*expected a buffer"):
        Memory(desc, Engine("cpu"), Buffer(block, 0, None, block))


def test_the_distance_of_buffers() -> None:
    blocks = Block(10), Block(10)
    first, second = (Buffer(block, 3, None, None) for block in blocks)
    assert Buffer(blocks[0], 8, None, None) - first == 5
    assert first - second == second - first == inf
    assert Buffer(4096, 8, None, None) - Buffer(4000, 4, None, None) == 100
