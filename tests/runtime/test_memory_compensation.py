"""Memory of weights with sums behind them: what is seen of it, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from dnnl import Compensation, Engine, InvalidArguments, Memory, MemoryDesc

CPU = Engine("cpu")
DESC = MemoryDesc((3, 5), "s8", "Ab4a", compensation=Compensation(1, 2))


def test_weights_and_sums_are_views() -> None:
    memory = Memory(DESC, CPU)
    assert memory.data.size == DESC.size == 20 + 4 * 4 + 4 * 5
    memory.data[:] = 0
    memory.compensation("s8s8")[:] = np.array([[5], [6], [7]])
    memory.compensation("zero_points")[:] = -np.arange(1, 6)
    assert memory.compensation("s8s8").shape == (3, 1)
    assert memory.compensation("zero_points").shape == (1, 5)
    words = memory.data[20:].view(np.int32)
    np.testing.assert_array_equal(words, [5, 6, 7, 0, -1, -2, -3, -4, -5])
    assert not memory.numpy().any()
    assert memory.numpy().shape == (3, 5)


def test_a_kind_that_is_not_there() -> None:
    with pytest.raises(InvalidArguments, match="this tensor has none"):
        Memory(DESC.with_compensation(None), CPU).compensation("s8s8")
    with pytest.raises(InvalidArguments, match=r"kind = 's8'.*have s8s8, zero_points"):
        Memory(DESC, CPU).compensation("s8")


def test_bytes_are_wrapped_with_their_sums() -> None:
    plain = MemoryDesc((3, 4), "s8", compensation=Compensation(1))
    data = bytearray(range(24))
    memory = Memory(plain, CPU, data)
    memory.compensation("s8s8")[2, 0] = -1
    assert data[20:] == b"\xff" * 4
    with pytest.raises(InvalidArguments, match="does not have its elements as"):
        Memory(plain, CPU, np.zeros((3, 4), np.int8))
    with pytest.raises(InvalidArguments, match="the buffer has 12 bytes"):
        Memory(plain, CPU, bytearray(12))


def test_such_weights_are_made_and_read_back() -> None:
    values = np.arange(15, dtype=np.int8).reshape(3, 5)
    weights = Memory.from_numpy(values).reorder_to(DESC)
    assert (weights.numpy() == values).all()
    kind = next(iter(DESC.compensation.masks)) if DESC.compensation else ""
    assert weights.compensation(kind).any()
    for moved in (weights.reorder_to("ab"), weights.reorder_to(data_type="f32")):
        assert moved.desc.compensation is None
        assert (moved.numpy() == values).all()
