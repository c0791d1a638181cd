"""Memory that is not to be written, copies that nobody else would see, and what becomes a copy."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from dnnl.errors import InvalidArguments
from dnnl.runtime.engine import Engine
from dnnl.runtime.memory import Memory
from dnnl.types.memory_desc import MemoryDesc
from tests.device import FAR
from tests.pairs import every_pair

CPU = Engine("cpu")
PLAIN = MemoryDesc((2, 3), "f32", "ab")
BLOCKED = MemoryDesc((2, 5, 2, 3), "f32", "nChw4c")
RANDOM = np.random.default_rng(5)


def filled(shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
    return RANDOM.integers(-8, 8, shape).astype(dtype)


def read_only() -> np.ndarray:
    data = filled((2, 3))
    data.flags.writeable = False
    return data


@pytest.mark.parametrize(
    "make", [read_only, lambda: read_only().tobytes(), lambda: read_only().data]
)
def test_of_a_read_only_buffer_the_memory_is_read_only(make: Any) -> None:
    buffer = make()
    memory = Memory(PLAIN, CPU, buffer)
    assert memory.readonly
    assert memory.pointer == Memory(PLAIN, CPU, buffer).pointer
    assert memory.data.tobytes() == bytes(buffer)
    for array in (memory.numpy(), memory.data, np.asarray(memory), memory.read()):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 1
    with pytest.raises(InvalidArguments, match=r"memory = .*is read-only; make a memory of a copy"):
        memory.write(np.zeros(24, np.uint8))
    assert not memory.reorder_to("ba").readonly


@pytest.mark.parametrize("desc", [BLOCKED, MemoryDesc((16,), "s4", "a")])
def test_what_is_written_is_never_lost(desc: MemoryDesc) -> None:
    source = filled(desc.dims, desc.data_type.numpy)
    memory = Memory.from_numpy(source, desc.tag)
    for gathered in (memory.numpy(), np.asarray(memory)):
        with pytest.raises(ValueError, match="read-only"):
            gathered[...] = 0
    np.array(memory)[...] = 0  # which asks for a copy
    assert np.array_equal(memory.numpy(), source)


def test_read_only_arrays_are_sources() -> None:
    source = read_only()
    shared = Memory.from_numpy(source)
    assert shared.readonly
    assert shared.pointer == source.ctypes.data
    spread = Memory.from_numpy(np.broadcast_to(source[0], (2, 3)))
    assert spread.desc == MemoryDesc((2, 3), "f32", (0, 1))
    assert np.array_equal(spread.numpy(), [source[0]] * 2)


@every_pair(
    pytest.mark.parametrize("engine", [CPU, Engine("null"), FAR]),
    pytest.mark.parametrize(
        "copied", [copy.copy, copy.deepcopy, lambda memory: pickle.loads(pickle.dumps(memory))]
    ),
    pytest.mark.parametrize("tag", ["acb", "aBc4b"]),
)
def test_copies_and_pickles_have_the_bytes(
    engine: Engine, copied: Callable[[Memory], Memory], tag: str
) -> None:
    source = filled((2, 5, 3))
    memory = Memory.from_numpy(source, tag, engine)
    made = copied(memory)
    assert (made.desc, made.engine) == (memory.desc, memory.engine)
    memory.write(np.zeros(memory.desc.size, np.uint8))
    assert np.array_equal(made.numpy(), source)
    assert not copied(Memory.from_numpy(read_only())).readonly


def test_tensors_of_types_that_numpy_lacks() -> None:
    tensor = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3).t()
    memory = Memory.from_numpy(tensor)
    assert memory.desc == MemoryDesc((3, 2), "bf16", "ba")
    assert memory.pointer == tensor.data_ptr()
    memory.numpy()[2, 1] = 9
    assert tensor[2, 1] == 9
    for data_type in (torch.float32, torch.bfloat16):
        leaf = torch.zeros(3, dtype=data_type, requires_grad=True)
        with pytest.raises(InvalidArguments, match=r"array = 'Tensor': .*detach\(\)"):
            Memory.from_numpy(leaf)
        assert Memory.from_numpy(leaf.detach()).pointer == leaf.data_ptr()


@pytest.mark.parametrize("source", [CPU, FAR], ids=["cpu", "far"])
@pytest.mark.parametrize("target", [CPU, FAR], ids=["cpu", "far"])
def test_a_memory_takes_the_first_bytes_of_one_on_any_engine(
    target: Engine, source: Engine
) -> None:
    array = filled((4, 3))
    memory = Memory(PLAIN, target)
    memory.write_from(Memory.from_numpy(array, engine=source))
    np.testing.assert_array_equal(memory.numpy(), array[:2])


def test_what_a_memory_cannot_take_of_another_one_is_refused() -> None:
    memory, short = Memory(PLAIN, CPU), Memory(MemoryDesc((5,), "f32", "a"), CPU)
    with pytest.raises(InvalidArguments, match=r"source = .*expected 24 bytes, it has 20"):
        memory.write_from(short)
    with pytest.raises(InvalidArguments, match=r"(?s)source = array.*expected a dnnl.Memory"):
        memory.write_from(filled((2, 3)))  # type: ignore[arg-type]
    with pytest.raises(InvalidArguments, match="read-only"):
        Memory(PLAIN, CPU, read_only()).write_from(memory)
