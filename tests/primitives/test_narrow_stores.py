"""What is computed in f32 and stored as something narrower: several registers at a time."""

from __future__ import annotations

import numpy as np
import pytest

from dnnl import (
    Arg,
    BinaryDesc,
    LayerNormalizationDesc,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveAttr,
    PrimitiveDesc,
    ReorderDesc,
    SoftmaxDesc,
    config,
)
from dnnl.reference import layer_normalization, softmax
from dnnl.types.dtype import DataType
from tests.check import check, logical, memory_of
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE, every_isa, every_rounding_isa, execute, typed_source
from tests.small_caches import small_is_large

BYTES = [DataType.s8, DataType.u8]
# Of vectors of 4, 8 and 16: none, some of four, fours and what they leave, and a tail or none.
ROWS = [3, 24, 61, 64, 117, 256, 459]


def hard_numbers() -> np.ndarray:
    """Numbers between and beyond all bytes, half way between two, and around the limits of s32."""
    random = np.random.default_rng(7).standard_normal(700) * 150
    edges = [127.49999, 255.49998, 0.49999997, 2147483520.0, 2147483648.0, 3e9, 1e38, np.inf]
    halves = np.arange(-300, 300) + 0.5
    every = np.concatenate([random, halves, edges, [-edge for edge in edges]])
    return np.random.default_rng(8).permutation(every).astype(np.float32)


@every_pair(
    every_isa,
    pytest.mark.parametrize("data_type", BYTES, ids=str),
    pytest.mark.parametrize("length", [5, 16, 31, 32, 64, 77, 128, 700]),
)
def test_numbers_become_the_nearest_byte(length: int, data_type: DataType, isa: str) -> None:
    numbers = hard_numbers()
    numbers = numbers[: len(numbers) // length * length].reshape(-1, length)
    memory = memory_of(numbers, MemoryDesc(numbers.shape, "f32"), ENGINE)
    want = np.clip(np.rint(numbers.astype(np.float64)), data_type.min, data_type.max)
    # Rows with space behind are walked row by row.
    apart = MemoryDesc(numbers.shape, data_type, (length + 3, 1))
    with config.override("max_cpu_isa", isa):
        for dst in (MemoryDesc(numbers.shape, data_type), apart):
            assert np.array_equal(
                logical(execute(ReorderDesc(memory.desc, dst), {Arg.SRC: memory})), want
            )


@every_pair(
    every_isa,
    pytest.mark.parametrize("data_type", BYTES, ids=str),
    pytest.mark.parametrize("length", [7, 129, 1000]),
)
def test_sums_become_bytes(length: int, data_type: DataType, isa: str) -> None:
    one, other = (typed_source((3, length), "ab", "f32", seed) for seed in (1, 2))
    attr = PrimitiveAttr()
    attr.post_ops.append_eltwise("eltwise_linear", 100.0, 0.5)
    desc = BinaryDesc("binary_add", one.desc, other.desc, one.desc.with_data_type(data_type))
    with config.override("max_cpu_isa", isa):
        result = execute(desc, {Arg.SRC_0: one, Arg.SRC_1: other}, attr)
    want = 100.0 * (logical(one) + logical(other)) + 0.5
    check(result, want, softmax.TOLERANCE(data_type, 1))


@every_pair(
    every_rounding_isa,
    pytest.mark.parametrize("data_type", ["u8", "s8", "bf16", "f16"]),
    pytest.mark.parametrize("length", ROWS),
)
def test_rows_of_a_softmax(length: int, data_type: str, isa: str) -> None:
    memory = typed_source((5, length), "ab", "f32")
    desc = softmax_into(memory, data_type)
    attr, scale = scaled(0.25 / length)
    with config.override("max_cpu_isa", isa):
        result = execute(desc, {Arg.SRC: memory, **scale}, attr)
    want = softmax.softmax(logical(memory), 1) / (0.25 / length)
    check(result, want, softmax.TOLERANCE(data_type, length))


@every_isa
@pytest.mark.parametrize("length", [40, 80, 117, 128])
def test_rows_past_the_caches(length: int, isa: str) -> None:
    """Non-temporal stores of several vectors go to multiples of their size, or are those of one."""
    memory = typed_source((97, length), "ab", "f32")
    attr, scale = scaled(0.25 / length)
    desc = softmax_into(memory, "u8")
    with small_is_large(), config.override("max_cpu_isa", isa), config.override("cache_limit", 0):
        result = execute(desc, {Arg.SRC: memory, **scale}, attr)
        text = Primitive(PrimitiveDesc(desc, ENGINE, attr)).asm()
    assert "movnt" in text or length != 128
    want = softmax.softmax(logical(memory), 1) / (0.25 / length)
    check(result, want, softmax.TOLERANCE("u8", length))


@every_isa
@pytest.mark.parametrize("layout", ["nhwc", "nChw16c"])
def test_blocks_that_are_not_filled(layout: str, isa: str) -> None:
    """Vectors of channels follow each other in one layout, and behind the last there is padding."""
    memory = typed_source((2, 77, 3, 5), layout, "f32")
    dst = memory.desc.with_data_type("s8")
    attr, scale = scaled(1 / 500)
    desc = SoftmaxDesc.forward("forward_inference", "softmax_accurate", memory.desc, dst, 1)
    with config.override("max_cpu_isa", isa):
        result = execute(desc, {Arg.SRC: memory, **scale}, attr)
    check(result, 500 * softmax.softmax(logical(memory), 1), softmax.TOLERANCE("s8", 77))


@every_isa
@pytest.mark.parametrize("length", ROWS)
def test_rows_of_a_normalization(length: int, isa: str) -> None:
    memory = typed_source((6, length), "ab", "f32")
    dst = memory.desc.with_data_type("s8")
    desc = LayerNormalizationDesc.forward("forward_inference", memory.desc, dst, 1e-3, "none")
    attr, scale = scaled(1 / 32)
    with config.override("max_cpu_isa", isa):
        result = execute(desc, {Arg.SRC: memory, **scale}, attr)
    x = logical(memory)
    want = 32 * (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-3)
    check(result, want, layer_normalization.TOLERANCE("s8", length))


@every_rounding_isa
def test_nan_among_numbers(isa: str) -> None:
    """NaN becomes a NaN of bf16, whatever its bits are, and its neighbours what they would be."""
    numbers = np.linspace(-3, 3, 160, dtype=np.float32)
    numbers.view(np.uint32)[[3, 40, 41, 159]] = [0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FC00000]
    memory = memory_of(numbers, MemoryDesc((160,), "f32"), ENGINE)
    with config.override("max_cpu_isa", isa):
        codes = execute(ReorderDesc(memory.desc, MemoryDesc((160,), "bf16")), {Arg.SRC: memory})
    result = logical(codes)
    assert np.flatnonzero(np.isnan(result)).tolist() == [3, 40, 41, 159]
    numbers_left = ~np.isnan(numbers)
    assert np.allclose(result[numbers_left], numbers[numbers_left], rtol=2**-8, atol=0)


def softmax_into(memory: Memory, data_type: str) -> SoftmaxDesc:
    """Along the last axis."""
    dst = memory.desc.with_data_type(data_type)
    return SoftmaxDesc.forward("forward_inference", "softmax_accurate", memory.desc, dst, 1)


def scaled(scale: float) -> tuple[PrimitiveAttr, dict[int, Memory]]:
    """A scale for dst."""
    attr = PrimitiveAttr()
    attr.set_scales(Arg.DST)
    value = memory_of(np.array([scale]), MemoryDesc((1,), "f32"), ENGINE)
    return attr, {Arg.SCALES | Arg.DST: value}
