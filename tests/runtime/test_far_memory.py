"""Memory that the host cannot touch is copied, by the engine's own hooks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from dnnl.errors import InvalidArguments
from dnnl.runtime.engine import Engine
from dnnl.runtime.memory import Memory
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc
from tests.device import FarBackend, far_engines

ARRAY = np.random.default_rng(1).standard_normal((2, 19, 3)).astype(np.float32)


@pytest.fixture
def far() -> Iterator[tuple[Engine, FarBackend]]:
    with far_engines() as engine:
        yield engine


@pytest.mark.parametrize("tag", [None, "acb", "aBc8b"])
def test_arrays_go_there_and_come_back(far: tuple[Engine, FarBackend], tag: str | None) -> None:
    engine, backend = far
    source = ARRAY.copy()
    memory = Memory.from_numpy(source, tag, engine)
    source[:] = 0
    assert (backend.writes, backend.reads) == (1, 0)
    assert len(backend.kept[memory.pointer]) == memory.desc.size
    assert (memory.numpy() == ARRAY).all()
    assert (np.asarray(memory) == ARRAY).all()
    assert backend.reads == 2
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
    engine, backend = far
    memory = Memory(MemoryDesc((3, 5), "u8"), engine)
    content = np.arange(15, dtype=np.uint8)
    memory.write(content)
    assert backend.kept[memory.pointer] == content.tobytes()
    copy = memory.read()
    copy[:] = 0
    assert (memory.read() == content).all()
    for wrong in (content[:3], content.astype(np.int16), content.reshape(3, 5)):
        with pytest.raises(InvalidArguments, match="expected 15 bytes"):
            memory.write(wrong)  # type: ignore[arg-type]


def test_the_memory_of_the_cpu_is_not_copied() -> None:
    memory = Memory(MemoryDesc((3, 5), "u8"), Engine("cpu"))
    memory.write(np.arange(15, dtype=np.uint8))
    assert memory.read() is memory.data
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
    with pytest.raises(BufferError, match="cannot share"):
        np.from_dlpack(memory)
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(memory, copy=False)
