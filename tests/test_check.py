"""The checker itself: it fills and reads any layout, and it sees what is wrong."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dnnl.reference.tolerance import EXACT
from dnnl.runtime.engine import Engine
from dnnl.types.compensation import Compensation
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc
from tests import check

ENGINE = Engine("cpu")
LAYOUTS = [
    MemoryDesc((2, 5, 3, 4), "f32", "abcd"),
    MemoryDesc((2, 5, 3, 4), "f32", "acdb"),
    MemoryDesc((2, 5, 3, 4), "f32", "aBcd4b"),
    MemoryDesc((6, 5, 3, 2), "f32", "ABcd2b4a2b"),
    MemoryDesc((2, 3, 4), "f32", (40, 10, 2)),
    MemoryDesc((2, 3, 4), "f32", (0, 4, 1)),
    MemoryDesc((2, 3), "f32", offset0=7),
    MemoryDesc((2, 12, 3), "f32", "aBc4b").submemory((2, 8, 2), (0, 4, 1)),
    MemoryDesc((2, 12, 3), "f32", "aBc4b").submemory((2, 3, 2), (0, 4, 1)),
    MemoryDesc((), "f32"),
    MemoryDesc((2, 0, 3), "f32"),
]


@pytest.mark.parametrize("desc", LAYOUTS, ids=str)
def test_places_are_those_of_the_descriptor(desc: MemoryDesc) -> None:
    places = check.offsets(desc, desc.padded_dims)
    for index in itertools.product(*map(range, desc.padded_dims)):
        assert places[index] == desc.offset(index)


@pytest.mark.parametrize("data_type", [d for d in DataType if d.bits])
def test_what_is_stored_is_read(data_type: DataType) -> None:
    desc = MemoryDesc((3, 5, 2), data_type, "aBc4b")
    memory = check.random_memory(desc, ENGINE, seed=3)
    values = check.random_values(desc.dims, data_type, seed=3)
    np.testing.assert_array_equal(check.logical(memory), values)
    assert len(np.unique(values)) > 1
    check.check(memory, values, EXACT(data_type))


@pytest.mark.parametrize("desc", LAYOUTS, ids=str)
def test_every_layout(desc: MemoryDesc) -> None:
    memory = check.random_memory(desc, ENGINE)
    want = np.broadcast_to(check.logical(memory), desc.dims)
    check.check(memory, want, 0.0)
    np.testing.assert_array_equal(memory.numpy(), want)


def test_a_wrong_element_is_seen() -> None:
    desc = MemoryDesc((2, 3), "f32")
    memory = check.random_memory(desc, ENGINE)
    want = check.logical(memory)
    want[1, 2] += 1e-3
    with pytest.raises(AssertionError, match=r"1 of 6 elements are wrong:\n  \(1, 2\)"):
        check.check(memory, want, 1e-5)
    check.check(memory, want, 1e-1)
    with pytest.raises(AssertionError, match="shape"):
        check.assert_close(want[0], want, 1.0)


def test_poison_is_no_result() -> None:
    memory = check.poisoned_memory(MemoryDesc((4,), "f32"), ENGINE)
    with pytest.raises(AssertionError, match="4 of 4"):
        check.assert_close(check.logical(memory), np.zeros(4), 1.0)


@pytest.mark.parametrize("data_type", ["f32", "s8", "u4"])
def test_written_padding_is_seen(data_type: str) -> None:
    memory = check.random_memory(MemoryDesc((1, 5), data_type, "aB8b"), ENGINE)
    check.assert_padding_zero(memory)
    memory.data[-1] = 1
    with pytest.raises(AssertionError, match=r"1 padded elements .* \(0, [67]\)"):
        check.assert_padding_zero(memory)


@pytest.mark.parametrize("data_type", ["f32", "s8", "u4"])
def test_a_written_gap_is_seen(data_type: str) -> None:
    memory = check.random_memory(MemoryDesc((2, 4), data_type, (8, 1)), ENGINE)
    check.assert_gaps_untouched(memory)
    memory.data[memory.desc.data_type.nbytes(4)] &= 0xF0
    with pytest.raises(AssertionError, match=r"1 elements in gaps .* 4"):
        check.assert_gaps_untouched(memory)


def test_a_wrong_sum_is_seen() -> None:
    desc = MemoryDesc((3, 5), "s8", "Ab2a", compensation=Compensation(1, 2))
    memory = check.random_memory(desc, ENGINE)
    elements = check.logical(memory)
    memory.compensation("s8s8")[:] = -128 * elements.sum(axis=1, keepdims=True)
    memory.compensation("zero_points")[:] = -elements.sum(axis=0)
    memory.data[32:36] = 0  # the sum of the padding
    check.check(memory, elements, 0.0)
    for at in (20, 35, -1):
        memory.data[at] ^= 1
        with pytest.raises(AssertionError, match="Mismatched elements: 1 "):
            check.check(memory, elements, 0.0)
        memory.data[at] ^= 1


def test_values_depend_on_the_seed() -> None:
    first, second = (check.random_values((8,), "f32", seed) for seed in (1, 2))
    assert not np.array_equal(first, second)
    assert (check.random_values((99,), "f32", 1, "positive") > 0).all()
    small = check.random_values((99,), "f32", 1, "integers")
    assert set(small) == set(range(-4, 5))
