"""What a convolution refuses, and how it says so."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import dnnl
from dnnl import (
    Arg,
    ConvolutionDesc,
    DeconvolutionDesc,
    InnerProductDesc,
    InvalidArguments,
    MatmulDesc,
    Memory,
    MemoryDesc,
    PoolingDesc,
    Primitive,
    PrimitiveAttr,
    PrimitiveDesc,
    Stream,
    Unimplemented,
)
from tests.primitives.harness import ENGINE
from tests.primitives.products import DIRECT, Dims, attr_of, inputs

SRC, WEIGHTS, DST = (2, 4, 8, 9), (6, 4, 3, 3), (2, 6, 6, 7)


def f32(dims: Dims, layout: str | None = None) -> MemoryDesc:
    """A descriptor, row-major by default."""
    return MemoryDesc(dims, "f32", layout) if layout else MemoryDesc(dims, "f32")


def forward(
    src: Dims = SRC,
    weights: Dims = WEIGHTS,
    dst: Dims = DST,
    strides: Any = (1, 1),
    padding_l: Any = (0, 0),
    **more: Any,
) -> ConvolutionDesc:
    """A good description unless told otherwise."""
    descs = f32(src), f32(weights), f32(dst)
    return ConvolutionDesc.forward(*DIRECT, *descs, strides, padding_l, **more)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"src": (2, 4)}, r"src_desc = \(2, 4\): expected \(N, C, W\), \(N, C, H, W\) or"),
        ({"src": (1,) * 6}, r"src_desc = \(1, 1, 1, 1, 1, 1\): expected"),
        ({"dst": (2, 6, 6)}, r"dst_desc = \(2, 6, 6\): expected 4 dimensions, as src has"),
        ({"weights": (6, 4, 3)}, r"weights_desc = \(6, 4, 3\): expected 4 dim.* or 5 with groups"),
        ({"weights": (6, 5, 3, 3)}, r"src_desc = \(2, 4, 8, 9\): weights \(.* take 5 channels"),
        ({"weights": (2, 3, 4, 3, 3)}, r"src_desc = \(2, 4, 8, 9\): weights .* take 8 channels"),
        ({"weights": (5, 4, 3, 3)}, r"dst_desc = \(2, 6, 6, 7\): weights .* make 5 channels"),
        ({"weights": (2, 4, 2, 3, 3)}, r"dst_desc = \(2, 6, 6, 7\): weights .* make 8 channels"),
        ({"dst": (3, 6, 6, 7)}, r"dst_desc = \(3, 6, 6, 7\): the batch must be .* which is 2"),
        ({"dst": (2, 6, 7, 7)}, r"dst_desc = \(2, 6, 7, 7\): spatial dimension 0 of dst must be 6"),
        ({"dst": (2, 6, 6, 9)}, r"dst_desc = .*: spatial dimension 1 of dst must be 7"),
        ({"strides": (2, 2)}, r"dst_desc = .*: spatial dimension 0 of dst must be 3"),
        ({"padding_l": (0, 1)}, r"dst_desc = .*: spatial dimension 1 of dst must be 9"),
        ({"padding_r": (-1, 0)}, r"dst_desc = .*: spatial dimension 0 of dst must be 5"),
        ({"dilations": (0, 1)}, r"dst_desc = .*: spatial dimension 1 of dst must be 5"),
        ({"dilations": (3, 3)}, r"weights_desc = .*: the kernel reaches over 9 elements, .* fewer"),
        ({"weights": (6, 4, 9, 3)}, r"weights_desc = .*: the kernel reaches over 9 elements"),
        ({"strides": (1,)}, r"strides = \(1,\): expected one number for each of 2 spatial"),
        ({"padding_l": (0, 0, 0)}, r"padding_l = \(0, 0, 0\): expected one number"),
        ({"padding_r": ()}, r"padding_r = \(\): expected one number"),
        ({"dilations": (0,)}, r"dilations = \(0,\): expected one number"),
        ({"strides": (1, 0)}, r"strides = \(1, 0\): must be at least 1"),
        ({"padding_l": (-1, 0)}, r"padding_l = \(-1, 0\): must be at least 0"),
        ({"dilations": (-1, 0)}, r"dilations = \(-1, 0\): must be at least 0"),
        ({"strides": 0}, r"strides = \(0, 0\): must be at least 1"),
        ({"strides": True}, r"strides = True: expected a sequence of integers"),
        ({"strides": None}, r"strides = None: expected a sequence"),
        ({"padding_l": "00"}, r"padding_l = '00': expected a sequence"),
        ({"padding_r": (0.0, 0.0)}, r"padding_r = \(0.0, 0.0\): expected a sequence"),
        ({"dilations": 0.0}, r"dilations = 0.0: expected a sequence"),
        ({"padding_l": (2**31, 0)}, r"padding_l = .*: must be less than 2147483648"),
        ({"padding_r": (-(2**70), 0)}, r"padding_r = .*: must be less than 2147483648"),
        ({"bias_desc": f32((4,))}, r"bias_desc = \(4,\): expected \(6,\), the channels of dst"),
        ({"bias_desc": f32((1, 6))}, r"bias_desc = \(1, 6\): expected \(6,\)"),
        ({"bias_desc": 3}, r"bias_desc = 3: expected a dnnl.MemoryDesc"),
    ],
    ids=str,
)
def test_bad_sizes(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArguments, match=message):
        forward(**change)


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        (("backward_bias", "convolution_direct"), r"prop_kind = 'backward_bias': expected forward"),
        (("forward", "convolution_direct"), None),
        (("sideways", "convolution_direct"), r"prop_kind = 'sideways'"),
        (
            ("forward_training", "eltwise_relu"),
            r"alg_kind = 'eltwise_relu': expected one of convolution_",
        ),
        (("forward_training", "convolution"), r"alg_kind = 'convolution'"),
    ],
    ids=str,
)
def test_kinds(kinds: tuple[str, str], message: str | None) -> None:
    descs = f32(SRC), f32(WEIGHTS), f32(DST)
    if message is None:
        assert ConvolutionDesc.forward(*kinds, *descs, (1, 1), (0, 0)) is not None
        return
    with pytest.raises(InvalidArguments, match=message):
        ConvolutionDesc.forward(*kinds, *descs, (1, 1), (0, 0))


@pytest.mark.parametrize("name", ["src_desc", "weights_desc", "dst_desc"])
def test_bad_descriptors(name: str) -> None:
    good: dict[str, Any] = {
        "src_desc": f32(SRC),
        "weights_desc": f32(WEIGHTS),
        "dst_desc": f32(DST),
        "strides": (1, 1),
        "padding_l": (0, 0),
        "prop_kind": "forward",
        "alg_kind": "convolution_direct",
    }
    with pytest.raises(InvalidArguments, match=rf"{name} = .*: this tensor is required"):
        ConvolutionDesc.forward(**{**good, name: MemoryDesc.zero()})
    with pytest.raises(InvalidArguments, match=rf"{name} = .*: expected a dnnl.MemoryDesc"):
        ConvolutionDesc.forward(**{**good, name: SRC})


def test_numbers_of_any_kind_make_equal_descriptions() -> None:
    desc = forward(strides=np.array([1, 1]), padding_l=[np.int32(0), 0], dilations=(0, 0))
    assert desc == forward() == forward(strides=np.int64(1), padding_l=0, dilations=0)
    assert hash(desc) == hash(forward())
    assert repr(desc) == repr(forward())


def refused(make: Callable[[], PrimitiveDesc]) -> str:
    """Why nothing takes it."""
    with pytest.raises(Unimplemented) as caught:
        make()
    return str(caught.value)


def test_dilations_before_paddings_are_suspected() -> None:
    """As oneDNN has them."""
    plain, kernel = f32((1, 4, 8, 8)), f32((4, 4, 3, 3))
    theirs = (1, 1), (0, 0), (1, 1), (1, 1)
    order = "oneDNN has dilations before the paddings; here the order is strides, padding_l"
    makers: list[Callable[..., Any]] = [
        lambda *window: ConvolutionDesc.forward(*DIRECT, plain, kernel, plain, *window),
        lambda *window: DeconvolutionDesc.forward(
            "forward", "deconvolution_direct", plain, kernel, plain, *window
        ),
        lambda strides, *window: PoolingDesc.forward(
            "forward", "pooling_max", plain, plain, strides, (3, 3), *window
        ),
        lambda strides, *window: PoolingDesc.backward(
            "pooling_max", plain, plain, strides, (3, 3), *window
        ),
    ]
    for make in makers:
        with pytest.raises(InvalidArguments, match=f"dst_desc = .*; {order}"):
            make(*theirs)
        with pytest.raises(InvalidArguments, match=r"\(1, 1\) count from 0"):
            make((1, 1), (1, 1), (1, 1), (1, 1))
        make(1, 1, 1, 0)


def test_a_bias_before_dst_is_suspected() -> None:
    order = "oneDNN has bias before dst; here bias_desc comes last"
    bias: Any = f32((6,))
    row, dst = f32((1, 6)), f32((2, 6))
    theirs: list[Any] = [bias, f32(DST), (1, 1), (0, 0)]
    calls: list[Callable[[], object]] = [
        lambda: ConvolutionDesc.forward(*DIRECT, f32(SRC), f32(WEIGHTS), *theirs),
        lambda: InnerProductDesc.forward("forward", f32((2, 3)), f32((6, 3)), bias, dst),
        lambda: MatmulDesc(f32((2, 3)), f32((3, 6)), row, dst),
    ]
    for call in calls:
        with pytest.raises(InvalidArguments, match=rf"^dst_desc = \(.*6,?\): .*; {order}$"):
            call()


@pytest.mark.parametrize("gradient", ["backward_data", "backward_weights"])
@pytest.mark.parametrize("kind", [ConvolutionDesc, DeconvolutionDesc])
def test_gradients_have_the_sizes_of_the_forward_pass(kind: Any, gradient: str) -> None:
    alg = f"{kind.operation.kind}_direct"
    make = partial(getattr(kind, gradient), alg)
    src, dst = (SRC, DST) if kind is ConvolutionDesc else ((2, 4, 6, 7), (2, 6, 8, 9))
    good = f32(src, "any"), f32(WEIGHTS, "any"), f32(dst, "any")
    desc = make(*good, (1, 1), (0, 0))
    forward = kind.forward("forward_training", alg, *good, (1, 1), (0, 0))
    assert (desc.problem, desc.auxiliary) == (forward.problem, forward.auxiliary)
    assert desc.operation.flops(desc) == forward.operation.flops(forward)

    names = {
        "backward_data": ("diff_src_desc", "weights_desc"),
        "backward_weights": ("src_desc", "diff_weights_desc"),
    }[gradient]
    bad: list[tuple[Any, str]] = [
        ((f32((2, 5, *src[2:])), *good[1:]), rf"^{names[0]} = \(2, 5, .* take 4 channels"),
        ((f32((2, 4)), *good[1:]), rf"^{names[0]} = \(2, 4\): expected \(N, C, W\)"),
        ((good[0], f32((6, 4)), good[2]), rf"^{names[1]} = \(6, 4\): expected 4 dimensions"),
        ((*good[:2], f32((2, 7, *dst[2:]))), r"^diff_dst_desc = \(2, 7, .* make 6 channels"),
        ((*good[:2], f32((3, *dst[1:]))), r"^diff_dst_desc = \(3, .*: the batch must be"),
        ((*good[:2], f32((*dst[:3], 99))), r"^diff_dst_desc = .*: spatial dimension 1 of diff_dst"),
        ((*good[:2], MemoryDesc.zero()), r"^diff_dst_desc = .*: this tensor is required"),
    ]
    for descs, message in bad:
        with pytest.raises(InvalidArguments, match=message):
            make(*descs, (1, 1), (0, 0))
    with pytest.raises(InvalidArguments, match=r"^prop_kind = .*; the gradients are backward_data"):
        kind.forward(gradient, alg, *good, (1, 1), (0, 0))


def test_the_gradient_of_a_bias_has_the_channels_of_dst() -> None:
    descs = f32(SRC), f32(WEIGHTS), f32(DST)
    make = partial(ConvolutionDesc.backward_weights, "convolution_direct", *descs, 1, 0)
    assert make().diff_bias_desc.is_zero
    assert make(diff_bias_desc=f32((6,))).diff_bias_desc == f32((6,))
    with pytest.raises(InvalidArguments, match=r"^diff_bias_desc = \(5,\): expected \(6,\)"):
        make(diff_bias_desc=f32((5,)))


@pytest.mark.parametrize("data_type", ["s32", "s4"])
@pytest.mark.parametrize("layout", ["abcd", "any"])
def test_types_that_no_kernel_has(data_type: str, layout: str) -> None:
    src, weights, dst = (MemoryDesc(dims, data_type, layout) for dims in (SRC, WEIGHTS, DST))
    desc = ConvolutionDesc.forward(*DIRECT, src, weights, dst, (1, 1), (0, 0))
    taken = "f16, bf16, f32, s8, u8, f64, f8_e5m2, f8_e4m3 or f4_e2m1"
    rule = f"{data_type}; it takes {taken}"
    assert f"data type: {rule}" in refused(lambda: PrimitiveDesc(desc, ENGINE))


@pytest.mark.parametrize("place", [0, 2])
def test_run_time_dimensions(place: int) -> None:
    src, dst = [*SRC], [*DST]
    src[place] = dst[place] = dnnl.RUNTIME_DIM
    desc = ConvolutionDesc.forward(
        *DIRECT, f32(tuple(src)), f32(WEIGHTS, "any"), f32(tuple(dst)), (1, 1), (0, 0)
    )
    pd = PrimitiveDesc(desc, ENGINE)
    assert pd.weights_desc != f32(WEIGHTS, "any")
    assert pd.dst_desc == f32(tuple(dst))


@pytest.mark.parametrize("place", [0, 2])
def test_run_time_dimensions_and_another_convolution(place: int) -> None:
    src, dst = [*SRC], [DST[0], DST[1], *SRC[2:]]
    src[place] = dst[place] = dnnl.RUNTIME_DIM
    descs = f32(tuple(src)), f32((*WEIGHTS[:2], 1, 1), "any"), f32(tuple(dst))
    desc = ConvolutionDesc.forward(*DIRECT, *descs, (1, 1), (0, 0))
    attr = attr_of(("depthwise", "f32", "f32", "f32", 3, 1, 1))
    detail = "behind one of sizes that only the execution knows"
    assert detail in refused(lambda: PrimitiveDesc(desc, ENGINE, attr))


def test_run_time_dimensions_of_which_others_are_known() -> None:
    src, dst = (dnnl.RUNTIME_DIM, *SRC[1:]), (dnnl.RUNTIME_DIM, *DST[1:])
    for wrong, field in (((*SRC[:1], 5, *SRC[2:]), "src"), ((*SRC[:2], 9, 9), "dst")):
        with pytest.raises(InvalidArguments, match=f"^{field}_desc"):
            ConvolutionDesc.forward(
                *DIRECT, f32((dnnl.RUNTIME_DIM, *wrong[1:])), f32(WEIGHTS), f32(dst), 1, 0
            )
    ConvolutionDesc.forward(*DIRECT, f32(src), f32(WEIGHTS), f32(dst), 1, 0)


def test_attributes_that_no_kernel_has() -> None:
    attr = PrimitiveAttr()
    attr.set_zero_points(Arg.SRC, mask=0)
    detail = "zero points of SRC, whose type f32 is no integer"
    assert f"attribute: {detail}" in refused(lambda: PrimitiveDesc(forward(), ENGINE, attr))


ONE_OF_THEM = "one of them may follow a 1x1 convolution of images (N, C, H, W)"


@pytest.mark.parametrize(
    ("entry", "detail"),
    [
        (("sum", 1.0, 3), "post-op 1: zero point of a sum with f32, which is no integer"),
        (
            ("depthwise", "f32", "f32", "f32", 3, 1, 1),
            f"post-op 1: PostOpDepthwise; {ONE_OF_THEM}",
        ),
    ],
    ids=str,
)
def test_post_ops_that_no_kernel_has(entry: tuple[Any, ...], detail: str) -> None:
    attr = attr_of(("eltwise", "eltwise_relu"), entry)
    reasons = refused(lambda: PrimitiveDesc(forward(), ENGINE, attr))
    assert f"post-op: {detail}" in reasons


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (("binary", "binary_add", f32((6,))), r"post_ops\[1\].src1_desc = \(6,\): each .* \(2, 6"),
        (("binary", "binary_add", f32((2, 6, 6, 6))), r"post_ops\[1\].src1_desc = \(2, 6, 6, 6\)"),
        (("prelu", 0b10000), r"post_ops\[1\].mask = 16: has a bit for each of the 4 dimensions"),
    ],
    ids=str,
)
def test_post_ops_that_do_not_fit(entry: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InvalidArguments, match=message):
        PrimitiveDesc(forward(), ENGINE, attr_of(("eltwise", "eltwise_relu"), entry))


def test_a_destination_on_itself() -> None:
    dst = MemoryDesc(DST, "f32", (0, 42, 7, 1))
    desc = ConvolutionDesc.forward(*DIRECT, f32(SRC), f32(WEIGHTS), dst, (1, 1), (0, 0))
    with pytest.raises(InvalidArguments, match=r"dst_desc = \(0, 42, 7, 1\): a stride of 0 is for"):
        PrimitiveDesc(desc, ENGINE)


def test_execution_names_what_is_wrong() -> None:
    pd = PrimitiveDesc(forward(bias_desc=f32((6,))), ENGINE, attr_of(("prelu", 2)))
    primitive, stream = Primitive(pd), Stream(ENGINE)
    args = {**inputs(pd), Arg.DST: Memory(pd.dst_desc, ENGINE)}
    weights = Arg.post_op(0) | Arg.WEIGHTS
    for missing, name in (
        (Arg.WEIGHTS, "WEIGHTS"),
        (Arg.BIAS, "BIAS"),
        (weights, r"post_op\(0\)\|WEIGHTS"),
    ):
        rest = {arg: memory for arg, memory in args.items() if arg != missing}
        with pytest.raises(InvalidArguments, match=rf"args\[{name}\] = None: missing"):
            primitive.execute(stream, rest)
    swapped = {**args, Arg.SRC: args[Arg.WEIGHTS]}
    with pytest.raises(InvalidArguments, match=r"args\[SRC\] = .*dims \(6, 4, 3, 3\)'?: SRC must"):
        primitive.execute(stream, swapped)
    same = MemoryDesc((2, 4, 8, 9), "f32")
    point = ConvolutionDesc.forward(*DIRECT, same, f32((4, 4, 1, 1)), same, (1, 1), (0, 0))
    pd = PrimitiveDesc(point, ENGINE)
    args = inputs(pd)
    with pytest.raises(InvalidArguments, match=r"args\[DST\] = .* must not share memory with SRC"):
        Primitive(pd).execute(stream, {**args, Arg.DST: args[Arg.SRC]})
