"""Group normalization: groups of channels in any layout and type, their statistics and
gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
import torch

from dnnl import (
    Arg,
    GroupNormalizationDesc,
    InvalidArguments,
    Memory,
    MemoryDesc,
    NormFlags,
    PrimitiveAttr,
    PrimitiveDesc,
    Unimplemented,
    config,
)
from dnnl.reference import group_normalization as reference
from dnnl.reference.arrays import Array
from tests.check import Fill, check, logical, memory_of, random_memory
from tests.pairs import every_pair
from tests.primitives.harness import (
    ENGINE,
    LAYOUTS,
    array,
    describe,
    every_isa,
    every_rounding_isa,
    execute_all,
    source,
    tensor,
)

DIMS = (3, 20, 5, 7)
EPSILON = 1e-3
AFFINE = "use_scale|use_shift"
GIVEN = "use_global_stats"
FLAGS = ["none", GIVEN, AFFINE, "use_scale", "use_shift", f"{GIVEN}|{AFFINE}"]
_STATISTICS = (Arg.MEAN, Arg.VARIANCE)


def forward(
    src: MemoryDesc,
    groups: int,
    flags: str = AFFINE,
    dst: MemoryDesc | None = None,
    prop: str = "forward_training",
) -> GroupNormalizationDesc:
    dst = src if dst is None else dst
    return GroupNormalizationDesc.forward(prop, src, dst, groups, EPSILON, flags)


def backward(
    src: MemoryDesc,
    groups: int,
    flags: str = AFFINE,
    diff_dst: MemoryDesc | None = None,
    diff_src: MemoryDesc | None = None,
    prop: str = "backward",
) -> GroupNormalizationDesc:
    diff_dst, diff_src = (src if desc is None else desc for desc in (diff_dst, diff_src))
    return GroupNormalizationDesc.backward(prop, diff_src, diff_dst, src, groups, EPSILON, flags)


def filled(desc: GroupNormalizationDesc) -> dict[int, Memory]:
    """Random inputs. Given statistics of a forward pass are anything, those of a backward one are
    true."""
    settled = PrimitiveDesc(desc, ENGINE).desc
    given = {}
    for tensor_ in settled.tensors:
        if not tensor_.output:
            fill: Fill = "positive" if tensor_.argument == Arg.VARIANCE else "normal"
            given[tensor_.argument] = random_memory(tensor_.desc, ENGINE, tensor_.argument, fill)
    if not desc.prop_kind.is_forward:
        true = reference.statistics(logical(given[Arg.SRC]), desc.groups)
        for argument, values in zip(_STATISTICS, true, strict=True):
            given[argument] = memory_of(values, given[argument].desc, ENGINE)
    return given


def expected(desc: GroupNormalizationDesc, given: Mapping[int, Memory]) -> dict[int, Array]:
    values = {argument: logical(memory) for argument, memory in given.items()}
    src, scale = values[Arg.SRC], values.get(Arg.SCALE)
    if desc.prop_kind.is_forward:
        mean, variance = reference.statistics(src, desc.groups)
        if NormFlags.use_global_stats in desc.flags:
            mean, variance = values[Arg.MEAN], values[Arg.VARIANCE]
        dst = reference.group_normalization(
            src, mean, variance, scale, values.get(Arg.SHIFT), epsilon=EPSILON
        )
        return {Arg.DST: dst, Arg.MEAN: mean, Arg.VARIANCE: variance}
    made = reference.group_normalization_backward(
        src,
        values[Arg.DIFF_DST],
        values[Arg.MEAN],
        values[Arg.VARIANCE],
        scale,
        epsilon=EPSILON,
        global_stats=NormFlags.use_global_stats in desc.flags,
    )
    return dict(zip((Arg.DIFF_SRC, Arg.DIFF_SCALE, Arg.DIFF_SHIFT), made, strict=True))


def judge(desc: GroupNormalizationDesc, given: Mapping[int, Memory], *shared: int) -> None:
    """Run it, with the output and the input ``shared`` in one buffer, and check every output."""
    want = expected(desc, given)
    old = {shared[0]: given[shared[1]]} if shared else {}
    results = execute_all(PrimitiveDesc(desc, ENGINE), given, old)
    assert results.keys() == {tensor_.argument for tensor_ in desc.outputs}
    images, channels = desc.src_desc.dims[:2]
    length = desc.src_desc.nelems() // (images * desc.groups)
    of_channel = desc.src_desc.nelems() // channels
    for argument, result in results.items():
        kind = result.desc.data_type
        tolerance = {
            Arg.DST: reference.TOLERANCE(kind)
            if NormFlags.use_global_stats in desc.flags
            else reference.TRAINING_TOLERANCE(kind, length),
            Arg.MEAN: reference.STATISTICS_TOLERANCE(kind, length),
            Arg.VARIANCE: reference.STATISTICS_TOLERANCE(kind, length),
            Arg.DIFF_SRC: reference.DIFF_SRC_TOLERANCE(kind, length),
            Arg.DIFF_SCALE: reference.DIFF_SCALE_TOLERANCE(kind, of_channel),
            Arg.DIFF_SHIFT: reference.DIFF_SCALE_TOLERANCE(kind, of_channel),
        }[Arg(argument)]
        check(result, want[argument], tolerance)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("groups", [1, 4, 20])
def test_layouts(layout: str, groups: int) -> None:
    src = describe(DIMS, layout)
    for desc in (forward(src, groups), backward(src, groups)):
        judge(desc, filled(desc))


_DIRECTIONS: dict[str, Callable[..., GroupNormalizationDesc]] = {
    "forward": lambda one, other, groups: forward(one, groups, dst=other),
    "statistics": lambda one, other, groups: forward(one, groups, GIVEN, other),
    "backward": lambda one, other, groups: backward(one, groups, AFFINE, other, one),
    "no_scale": lambda one, other, groups: backward(other, groups, "none", one, other),
    "data": lambda one, other, groups: backward(one, groups, AFFINE, one, other, "backward_data"),
}


@every_pair(
    layouts=[
        ("nchw", "nhwc"),
        ("nChw16c", "part"),
        ("nhwc", "nChw8c"),
        ("part16", "nchw"),
        ("gaps", "dcba"),
    ],
    groups=[1, 5, 20],
    direction=sorted(_DIRECTIONS),
)
def test_each_tensor_in_a_layout_of_its_own(
    layouts: tuple[str, str], groups: int, direction: str
) -> None:
    desc = _DIRECTIONS[direction](*(describe(DIMS, layout) for layout in layouts), groups)
    judge(desc, filled(desc))


@every_pair(flags=FLAGS, groups=[1, 2, 10], layout=["nchw", "nhwc"])
def test_flags(flags: str, groups: int, layout: str) -> None:
    src = describe((2, 10, 9, 4), layout)
    for prop in ("forward_training", "forward_inference"):
        desc = forward(src, groups, flags, prop=prop)
        given = filled(desc)
        judge(desc, given)
        judge(desc, given, Arg.DST, Arg.SRC)
    for prop in ("backward", "backward_data"):
        desc = backward(src, groups, flags, prop=prop)
        given = filled(desc)
        judge(desc, given)
        judge(desc, given, Arg.DIFF_SRC, Arg.DIFF_DST)


@every_isa
@pytest.mark.parametrize(
    ("dims", "groups", "tag"),
    [
        ((2, 6, 1), 3, "abc"),
        ((1, 32, 40), 2, "abc"),
        ((3, 33, 9), 11, "acb"),
        ((2, 64, 8, 8), 32, "acdb"),
        ((2, 24, 5, 3), 3, "aBcd16b"),
        ((1, 4, 70, 70), 1, "abcd"),
        ((2, 1, 3), 1, "acb"),
        ((2, 6, 2, 3, 4), 2, "acdeb"),
        ((40, 2, 33), 1, "abc"),
    ],
)
def test_shapes(isa: str, dims: tuple[int, ...], groups: int, tag: str) -> None:
    src = MemoryDesc(dims, "f32", tag)
    with config.override("max_cpu_isa", isa):
        for desc in (forward(src, groups), backward(src, groups), backward(src, groups, "none")):
            judge(desc, filled(desc))


@every_rounding_isa
@pytest.mark.parametrize(("kind", "layout"), [("bf16", "abc"), ("f16", "acb"), ("bf16", "aBc16b")])
def test_floats(isa: str, kind: str, layout: str) -> None:
    src = MemoryDesc((3, 12, 35), kind, layout)
    with config.override("max_cpu_isa", isa):
        for desc in (forward(src, 3), backward(src, 3)):
            judge(desc, filled(desc))


@pytest.mark.parametrize(
    ("src", "dst"),
    [
        ("f32", "bf16"),
        ("bf16", "f32"),
        ("f16", "bf16"),
        ("f32", "s8"),
        ("bf16", "u8"),
        ("s8", "f32"),
        ("u8", "bf16"),
        ("u8", "s8"),
        ("s8", "f16"),
    ],
)
@pytest.mark.parametrize("layout", ["abc", "acb"])
def test_types_on_either_side(src: str, dst: str, layout: str) -> None:
    given, made = MemoryDesc((3, 12, 53), src, layout), MemoryDesc((3, 12, 53), dst, layout)
    for flags in ("none", f"{AFFINE}|{GIVEN}"):
        desc = forward(given, 4, flags, made, "forward_inference")
        judge(desc, filled(desc))
    if given.data_type.is_float and made.data_type.is_float:
        desc = backward(given, 4, AFFINE, made, given)
        judge(desc, filled(desc))


@every_pair(
    pytest.mark.parametrize("layout", ["abc", "acb", "aBc16b"]),
    pytest.mark.parametrize(("src", "dst"), [("s8", "f32"), ("u8", "s8"), ("f32", "u8")]),
    pytest.mark.parametrize("groups", [3, 12]),
)
def test_scales_and_post_ops(src: str, dst: str, groups: int, layout: str) -> None:
    """The scale of src multiplies what is normalized and shifted."""
    dims = (3, 12, 53)
    desc = forward(
        MemoryDesc(dims, src, layout),
        groups,
        AFFINE,
        MemoryDesc(dims, dst, layout),
        "forward_inference",
    )
    given, row, every = filled(desc), source((1, 12, 1), "abc", 21), source(dims, "acb", 22)
    attr = PrimitiveAttr()
    attr.set_scales(Arg.SRC, 0)
    attr.set_scales(Arg.DST, 0)
    attr.post_ops.append_binary("binary_add", row.desc)
    attr.post_ops.append_eltwise("eltwise_relu", 0.1)
    attr.post_ops.append_binary("binary_mul", every.desc)
    made = {
        Arg.SCALES | arg: memory_of(np.array([value]), MemoryDesc((1,), "f32"), ENGINE)
        for arg, value in ((Arg.SRC, 3.0), (Arg.DST, 0.25))
    }
    operands = {Arg.post_op(0) | Arg.SRC_1: row, Arg.post_op(2) | Arg.SRC_1: every}
    result = execute_all(PrimitiveDesc(desc, ENGINE, attr), {**given, **made, **operands})[Arg.DST]
    value = expected(desc, given)[Arg.DST] * 3 + logical(row)
    want = (value.clip(0) + 0.1 * value.clip(None, 0)) * logical(every) / 0.25
    check(result, want, reference.TRAINING_TOLERANCE(dst, dims[1] // groups * 53))


def test_the_destination_may_be_summed_to() -> None:
    src = describe(DIMS, "nchw")
    for groups in (4, 20):
        desc = forward(src, groups, prop="forward_inference")
        given, before = filled(desc), source(DIMS, "nchw", 31)
        attr = PrimitiveAttr()
        attr.post_ops.append_sum(0.5)
        want = expected(desc, given)[Arg.DST] + 0.5 * logical(before)
        result = execute_all(PrimitiveDesc(desc, ENGINE, attr), given, {Arg.DST: before})[Arg.DST]
        check(result, want, reference.TRAINING_TOLERANCE("f32", 20 // groups * 35))


@every_isa
@pytest.mark.parametrize("tag", ["abc", "acb", "aBc8b"])
def test_variance_does_not_cancel(isa: str, tag: str) -> None:
    """Groups a thousand deviations from zero, whose channels may differ as much, and one that never
    changes."""
    values = np.random.default_rng(1).standard_normal((2, 12, 107))
    values += np.array([0, 1, -30, 1000, 1000, 1000, -1000, 1e4, 1e-3, 3, 3, 3])[:, np.newaxis]
    values[1, 3:6] = 12345.678
    desc = forward(MemoryDesc(values.shape, "f32", tag), 4, "none")
    memory = memory_of(values, desc.src_desc, ENGINE)
    with config.override("max_cpu_isa", isa):
        results = execute_all(PrimitiveDesc(desc, ENGINE), {Arg.SRC: memory})
    rows = logical(memory).reshape(2, 4, 321)
    bound = replace(reference.STATISTICS_TOLERANCE("f32", 321), floor=0.0)
    terms = np.sqrt((rows**2).mean(2))
    assert (np.abs(logical(results[Arg.MEAN]) - rows.mean(2)) <= bound.relative * terms).all()
    # What the rounding of the mean of a constant leaves is no more than a unit of it.
    found, true = logical(results[Arg.VARIANCE]), rows.var(2)
    assert (np.abs(found - true) <= bound.relative * true + (terms * 2.0**-23) ** 2).all()


def test_as_pytorch() -> None:
    desc = forward(MemoryDesc((4, 12, 9, 6), "f32"), 3, prop="forward_inference")
    given = filled(desc)
    src, scale, shift = (
        tensor(given[arg]).requires_grad_() for arg in (Arg.SRC, Arg.SCALE, Arg.SHIFT)
    )
    dst = torch.nn.functional.group_norm(src, 3, scale, shift, EPSILON)
    result = execute_all(PrimitiveDesc(desc, ENGINE), given)[Arg.DST]
    check(result, array(dst.detach()), reference.TRAINING_TOLERANCE("f32", 216))
    back = backward(desc.src_desc, 3)
    others = {**filled(back), Arg.SRC: given[Arg.SRC], Arg.SCALE: given[Arg.SCALE]}
    statistics = reference.statistics(logical(given[Arg.SRC]), 3)
    for arg, values in zip(_STATISTICS, statistics, strict=True):
        others[arg] = memory_of(values, others[arg].desc, ENGINE)
    dst.backward(tensor(others[Arg.DIFF_DST]))  # type: ignore[no-untyped-call]
    results = execute_all(PrimitiveDesc(back, ENGINE), others)
    sums = reference.DIFF_SCALE_TOLERANCE("f32", 216)
    for arg, leaf, tolerance in (
        (Arg.DIFF_SRC, src, reference.DIFF_SRC_TOLERANCE("f32", 216)),
        (Arg.DIFF_SCALE, scale, sums),
        (Arg.DIFF_SHIFT, shift, sums),
    ):
        assert leaf.grad is not None
        check(results[arg], array(leaf.grad), tolerance)


@pytest.mark.parametrize(("dims", "groups"), [((0, 4, 2), 2), ((2, 4, 0), 2), ((2, 0, 3), 3)])
@pytest.mark.parametrize("flags", ["none", AFFINE, f"{GIVEN}|{AFFINE}"])
def test_no_elements(dims: tuple[int, ...], groups: int, flags: str) -> None:
    """Sums and statistics of nothing are 0."""
    src = describe(dims, "abc")
    for desc in (forward(src, groups, flags), backward(src, groups, flags)):
        settled = PrimitiveDesc(desc, ENGINE).desc
        given = {t.argument: Memory(t.desc, ENGINE) for t in settled.tensors if not t.output}
        for memory in execute_all(PrimitiveDesc(desc, ENGINE), given).values():
            assert (logical(memory) == 0).all()


def test_any() -> None:
    src, open_ = describe(DIMS, "nhwc"), MemoryDesc(DIMS, "f32", "any")
    pd = PrimitiveDesc(forward(src, 4, dst=open_), ENGINE)
    assert pd.dst_desc == src
    assert pd.arg_desc(Arg.MEAN) == pd.arg_desc(Arg.VARIANCE) == MemoryDesc((3, 4), "f32", "ab")
    back = PrimitiveDesc(backward(src, 4, diff_dst=open_, diff_src=open_), ENGINE)
    assert back.diff_dst_desc == back.diff_src_desc == src
    assert back.arg_desc(Arg.DIFF_SCALE) == MemoryDesc((20,), "f32")


def test_tensors() -> None:
    """Which there are depends on flags and propagation."""
    src = describe((2, 4, 3), "abc")
    wanted = {
        ("forward_inference", "none"): {Arg.SRC, Arg.DST},
        ("forward_training", "none"): {Arg.SRC, Arg.DST, *_STATISTICS},
        ("forward_inference", f"{GIVEN}|{AFFINE}"): {
            Arg.SRC,
            Arg.DST,
            *_STATISTICS,
            Arg.SCALE,
            Arg.SHIFT,
        },
    }
    for (prop, flags), names in wanted.items():
        assert {t.argument for t in forward(src, 2, flags, prop=prop).tensors} == names
    both = {Arg.SRC, Arg.DIFF_DST, Arg.DIFF_SRC, *_STATISTICS}
    named = {t.argument for t in backward(src, 2).tensors}
    assert named == both | {Arg.SCALE, Arg.DIFF_SCALE, Arg.DIFF_SHIFT}
    named = {t.argument for t in backward(src, 2, prop="backward_data").tensors}
    assert named == both | {Arg.SCALE}


@pytest.mark.parametrize(("layout", "at_once"), [("nchw", True), ("nhwc", False)])
def test_a_group_in_one_nest_needs_no_scratchpad(layout: str, at_once: bool) -> None:
    src = MemoryDesc((8, 64, 6, 6), "f32", layout)
    for desc in (forward(src, 32), backward(src, 32, prop="backward_data")):
        assert PrimitiveDesc(desc, ENGINE).scratchpad_desc.is_zero == at_once


def test_verbose_fields() -> None:
    desc = forward(describe(DIMS, "nchw"), 4, f"{GIVEN}|{AFFINE}")
    fields = PrimitiveDesc(desc, ENGINE).verbose_fields()
    assert fields.endswith(",flags:GCH,g4mb3ic20ih5iw7")


def test_bad_arguments() -> None:
    plain = describe(DIMS, "nchw")
    with pytest.raises(InvalidArguments, match=r"epsilon = -1\.0"):
        GroupNormalizationDesc.forward("forward_inference", plain, plain, 4, -1.0, "none")
    with pytest.raises(InvalidArguments, match=r"src_desc.*3 to 5 dimensions"):
        forward(MemoryDesc((3, 4), "f32"), 2)
    with pytest.raises(InvalidArguments, match=r"groups = 6: must divide.*is 20.*try 2"):
        forward(plain, 6)
    with pytest.raises(InvalidArguments, match=r"groups = 0"):
        forward(plain, 0)
    with pytest.raises(InvalidArguments, match=r"flags = 'fuse_norm_relu'"):
        forward(plain, 4, "fuse_norm_relu")
    with pytest.raises(InvalidArguments, match=r"dst_desc"):
        forward(plain, 4, dst=MemoryDesc((3, 20, 5, 8), "f32"))
    with pytest.raises(InvalidArguments, match=r"prop_kind"):
        backward(plain, 4, prop="backward_weights")


def test_what_is_refused() -> None:
    plain = describe(DIMS, "nchw")
    with pytest.raises(Unimplemented, match=r"unsupported data type: s8"):
        PrimitiveDesc(backward(plain, 4, diff_dst=plain.with_data_type("s8")), ENGINE)
