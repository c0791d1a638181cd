"""`Memory.reorder_to`: the same tensor in another layout or type."""

from __future__ import annotations

import numpy as np
import pytest

from dnnl.errors import InvalidArguments
from dnnl.runtime.engine import Engine
from dnnl.runtime.memory import Memory
from dnnl.types.memory_desc import MemoryDesc

CPU = Engine("cpu")


def test_a_reorder_keeps_the_tensor_and_zeroes_the_padding() -> None:
    values = np.arange(60, dtype=np.float32).reshape(2, 5, 2, 3) + 1
    memory = Memory.from_numpy(values)
    for target in (
        "nchw",
        "nhwc",
        "nChw4c",
        MemoryDesc(values.shape, "f32", "nChw4c"),
        MemoryDesc(values.shape, "f32", "ABcd2b4a2b"),
    ):
        other = memory.reorder_to(target)
        np.testing.assert_array_equal(other.numpy(), values)
        assert np.count_nonzero(other.data.view(np.float32)) == values.size
        np.testing.assert_array_equal(other.reorder_to("nchw").numpy(), values)
        assert not np.shares_memory(other.data, memory.data)


def test_a_reorder_changes_the_type_too() -> None:
    memory = Memory.from_numpy(np.array([[0.5, 300.0, -3e9], [1.5, -2.5, 3e9]], np.float32))
    for other in (
        memory.reorder_to("ba", "s32"),
        memory.reorder_to(MemoryDesc((2, 3), "s32", "ba")),
        memory.reorder_to(data_type="s32").reorder_to("ba"),
    ):
        assert other.desc == MemoryDesc((2, 3), "s32", "ba")
        assert other.numpy().tolist() == [[0, 300, -(2**31)], [2, -2, 2**31 - 1]]
    with pytest.raises(InvalidArguments, match="data_type = 'f33'"):
        memory.reorder_to(data_type="f33")


def test_a_reorder_does_not_change_the_dims() -> None:
    memory = Memory(MemoryDesc((2, 3), "f32"), CPU)
    with pytest.raises(InvalidArguments, match=r"must have the dims of the tensor, \(2, 3\)"):
        memory.reorder_to(MemoryDesc((3, 2), "f32", "ab"))
    with pytest.raises(InvalidArguments, match="a memory needs a layout"):
        memory.reorder_to("any")
