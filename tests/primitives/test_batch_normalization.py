"""Batch normalization with given statistics."""

from __future__ import annotations

import pytest
import torch

from dnnl import (
    Arg,
    BatchNormalizationDesc,
    InvalidArguments,
    Memory,
    MemoryDesc,
    PrimitiveAttr,
    PrimitiveDesc,
    config,
)
from dnnl.reference import batch_normalization as reference
from dnnl.reference.arrays import Array
from tests.check import check, logical
from tests.pairs import every_pair
from tests.primitives.harness import (
    ENGINE,
    LAYOUTS,
    array,
    describe,
    every_isa,
    execute,
    source,
    tensor,
    vector,
)

DIMS = (2, 19, 5, 7)
EPSILON = 1e-3
GIVEN = "use_global_stats"
ALL = f"{GIVEN}|use_scale|use_shift|fuse_norm_relu"


def normalization(
    src: MemoryDesc, dst: MemoryDesc, flags: str, prop: str = "forward_inference"
) -> BatchNormalizationDesc:
    return BatchNormalizationDesc.forward(prop, src, dst, EPSILON, flags)


def channels(count: int) -> dict[int, Memory]:
    return {
        Arg.MEAN: vector(count, 11),
        Arg.VARIANCE: vector(count, 12),
        Arg.SCALE: vector(count, 13),
        Arg.SHIFT: vector(count, 14),
    }


def expected(memory: Memory, given: dict[int, Memory], flags: str) -> Array:
    return reference.batch_normalization(
        logical(memory),
        logical(given[Arg.MEAN]),
        logical(given[Arg.VARIANCE]),
        logical(given[Arg.SCALE]) if "use_scale" in flags else None,
        logical(given[Arg.SHIFT]) if "use_shift" in flags else None,
        epsilon=EPSILON,
        fuse_relu="relu" in flags,
    )


@pytest.mark.parametrize("src", LAYOUTS)
@pytest.mark.parametrize("dst", ["nchw", "nhwc", "nChw16c"])
def test_layouts(src: str, dst: str) -> None:
    memory, given = source(DIMS, src), channels(19)
    desc = normalization(memory.desc, describe(DIMS, dst), ALL)
    result = execute(desc, {Arg.SRC: memory, **given})
    check(result, expected(memory, given, ALL), reference.TOLERANCE("f32"))


@every_pair(
    every_isa,
    pytest.mark.parametrize("layout", ["nchw", "nhwc", "nChw8c"]),
    pytest.mark.parametrize("flags", [GIVEN, f"{GIVEN}|use_scale", f"{GIVEN}|use_shift", ALL]),
)
def test_flags(isa: str, flags: str, layout: str) -> None:
    memory, given = source(DIMS, layout), channels(19)
    names = {Arg.SCALE: "use_scale", Arg.SHIFT: "use_shift"}
    args = {arg: m for arg, m in given.items() if arg not in names or names[Arg(arg)] in flags}
    with config.override("max_cpu_isa", isa):
        result = execute(normalization(memory.desc, memory.desc, flags), {Arg.SRC: memory, **args})
    check(result, expected(memory, given, flags), reference.TOLERANCE("f32"))


@pytest.mark.parametrize(
    ("dims", "tag"), [((6, 33), "ab"), ((2, 17, 9), "aBc16b"), ((2, 17, 2, 3, 4), "acdeb")]
)
def test_ranks(dims: tuple[int, ...], tag: str) -> None:
    memory, given = source(dims, tag), channels(dims[1])
    desc = normalization(memory.desc, memory.desc, ALL, "forward_inference")
    result = execute(desc, {Arg.SRC: memory, **given})
    check(result, expected(memory, given, ALL), reference.TOLERANCE("f32"))


def test_training_with_given_statistics() -> None:
    memory, given = source(DIMS, "nchw"), channels(19)
    flags = f"{GIVEN}|use_scale|use_shift"
    desc = normalization(memory.desc, memory.desc, flags, "forward_training")
    result = execute(desc, {Arg.SRC: memory, **given})
    check(result, expected(memory, given, flags), reference.TOLERANCE("f32"))


@pytest.mark.parametrize("layout", ["nchw", "nChw16c"])
def test_in_place_with_post_ops(layout: str) -> None:
    memory, given = source(DIMS, layout), channels(19)
    other = source((1, 1, 5, 7), "nchw", 3)
    attr = PrimitiveAttr()
    attr.post_ops.append_sum(0.5)
    attr.post_ops.append_eltwise("eltwise_relu", 0.1)
    attr.post_ops.append_binary("binary_add", other.desc)
    args = {Arg.SRC: memory, **given, Arg.post_op(2) | Arg.SRC_1: other}
    value = expected(memory, given, ALL) + 0.5 * logical(memory)
    want = value.clip(0) + 0.1 * value.clip(None, 0) + logical(other)
    desc = normalization(memory.desc, memory.desc, ALL)
    check(execute(desc, args, attr, memory), want, reference.TOLERANCE("f32"))


def test_as_pytorch() -> None:
    memory, given = source(DIMS, "nhwc"), channels(19)
    mean, variance, scale, shift = (tensor(m) for m in given.values())
    want = torch.nn.functional.batch_norm(tensor(memory), mean, variance, scale, shift, eps=EPSILON)
    flags = f"{GIVEN}|use_scale|use_shift"
    result = execute(normalization(memory.desc, memory.desc, flags), {Arg.SRC: memory, **given})
    check(result, array(want), reference.TOLERANCE("f32"))


def test_no_elements() -> None:
    memory = source((0, 3, 2, 2), "nchw")
    desc = normalization(memory.desc, memory.desc, f"{GIVEN}|use_scale|use_shift")
    execute(desc, {Arg.SRC: memory, **channels(3)})


def test_verbose_fields() -> None:
    plain = describe(DIMS, "nchw")
    pd = PrimitiveDesc(normalization(plain, plain, f"{GIVEN}|use_scale|use_shift"), ENGINE)
    assert pd.verbose_fields().endswith(",flags:GCH,mb2ic19ih5iw7")


def test_bad_arguments() -> None:
    plain = describe(DIMS, "nchw")
    with pytest.raises(InvalidArguments, match=r"epsilon = -1\.0"):
        BatchNormalizationDesc.forward("forward_inference", plain, plain, -1.0, GIVEN)
    with pytest.raises(InvalidArguments, match="epsilon"):
        BatchNormalizationDesc.forward("forward_inference", plain, plain, "1e-5", GIVEN)  # type: ignore[arg-type]
    row = MemoryDesc((3,), "f32")
    with pytest.raises(InvalidArguments, match=r"src_desc = \(3,\).*at least 2"):
        normalization(row, row, GIVEN)
    with pytest.raises(InvalidArguments, match=r"flags.*did you mean 'use_scale'"):
        normalization(plain, plain, "use_scales")
    with pytest.raises(InvalidArguments, match="flags = 'rms_norm'"):
        normalization(plain, plain, "rms_norm")
    with pytest.raises(InvalidArguments, match="dst_desc"):
        normalization(plain, MemoryDesc((2, 19, 5, 8), "f32"), GIVEN)


def test_the_class_itself_takes_names_too() -> None:
    plain = describe(DIMS, "nchw")
    none = MemoryDesc.zero()
    named = BatchNormalizationDesc("forward_inference", plain, plain, 1e-5, GIVEN, none, none)  # type: ignore[arg-type]
    assert named == BatchNormalizationDesc.forward("forward_inference", plain, plain, 1e-5, GIVEN)
