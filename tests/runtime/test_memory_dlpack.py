"""Memory and DLPack: what is shared with other libraries, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from dnnl.errors import InvalidArguments
from dnnl.runtime.engine import Engine
from dnnl.runtime.memory import Memory
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc

CPU = Engine("cpu")


@pytest.mark.parametrize(
    "data_type", ["f16", "bf16", "f32", "f64", "s32", "s8", "u8", "s64", "f8_e5m2", "f8_e4m3"]
)
def test_torch_shares_the_memory_by_dlpack(data_type: str) -> None:
    memory = Memory(MemoryDesc((2, 3), data_type, "ba"), CPU)
    memory.data[:] = 0
    tensor = torch.utils.dlpack.from_dlpack(memory)
    assert tuple(tensor.shape) == (2, 3)
    assert tensor.stride() == (1, 2)
    assert tensor.data_ptr() == memory.pointer
    tensor[1, 2] = 1
    assert memory.numpy()[1, 2] == DataType[data_type].numpy.type(1)
    assert Memory(memory.desc, CPU, tensor).pointer == memory.pointer


def test_numpy_shares_the_memory_by_dlpack() -> None:
    memory = Memory.from_numpy(np.ones((2, 3), np.float32))
    shared = np.from_dlpack(memory)
    assert np.shares_memory(shared, memory.data)
    assert np.from_dlpack(memory, copy=True).ctypes.data != memory.pointer
    assert memory.__dlpack_device__() == (1, 0)


@pytest.mark.parametrize("data_type", [torch.float32, torch.bfloat16])
def test_negated_views_of_torch_are_refused(data_type: torch.dtype) -> None:
    """Their memory has the numbers with the opposite sign; a capsule does not say so."""
    view: torch.Tensor = torch.tensor([1 + 2j, 3 - 4j]).conj().imag
    if data_type is torch.bfloat16:
        negated: Any = torch._neg_view
        view = negated(torch.tensor([2, -4], dtype=data_type))
    desc = MemoryDesc((2,), "f32" if data_type is torch.float32 else "bf16")
    takers: list[Callable[[Any], Memory]] = [
        Memory.from_numpy,
        lambda given: Memory(desc, CPU, given),
    ]
    for take in takers:
        with pytest.raises(InvalidArguments, match=r"negated numbers.*resolve_neg\(\)"):
            take(view)
        assert take(view.resolve_neg()).numpy().tolist() == [-2, 4]
    with pytest.raises(InvalidArguments, match="conjugate bit"):
        Memory.from_numpy(torch.tensor([1 + 2j]).conj())


def test_dlpack_does_not_copy_behind_your_back() -> None:
    message = re.escape(
        "DLPack cannot describe the layout f32:p:blocked:aBcd4b::f0 without a copy; "
        "export numpy() or reorder_to() a plain layout"
    )
    with pytest.raises(BufferError, match=message):
        np.from_dlpack(Memory(MemoryDesc((2, 5, 2, 3), "f32", "nChw4c"), CPU))


def test_memory_of_the_host_has_no_streams() -> None:
    memory = Memory.from_numpy(np.ones((2, 3), np.float32))
    assert memory.__dlpack__(stream=None)
    with pytest.raises(InvalidArguments, match="stream = 1: memory of the host has no streams"):
        memory.__dlpack__(stream=1)
