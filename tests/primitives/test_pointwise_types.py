"""Element by element primitives between data types: computed in f32, converted at both ends."""

from __future__ import annotations

import numpy as np
import pytest

from dnnl import (
    Arg,
    BinaryDesc,
    ConcatDesc,
    EltwiseDesc,
    MemoryDesc,
    PrimitiveAttr,
    PrimitiveDesc,
    SumDesc,
    Unimplemented,
    config,
)
from dnnl.reference import binary, eltwise
from dnnl.reference import sum as sums
from dnnl.reference.concat import concat
from dnnl.reference.conversions import convert
from tests.check import check, logical
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE, describe, every_isa, execute, typed_source

DIMS = (2, 19, 5, 18)
FORWARD = "forward_inference"
LAYOUTS = [("nchw", "nhwc"), ("nhwc", "nChw16c"), ("part", "gaps")]
FLOATS = ["bf16", "f16"]
INTEGERS = ["s8", "u8", "s32"]


@every_isa
@pytest.mark.parametrize("types", [("bf16", "bf16"), ("f16", "f32"), ("f32", "bf16")], ids=">".join)
def test_eltwise_of_floats(types: tuple[str, str], isa: str) -> None:
    alg = "eltwise_exp"
    for src, dst in LAYOUTS:
        memory = typed_source(DIMS, src, types[0])
        to = describe(DIMS, dst).with_data_type(types[1])
        desc = EltwiseDesc.forward(FORWARD, alg, memory.desc, to)
        with config.override("max_cpu_isa", isa):
            result = execute(desc, {Arg.SRC: memory})
        check(result, eltwise.eltwise(alg, logical(memory)), eltwise.tolerance(alg)(types[1]))


@pytest.mark.parametrize("data_type", INTEGERS)
@pytest.mark.parametrize(
    ("alg", "alpha", "beta"),
    [("eltwise_relu", 0.5, 0.0), ("eltwise_linear", 20.0, -3.0), ("eltwise_clip", -2.0, 5.5)],
)
def test_eltwise_of_integers(alg: str, alpha: float, beta: float, data_type: str) -> None:
    for src, dst in LAYOUTS:
        memory = typed_source(DIMS, src, data_type)
        to = describe(DIMS, dst).with_data_type(data_type)
        desc = EltwiseDesc.forward(FORWARD, alg, memory.desc, to, alpha, beta)
        want = eltwise.eltwise(alg, logical(memory), alpha, beta)
        check(execute(desc, {Arg.SRC: memory}), want, eltwise.tolerance(alg)(data_type))


@every_pair(
    every_isa,
    pytest.mark.parametrize(
        "types", [("bf16", "f16", "bf16"), ("s8", "u8", "s8"), ("f32", "s8", "u8")]
    ),
    pytest.mark.parametrize("alg", ["binary_sub", "binary_ge"]),
)
def test_binary(alg: str, types: tuple[str, str, str], isa: str) -> None:
    a, b = typed_source(DIMS, "nchw", types[0]), typed_source((1, 19, 1, 18), "nhwc", types[1], 2)
    dst = describe(DIMS, "nChw16c").with_data_type(types[2])
    with config.override("max_cpu_isa", isa):
        result = execute(BinaryDesc(alg, a.desc, b.desc, dst), {Arg.SRC_0: a, Arg.SRC_1: b})
    check(result, binary.binary(alg, logical(a), logical(b)), binary.TOLERANCE(types[2]))


@pytest.mark.parametrize("data_type", [*FLOATS, *INTEGERS])
def test_post_ops_read_other_types(data_type: str) -> None:
    a, b = typed_source(DIMS, "nchw", "f32"), typed_source((1, 19, 1, 1), "nchw", data_type, 2)
    old = typed_source(DIMS, "nhwc", "bf16", 3)
    attr = PrimitiveAttr()
    attr.post_ops.append_sum(0.5)
    attr.post_ops.append_binary("binary_mul", b.desc)
    desc = EltwiseDesc.forward(FORWARD, "eltwise_relu", a.desc, old.desc)
    args = {int(Arg.SRC): a, Arg.post_op(1) | Arg.SRC_1: b}
    want = (eltwise.eltwise("eltwise_relu", logical(a)) + 0.5 * logical(old)) * logical(b)
    check(execute(desc, args, attr, old), want, sums.TOLERANCE("bf16", 2))


@pytest.mark.parametrize("dst", [*FLOATS, *INTEGERS])
def test_sum(dst: str) -> None:
    memories = [typed_source(DIMS, "nchw", data_type) for data_type in ("f32", "s8", "bf16")]
    scales = (1.0, -0.5, 3.0)
    desc = SumDesc(
        scales, [m.desc for m in memories], describe(DIMS, "nChw16c").with_data_type(dst)
    )
    result = execute(desc, {Arg.multiple_src(i): m for i, m in enumerate(memories)})
    want = sums.sum_([logical(memory) for memory in memories], scales)
    check(result, want, sums.TOLERANCE(dst, 3))


@every_isa
@pytest.mark.parametrize("types", [("s8", "s8"), ("s32", "s32"), ("bf16", "f32"), ("f64", "f64")])
def test_concat(types: tuple[str, str], isa: str) -> None:
    for src, dst in LAYOUTS[:2]:
        memories = [
            typed_source((2, extent, 3, 20), src, types[0], extent) for extent in (7, 16, 33)
        ]
        to = describe((2, 56, 3, 20), dst).with_data_type(types[1])
        desc = ConcatDesc(1, [memory.desc for memory in memories], to)
        with config.override("max_cpu_isa", isa):
            result = execute(desc, {Arg.multiple_src(i): m for i, m in enumerate(memories)})
        want = concat([logical(memory) for memory in memories], 1)
        check(result, convert(want, types[1], core="f64"), 0.0)


def test_concat_refuses_elements_that_share_bytes() -> None:
    half = MemoryDesc((3, 4), "s4")
    with pytest.raises(Unimplemented, match="unsupported data type: s4"):
        PrimitiveDesc(ConcatDesc(1, [half, half]), ENGINE)


@pytest.mark.parametrize("data_type", ["s32", "f16"])
def test_concat_moves_bits(data_type: str) -> None:
    """Integers that f32 does not hold, NaN with payloads."""
    memories = [typed_source((2, extent, 3), "abc", data_type) for extent in (5, 16)]
    bits = np.random.default_rng(1)
    for memory in memories:
        memory.data[:] = bits.integers(0, 256, memory.data.size, dtype=np.uint8)
    desc = ConcatDesc(1, [memory.desc for memory in memories])
    result = execute(desc, {Arg.multiple_src(i): m for i, m in enumerate(memories)})
    want = np.concatenate([memory.numpy() for memory in memories], axis=1)
    assert result.numpy().tobytes() == want.tobytes()
