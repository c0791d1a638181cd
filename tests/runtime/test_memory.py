"""Memory: what is shared and what is copied, and why a buffer is refused."""

from __future__ import annotations

import array
import ctypes
import gc
import mmap
import re
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from dnnl.errors import InvalidArguments, OutOfMemory
from dnnl.runtime.elements import elements_of, put_elements
from dnnl.runtime.engine import Engine
from dnnl.runtime.memory import Memory
from dnnl.runtime.stream import Stream
from dnnl.types.dtype import DataType
from dnnl.types.kinds import RUNTIME_DIM
from dnnl.types.memory_desc import MemoryDesc

CPU = Engine("cpu")
TYPES = [data_type for data_type in DataType if data_type.bits]
PLAIN = MemoryDesc((2, 3), "f32", "ab")
BLOCKED = MemoryDesc((2, 5, 2, 3), "f32", "nChw4c")


def filled(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Small numbers above 0, in C order, as far as the type has them."""
    count = int(np.prod(shape))
    return (np.arange(count) % 7 + 1).astype(dtype).reshape(shape)


def refusal(desc: MemoryDesc, buffer: object) -> str:
    with pytest.raises(InvalidArguments) as caught:
        Memory(desc, CPU, buffer)
    return str(caught.value)


# Allocation


@pytest.mark.parametrize("kind", ["cpu", "null"])
@pytest.mark.parametrize("count", [0, 1, 63, 64, 1000, 100_000])
def test_allocated_memory_is_aligned_and_as_long_as_its_descriptor(kind: str, count: int) -> None:
    memory = Memory(MemoryDesc((count,), "u8", "a"), Engine(kind))
    assert memory.pointer == memory.data.ctypes.data
    assert count == 0 or memory.pointer % 64 == 0
    assert memory.data.shape == (count,)
    assert memory.data.dtype == np.uint8
    memory.data[:] = 3
    assert memory.numpy().sum() == 3 * count


def test_memory_knows_its_descriptor_and_engine() -> None:
    memory = Memory(BLOCKED, CPU)
    assert (memory.desc, memory.engine) == (BLOCKED, CPU)
    assert memory.data.size == BLOCKED.size == 4 * 2 * 8 * 6
    assert repr(memory) == f"Memory({BLOCKED!r}, Engine('cpu', 0))"


def test_an_absurd_size_is_out_of_memory() -> None:
    with pytest.raises(OutOfMemory, match=rf"cannot allocate {2**62} bytes \(4.29e\+09 GiB\)"):
        Memory(MemoryDesc((2**60,), "f32", "a"), CPU)
    with pytest.raises(MemoryError):
        Memory(MemoryDesc((2**63 - 1,), "u8", "a"), CPU)


@pytest.mark.parametrize(
    ("desc", "message"),
    [
        (MemoryDesc((2, 3), "f32", "any"), "'f32::any:any::f0': a memory needs a layout, and"),
        (MemoryDesc((RUNTIME_DIM, 3), "f32", "ab"), "a memory needs dims and strides that are"),
        ((2, 3), "desc = (2, 3): expected a MemoryDesc; Memory.from_numpy takes an array"),
    ],
)
def test_a_descriptor_without_a_definite_layout_is_refused(desc: Any, message: str) -> None:
    with pytest.raises(InvalidArguments, match=re.escape(message)):
        Memory(desc, CPU)


def test_an_engine_is_needed() -> None:
    rule = "engine = 'cpu': expected an Engine; Engine('cpu')"
    with pytest.raises(InvalidArguments, match=re.escape(rule)):
        Memory(PLAIN, "cpu")  # type: ignore[arg-type]
    with pytest.raises(InvalidArguments, match=re.escape(rule)):
        Stream("cpu")  # type: ignore[arg-type]


# Wrapping


class Exporter:
    """A DLPack exporter of the time before versions, perhaps on another device."""

    def __init__(self, tensor: Any, device: int = 1) -> None:
        self.tensor = tensor
        self.device = device

    def __dlpack__(self, *, stream: None = None) -> object:
        return self.tensor.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0


def ctypes_bytes() -> Any:
    return (ctypes.c_char * 24)()


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.zeros((2, 3), np.float32),
        lambda: np.zeros(6, np.float32),
        lambda: np.zeros(24, np.uint8),
        lambda: bytearray(24),
        lambda: memoryview(bytearray(24)),
        lambda: mmap.mmap(-1, 24),
        lambda: array.array("f", [0] * 6),
        ctypes_bytes,
        lambda: torch.zeros(2, 3),
        lambda: torch.zeros(24, dtype=torch.uint8),
        lambda: Exporter(torch.zeros(2, 3)),
        lambda: Memory(PLAIN, CPU),
    ],
)
def test_any_writable_buffer_is_wrapped_without_copy(make: Any) -> None:
    buffer = make()
    memory = Memory(PLAIN, CPU, buffer)
    again = Memory(PLAIN, CPU, buffer)
    memory.numpy()[...] = filled((2, 3), np.float32)
    assert np.array_equal(again.numpy(), filled((2, 3), np.float32))
    assert memory.pointer == again.pointer
    assert np.shares_memory(memory.data, again.numpy())


def test_the_owner_of_a_wrapped_buffer_stays_alive() -> None:
    buffer = np.zeros((2, 3), np.float32)
    gone = weakref.ref(buffer)
    view = Memory(PLAIN, CPU, buffer).numpy()
    del buffer
    gc.collect()
    assert gone() is not None
    assert view.sum() == 0
    del view
    gc.collect()
    assert gone() is None


def test_a_tensor_stays_alive_until_its_memory_is_gone() -> None:
    tensor = torch.full((1000, 1000), 3.0)
    memory = Memory(MemoryDesc((1000, 1000), "f32", "ab"), CPU, tensor)
    del tensor
    gc.collect()
    torch.full((1000, 1000), 4.0)
    assert (memory.numpy() == 3).all()


def test_strided_arrays_are_wrapped_where_the_descriptor_has_their_strides() -> None:
    whole = np.zeros((4, 10), np.float32)
    part = whole[:, 2:5]
    memory = Memory(MemoryDesc((4, 3), "f32", (10, 1)), CPU, part)
    memory.numpy()[...] = 5
    assert whole.sum() == 5 * 12
    assert (part == 5).all()
    assert memory.data.size == (3 * 10 + 3) * 4
    nhwc = np.zeros((2, 4, 5, 3), np.float32).transpose(0, 3, 1, 2)
    assert np.shares_memory(Memory(MemoryDesc((2, 3, 4, 5), "f32", "nhwc"), CPU, nhwc).data, nhwc)
    channels_last = torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last)
    memory = Memory(MemoryDesc((2, 3, 4, 5), "f32", "nhwc"), CPU, channels_last)
    memory.numpy()[1, 2, 3, 4] = 9
    assert channels_last[1, 2, 3, 4] == 9


def test_the_stride_of_a_dimension_of_one_does_not_matter() -> None:
    buffer = np.lib.stride_tricks.as_strided(np.zeros(6, np.float32), (1, 6), (400, 4))
    assert Memory(MemoryDesc((1, 6), "f32", "ab"), CPU, buffer).pointer == buffer.ctypes.data


def test_a_shaped_array_fits_a_blocked_layout_that_strides_can_say() -> None:
    buffer = np.zeros((2, 4, 2, 3), np.float32)
    channels_last = np.zeros((2, 2, 3, 4), np.float32).transpose(0, 3, 1, 2)
    desc = MemoryDesc((2, 4, 2, 3), "f32", "nChw4c")
    assert Memory(desc, CPU, channels_last).pointer == channels_last.ctypes.data
    assert "the buffer's strides in bytes must be (96, 4, 48, 16)" in refusal(desc, buffer)


def test_types_without_a_name_elsewhere_come_as_integers_of_their_size() -> None:
    desc = MemoryDesc((2, 3), "bf16", "ab")
    for buffer in (
        np.zeros((2, 3), ml_dtypes.bfloat16),
        np.zeros((2, 3), np.uint16),
        np.zeros((2, 3), np.int16),
        torch.zeros(2, 3, dtype=torch.bfloat16),
        torch.zeros(2, 3, dtype=torch.int16),
    ):
        assert Memory(desc, CPU, buffer).numpy().dtype == ml_dtypes.bfloat16
    half = MemoryDesc((3,), "u4", "a")
    assert Memory(half, CPU, bytearray(2)).data.size == 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: bytearray(23),
            "buffer = 'uint8 buffer of shape (23,)': the buffer has 23 bytes, f32::blocked:ab::f0",
        ),
        (lambda: np.zeros(7, np.float32), "the buffer has 28 bytes, f32::blocked:ab::f0 needs 24"),
        (
            lambda: np.zeros((3, 2), np.float32),
            "the buffer's shape must be (2, 3); pass its bytes with one axis to have them taken as",
        ),
        (
            lambda: np.zeros((3, 2), np.float32).T,
            "the buffer's strides in bytes must be (12, 4), they are (4, 8)",
        ),
        (
            lambda: np.zeros((2, 3), np.int32),
            "elements are int32, the tensor's are f32; pass unsigned integers for raw bits: array",
        ),
        (lambda: np.zeros((2, 3), ">f4"), "the buffer's elements are >f4, the tensor's are f32"),
        (lambda: np.zeros((2, 3), np.uint16), "does not have its elements as f32::blocked:ab::f0"),
        (
            lambda: np.zeros(12, np.float32)[::2],
            "the buffer's shape must be (2, 3); pass an array without gaps: numpy.ascontig",
        ),
        (
            lambda: [0.0] * 6,
            "buffer = 'list': expected a buffer or an object with __dlpack__; NumPy",
        ),
        (lambda: 5, "buffer = 'int': expected a buffer"),
        (
            lambda: Exporter(torch.zeros(2, 3), device=2),
            "the tensor lives on DLPack device 2, not in the host's memory; move it to the cpu",
        ),
        (lambda: torch.zeros(2, 3, device="meta"), "buffer = 'Tensor': its DLPack export failed: "),
        (lambda: torch.zeros(2, 3, requires_grad=True), "its DLPack export failed: "),
    ],
)
def test_why_a_buffer_is_refused(make: Any, message: str) -> None:
    assert message in refusal(PLAIN, make())


def test_other_float_types_are_no_raw_bits() -> None:
    desc = MemoryDesc((2, 3), "f16", "ab")
    message = refusal(desc, np.zeros((2, 3), ml_dtypes.bfloat16))
    assert "the buffer's elements are bfloat16, the tensor's are f16" in message


def test_a_shaped_array_is_no_blocked_padded_or_shifted_tensor() -> None:
    shaped = np.zeros((2, 5, 2, 3), np.float32)
    assert "does not have its elements as" in refusal(BLOCKED, shaped)
    padded = MemoryDesc((2, 3), "f32", (4, 1), padded_dims=(2, 4))
    assert "does not have its elements as" in refusal(padded, np.zeros((2, 4), "f4")[:, :3])
    shifted = MemoryDesc((2, 3), "f32", (3, 1), offset0=2)
    assert "does not have its elements as" in refusal(shifted, np.zeros((2, 3), np.float32))
    assert Memory(shifted, CPU, np.arange(8, dtype=np.float32)).numpy()[0, 0] == 2


# To and from NumPy


@pytest.mark.parametrize("data_type", TYPES, ids=str)
def test_every_type_goes_there_and_back_in_plain_and_blocked_layouts(data_type: DataType) -> None:
    values = filled((3, 5, 2, 3), data_type.numpy)
    for tag in (None, "abcd", "acdb", "aBcd4b", "ABcd2a4b2a"):
        memory = Memory.from_numpy(values.copy(), tag)
        assert memory.desc.data_type is data_type
        assert memory.numpy().dtype == data_type.numpy
        np.testing.assert_array_equal(memory.numpy(), values)
        np.testing.assert_array_equal(np.asarray(memory), values)


@pytest.mark.parametrize(
    "desc",
    [
        MemoryDesc((), "f32"),
        MemoryDesc((5,), "f32", "A4a"),
        MemoryDesc((3, 20, 5, 6), "f32", "nChw16c"),
        MemoryDesc((17, 9, 3, 3), "f32", "OIhw4i16o4i"),
        MemoryDesc((2, 7, 9, 3, 3), "f32", "gOIhw8i8o"),
        MemoryDesc((2, 3, 2, 1, 2, 1, 1, 2, 1, 1, 1, 2), "f32", "abcdefghijkl"),
        MemoryDesc((4, 6), "f32", (10, 1), offset0=3),
        MemoryDesc((3, 4), "f32", (0, 1)),
        MemoryDesc((8, 32), "f32", "AB4a16b").submemory((3, 16), (4, 16)),
        MemoryDesc((8, 32), "f32", "AB4a16b").submemory((4, 5), (0, 16)),
        MemoryDesc((3, 0, 5), "f32", "aBc8b"),
    ],
    ids=str,
)
def test_numpy_reads_each_element_where_the_descriptor_has_it(desc: MemoryDesc) -> None:
    memory = Memory(desc, CPU)
    elements = memory.data.view(np.float32)
    elements[:] = np.arange(elements.size)
    found = memory.numpy()
    assert found.shape == desc.dims
    for index in np.ndindex(*desc.dims):
        assert found[index] == desc.offset(index)


@pytest.mark.parametrize("data_type", ["s4", "u4", "f4_e2m1"])
def test_the_even_element_of_a_4_bit_type_is_in_the_low_half(data_type: str) -> None:
    values = np.array([1, 2, 3], DataType[data_type].numpy)
    low, high = (2, 4 << 4) if data_type == "f4_e2m1" else (1, 2 << 4)  # e2m1 codes of 1 and 2
    memory = Memory.from_numpy(values)
    assert memory.data[0] == low | high
    assert memory.data.size == 2
    memory.data[0] = 0xF0
    negative = {"s4": -1, "u4": 15, "f4_e2m1": -6}
    assert memory.numpy().astype(np.float32).tolist()[:2] == [0, negative[data_type]]


def test_from_numpy_without_tag_shares_the_array_with_its_strides() -> None:
    for source in (
        np.zeros((2, 3, 4), np.float32),
        np.zeros((2, 3, 4), np.float32).transpose(2, 0, 1),
        np.zeros((4, 10), np.float32)[::2, 1:4],
        np.zeros((), np.float32),
        np.zeros((3, 1, 2), np.float32)[:, ::-1],
    ):
        memory = Memory.from_numpy(source)
        assert memory.engine == CPU
        assert memory.desc.dims == source.shape
        assert np.shares_memory(memory.data, source)
        memory.numpy()[...] = 7
        assert (source == 7).all()
    assert Memory.from_numpy(np.zeros((2, 3, 4, 5), "f4").transpose(0, 3, 1, 2)).desc == MemoryDesc(
        (2, 5, 3, 4), "f32", "nhwc"
    )
    assert Memory.from_numpy(np.zeros((2, 0, 3), "f4").T).numpy().shape == (3, 0, 2)


def test_from_numpy_with_a_tag_copies() -> None:
    source = filled((2, 5, 2, 3), np.float32)
    for tag in ("abcd", "aBcd4b"):
        memory = Memory.from_numpy(source, tag, Engine("null"))
        assert memory.engine == Engine("null")
        assert not np.shares_memory(memory.data, source)
        assert memory.pointer % 64 == 0
    source.flags.writeable = False
    np.testing.assert_array_equal(Memory.from_numpy(source, "abcd").numpy(), source)


def test_arrays_that_cannot_be_kept_are_refused() -> None:
    with pytest.raises(InvalidArguments, match=r"array.strides = .*: strides must be nonneg"):
        Memory.from_numpy(np.zeros(6, np.float32)[::-1])
    field = np.zeros(4, [("a", "i1"), ("b", "<f4")])["b"]
    with pytest.raises(InvalidArguments, match="multiples of the size of an element; pass a copy"):
        Memory.from_numpy(field)
    what: Any
    for what in (None, "12", {}, [[1], [1, 2]], 10**400):
        with pytest.raises(InvalidArguments, match=f"array = '{type(what).__name__}'"):
            Memory.from_numpy(what)
    with pytest.raises(InvalidArguments, match="no data type stores this NumPy type"):
        Memory.from_numpy(np.zeros(3, np.complex64))


def test_views_where_strides_can_say_it_and_copies_elsewhere() -> None:
    shared = Memory.from_numpy(filled((2, 3), np.float32), "ba")
    assert np.shares_memory(shared.numpy(), shared.data)
    assert np.shares_memory(np.asarray(shared), shared.data)
    assert not np.shares_memory(np.array(shared), shared.data)
    one_block = MemoryDesc((2, 3, 2, 2), "f32", "nChw4c")
    room = MemoryDesc((2, 4), "f32", (40, 20), inner_blocks=((1, 4),), padded_dims=(2, 8))
    for desc in (one_block, room):
        memory = Memory(desc, CPU)
        assert np.shares_memory(memory.numpy(), memory.data)
    linear = Memory(MemoryDesc((16,), "f32", "A4a2a"), CPU)
    assert np.shares_memory(linear.numpy(), linear.data)
    blocked = Memory(BLOCKED, CPU)
    assert not np.shares_memory(blocked.numpy(), blocked.data)
    nibbles = Memory(MemoryDesc((16,), "u4", "a"), CPU)
    assert not np.shares_memory(nibbles.numpy(), nibbles.data)


def test_the_array_protocol_keeps_its_promises() -> None:
    memory = Memory.from_numpy(filled((2, 3), np.float32))
    assert np.asarray(memory, np.float64).dtype == np.float64
    assert np.shares_memory(np.array(memory, copy=False), memory.data)
    with pytest.raises(ValueError, match="a copy is needed to make float64 of f32"):
        np.array(memory, np.float64, copy=False)
    with pytest.raises(ValueError, match=r"cannot view the layout f32:p:blocked:aBcd4b::f0 with"):
        np.array(Memory(BLOCKED, CPU), copy=False)


def test_elements_are_copied_also_where_it_need_not() -> None:
    memory = Memory.from_numpy(filled((2, 3), np.float32))
    copy = elements_of(memory.desc, memory.data)
    assert not np.shares_memory(copy, memory.data)
    np.testing.assert_array_equal(copy, memory.numpy())


@pytest.mark.parametrize(
    "desc",
    [
        MemoryDesc((2, 3), "f32", (8, 1)),
        MemoryDesc((2, 3), "f32", (4, 1), padded_dims=(2, 4)),
        MemoryDesc((2, 3), "f32", "aB4b"),
        MemoryDesc((2, 3), "f32", (3, 1), offset0=5),
        MemoryDesc((2, 3), "u4", "aB4b"),
        MemoryDesc((1, 3), "s4", "ab"),
    ],
    ids=str,
)
def test_putting_leaves_zeros_between_the_elements(desc: MemoryDesc) -> None:
    data = np.full(desc.size, 255, np.uint8)
    values = filled(desc.dims, desc.data_type.numpy)
    put_elements(desc, data, values)
    np.testing.assert_array_equal(elements_of(desc, data), values)
    total = np.unpackbits(data).sum()
    put_elements(desc, data, np.zeros_like(values))
    assert not data.any()
    dense = Memory.from_numpy(values, "ab").data
    assert total == np.unpackbits(dense).sum()
