"""Layer normalization: rows of any layout and type, their statistics and gradients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

import numpy as np
import pytest
import torch

from dnnl import (
    Arg,
    InvalidArguments,
    LayerNormalizationDesc,
    Memory,
    MemoryDesc,
    NormFlags,
    Primitive,
    PrimitiveAttr,
    PrimitiveDesc,
    Unimplemented,
    config,
)
from dnnl.reference import layer_normalization as reference
from dnnl.reference.arrays import Array
from dnnl.types.kinds import coerce
from tests.check import Fill, assert_close, check, logical, memory_of, random_memory
from tests.primitives.harness import (
    ENGINE,
    array,
    describe,
    every_isa,
    every_rounding_isa,
    execute_all,
    source,
    tensor,
)

DIMS = (3, 19, 5, 37)
LAYOUTS = [
    "abcd", "acdb", "dcba", "cabd", "aBcd16b", "abcD16d", "aBcD4d8b", "gaps", "part16",
]  # fmt: skip
EPSILON = 1e-3
AFFINE = "use_scale|use_shift"
GIVEN = "use_global_stats"
RMS = "rms_norm"
FLAGS = [
    "none", GIVEN, RMS, AFFINE, "use_scale", "use_shift", f"{GIVEN}|{AFFINE}",
    f"{GIVEN}|{RMS}|use_scale", f"{RMS}|{AFFINE}",
]  # fmt: skip
_STATISTICS = (Arg.MEAN, Arg.VARIANCE)


def forward(
    src: MemoryDesc,
    dst: MemoryDesc | None = None,
    flags: str = "none",
    prop: str = "forward_training",
    stat: MemoryDesc | None = None,
    kind: str = "f32",
) -> LayerNormalizationDesc:
    dst = src if dst is None else dst
    return LayerNormalizationDesc.forward(prop, src, dst, EPSILON, flags, stat, kind)


def backward(
    src: MemoryDesc,
    diff_dst: MemoryDesc | None = None,
    diff_src: MemoryDesc | None = None,
    flags: str = "none",
    stat: MemoryDesc | None = None,
    kinds: tuple[str, str] = ("f32", "f32"),
) -> LayerNormalizationDesc:
    diff_dst, diff_src = (src if desc is None else desc for desc in (diff_dst, diff_src))
    prop = "backward" if "scale" in flags or "shift" in flags else "backward_data"
    return LayerNormalizationDesc.backward(
        prop, diff_src, diff_dst, src, EPSILON, flags, stat, *kinds
    )


def filled(desc: LayerNormalizationDesc) -> dict[int, Memory]:
    """Random inputs. Given statistics of a forward pass are anything, those of a backward one are
    true."""
    settled = PrimitiveDesc(desc, ENGINE).desc
    given = {}
    for tensor_ in settled.tensors:
        if not tensor_.output:
            fill: Fill = "positive" if tensor_.argument == Arg.VARIANCE else "normal"
            given[tensor_.argument] = random_memory(tensor_.desc, ENGINE, tensor_.argument, fill)
    if not desc.prop_kind.is_forward:
        true = reference.statistics(logical(given[Arg.SRC]), rms=NormFlags.rms_norm in desc.flags)
        for argument, values in zip(_STATISTICS, true, strict=True):
            if argument in given:
                given[argument] = memory_of(values, given[argument].desc, ENGINE)
    return given


def expected(desc: LayerNormalizationDesc, given: Mapping[int, Memory]) -> dict[int, Array]:
    values = {argument: logical(memory) for argument, memory in given.items()}
    src, rms = values[Arg.SRC], NormFlags.rms_norm in desc.flags
    mean, variance = values.get(Arg.MEAN), values.get(Arg.VARIANCE)
    scale, shift = values.get(Arg.SCALE), values.get(Arg.SHIFT)
    if desc.prop_kind.is_forward:
        if variance is None:
            mean, variance = reference.statistics(src, rms=rms)
        dst = reference.layer_normalization(
            src, mean, variance, scale, shift, epsilon=EPSILON, rms=rms
        )
        outputs: dict[int, Array] = {Arg.DST: dst, Arg.VARIANCE: variance}
        if not rms:
            assert mean is not None
            outputs[Arg.MEAN] = mean
        return outputs
    assert variance is not None
    made = reference.layer_normalization_backward(
        src,
        values[Arg.DIFF_DST],
        mean,
        variance,
        scale,
        epsilon=EPSILON,
        global_stats=NormFlags.use_global_stats in desc.flags,
        rms=rms,
    )
    return dict(zip((Arg.DIFF_SRC, Arg.DIFF_SCALE, Arg.DIFF_SHIFT), made, strict=True))


def judge(desc: LayerNormalizationDesc, given: Mapping[int, Memory], *shared: int) -> None:
    """Run it, with the output and the input ``shared`` in one buffer, and check every output."""
    want = expected(desc, given)
    old = {shared[0]: given[shared[1]]} if shared else {}
    results = execute_all(PrimitiveDesc(desc, ENGINE), given, old)
    *rows, length = desc.src_desc.dims
    for argument, result in results.items():
        kind = result.desc.data_type
        tolerance = {
            Arg.DST: reference.TOLERANCE(kind)
            if NormFlags.use_global_stats in desc.flags
            else reference.TRAINING_TOLERANCE(kind, length),
            Arg.MEAN: reference.STATISTICS_TOLERANCE(kind, length),
            Arg.VARIANCE: reference.STATISTICS_TOLERANCE(kind, length),
            Arg.DIFF_SRC: reference.DIFF_SRC_TOLERANCE(kind, length),
            Arg.DIFF_SCALE: reference.DIFF_SCALE_TOLERANCE(kind, prod(rows)),
            Arg.DIFF_SHIFT: reference.DIFF_SCALE_TOLERANCE(kind, prod(rows)),
        }[Arg(argument)]
        check(result, want[argument], tolerance)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("flags", ["none", f"{GIVEN}|{AFFINE}", f"{RMS}|use_scale"])
def test_layouts(layout: str, flags: str) -> None:
    src = describe(DIMS, layout)
    for desc in (forward(src, flags=flags), backward(src, flags=flags)):
        judge(desc, filled(desc))


@pytest.mark.parametrize(
    ("src", "dst", "stat"),
    [
        ("abcd", "acdb", "cab"),
        ("aBcd16b", "part", "aBc16b"),
        ("abcD16d", "dcba", "cba"),
        ("abcd", "abcd", "aBc8b"),
    ],
)
def test_each_tensor_in_a_layout_of_its_own(src: str, dst: str, stat: str) -> None:
    given, other = describe(DIMS, src), describe(DIMS, dst)
    row = MemoryDesc(DIMS[:-1], "f32", stat)
    for desc in (
        forward(given, other, AFFINE, stat=row),
        backward(given, other, given, AFFINE, row),
        backward(other, given, given, "none", row),
    ):
        judge(desc, filled(desc))


@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("dims", [(23, 130), (5, 3)])
def test_flags(dims: tuple[int, ...], flags: str) -> None:
    src = describe(dims, "ab")
    for prop in ("forward_training", "forward_inference"):
        desc = forward(src, flags=flags, prop=prop)
        given = filled(desc)
        judge(desc, given)
        judge(desc, given, Arg.DST, Arg.SRC)
    desc = backward(src, flags=flags)
    given = filled(desc)
    judge(desc, given)
    judge(desc, given, Arg.DIFF_SRC, Arg.DIFF_DST)


@every_isa
@pytest.mark.parametrize(
    ("dims", "tag"),
    [
        ((7, 3), "ab"),
        ((1, 16), "ab"),
        ((65, 100), "ab"),
        ((3, 768), "ab"),
        ((65, 33), "ba"),
        ((4, 3), "aB16b"),
        ((9, 17, 3), "acb"),
        ((2, 1, 3, 2, 40), "abcde"),
    ],
)
def test_lengths(isa: str, dims: tuple[int, ...], tag: str) -> None:
    src = MemoryDesc(dims, "f32", tag)
    with config.override("max_cpu_isa", isa):
        for desc in (forward(src, flags=AFFINE), backward(src, flags=AFFINE)):
            judge(desc, filled(desc))


@every_rounding_isa
@pytest.mark.parametrize(("kind", "layout"), [("bf16", "abc"), ("f16", "abc"), ("bf16", "acb")])
def test_floats(isa: str, kind: str, layout: str) -> None:
    src = MemoryDesc((3, 7, 35), kind, layout)
    with config.override("max_cpu_isa", isa):
        desc = forward(src, flags=AFFINE, kind=kind)
        judge(desc, filled(desc))
        desc = backward(src, flags=AFFINE, kinds=(kind, kind))
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
def test_types_on_either_side(src: str, dst: str) -> None:
    given, made = MemoryDesc((9, 53), src), MemoryDesc((9, 53), dst)
    for flags in ("none", f"{AFFINE}|{GIVEN}"):
        desc = forward(given, made, flags, "forward_inference", kind="bf16")
        judge(desc, filled(desc))
    if given.data_type.is_float and made.data_type.is_float:
        desc = backward(given, made, given, AFFINE, kinds=("bf16", "f16"))
        judge(desc, filled(desc))


def test_types_of_scale_and_shift() -> None:
    src = MemoryDesc((11, 67), "bf16")
    for kinds in (("bf16", "f32"), ("f16", "bf16"), ("f32", "f16")):
        for desc in (
            forward(src, flags=AFFINE, kind=kinds[0]),
            backward(src, flags=AFFINE, kinds=kinds),
        ):
            judge(desc, filled(desc))


@pytest.mark.parametrize("layout", ["ab", "ba", "aB16b"])
@pytest.mark.parametrize(("src", "dst"), [("s8", "f32"), ("u8", "s8"), ("f32", "u8")])
def test_scales_and_post_ops(src: str, dst: str, layout: str) -> None:
    """The scale of src multiplies what is normalized and shifted."""
    dims = (9, 53)
    desc = forward(
        MemoryDesc(dims, src, layout), MemoryDesc(dims, dst, layout), AFFINE, "forward_inference"
    )
    given, row, every = filled(desc), source((1, 53), "ab", 21), source(dims, "ba", 22)
    attr = PrimitiveAttr()
    attr.set_scales(Arg.SRC, 0)
    attr.set_scales(Arg.DST, 0)
    attr.post_ops.append_binary("binary_add", row.desc)
    attr.post_ops.append_eltwise("eltwise_relu", 0.1)
    attr.post_ops.append_binary("binary_mul", every.desc)
    scales = [memory_of(np.array([v]), MemoryDesc((1,), "f32"), ENGINE) for v in (3.0, 0.25)]
    made = {Arg.SCALES | Arg.SRC: scales[0], Arg.SCALES | Arg.DST: scales[1]}
    made = {
        arg: Memory(PrimitiveDesc(desc, ENGINE, attr).arg_desc(arg), ENGINE, memory.data)
        for arg, memory in made.items()
    }
    operands = {Arg.post_op(0) | Arg.SRC_1: row, Arg.post_op(2) | Arg.SRC_1: every}
    result = execute_all(PrimitiveDesc(desc, ENGINE, attr), {**given, **made, **operands})[Arg.DST]
    value = expected(desc, given)[Arg.DST] * 3 + logical(row)
    want = (value.clip(0) + 0.1 * value.clip(None, 0)) * logical(every) / 0.25
    check(result, want, reference.TRAINING_TOLERANCE(dst, 53))


@every_isa
@pytest.mark.parametrize("tag", ["ab", "ba"])
def test_variance_does_not_cancel(isa: str, tag: str) -> None:
    """Rows a thousand deviations from zero, one with an outlier, one that never changes."""
    values = np.random.default_rng(1).standard_normal((9, 321))
    values += np.array([0, 1, -30, 1000, -1000, 1e4, 1e-3, 3, 12345.678])[:, np.newaxis]
    values[1, 0] = 1e5
    values[8] = 12345.678
    desc = forward(MemoryDesc(values.shape, "f32", tag), flags="none")
    memory = memory_of(values, desc.src_desc, ENGINE)
    with config.override("max_cpu_isa", isa):
        results = execute_all(PrimitiveDesc(desc, ENGINE), {Arg.SRC: memory})
    stored, mean = logical(memory), logical(results[Arg.MEAN])
    bound = replace(reference.STATISTICS_TOLERANCE("f32", 321), floor=0.0)
    terms = np.sqrt((stored**2).mean(1))
    assert (np.abs(mean - stored.mean(1)) <= bound.relative * terms).all()
    # The differences are those from the mean as it was rounded.
    variance = ((stored - mean[:, np.newaxis]) ** 2).mean(1)
    assert_close(logical(results[Arg.VARIANCE]), variance, bound)


@pytest.mark.parametrize(("length", "fetched"), [(768, True), (8192, False)])
def test_the_next_rows_are_fetched_if_a_cache_has_room(length: int, fetched: bool) -> None:
    made = forward(MemoryDesc((8, length), "f32"), flags=AFFINE)
    text = Primitive(PrimitiveDesc(made, ENGINE)).llvm_ir()
    assert ("llvm.prefetch" in text) == fetched


def test_rows_of_one_element() -> None:
    src = MemoryDesc((5, 1), "f32")
    for desc in (forward(src, flags=AFFINE), backward(src, flags=f"{GIVEN}|{AFFINE}")):
        judge(desc, filled(desc))


@every_isa
def test_the_gradient_of_rows_of_one_element_is_zero(isa: str) -> None:
    """The mean of a row takes away all of its gradient, before a deviation of 0 enlarges it."""
    desc = replace(backward(MemoryDesc((37, 1), "f32"), flags=AFFINE), epsilon=1e-12)
    with config.override("max_cpu_isa", isa):
        results = execute_all(PrimitiveDesc(desc, ENGINE), filled(desc))
    assert not logical(results[Arg.DIFF_SRC]).any()


def test_as_pytorch() -> None:
    desc = forward(MemoryDesc((6, 11, 96), "f32"), flags=AFFINE, prop="forward_inference")
    given = filled(desc)
    src, scale, shift = (
        tensor(given[arg]).requires_grad_() for arg in (Arg.SRC, Arg.SCALE, Arg.SHIFT)
    )
    dst = torch.nn.functional.layer_norm(src, [96], scale, shift, EPSILON)
    result = execute_all(PrimitiveDesc(desc, ENGINE), given)[Arg.DST]
    check(result, array(dst.detach()), reference.TRAINING_TOLERANCE("f32", 96))
    back = backward(desc.src_desc, flags=AFFINE)
    others = {**filled(back), Arg.SRC: given[Arg.SRC], Arg.SCALE: given[Arg.SCALE]}
    statistics = reference.statistics(logical(given[Arg.SRC]))
    for arg, values in zip(_STATISTICS, statistics, strict=True):
        others[arg] = memory_of(values, others[arg].desc, ENGINE)
    dst.backward(tensor(others[Arg.DIFF_DST]))  # type: ignore[no-untyped-call]
    results = execute_all(PrimitiveDesc(back, ENGINE), others)
    sums = reference.DIFF_SCALE_TOLERANCE("f32", 6 * 11)
    for arg, leaf, tolerance in (
        (Arg.DIFF_SRC, src, reference.DIFF_SRC_TOLERANCE("f32", 96)),
        (Arg.DIFF_SCALE, scale, sums),
        (Arg.DIFF_SHIFT, shift, sums),
    ):
        assert leaf.grad is not None
        check(results[arg], array(leaf.grad), tolerance)


@pytest.mark.parametrize("dims", [(2, 0), (0, 2)])
def test_no_elements(dims: tuple[int, ...]) -> None:
    src = describe(dims, "ab")
    for desc in (forward(src, flags=AFFINE), backward(src, flags=AFFINE)):
        settled = PrimitiveDesc(desc, ENGINE).desc
        given = {t.argument: Memory(t.desc, ENGINE) for t in settled.tensors if not t.output}
        made = execute_all(PrimitiveDesc(desc, ENGINE), given)
        gradients = {Arg.DIFF_SCALE, Arg.DIFF_SHIFT} & made.keys()
        assert all((logical(made[arg]) == 0).all() for arg in gradients)


@pytest.mark.parametrize(
    ("layout", "stat"),
    [("abcd", "abc"), ("acdb", "acb"), ("dcba", "cba"), ("aBcd16b", "aBc16b"), ("abcD16d", "abc")],
)
def test_any(layout: str, stat: str) -> None:
    """The statistics lie in the order of src, without blocks of rows."""
    src, open_ = describe(DIMS, layout), MemoryDesc(DIMS, "f32", "any")
    pd = PrimitiveDesc(forward(src, open_), ENGINE)
    assert pd.dst_desc == src
    assert pd.arg_desc(Arg.MEAN) == pd.arg_desc(Arg.VARIANCE) == MemoryDesc(DIMS[:3], "f32", stat)
    other = PrimitiveDesc(
        forward(src, describe(DIMS, "cabd"), stat=describe(DIMS[:3], "cba")), ENGINE
    )
    back = PrimitiveDesc(backward(src, open_, open_), ENGINE, hint=other)
    assert back.diff_dst_desc == other.dst_desc
    assert back.diff_src_desc == src
    assert back.arg_desc(Arg.VARIANCE) == describe(DIMS[:3], "cba")


def test_tensors() -> None:
    """Which there are depends on flags and propagation."""
    src = describe((5, 7), "ab")
    wanted = {
        ("forward_inference", "none"): {Arg.SRC, Arg.DST},
        ("forward_training", "none"): {Arg.SRC, Arg.DST, *_STATISTICS},
        ("forward_training", RMS): {Arg.SRC, Arg.DST, Arg.VARIANCE},
        ("forward_inference", f"{GIVEN}|{AFFINE}"): {
            Arg.SRC,
            Arg.DST,
            *_STATISTICS,
            Arg.SCALE,
            Arg.SHIFT,
        },
    }
    for (prop, flags), names in wanted.items():
        desc = forward(src, flags=flags, prop=prop)
        assert {tensor_.argument for tensor_ in desc.tensors} == names
    both = {Arg.SRC, Arg.DIFF_DST, Arg.DIFF_SRC, Arg.VARIANCE}
    named = {t.argument for t in backward(src, flags=f"{RMS}|use_shift").tensors}
    assert named == both | {Arg.DIFF_SHIFT}
    named = {t.argument for t in backward(src, flags="use_scale").tensors}
    assert named == both | {Arg.MEAN, Arg.SCALE, Arg.DIFF_SCALE}


def test_verbose_fields() -> None:
    plain = describe((3, 4, 8), "abc")
    fields = PrimitiveDesc(forward(plain, flags=f"{GIVEN}|{AFFINE}"), ENGINE).verbose_fields()
    assert fields.endswith(",flags:GCH,3x4x8")


def test_bad_arguments() -> None:
    plain, row = describe((3, 4, 8), "abc"), MemoryDesc((3, 4), "f32")
    with pytest.raises(InvalidArguments, match=r"epsilon = -1\.0"):
        LayerNormalizationDesc.forward("forward_inference", plain, plain, -1.0, "none")
    with pytest.raises(InvalidArguments, match=r"src_desc.*2 to 5 dimensions"):
        forward(MemoryDesc((3,), "f32"))
    with pytest.raises(InvalidArguments, match=r"flags = 'fuse_norm_relu'"):
        forward(plain, flags="fuse_norm_relu")
    with pytest.raises(InvalidArguments, match=r"dst_desc"):
        forward(plain, MemoryDesc((3, 4, 9), "f32"))
    with pytest.raises(InvalidArguments, match=r"stat_desc.*without the last"):
        forward(plain, stat=plain)
    with pytest.raises(InvalidArguments, match=r"stat_desc.*statistics are f32"):
        forward(plain, stat=row.with_data_type("bf16"))
    with pytest.raises(
        InvalidArguments, match=r"scale_shift_data_type = 's8'.*expected one of f32"
    ):
        forward(plain, flags=AFFINE, kind="s8")
    with pytest.raises(InvalidArguments, match=r"flags.*neither scale nor shift"):
        LayerNormalizationDesc.backward(
            "backward_data", plain, plain, plain, EPSILON, coerce(NormFlags, "use_scale", "flags")
        )
    with pytest.raises(InvalidArguments, match=r"prop_kind"):
        LayerNormalizationDesc.backward("backward_weights", plain, plain, plain, EPSILON, "none")


def test_what_is_refused() -> None:
    plain, whole = describe((3, 4, 8), "abc"), MemoryDesc((3, 4, 8), "s8")
    with pytest.raises(Unimplemented, match=r"unsupported data type: s8"):
        PrimitiveDesc(backward(plain, whole, plain), ENGINE)
