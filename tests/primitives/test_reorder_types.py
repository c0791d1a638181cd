"""Reorder between data types: every pair, exactly as the reference converts."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from dnnl import (
    Arg,
    DataType,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveDesc,
    ReorderDesc,
    Stream,
    config,
)
from dnnl.reference.arrays import Array
from dnnl.reference.conversions import convert
from tests.check import assert_padding_zero, check, logical, poisoned_memory
from tests.pairs import every_pair
from tests.primitives.harness import (
    ENGINE,
    ROUNDING_ISAS,
    describe,
    every_isa,
    every_rounding_isa,
    execute,
    typed_source,
)

TYPES = ["f32", "f16", "bf16", "f64", "s32", "s8", "u8", "f8_e5m2", "f8_e4m3", "e8m0"]
NARROW = ["s8", "u8", "f8_e5m2", "f8_e4m3", "s4", "u4", "f4_e2m1"]
PAIRS = [("nchw", "nhwc"), ("nhwc", "nchw"), ("nchw", "nChw16c"), ("nChw8c", "part")]
CONVERSIONS = [("f32", "s8"), ("u8", "bf16"), ("s32", "f64"), ("f8_e4m3", "bf16")]
LIMITS = [
    0.0, -0.0, np.inf, -np.inf, np.nan, 0.5, 1.5, 2.5, 127.5, 126.5, -128.5, -129.0, 255.5,
    254.5, 1024.0, -124.0, 65504.0, 65519.9, 65520.0, 61439.0, 61440.0, 448.0, 464.0, 464.1,
    2.0**-9, 2.0**-10, 1.1 * 2.0**-10, 2.0**-16, 2.0**-17, 2.0**-24, 2.0**-25, 1.01 * 2.0**-25,
    2.0**-133, 2.0**-127, 2.0**-149, 2147483520.0, 2147483648.0, -2147483648.0, 2.0**33, 3.4e38,
]  # fmt: skip


def dense_sample() -> NDArray[np.float32]:
    """All exponents, signs and limits, integers with fractions, and random bits."""
    rng = np.random.default_rng(3)
    upper = np.arange(2**16, dtype=np.uint32) << 16
    bits = [upper | rng.integers(0, 2**16, upper.size, dtype=np.uint32), upper[::8] | 0x8000]
    eighths = np.arange(-4096, 4096, dtype=np.float32) / np.float32(8)
    return np.concatenate(
        [*(b.view(np.float32) for b in bits), np.array(LIMITS, np.float32), eighths]
    )


def converted(memory: Memory, data_type: str, isa: str) -> Memory:
    """The memory as another type, in the same places."""
    desc = ReorderDesc(memory.desc, memory.desc.with_data_type(data_type))
    with config.override("max_cpu_isa", isa):
        pd = PrimitiveDesc(desc, ENGINE)
    result = poisoned_memory(pd.dst_desc, ENGINE)
    Primitive(pd).execute(Stream(ENGINE, 1), {Arg.SRC: memory, Arg.DST: result})
    return result


def assert_converted(memory: Memory, result: Memory) -> None:
    """Each element is what the reference makes of it; an integer of NaN may be any."""
    src, dst = memory.desc.data_type, result.desc.data_type
    values, got = logical(memory), logical(result)
    want: Array = convert(values, dst, core="f64")
    same = (got == want) & (np.signbit(got) == np.signbit(want)) | np.isnan(got) & np.isnan(want)
    if dst.is_integer:
        same |= np.isnan(values) | (got == want)
    bad = np.flatnonzero(~same)[:3]
    assert same.all(), f"{src} -> {dst}: {values[bad]} gave {got[bad]}, expected {want[bad]}"


def of_bits(data_type: str, bits: NDArray[np.unsignedinteger]) -> Memory:
    """A line of elements with these codes."""
    memory = Memory(MemoryDesc(bits.shape, data_type), ENGINE)
    memory.data[:] = bits.view(np.uint8)
    return memory


@every_rounding_isa
@pytest.mark.parametrize("dst", TYPES)
def test_stores_of_a_dense_sample(dst: str, isa: str) -> None:
    memory = of_bits("f32", dense_sample().view(np.uint32))
    assert_converted(memory, converted(memory, dst, isa))


@every_rounding_isa
@pytest.mark.parametrize("src", [name for name in TYPES if DataType[name].bits <= 16])
def test_every_code_of_small_types(src: str, isa: str) -> None:
    bits = DataType[src].bits
    memory = of_bits(src, np.arange(2**bits, dtype=f"u{bits // 8}"))
    for dst in ("f32", "f16", "s8", "f8_e4m3"):
        assert_converted(memory, converted(memory, dst, isa))


@every_rounding_isa
@pytest.mark.parametrize("narrow", NARROW)
def test_bf16_and_narrow_types(narrow: str, isa: str) -> None:
    """All codes of either, in vectors of every length and one element at a time."""
    codes = np.arange(2**16, dtype=np.uint16)
    few = np.random.default_rng(7).permutation(codes)
    for bits in (codes, *(few[:length] for length in (1, 3, 9, 33, 127))):
        memory = of_bits("bf16", bits)
        assert_converted(memory, converted(memory, narrow, isa))
    for length in (1, 3, 9, 33, 127, 512):
        memory = Memory(MemoryDesc((length,), narrow), ENGINE)
        memory.data[:] = np.arange(memory.data.size, dtype=np.uint8) * (23 if length < 512 else 1)
        assert_converted(memory, converted(memory, "bf16", isa))
        assert_converted(memory, converted(memory, "f32", isa))


@every_isa
@pytest.mark.parametrize("src", ["f8_e5m2", "f8_e4m3", "f4_e2m1"])
def test_small_floats_become_the_same_bf16_as_by_way_of_f32(src: str, isa: str) -> None:
    """Every code, with the sign of zeros and the payload of NaN."""
    memory = Memory(MemoryDesc((2 * 256 * 8 // DataType[src].bits,), src), ENGINE)
    memory.data[:] = np.tile(np.arange(256, dtype=np.uint8), 2)
    once = converted(memory, "bf16", isa)
    assert_converted(memory, once)
    assert (once.data == converted(converted(memory, "f32", isa), "bf16", isa).data).all()


@every_isa
def test_wide_types_are_rounded_once(isa: str) -> None:
    rng = np.random.default_rng(4)
    numbers = rng.integers(-(2**31), 2**31, 5000, dtype=np.int64).astype(np.int32)
    numbers[:4] = (2**31 - 1, -(2**31), 2**24 + 1, -1)
    doubles = np.concatenate([rng.standard_normal(5000) * 2**31, [0.5, 1.5, 2.5, 2.0**31 - 0.5]])
    halves = (2 * rng.integers(256, 512, 3000) + 1) / 2.0 ** rng.integers(1, 148, 3000)
    near = halves * (1 + rng.integers(-1, 2, 3000) * 2.0**-45)
    doubles = np.concatenate([doubles, near, -near, [2.0**1000, 1e39, 65520 - 2.0**-30, 5e-324]])
    whole = of_bits("s32", numbers.view(np.uint32))
    real = of_bits("f64", doubles.view(np.uint64))
    assert_converted(whole, converted(whole, "f64", isa))
    assert_converted(real, converted(real, "s32", isa))
    for memory in (whole, real):
        for dst in TYPES:
            assert_converted(memory, converted(memory, dst, isa))


@pytest.mark.parametrize("dst", TYPES)
@pytest.mark.parametrize("src", ["f32", "f64", "f16", "s32", "u8", "f8_e4m3"])
def test_every_pair_of_types(src: str, dst: str) -> None:
    dims = (2, 19, 3, 18)
    memory = typed_source(dims, "nchw", src)
    desc = ReorderDesc(memory.desc, describe(dims, "nhwc").with_data_type(dst))
    want = convert(logical(memory), dst, core="f64")
    check(execute(desc, {Arg.SRC: memory}), want, 0.0)


@every_pair(isa=ROUNDING_ISAS, layouts=PAIRS, types=CONVERSIONS)
def test_conversions_in_layouts(types: tuple[str, str], layouts: tuple[str, str], isa: str) -> None:
    dims = (2, 20, 3, 35)
    memory = typed_source(dims, layouts[0], types[0])
    desc = ReorderDesc(memory.desc, describe(dims, layouts[1]).with_data_type(types[1]))
    with config.override("max_cpu_isa", isa):
        result = execute(desc, {Arg.SRC: memory})
    check(result, convert(logical(memory), types[1], core="f64"), 0.0)


@every_pair(
    every_isa,
    pytest.mark.parametrize("layouts", [*PAIRS, ("nhwc", "nhwc")], ids=">".join),
    pytest.mark.parametrize("data_type", ["s8", "f16", "f64"]),
)
def test_one_type_moves_bits(data_type: str, layouts: tuple[str, str], isa: str) -> None:
    """Whatever the bits are: NaN with payloads, integers that f32 does not hold."""
    dims = (2, 37, 5, 18)
    memory = typed_source(dims, layouts[0], data_type)
    unsigned = f"u{DataType[data_type].size}"
    bits = np.random.default_rng(5).integers(0, 256, memory.data.size, dtype=np.uint8)
    own = memory.data.view(unsigned)
    own[:] = bits.view(unsigned)
    desc = ReorderDesc(memory.desc, describe(dims, layouts[1]).with_data_type(data_type))
    with config.override("max_cpu_isa", isa):
        result = execute(desc, {Arg.SRC: memory})
    assert (result.numpy().view(unsigned) == memory.numpy().view(unsigned)).all()
    assert_padding_zero(result)


@every_pair(
    every_isa,
    pytest.mark.parametrize("dst", ["f16", "bf16", "s8", "f8_e4m3", "f32", "u4"]),
    pytest.mark.parametrize("src", ["f32", "f64", "s8", "u4"]),
)
def test_ends_of_one_element(src: str, dst: str, isa: str) -> None:
    """LLVM would make a wider store of a masked one of a single narrowed element."""
    for length in (1, 17, 33):
        memory = typed_source((length,), "a", src)
        desc = ReorderDesc(memory.desc, memory.desc.with_data_type(dst))
        with config.override("max_cpu_isa", isa):
            result = execute(desc, {Arg.SRC: memory})
        check(result, convert(logical(memory), dst, core="f64"), 0.0)
