"""What a description tells of its inside: counts that can be made by hand, limits that hold."""

from __future__ import annotations

import dataclasses

import pytest

from dnnl import (
    Arg,
    ConvolutionDesc,
    Engine,
    InvalidArguments,
    MatmulDesc,
    MemoryDesc,
    PrimitiveAttr,
    PrimitiveDesc,
    ReorderDesc,
    SoftmaxDesc,
    Unimplemented,
    config,
)
from dnnl.primitives import limits
from dnnl.primitives.amounts import duration, scaled
from dnnl.primitives.info import Info
from dnnl.types.kinds import RUNTIME_DIM


def matmul(
    weights: str = "any", kinds: str = "u8:s8:f32", attr: PrimitiveAttr | None = None
) -> Info:
    src, wei, dst = kinds.split(":")
    desc = MatmulDesc(
        MemoryDesc((64, 96), src, "ab"),
        MemoryDesc((96, 64), wei, weights),
        MemoryDesc((64, 64), dst, "ab"),
    )
    return PrimitiveDesc(desc, Engine("cpu"), attr).info(1)


def test_counts_of_a_product() -> None:
    info = matmul(kinds="f32:f32:f32")
    assert info.operations == 2 * 64 * 96 * 64
    assert info.tensor_bytes == 4 * (64 * 96 + 96 * 64 + 64 * 64)
    assert info.bytes_moved == info.tensor_bytes
    assert not info.packing
    assert info.intensity == info.operations / info.bytes_moved
    assert info.tile in info.steps[-1].symbol


def test_what_is_copied_is_moved_three_times() -> None:
    info = matmul("ab")
    copy = info.packing[0]
    assert copy.name == "wei"
    assert copy.nbytes == 96 * 64
    copied = sum(copy.nbytes for copy in info.packing)
    assert info.bytes_moved == 64 * 96 + 96 * 64 + 4 * 64 * 64 + 2 * copied
    assert info.scratchpad >= copy.nbytes
    assert "wei is copied from s8 ab to s8 B" in str(info)


def test_operands_of_attributes_are_moved() -> None:
    attr = PrimitiveAttr()
    attr.set_scales(Arg.WEIGHTS, 2)
    attr.post_ops.append_sum()
    attr.post_ops.append_binary("binary_add", MemoryDesc((1, 64), "f32", "ab"))
    more = matmul(attr=attr).tensor_bytes - matmul().tensor_bytes
    assert more == 4 * 64 + 4 * 64 * 64 + 4 * 64
    assert [name for name, _ in matmul(attr=attr).tensors[-2:]] == [
        "SCALES|WEIGHTS",
        "post_op(1)|SRC_1",
    ]


LEVELS = ("sse41", "avx2", "avx2_vnni", "avx512_core", "avx512_core_vnni")


@pytest.mark.parametrize(
    "isa", [pytest.param(name, marks=pytest.mark.isa(name)) for name in LEVELS]
)
def test_every_level_tells_its_instruction_and_its_own_peak(isa: str) -> None:
    with config.override("max_cpu_isa", isa):
        info = matmul()
        assert info.implementation == f"brgemm:{isa}"
        assert info.factors.startswith("u8 by s8 to s32 by ")
        assert ("up-converted" in info.factors) == (not isa.endswith("vnni"))
        assert info.limits is not None
        assert info.limits.operations > 1e8


@pytest.mark.parametrize("layout", ["any", "ab", "ba"])
@pytest.mark.parametrize(
    "kinds",
    [
        *("f64:f64:f64", "f32:f32:f32", "bf16:bf16:f32", "f16:f16:f16", "f8_e5m2:f8_e4m3:f32"),
        *("u8:s8:s32", "s8:s8:bf16", "u8:s4:f32", "s8:u4:f32", "f4_e2m1:f4_e2m1:f32"),
        *("f32:s4:f32", "bf16:u4:bf16", "bf16:f4_e2m1:f32", "f16:s8:f16", "f32:u8:f32"),
    ],
)
def test_every_pair_of_types_has_a_limit(kinds: str, layout: str) -> None:
    attr = PrimitiveAttr(fpmath_mode="strict", fpmath_apply_to_int=True)
    info = matmul(layout, kinds, attr)
    assert info.limits is not None
    assert info.limits.operations > 1e8
    if kinds == "f32:s4:f32" and layout == "any":
        assert info.factors.endswith("8 at a time, s4 converted to f32 in registers")
        assert info.limits.factors == "f32 x s4"


def test_a_convolution_and_its_limit() -> None:
    image, weights = (
        MemoryDesc((1, 32, 14, 14), "f32", "any"),
        MemoryDesc((32, 32, 3, 3), "f32", "any"),
    )
    desc = ConvolutionDesc.forward(
        "forward_inference", "convolution_direct", image, weights, image, (1, 1), (1, 1)
    )
    info = PrimitiveDesc(desc, Engine("cpu")).info(1)
    assert info.operations == 2 * 32 * 32 * (3 * 14 - 2) ** 2  # taps in padding left out
    assert info.bound == "compute"
    assert info.predicted_seconds == info.compute_seconds > info.memory_seconds
    slow = info.with_time(4 * info.predicted_seconds)
    assert slow.reached == pytest.approx(0.25)
    assert "25% of the limit" in str(slow)
    assert info.reached is None
    assert "measured  " not in str(info)


def test_what_moves_is_bound_by_memory() -> None:
    desc = MemoryDesc((64, 1024), "f32", "ab")
    pd = PrimitiveDesc(
        SoftmaxDesc.forward("forward_inference", "softmax_accurate", desc, desc, 1), Engine("cpu")
    )
    info = pd.info()
    assert (info.operations, info.bytes_moved, info.bound) == (0, 2 * 4 * 64 * 1024, "memory")
    assert "arithmetic" not in dict(info.rows())
    assert "nothing is copied, no scratchpad" in str(info)


def test_the_bound_follows_from_the_limits() -> None:
    info = matmul()
    assert info.limits is not None
    poor = dataclasses.replace(info.limits, bandwidth=1.0)
    assert dataclasses.replace(info, limits=poor).bound == "memory"
    rich = dataclasses.replace(info.limits, bandwidth=1e30)
    assert dataclasses.replace(info, limits=rich).bound == "compute"


def test_peaks_are_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = matmul().limits
    monkeypatch.setattr(limits, "_least", lambda _: pytest.fail("measured again"))
    assert matmul().limits == first


def test_an_engine_that_runs_nothing_has_no_limits() -> None:
    desc = MemoryDesc((8, 16), "f32", "ab")
    pd = PrimitiveDesc(
        MatmulDesc(desc, MemoryDesc((16, 4), "f32", "ab"), MemoryDesc((8, 4), "f32", "ab")),
        Engine("null"),
    )
    info = pd.info()
    assert info.limits is None
    assert info.bound == ""
    assert info.with_time(1.0).reached is None
    assert "peaks are not measured" in str(info)


def test_empty_tensors_have_no_kernel() -> None:
    desc = MemoryDesc((0, 16), "f32", "ab")
    pd = PrimitiveDesc(
        MatmulDesc(desc, MemoryDesc((16, 4), "f32", "ab"), MemoryDesc((0, 4), "f32", "ab")),
        Engine("cpu"),
    )
    assert pd.info().steps == ()


def test_refusals() -> None:
    open_desc = MemoryDesc((RUNTIME_DIM, 8), "f32", "ab")
    pd = PrimitiveDesc(ReorderDesc(open_desc, open_desc), Engine("cpu"))
    with pytest.raises(Unimplemented, match="with_sizes"):
        pd.info()
    with pytest.raises(InvalidArguments, match="above 0"):
        matmul().with_time(0.0)
    with pytest.raises(InvalidArguments, match="num_threads"):
        PrimitiveDesc(
            ReorderDesc(MemoryDesc((8,), "f32"), MemoryDesc((8,), "f32")), Engine("cpu")
        ).info(0)


def test_amounts() -> None:
    assert [duration(s) for s in (2.0, 0.0123, 4.5e-6, 7e-9)] == [
        "2 s",
        "12.3 ms",
        "4.5 us",
        "7 ns",
    ]
    assert scaled(1234567, "B") == "1.23 MB"
