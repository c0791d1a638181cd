"""Resampling: images in other sizes, and the gradients of that."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dnnl import (
    Arg,
    InvalidArguments,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveAttr,
    PrimitiveDesc,
    ResamplingDesc,
    Stream,
    Unimplemented,
    config,
)
from dnnl.reference import resampling as reference
from dnnl.reference.tolerance import EXACT
from tests.check import check, logical, memory_of, random_memory
from tests.pairs import every_pair
from tests.primitives.harness import (
    ENGINE,
    LAYOUTS,
    describe,
    every_isa,
    execute,
    execute_all,
    source,
    tensor,
    typed_source,
)

ALGS = ["resampling_nearest", "resampling_linear"]
INFERENCE = "forward_inference"
DIMS = (2, 19, 5, 18)
SIZES = [(10, 36), (9, 7), (5, 1), (1, 33), (5, 18)]


def sized(size: tuple[int, ...], layout: str, data_type: str = "f32") -> MemoryDesc:
    return describe((*DIMS[:2], *size), layout).with_data_type(data_type)


def forward(alg: str, src: Memory, dst: MemoryDesc) -> None:
    """Compare dst."""
    desc = ResamplingDesc.forward(INFERENCE, alg, src.desc, dst)
    want = reference.resampling(logical(src), alg, dst.dims[2:])
    check(execute(desc, {Arg.SRC: src}), want, reference.TOLERANCE[alg](dst.data_type, 8))


def backward(alg: str, diff_dst: Memory, diff_src: MemoryDesc) -> None:
    """Compare diff_src."""
    desc = ResamplingDesc.backward(alg, diff_src, diff_dst.desc)
    results = execute_all(PrimitiveDesc(desc, ENGINE), {Arg.DIFF_DST: diff_dst})
    want = reference.resampling_backward(logical(diff_dst), alg, diff_src.dims[2:])
    length = int(np.ceil(diff_dst.desc.nelems() / diff_src.nelems()))
    bound = reference.BACKWARD_TOLERANCE(diff_src.data_type, 4 * length)
    check(results[Arg.DIFF_SRC], want, bound)


@every_pair(every_isa, alg=ALGS, size=SIZES, layout=["nchw", "nhwc", "nChw16c"])
def test_sizes(layout: str, size: tuple[int, ...], alg: str, isa: str) -> None:
    with config.override("max_cpu_isa", isa):
        forward(alg, source(DIMS, layout), sized(size, layout))
        backward(alg, source((*DIMS[:2], *size), layout), sized(DIMS[2:], layout))


@pytest.mark.parametrize("alg", ALGS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str, alg: str) -> None:
    for other in ("nchw", "nhwc", "nChw8c"):
        forward(alg, source(DIMS, layout), sized((9, 7), other))
        forward(alg, source(DIMS, other), sized((9, 7), layout))
        backward(alg, source((*DIMS[:2], 9, 7), layout), sized(DIMS[2:], other))
        backward(alg, source((*DIMS[:2], 9, 7), other), sized(DIMS[2:], layout))


@pytest.mark.parametrize("tag", ["aBCd8b4c", "ABCD2a2b4c8d", "abCD4d2c", "cdab", "bcda"])
def test_blocks_of_space_and_outer_channels(tag: str) -> None:
    for alg in ALGS:
        forward(alg, source(DIMS, "nchw"), sized((9, 7), tag))
        forward(alg, source(DIMS, tag), sized((9, 7), "nhwc"))
        backward(alg, source((*DIMS[:2], 9, 7), tag), sized(DIMS[2:], tag))


@pytest.mark.parametrize("alg", ALGS)
@pytest.mark.parametrize(
    ("old", "new"), [((7,), (12,)), ((33,), (8,)), ((3, 4, 5), (5, 3, 12)), ((4, 1, 6), (2, 5, 6))]
)
def test_dimensions(old: tuple[int, ...], new: tuple[int, ...], alg: str) -> None:
    for tag in ("abx", "axb", "aBx16b"):
        letters = "cde"[: len(old)]
        name = tag.replace("x", letters)
        ends = [MemoryDesc((2, 20, *size), "f32", name) for size in (old, new)]
        forward(alg, random_memory(ends[0], ENGINE), ends[1])
        backward(alg, random_memory(ends[1], ENGINE), ends[0])


@every_pair(
    every_isa,
    pytest.mark.parametrize("alg", ALGS),
    pytest.mark.parametrize(
        "types",
        [
            ("bf16", "bf16"),
            ("f16", "f32"),
            ("f32", "bf16"),
            ("s8", "s8"),
            ("u8", "f16"),
            ("f32", "u8"),
            ("s32", "s32"),
            ("s32", "f32"),
        ],
        ids=">".join,
    ),
)
def test_types(types: tuple[str, str], alg: str, isa: str) -> None:
    with config.override("max_cpu_isa", isa):
        for layout in ("nchw", "nhwc"):
            forward(alg, typed_source(DIMS, layout, types[0]), sized((9, 36), layout, types[1]))


@pytest.mark.parametrize("alg", ALGS)
@pytest.mark.parametrize("types", [("bf16", "bf16"), ("f16", "f16"), ("f32", "bf16")], ids=">".join)
def test_types_of_gradients(types: tuple[str, str], alg: str) -> None:
    for layout in ("nchw", "nhwc", "nChw16c"):
        diff_dst = typed_source((*DIMS[:2], 9, 36), layout, types[0])
        backward(alg, diff_dst, sized(DIMS[2:], layout, types[1]))


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_nearest_elements_are_moved_as_they_are(layout: str) -> None:
    """Integers that f32 does not hold, infinities beside numbers."""
    values = np.random.default_rng(1).integers(-(2**31), 2**31, DIMS)
    src = memory_of(values, describe(DIMS, layout).with_data_type("s32"), ENGINE)
    for size in SIZES:
        dst = sized(size, layout, "s32")
        desc = ResamplingDesc.forward(INFERENCE, ALGS[0], src.desc, dst)
        result = execute(desc, {Arg.SRC: src})
        want = reference.resampling(values, ALGS[0], size)
        check(result, want, EXACT("s32"))
        np.testing.assert_array_equal(logical(result), want)
    floats = np.where(values % 3 == 0, np.inf, values.astype(np.float32))
    src = memory_of(floats, describe(DIMS, layout), ENGINE)
    desc = ResamplingDesc.forward(INFERENCE, ALGS[0], src.desc, sized((10, 36), layout))
    want = floats.repeat(2, axis=2).repeat(2, axis=3)
    np.testing.assert_array_equal(logical(execute(desc, {Arg.SRC: src})), want)


@pytest.mark.parametrize("alg", ALGS)
def test_what_is_no_part_of_an_element_does_not_reach_its_gradient(alg: str) -> None:
    values = np.ones((1, 3, 4, 4))
    values[:, :, 0, 0] = np.inf
    for layout in ("nchw", "nhwc"):
        diff_dst = memory_of(values, describe((1, 3, 4, 4), layout), ENGINE)
        desc = ResamplingDesc.backward(alg, describe((1, 3, 9, 9), layout), diff_dst.desc)
        results = execute_all(PrimitiveDesc(desc, ENGINE), {Arg.DIFF_DST: diff_dst})
        assert np.isfinite(logical(results[Arg.DIFF_SRC])[:, :, 4:, 4:]).all()


@pytest.mark.parametrize("layout", ["nchw", "nhwc", "nChw16c"])
def test_infinities_reach_no_element_but_their_own(layout: str) -> None:
    """Where dst is three times as large, each third element is one of src."""
    values = logical(source(DIMS, "nchw")).copy()
    values[0, 3, 2, 5], values[1, 7, 1, 16:] = np.inf, np.nan
    dst = sized((15, 54), layout)
    for src in (describe(DIMS, layout), describe((*DIMS[:2], 5, 18), "nchw")):
        forward(ALGS[1], memory_of(values, src, ENGINE), dst)
    diff_dst = logical(source(dst.dims, "nchw")).copy()
    diff_dst[0, 3, 7, 10] = np.inf
    backward(ALGS[1], memory_of(diff_dst, dst, ENGINE), describe(DIMS, layout))


def test_it_is_what_pytorch_computes() -> None:
    src = source((2, 19, 7, 9), "nhwc")
    desc = ResamplingDesc.forward(INFERENCE, ALGS[1], src.desc, None, (2.5, 1.5))
    assert desc.dst_desc.dims == (2, 19, 17, 13)
    want = torch.nn.functional.interpolate(
        tensor(src), (17, 13), mode="bilinear", align_corners=False
    )
    check(execute(desc, {Arg.SRC: src}), want.numpy(), reference.TOLERANCE[ALGS[1]]("f32", 4))


@every_pair(layout=["nchw", "nhwc", "nChw16c"], alg=ALGS, types=[("f32", "f32"), ("s8", "u8")])
def test_post_ops(types: tuple[str, str], alg: str, layout: str) -> None:
    src = typed_source(DIMS, layout, types[0])
    old = random_memory(sized((9, 36), layout, types[1]), ENGINE, 2)
    channel = source((1, 19, 1, 1), "nchw", 3)
    attr = PrimitiveAttr()
    attr.post_ops.append_sum(0.5)
    attr.post_ops.append_binary("binary_mul", channel.desc)
    attr.post_ops.append_eltwise("eltwise_relu", 0.5)
    desc = ResamplingDesc.forward(INFERENCE, alg, src.desc, old.desc)
    args = {int(Arg.SRC): src, Arg.post_op(1) | Arg.SRC_1: channel}
    want = reference.resampling(logical(src), alg, (9, 36)) + 0.5 * logical(old)
    want = want * logical(channel)
    want = np.where(want > 0, want, 0.5 * want)
    check(execute(desc, args, attr, old), want, reference.TOLERANCE[ALGS[1]](types[1], 8))


def test_open_layouts() -> None:
    src, open_ = describe(DIMS, "nhwc"), MemoryDesc((2, 19, 9, 7), "f32", "any")
    ahead = ResamplingDesc.forward("forward_training", ALGS[1], src, open_)
    hint = PrimitiveDesc(ahead, ENGINE)
    assert hint.dst_desc == sized((9, 7), "nhwc")
    gradient = MemoryDesc(DIMS, "f32", "any")
    desc = ResamplingDesc.backward(ALGS[1], gradient, sized((9, 7), "nchw"))
    assert PrimitiveDesc(desc, ENGINE).diff_src_desc == describe(DIMS, "nchw")
    assert PrimitiveDesc(desc, ENGINE, hint=hint).diff_src_desc == src


def test_nothing_to_do() -> None:
    src, dst = (Memory(MemoryDesc(dims, "f32"), ENGINE) for dims in ((0, 5, 4), (0, 5, 8)))
    desc = ResamplingDesc.forward(INFERENCE, ALGS[0], src.desc, dst.desc)
    Primitive(PrimitiveDesc(desc, ENGINE)).execute(Stream(ENGINE), {Arg.SRC: src, Arg.DST: dst})


@pytest.mark.parametrize(
    ("src", "dst", "reason"),
    [
        ((2, 3, 4), (2, 4, 8), "batch and channels of src"),
        ((2, 3, 4), (3, 3, 8), "batch and channels of src"),
        ((2, 3, 4), (2, 3, 8, 8), "as src has"),
        ((2, 3), (2, 3), "1 to 3 spatial ones"),
        ((2, 3, 0), (2, 3, 4), "nothing is made of no elements"),
        ((2, 3, 4), (2, 3, 0), "nothing is made of no elements"),
    ],
)
def test_wrong_dims(src: tuple[int, ...], dst: tuple[int, ...], reason: str) -> None:
    ends = MemoryDesc(src, "f32"), MemoryDesc(dst, "f32")
    with pytest.raises(InvalidArguments, match=reason):
        ResamplingDesc.forward(INFERENCE, ALGS[0], *ends)
    with pytest.raises(InvalidArguments, match=reason):
        ResamplingDesc.backward(ALGS[0], *ends)


@pytest.mark.parametrize("factors", [(2.0,), (2.0, 0.0), (2.0, float("nan")), (1e30, 2.0), "x"])
def test_wrong_factors(factors: tuple[float, ...]) -> None:
    with pytest.raises(InvalidArguments, match="factors"):
        ResamplingDesc.forward(INFERENCE, ALGS[0], describe(DIMS, "nchw"), None, factors)


def test_factors_agree_with_dst() -> None:
    src, dst = describe(DIMS, "nchw"), sized((9, 36), "nchw")
    assert ResamplingDesc.forward(INFERENCE, ALGS[0], src, dst, (1.9, 2)).dst_desc == dst
    with pytest.raises(InvalidArguments, match="what the factors make of src"):
        ResamplingDesc.forward(INFERENCE, ALGS[0], src, dst, (2, 2))
    with pytest.raises(InvalidArguments, match="what the factors make of src"):
        ResamplingDesc.backward(ALGS[0], src, dst, (2, 2))


def test_refusals() -> None:
    narrow = sized((9, 36), "nchw", "s8")
    with pytest.raises(Unimplemented, match="unsupported data type: s8"):
        PrimitiveDesc(ResamplingDesc.backward(ALGS[0], describe(DIMS, "nchw"), narrow), ENGINE)
    long = MemoryDesc((1, 1, 2**20 + 1), "f32")
    with pytest.raises(Unimplemented, match="1048577 elements along an axis; at most 1048576"):
        PrimitiveDesc(
            ResamplingDesc.forward(INFERENCE, ALGS[0], MemoryDesc((1, 1, 9), "f32"), long), ENGINE
        )
