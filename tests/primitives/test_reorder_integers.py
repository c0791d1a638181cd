"""Reorder of integers and truth values: exact, saturating, into each other and to floats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from dnnl import (
    RUNTIME_DIM,
    Arg,
    DataType,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveAttr,
    PrimitiveDesc,
    ReorderDesc,
    Stream,
    config,
)
from dnnl.reference.conversions import convert, exactly
from tests.check import assert_padding_zero, codes_of, poisoned_memory, store_codes
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE, ISAS, describe, every_isa, execute

INTEGERS = ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64", "boolean", "s4", "u4"]
WIDE = ["s32", "u32", "s64", "u64"]
NEW = ["s16", "u16", "u32", "s64", "u64", "boolean"]
FLOATS = ["f64", "f32", "f16", "bf16", "f8_e5m2", "f8_e4m3", "f4_e2m1", "e8m0"]
LAYOUTS = [("nchw", "nhwc"), ("nhwc", "nChw16c"), ("nChw8c", "part"), ("part", "nchw")]


def elements(data_type: str, count: int, seed: int = 0) -> NDArray[Any]:
    """Of all magnitudes: the limits, numbers next to ties of floats, and random ones."""
    kind, rng = DataType[data_type], np.random.default_rng(seed)
    if kind is DataType.boolean:
        return rng.integers(0, 2, count).astype(bool)
    low, high = int(kind.min), int(kind.max)
    ties = [
        (n << e) + side for n in (257, 259, 2051) for e in (4, 15, 40, 51) for side in (-1, 0, 1)
    ]
    limits = [1 << e for e in range(64)] + [(1 << e) - 1 for e in range(65)] + ties
    chosen = [n for each in limits for n in (each, -each) if low <= n <= high]
    shifts = rng.integers(0, kind.bits, count)
    chosen += [
        int(rng.integers(low, high, dtype=np.uint64 if low == 0 else np.int64, endpoint=True))
        >> int(n)
        for n in shifts
    ]
    chosen = chosen[-count:] if count < 60 else chosen[:count]
    return np.array(chosen, object).astype(kind.numpy)


def memory_of(array: NDArray[Any], desc: MemoryDesc) -> Memory:
    """A poisoned memory with these elements; truth values are any bytes but 0."""
    memory = poisoned_memory(desc, ENGINE)
    bits = desc.data_type.bits
    if desc.data_type is DataType.boolean:
        store_codes(memory, array * np.uint8(37))
    elif bits == 4:
        store_codes(memory, array.astype(np.int8).view(np.uint8) & np.uint8(15))
    else:
        store_codes(memory, np.ascontiguousarray(array).view(f"u{bits // 8}").reshape(array.shape))
    return memory


def assert_elements(memory: Memory, want: NDArray[Any]) -> None:
    """Equal bit by bit, but for NaN."""
    kind = memory.desc.data_type
    if kind.bits == 4:
        got = memory.numpy()
    else:
        got = np.ascontiguousarray(codes_of(memory)).view(kind.numpy).reshape(want.shape)
    same = got == want
    if kind.is_float:
        same |= np.isnan(got.astype(float)) & np.isnan(want.astype(float))
    bad = np.argwhere(~same)[:3]
    assert same.all(), [(got[tuple(at)], want[tuple(at)]) for at in bad]
    if kind is not DataType.e8m0:
        assert_padding_zero(memory)


def converted(
    memory: Memory, desc: MemoryDesc, isa: str, attr: PrimitiveAttr | None = None
) -> Memory:
    with config.override("max_cpu_isa", isa):
        return execute(ReorderDesc(memory.desc, desc), {Arg.SRC: memory}, attr)


@every_pair(isa=ISAS, src=INTEGERS, dst=[*INTEGERS, *FLOATS])
def test_integers_become_others_exactly(src: str, dst: str, isa: str) -> None:
    for count in (437, 19, 1):
        array = elements(src, count)
        line = MemoryDesc((count,), src)
        result = converted(memory_of(array, line), line.with_data_type(dst), isa)
        wide = array.astype(np.int8) if DataType[src].bits == 4 else array
        assert_elements(result, exactly(wide, dst) if src != dst else wide)


@every_pair(
    every_isa,
    pytest.mark.parametrize("dst", [*WIDE, "s16", "u16", "s8"]),
    pytest.mark.parametrize("src", ["f32", "f64"]),
)
def test_floats_saturate_exactly(src: str, dst: str, isa: str) -> None:
    kind = DataType[dst]
    low, high = int(kind.min), int(kind.max)
    edges = [
        2.0**n * (1 + side * 2.0**-23)
        for n in (7, 8, 15, 16, 31, 32, 63, 64)
        for side in (-0.5, 0, 1)
    ]
    edges += [
        2147483520.0,
        2147483583.5,
        3e9,
        1e30,
        np.inf,
        0.5,
        1.5,
        2.5,
        0.49999997,
        2.0**31 - 0.5,
    ]
    rng = np.random.default_rng(1)
    values = np.array(
        [
            *edges,
            *(-edge for edge in edges),
            *rng.standard_normal(60) * 2.0 ** rng.integers(0, 70, 60),
        ]
    )
    array = values.astype(DataType[src].numpy)
    line = MemoryDesc(array.shape, src)
    held = np.clip(array.astype(np.float64), -(2.0**70), 2.0**70)
    want = np.array([min(max(int(np.rint(each)), low), high) for each in held], object)
    result = converted(memory_of(array, line), line.with_data_type(dst), isa)
    assert_elements(result, want.astype(kind.numpy))


@every_pair(
    isa=ISAS,
    layouts=LAYOUTS,
    types=[
        ("s64", "s32"),
        ("s16", "f32"),
        ("u8", "s64"),
        ("f32", "s64"),
        ("s32", "boolean"),
        ("boolean", "bf16"),
        ("u64", "u16"),
    ],
)
def test_layouts(types: tuple[str, str], layouts: tuple[str, str], isa: str) -> None:
    dims = (2, 19, 3, 18)
    src, dst = (
        describe(dims, tag).with_data_type(kind) for tag, kind in zip(layouts, types, strict=True)
    )
    if types[0] == "f32":
        array: NDArray[Any] = np.float32(1e12) * np.random.default_rng(2).standard_normal(
            dims
        ).astype(np.float32)
        want = convert(array, types[1], "f64").astype(np.int64)
    else:
        array = np.resize(elements(types[0], 997), dims)
        want = exactly(array, types[1])
    assert_elements(converted(memory_of(array, src), dst, isa), want)


@every_pair(
    every_isa,
    pytest.mark.parametrize("tag", ["ab", "ba"]),
    pytest.mark.parametrize(
        "types", [("s64", "s32"), ("boolean", "f32"), ("f32", "u32"), ("u16", "u16")]
    ),
)
def test_sizes_at_run_time(types: tuple[str, str], tag: str, isa: str) -> None:
    strides = (1, RUNTIME_DIM) if tag == "ba" else (RUNTIME_DIM, 1)
    given = MemoryDesc((RUNTIME_DIM,) * 2, types[0], (RUNTIME_DIM, 1))
    desc = ReorderDesc(given, MemoryDesc((RUNTIME_DIM,) * 2, types[1], strides))
    with config.override("max_cpu_isa", isa):
        primitive = Primitive(PrimitiveDesc(desc, ENGINE))
    for dims in ((3, 5), (33, 70)):
        if types[0] == "f32":
            array: NDArray[Any] = (
                np.linspace(-1e9, 5e9, 15 * 154)[: dims[0] * dims[1]]
                .astype(np.float32)
                .reshape(dims)
            )
            want = convert(array, types[1], "f64").astype(np.uint32)
        else:
            array = np.resize(elements(types[0], 997), dims)
            want = exactly(array, types[1])
        memory = memory_of(array, MemoryDesc(dims, types[0]))
        result = poisoned_memory(MemoryDesc(dims, types[1], tag), ENGINE)
        primitive.execute(Stream(ENGINE, 2), {Arg.SRC: memory, Arg.DST: result})
        assert_elements(result, want)


@every_isa
@pytest.mark.parametrize(
    "types", [("s16", "f32"), ("f32", "u16"), ("s64", "s64"), ("u32", "s16"), ("s8", "s64")]
)
def test_scales_zero_points_and_sums(types: tuple[str, str], isa: str) -> None:
    """In f64 where one end has 64 bits, so that integers of 53 bits stay as they are."""
    dims = (7, 33)
    src, dst = (MemoryDesc(dims, kind) for kind in types)
    top = 2.0**40 if types == ("s64", "s64") else 90.0
    values = np.rint(np.random.default_rng(3).uniform(-top, top, dims))
    values = np.abs(values) if types[0] == "u32" else values
    attr = PrimitiveAttr()
    args: dict[int, Memory] = {Arg.SRC: memory_of(values.astype(src.data_type.numpy), src)}
    attr.set_scales(Arg.SRC, 1)
    scale = 2.0 ** np.arange(-2, 5)
    args[Arg.SCALES | Arg.SRC] = Memory.from_numpy(scale.astype(np.float32))
    want = values * scale[:, None]
    for arg, desc, point in ((Arg.SRC, src, 7), (Arg.DST, dst, 100)):
        if desc.data_type.is_integer:
            attr.set_zero_points(arg, 0)
            args[Arg.ZERO_POINTS | arg] = Memory.from_numpy(np.array([point], np.int32))
            want = want - point * scale[:, None] if arg == Arg.SRC else want
    old = np.random.default_rng(4).integers(0, 50, dims)
    attr.post_ops.append_sum(2.0)
    want = want + 2.0 * old + (100 if dst.data_type.is_integer else 0)
    held = memory_of(old.astype(dst.data_type.numpy), dst)
    with config.override("max_cpu_isa", isa):
        result = execute(ReorderDesc(src, dst), args, attr, held)
    assert_elements(result, convert(want, types[1], "f64").astype(dst.data_type.numpy))


@pytest.mark.parametrize("kind", NEW)
def test_operands_of_post_ops_have_any_type(kind: str) -> None:
    line = MemoryDesc((19,), "f32")
    attr, array = PrimitiveAttr(), np.resize([0, 1, 1], 19).astype(DataType[kind].numpy)
    attr.post_ops.append_binary("binary_add", line.with_data_type(kind))
    other = memory_of(array, line.with_data_type(kind))
    args: dict[int, Memory] = {Arg.SRC: Memory.from_numpy(np.arange(19, dtype=np.float32))}
    args[Arg.post_op(0) | Arg.SRC_1] = other
    result = execute(ReorderDesc(line, line), args, attr)
    assert_elements(result, np.arange(19) + array.astype(np.float32))


@pytest.mark.parametrize("name", ["int16", "int64", "bool", "uint16", "uint32", "uint64"])
def test_tensors_of_pytorch(name: str) -> None:
    """Each type becomes a memory without copy, and what PyTorch casts becomes the same here."""
    given = torch.tensor([[0, 1, 2], [100, 7, 0]]).to(getattr(torch, name))
    memory = Memory.from_numpy(given)
    assert memory.pointer == given.data_ptr()
    for dst, peer in (
        ("f32", torch.float32),
        ("s64", torch.int64),
        ("bf16", torch.bfloat16),
        ("boolean", torch.bool),
    ):
        result = converted(memory, memory.desc.with_data_type(dst), ISAS[-1])
        assert torch.equal(
            torch.utils.dlpack.from_dlpack(result).to(torch.float64),
            given.to(peer).to(torch.float64),
        )
