"""Checking a primitive against the reference: filling memories, reading them, comparing.

Where an element lives is computed here from a descriptor's fields, so that a mistake in the
library's own address functions shows. A destination starts poisoned (every bit set, which is NaN in
most floats); afterwards its elements must be right, its padding zero, its gaps untouched, and the
sums behind it, where its descriptor has any, those of its elements.

    src = random_memory(desc, engine, seed=1)
    dst = poisoned_memory(dst_desc, engine)
    primitive.execute(stream, {Arg.SRC: src, Arg.DST: dst})
    check(dst, reference.softmax(logical(src), axis=1), softmax.TOLERANCE("f32", length))
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dnnl.reference.arrays import Array, f64
from dnnl.reference.conversions import convert
from dnnl.reference.tolerance import Bound
from dnnl.runtime.engine import Engine
from dnnl.runtime.memory import Memory
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc

Fill = Literal["normal", "positive", "integers"]
Codes = NDArray[np.unsignedinteger[Any]]

POISON = 0xFF
# Sums of products of these stay exact in f32 for thousands of terms.
SMALL_INTEGER = 4
# Within what every integer type but 4-bit ones holds.
LARGE_INTEGER = 16


def random_values(
    dims: Sequence[int], data_type: DataType | str, seed: int, fill: Fill = "normal"
) -> Array:
    """Values that ``data_type`` represents: ``normal`` and ``positive`` floats, or integers.

    An integer type takes integers in any case: small ones (at most 4 in magnitude) for
    ``integers``, larger ones otherwise. The values depend on ``seed`` and ``dims`` alone.
    """
    data_type = DataType[data_type] if isinstance(data_type, str) else data_type
    rng = np.random.default_rng([seed, zlib.crc32(repr(tuple(dims)).encode())])
    if fill == "integers" or data_type.is_integer:
        limit = SMALL_INTEGER if fill == "integers" else LARGE_INTEGER
        values = rng.integers(-limit, limit, dims, endpoint=True).astype(np.float64)
    else:
        values = rng.standard_normal(dims)
    if fill == "positive":
        values = np.abs(values) + 2.0**-6
    return convert(values, data_type)


def random_memory(desc: MemoryDesc, engine: Engine, seed: int = 0, fill: Fill = "normal") -> Memory:
    """A memory of any layout with ``random_values``; its padding is zero, its gaps are poison."""
    return memory_of(random_values(desc.dims, desc.data_type, seed, fill), desc, engine)


def memory_of(values: ArrayLike, desc: MemoryDesc, engine: Engine) -> Memory:
    """A memory that holds ``values``, converted to its type; its gaps are poison."""
    if desc.encoding is not None:
        dense = MemoryDesc(desc.dims, desc.data_type)
        return memory_of(values, dense, engine).reorder_to(desc)
    memory = poisoned_memory(desc, engine)
    store(memory, values)
    return memory


def poisoned_memory(desc: MemoryDesc, engine: Engine) -> Memory:
    """A memory with every bit set, padding included."""
    memory = Memory(desc, engine)
    for part in memory.parts:
        part.data[:] = POISON
    return memory


def same_bits(a: Memory, b: Memory) -> bool:
    """Whether two memories hold the same bytes, in each of their buffers."""
    pairs = zip(a.parts, b.parts, strict=True)
    return all((one.data == other.data).all() for one, other in pairs)


def store(memory: Memory, values: ArrayLike) -> None:
    """Write ``values`` to the elements and zero to the padding; gaps stay as they are."""
    data_type = memory.desc.data_type
    rounded = convert(values, data_type, core="f64")
    store_codes(memory, _encode(rounded, data_type))


def poison_gaps(memory: Memory) -> None:
    """Set every bit of what is neither the tensor nor its padding, unless sums follow it."""
    desc = memory.desc
    if desc.compensation is not None:
        return
    codes = _codes(memory)
    own = np.zeros(len(codes), bool)
    own[offsets(desc, _room(desc))] = True
    codes[~own] = POISON >> 4 if desc.data_type.bits == 4 else ~np.zeros((), codes.dtype)
    if desc.data_type.bits == 4:
        memory.data[:] = codes[0::2] | codes[1::2] << 4


def store_codes(memory: Memory, codes: Codes) -> None:
    """Write bit patterns to the elements, one array element each, and zero to the padding; gaps
    stay as they are. A 4-bit pattern lies in the low half of its array element."""
    desc = memory.desc
    all_codes = _codes(memory)
    all_codes[offsets(desc, _room(desc))] = 0
    all_codes[offsets(desc, desc.dims)] = codes
    if desc.data_type.bits == 4:
        memory.data[:] = all_codes[0::2] | all_codes[1::2] << 4


def _room(desc: MemoryDesc) -> tuple[int, ...]:
    """The padded dims; a tensor without elements has no padding either."""
    return desc.dims if desc.has_zero_dim else desc.padded_dims


def codes_of(memory: Memory) -> Codes:
    """The bit patterns of the tensor on logical axes."""
    return np.asarray(_codes(memory)[offsets(memory.desc, memory.desc.dims)])


def logical(memory: Memory) -> Array:
    """The tensor as float64 on logical axes."""
    if memory.desc.encoding is not None:
        return f64(memory.numpy())
    return _decode(codes_of(memory), memory.desc.data_type)


def offsets(desc: MemoryDesc, dims: Sequence[int]) -> NDArray[np.int64]:
    """The place, in elements, of each index below ``dims`` (``desc.dims`` or the padded ones)."""
    axes = range(len(dims))
    position = [
        np.arange(extent).reshape([-1 if d == axis else 1 for d in axes])
        for axis, extent in enumerate(dims)
    ]
    place = np.full([1] * len(dims), desc.offset0)
    inner = 1
    for axis, block in reversed(desc.inner_blocks):
        position[axis], within = np.divmod(position[axis], block)
        place = place + within * inner
        inner *= block
    for outer, stride in zip(position, desc.strides, strict=True):
        place = place + outer * stride
    return np.broadcast_to(place, tuple(dims))


def assert_close(got: ArrayLike, want: ArrayLike, tolerance: Bound | float) -> None:
    """Every element of ``got`` is right by ``tolerance``.

    A number is the largest error relative to the wanted value, or to the root mean square of all
    where that is larger, in f32.
    """
    if not isinstance(tolerance, Bound):
        tolerance = Bound(DataType.f32, tolerance, floor=None)
    have, wanted = f64(got), f64(want)
    assert have.shape == wanted.shape, f"shape {have.shape}, expected {wanted.shape}"
    bad = np.argwhere(~tolerance.accepts(have, wanted))
    if len(bad) == 0:
        return
    low, high = tolerance.interval(wanted)
    lines = [
        f"  {at}: {have[at]:.9g}, expected {wanted[at]:.9g} in [{low[at]:.9g}, {high[at]:.9g}]"
        for at in (tuple(map(int, index)) for index in bad[:5])
    ]
    raise AssertionError("\n".join([f"{len(bad)} of {have.size} elements are wrong:", *lines]))


def assert_padding_zero(memory: Memory) -> None:
    """Every element between the dims and the padded dims is zero."""
    desc = memory.desc
    inside = np.zeros(_room(desc), bool)
    inside[tuple(slice(extent) for extent in desc.dims)] = True
    padding = _codes(memory)[offsets(desc, _room(desc))]
    bad = np.argwhere((padding != 0) & ~inside)
    assert len(bad) == 0, (
        f"{len(bad)} padded elements are not zero, the first at {tuple(bad[0].tolist())}"
    )


def assert_gaps_untouched(memory: Memory) -> None:
    """Every element that belongs neither to the tensor nor to its padding is still poison."""
    desc = memory.desc
    codes = _codes(memory)
    own = np.zeros(len(codes), bool)
    own[offsets(desc, _room(desc))] = True
    poison = int(~np.zeros((), codes.dtype))
    own[_first_sum(desc) :] = True
    if desc.data_type.bits == 4:
        own[-1:] = True  # the half of the last byte that may belong to nobody
        poison = POISON >> 4
    bad = np.flatnonzero((codes != poison) & ~own)
    assert len(bad) == 0, f"{len(bad)} elements in gaps were written, the first at {bad[0]}"


def assert_sums(memory: Memory) -> None:
    """All that lies behind the gaps are the sums of the elements, and zeros in their padding."""
    desc = memory.desc
    if desc.compensation is None or desc.has_zero_dim:
        return
    stored, want = logical(memory).astype(np.int64), []
    for kind, factor in (("s8s8", -128), ("zero_points", -1)):
        mask = desc.compensation.masks.get(kind)
        if mask is None:
            continue
        summed = tuple(d for d in range(desc.ndims) if not mask >> d & 1)
        sums = np.asarray(factor * stored.sum(axis=summed, keepdims=True)).astype(np.int32)
        np.testing.assert_array_equal(memory.compensation(kind), sums)
        more = [
            (0, padded - size if mask >> d & 1 else 0)
            for d, (size, padded) in enumerate(zip(desc.dims, desc.padded_dims, strict=True))
        ]
        want.append(np.pad(sums, more).reshape(-1))
    found = memory.data[_first_sum(desc) :].view(np.int32)
    np.testing.assert_array_equal(found, np.concatenate(want))


def _first_sum(desc: MemoryDesc) -> int:
    """The byte at which the sums behind s8 weights begin; behind all where there are none."""
    if desc.compensation is None:
        return desc.size
    return -(-desc.with_compensation(None).size // 4) * 4


def check(memory: Memory, want: ArrayLike, tolerance: Bound | float) -> None:
    """A destination that was poisoned: right elements, zero padding, untouched gaps, right sums."""
    assert_close(logical(memory), want, tolerance)
    assert_padding_zero(memory)
    assert_gaps_untouched(memory)
    assert_sums(memory)


def _codes(memory: Memory) -> Codes:
    """The stored bit patterns, one array element each: a view, or a copy of a 4-bit type."""
    data_type = memory.desc.data_type
    if data_type.bits == 4:
        return np.stack([memory.data & 0xF, memory.data >> 4], axis=1).reshape(-1)
    return memory.data.view(f"u{data_type.size}")


def _encode(values: Array, data_type: DataType) -> Codes:
    with np.errstate(all="ignore"):
        stored = values.astype(data_type.numpy)
    if data_type.is_integer and data_type.bits == 4:
        return (stored.astype(np.int8) & 0xF).view(np.uint8)
    return np.ascontiguousarray(stored).view(f"u{data_type.size}").reshape(values.shape)


def _decode(codes: Codes, data_type: DataType) -> Array:
    if data_type is DataType.s4:
        return f64((codes ^ 8).astype(np.int8) - 8)
    if data_type is DataType.u4:
        return f64(codes)
    return f64(np.ascontiguousarray(codes).view(data_type.numpy).reshape(codes.shape))
