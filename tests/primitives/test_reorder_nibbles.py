"""Reorder of 4-bit types: two elements share a byte, in any layout."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from dnnl import (
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
from dnnl.reference.conversions import convert
from dnnl.reference.quantization import expand
from dnnl.reference.reorder import QUANTIZED_TOLERANCE, reorder
from dnnl.types.scales import ScaleSpec
from tests.check import (
    assert_gaps_untouched,
    assert_padding_zero,
    check,
    logical,
    memory_of,
    poisoned_memory,
    random_memory,
)
from tests.guard import guarded
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE, ISAS, describe, every_isa, execute, typed_source

TYPES = ["s4", "u4", "f4_e2m1"]
Dims = tuple[int, ...]
PAIRS = [("f32", "s4"), ("u4", "u4"), ("f4_e2m1", "bf16"), ("s8", "f4_e2m1"), ("s4", "s8")]
# Rows of an even length begin on a byte, those of an odd one share bytes.
EVEN, ODD, LONG = (2, 20, 3, 36), (2, 19, 3, 5), (1, 131, 1, 69)
CASES = [
    (EVEN, "nchw", "nchw"), (EVEN, "nchw", "nhwc"), (EVEN, "nhwc", "nChw16c"),
    (EVEN, "nChw8c", "dcba"), (EVEN, "part16", "nchw"), (EVEN, "nhwc", "part16"),
    (ODD, "nchw", "nchw"), (ODD, "nchw", "nhwc"), (ODD, "nChw16c", "nhwc"),
    (ODD, "nhwc", "ABcd4b16a4b"), (ODD, "part", "nchw"), (ODD, "nhwc", "part"),
    (LONG, "nchw", "nhwc"), (LONG, "part", "nchw"), (ODD, "nhwc", "aBcd3b"),
    ((1, 1, 1, 1), "nchw", "nchw"), ((1, 3, 1, 1), "nchw", "nchw"), ((1, 1, 1, 33), "nchw", "part"),
]  # fmt: skip


@every_pair(isa=ISAS, types=PAIRS, case=CASES)
def test_any_layout(types: tuple[str, str], case: tuple[Dims, str, str], isa: str) -> None:
    """On two threads as on one, with what lies beside the tensor untouched."""
    dims, src, dst = case
    memory = typed_source(dims, src, types[0])
    desc = ReorderDesc(memory.desc, describe(dims, dst).with_data_type(types[1]))
    with config.override("max_cpu_isa", isa):
        result = execute(desc, {Arg.SRC: memory})
    check(result, convert(logical(memory), types[1]), 0.0)


@every_pair(
    isa=ISAS,
    types=[("s4", "s4"), ("u4", "u8"), ("f4_e2m1", "f32")],
    case=[
        ((260, 66), "ab", "ba"),
        ((130, 255), "ab", "ba"),
        ((129, 40), "ab", (1, 130)),
        ((3, 250, 5, 7), "nchw", "nhwc"),
        ((1, 243, 4, 9), "nchw", "nChw16c"),
        ((1, 65, 40, 2), "dcab", "aBcd128b"),
        ((32, 243), (244, 1), "BA32b32a"),
    ],
)
def test_squares(
    case: tuple[Dims, str | Dims, str | Dims], types: tuple[str, str], isa: str
) -> None:
    """Rows of src that begin in either half of a byte, rows of dst that end in one, padding."""
    dims, src, dst = case
    memory = random_memory(MemoryDesc(dims, types[0], src), ENGINE)
    desc = ReorderDesc(memory.desc, MemoryDesc(dims, types[1], dst))
    with config.override("max_cpu_isa", isa):
        result = execute(desc, {Arg.SRC: memory})
    check(result, convert(logical(memory), types[1]), 0.0)
    assert_padding_zero(result)
    assert_gaps_untouched(result)


@every_isa
@pytest.mark.parametrize("data_type", TYPES)
def test_every_code(data_type: str, isa: str) -> None:
    """Every code of either half beside every other, into f32 and back."""
    memory = Memory(MemoryDesc((512,), data_type), ENGINE)
    memory.data[:] = np.arange(256)
    numbers = MemoryDesc((512,), "f32")
    with config.override("max_cpu_isa", isa):
        wide = execute(ReorderDesc(memory.desc, numbers), {Arg.SRC: memory})
        back = execute(ReorderDesc(numbers, memory.desc), {Arg.SRC: wide})
    expected = memory.numpy().astype(np.float32)
    assert (wide.numpy().view(np.uint32) == expected.view(np.uint32)).all()
    assert (back.data == memory.data).all()


@every_isa
@pytest.mark.parametrize("types", [("u4", "u8"), ("u4", "s8"), ("s4", "s8"), ("s4", "u8")])
def test_every_code_as_eight_bits(types: tuple[str, str], isa: str) -> None:
    memory = Memory(MemoryDesc((512,), types[0]), ENGINE)
    memory.data[:] = np.arange(256)
    with config.override("max_cpu_isa", isa):
        wide = execute(ReorderDesc(memory.desc, MemoryDesc((512,), types[1])), {Arg.SRC: memory})
    assert (wide.numpy() == np.maximum(logical(memory), 0 if types[1] == "u8" else -8)).all()


@every_isa
@pytest.mark.parametrize("data_type", TYPES)
def test_rounding_and_saturation(data_type: str, isa: str) -> None:
    values = np.arange(-4096, 4096, dtype=np.float32) / np.float32(128)
    limits = np.array([np.inf, -np.inf, 1e30, -1e30, 2.0**-140, -0.0], np.float32)
    values = np.concatenate([values, limits])
    if DataType[data_type].is_float:
        values = np.append(values, np.array([np.nan, -np.nan], np.float32))
    memory = Memory.from_numpy(values)
    desc = ReorderDesc(memory.desc, memory.desc.with_data_type(data_type))
    with config.override("max_cpu_isa", isa):
        result = execute(desc, {Arg.SRC: memory})
    want = convert(values, data_type)
    assert (logical(result) == want).all()
    if DataType[data_type].is_float:
        assert (np.signbit(logical(result)) == np.signbit(want)).all()


@pytest.mark.parametrize("layout", ["ab", "ba", "BA16a32b"])
@pytest.mark.parametrize("types", [("s4", "f32"), ("u4", "bf16"), ("f32", "u4"), ("bf16", "s4")])
def test_weights_with_groups_and_zero_points(types: tuple[str, str], layout: str) -> None:
    dims = (64, 96)
    packed, arg = (0, Arg.SRC) if types[0] in TYPES else (1, Arg.DST)
    tags = ["ab", layout] if packed else [layout, "ab"]
    src, old = (
        random_memory(MemoryDesc(dims, data_type, tag), ENGINE, seed=4)
        for data_type, tag in zip(types, tags, strict=True)
    )
    attr = PrimitiveAttr()
    attr.set_scales(arg, 3, (16, 1), "f16")
    attr.set_zero_points(arg, 3, (16, 1), types[packed])
    attr.post_ops.append_sum(0.5)
    spec = ScaleSpec(3, (16, 1), DataType.f32)
    desc = MemoryDesc(spec.shape(dims), "f16")
    scales = random_memory(desc, ENGINE, 1, "positive")
    zero_points = np.random.default_rng(2).integers(0, 8, desc.dims)
    shift = memory_of(zero_points, desc.with_data_type(types[packed]), ENGINE)
    args = {int(Arg.SRC): src, Arg.SCALES | arg: scales, Arg.ZERO_POINTS | arg: shift}
    result = execute(ReorderDesc(src.desc, old.desc), args, attr, old)
    side = "dst" if packed else "src"
    parameters = {
        f"{side}_scale": expand(logical(scales), dims, spec),
        f"{side}_zero_point": expand(zero_points, dims, spec),
    }
    want = reorder(logical(src), sum_scale=0.5, dst=logical(old), **parameters)
    check(result, want, QUANTIZED_TOLERANCE(types[1]))


@pytest.mark.parametrize("at", [1, 2])
def test_half_bytes_of_other_tensors_stay(at: int) -> None:
    """The destination lies inside a larger tensor whose bytes it shares."""
    whole = MemoryDesc((5, 9), "u4")
    desc = whole.submemory((3, 5), (1, at))
    before = memory_of(np.arange(45).reshape(5, 9) % 16, whole, ENGINE)
    region = Memory(desc, ENGINE, before.data[: desc.size].copy())
    source = random_memory(MemoryDesc((3, 5), "f32", "ba"), ENGINE)
    result = execute(ReorderDesc(source.desc, desc), {Arg.SRC: source}, dst=region)
    expected = logical(before)
    expected[1:4, at : at + 5] = convert(logical(source), "u4")
    after = before.data.copy()
    after[: desc.size] = result.data
    assert (logical(Memory(whole, ENGINE, after)) == expected).all()


@every_isa
def test_rows_that_end_in_half_a_byte_leave_the_other_half(isa: str) -> None:
    dims = (3, 37)
    source = random_memory(MemoryDesc(dims, "f32"), ENGINE)
    desc = ReorderDesc(source.desc, MemoryDesc(dims, "s4", (40, 1)))
    with config.override("max_cpu_isa", isa):
        result = execute(desc, {Arg.SRC: source})
    check(result, convert(logical(source), "s4"), 0.0)


def test_bytes_that_rows_share_belong_to_one_work_item() -> None:
    """Two threads that write halves of one byte would undo each other's work."""
    src = MemoryDesc((64, 1023), "s8", "ba")
    for length, alone in ((1024, False), (1025, True)):
        part = MemoryDesc((64, length), "s4").submemory((64, 1023), (0, 0))
        desc = ReorderDesc(src, part)
        (phase,) = PrimitiveDesc(desc, ENGINE).plan.recipe.kernel().phases
        assert (phase.count == 1) is alone


def test_rows_without_gaps_are_packed_by_all_threads() -> None:
    desc = ReorderDesc(MemoryDesc((640, 1023), "s8", "ba"), MemoryDesc((640, 1023), "s4", "ab"))
    phases = PrimitiveDesc(desc, ENGINE).plan.recipe.kernel().phases
    assert len(phases) == 2
    assert all(phase.count > 1 for phase in phases)


@every_isa
@pytest.mark.parametrize("data_type", TYPES)
def test_sum_with_rows_that_share_bytes(data_type: str, isa: str) -> None:
    """The half byte behind the last element is not the tensor's."""
    dims = (37, 69)
    source = random_memory(MemoryDesc(dims, "f32", "ba"), ENGINE)
    old = random_memory(MemoryDesc(dims, data_type, offset0=4), ENGINE, seed=2)
    beyond = old.data[-1] & 0xF0
    attr = PrimitiveAttr()
    attr.post_ops.append_sum(0.5)
    with config.override("max_cpu_isa", isa):
        result = execute(ReorderDesc(source.desc, old.desc), {Arg.SRC: source}, attr, old)
    want = reorder(logical(source), sum_scale=0.5, dst=logical(old))
    check(result, want, QUANTIZED_TOLERANCE(data_type))
    assert result.data[-1] & 0xF0 == beyond
    assert (result.data[:2] == old.data[:2]).all()


@pytest.mark.parametrize("at", ["start", "end"])
def test_scratchpad(at: Literal["start", "end"]) -> None:
    source = random_memory(MemoryDesc((37, 69), "u4", "ab"), ENGINE)
    desc = ReorderDesc(source.desc, source.desc.with_tag("ba"))
    pd = PrimitiveDesc(desc, ENGINE, PrimitiveAttr(scratchpad_mode="user"))
    assert pd.scratchpad_desc.size == 37 * 69
    scratchpad = Memory(pd.scratchpad_desc, ENGINE, guarded(pd.scratchpad_desc.size, at))
    result = poisoned_memory(desc.dst_desc, ENGINE)
    args = {Arg.SRC: source, Arg.DST: result, Arg.SCRATCHPAD: scratchpad}
    Primitive(pd).execute(Stream(ENGINE, 2), args)
    check(result, logical(source), 0.0)
