"""Deconvolution: geometries, channels, groups, layouts, types, post-ops and instruction sets."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name everybody gives it

from dnnl import Arg, DeconvolutionDesc, InvalidArguments, MemoryDesc, PrimitiveDesc, config
from dnnl.primitives.sliding import SlidingDesc
from dnnl.reference.deconvolution import TOLERANCE
from tests.check import check
from tests.primitives.harness import ENGINE, array, every_isa, execute, tensor
from tests.primitives.products import Dims, Window, attr_of, inputs, lay_out, verify

DIRECT = ("forward_inference", "deconvolution_direct")
PEERS = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}

# The image, kernel, strides, paddings and dilations of the convolution that each is a transpose of:
# ``src`` is the destination.
WINDOWS = [
    Window((9,), (3,), padding_l=(1,)),
    Window((23,), (5,), (3,), (2,)),
    Window((8, 7), (3, 3)),
    Window((9, 11), (3, 3), (2, 2), (1, 1)),
    Window((10, 12), (2, 2), (2, 2)),
    Window((9, 8), (3, 2), (2, 1), (0, 1), (2, 0), (0, 2)),
    Window((13, 17), (3, 3), (2, 3), (3, 1), (0, 2), (1, 2)),
    Window((6, 7), (1, 1)),
    Window((5, 6, 7), (3, 2, 3), (1, 2, 2), (1, 0, 2), (0, 1, 1), (0, 0, 1)),
]
# Some outputs have no tap: between those of a small kernel, behind the last, beside src.
TAPLESS = [
    Window((13, 13), (1, 1), (2, 4)),
    Window((17,), (2,), (5,)),
    Window((14, 19), (2, 3), (4, 6), (0, 1), dilations=(1, 2)),
    Window((9, 9), (3, 3), (2, 2), (1, 1), (-1, -2)),
]


def deconvolution(
    window: Window,
    channels: Dims,
    layouts: tuple[str, str, str] = ("any", "any", "any"),
    types: tuple[str, str] = ("f32", "f32"),
    bias: bool = True,
) -> DeconvolutionDesc:
    """The transpose of a convolution by ``window``; ``channels`` are (OC, IC), or (G, OC / G,
    IC / G)."""
    groups = channels[0] if len(channels) == 3 else 1
    outputs, sources = groups * channels[-2], groups * channels[-1]
    dims = (2, sources, *window.dst), (*channels, *window.kernel), (2, outputs, *window.src)
    kinds = types[0], types[0], types[1]
    src, weights, dst = (
        lay_out(size, layout).with_data_type(kind)
        for size, layout, kind in zip(dims, layouts, kinds, strict=True)
    )
    strides, left, right, dilations = window.filled
    bias_desc = MemoryDesc((outputs,), "f32") if bias else None
    return DeconvolutionDesc.forward(
        *DIRECT, src, weights, dst, strides, left, right, dilations, bias_desc
    )


@pytest.mark.parametrize("window", WINDOWS + TAPLESS, ids=str)
def test_windows(window: Window) -> None:
    # Tails are others' business, and cost LLVM most.
    verify(deconvolution(window, (32, 16)))


@pytest.mark.parametrize(
    ("window", "channels"),
    [(WINDOWS[1], (20, 18)), (WINDOWS[3], (5, 1, 1)), (WINDOWS[8], (2, 3, 5))],
    ids=str,
)
def test_agrees_with_pytorch(window: Window, channels: Dims) -> None:
    desc = deconvolution(window, channels, ("plain", "plain", "plain"))
    args = inputs(PrimitiveDesc(desc, ENGINE))
    strides, left, _, dilations = window.filled
    weights = tensor(args[Arg.WEIGHTS])
    grouped = weights.transpose(1, 2).flatten(0, 1) if len(channels) == 3 else None
    whole = PEERS[len(strides)](
        tensor(args[Arg.SRC]),
        weights.transpose(0, 1) if grouped is None else grouped,
        stride=strides,
        dilation=tuple(d + 1 for d in dilations),
        groups=channels[0] if len(channels) == 3 else 1,
    )
    # Cut in front, and cut or filled up behind.
    ends = zip(window.src, whole.shape[2:], left, strict=True)
    widths = [(-p, size - (extent - p)) for size, extent, p in ends]
    cut = F.pad(whole, [width for pair in reversed(widths) for width in pair])
    want = cut + tensor(args[Arg.BIAS]).reshape(-1, *[1] * len(strides))
    length = channels[-1] * torch.Size(window.kernel).numel()
    check(execute(desc, args), array(want), TOLERANCE("f32", length))


@pytest.mark.parametrize(
    ("src", "dst"),
    [
        ("last", "last"),
        ("plain", "block8"),
        ("block16", "reversed"),
        ("aBcd4b4b", "gaps"),
        ("part", "behind"),
    ],
)
def test_layouts(src: str, dst: str) -> None:
    verify(deconvolution(WINDOWS[2], (21, 19), (src, "any", dst)))
    verify(deconvolution(WINDOWS[4], (21, 19), (src, "any", dst)))


@pytest.mark.parametrize("weights", ["dcba", "gaps"])
def test_layouts_of_weights(weights: str) -> None:
    verify(deconvolution(WINDOWS[4], (34, 19), ("any", weights, "any")))


@pytest.mark.parametrize(
    ("channels", "layout"),
    [((3, 17), "plain"), ((48, 1), "last"), ((2, 16, 16), "block8"), ((3, 5, 3), "any")],
    ids=str,
)
def test_channels(channels: Dims, layout: str) -> None:
    verify(deconvolution(WINDOWS[1], channels, (layout, "any", layout)))


@pytest.mark.parametrize(
    ("window", "src", "dst"),
    [
        (WINDOWS[3], "any", "any"),
        (WINDOWS[1], "last", "block8"),
        (TAPLESS[2], "plain", "plain"),
        (TAPLESS[3], "block16", "part"),
    ],
    ids=str,
)
def test_depthwise(window: Window, src: str, dst: str) -> None:
    desc = deconvolution(window, (19, 1, 1), (src, "any", dst))
    assert PrimitiveDesc(desc, ENGINE).impl_info.startswith("depthwise:")
    verify(desc)


@every_isa
@pytest.mark.parametrize(
    ("window", "channels"),
    [(WINDOWS[1], (35, 19)), (WINDOWS[1], (20, 1, 1))],
    ids=str,
)
def test_every_instruction_set(isa: str, window: Window, channels: Dims) -> None:
    attr = attr_of(("eltwise", "eltwise_relu"), ("sum", 0.5))
    with config.override("max_cpu_isa", isa):
        verify(deconvolution(window, channels), attr, "normal")


@pytest.mark.parametrize(
    "types", [("bf16", "bf16"), ("bf16", "f32"), ("f16", "f16"), ("f32", "s8")], ids="-".join
)
@pytest.mark.parametrize(("channels", "layout"), [((19, 5), "plain"), ((20, 1, 1), "any")], ids=str)
def test_types(channels: Dims, layout: str, types: tuple[str, str]) -> None:
    desc = deconvolution(WINDOWS[1], channels, (layout, "any", layout), types)
    verify(desc, attr_of(("eltwise", "eltwise_relu"), ("sum", 0.5)), "normal")


@pytest.mark.parametrize("layout", ["any", "plain"])
@pytest.mark.parametrize("window", [WINDOWS[1], TAPLESS[1]], ids=str)
def test_post_ops_of_single_elements(window: Window, layout: str) -> None:
    operand = MemoryDesc((2, 19, *window.src), "f32")
    attr = attr_of(("binary", "binary_mul", operand), ("prelu", 2), ("sum", 0.5))
    verify(deconvolution(window, (19, 5), ("any", "any", layout)), attr)


@pytest.mark.parametrize("channels", [(5, 3), (3, 1, 1)], ids=str)
def test_padding_in_space_becomes_zero(channels: Dims) -> None:
    plain = deconvolution(WINDOWS[3], channels, ("plain", "any", "plain"))
    n, c, h, w = plain.dst_desc.dims
    padded = (n, c, h + 1, w + 3)
    strides = MemoryDesc(padded, "f32").strides
    dst = MemoryDesc(plain.dst_desc.dims, "f32", strides, padded_dims=padded)
    geometry = plain.strides, plain.padding_l, plain.padding_r, plain.dilations
    tensors = plain.src_desc, plain.weights_desc, dst
    verify(DeconvolutionDesc.forward(*DIRECT, *tensors, *geometry, plain.bias_desc))


@pytest.mark.parametrize("channels", [(17, 0), (0, 5)], ids=str)
def test_no_channels(channels: Dims) -> None:
    verify(deconvolution(WINDOWS[3], channels, ("plain", "any", "plain")))


def test_a_kernel_that_covers_much_has_little_code() -> None:
    # 32 residues a dimension, of which neighbours are alike.
    desc = deconvolution(Window((64, 64), (64, 64), (32, 32), (16, 16)), (16, 2))
    recipe = PrimitiveDesc(desc, ENGINE).plan.recipe
    assert sum("_in" not in p.symbol and "_out" not in p.symbol for p in recipe.kernel().phases) < 5
    verify(desc)


def described(dst: Dims, strides: Dims = (2, 2), dilations: Dims = (0, 0)) -> SlidingDesc:
    src, weights = MemoryDesc((2, 5, 4, 4), "f32"), MemoryDesc((6, 5, 3, 3), "f32")
    geometry = strides, (1, 1), (1, 1), dilations
    return DeconvolutionDesc.forward(*DIRECT, src, weights, MemoryDesc(dst, "f32"), *geometry)


def test_sizes_of_dst() -> None:
    for size in (7, 8):
        assert described((2, 6, size, size)).problem.startswith("mb2_ic5oc6_ih4oh")
    with pytest.raises(InvalidArguments, match="dimension 1 of dst must be 7, or up to 1 more"):
        described((2, 6, 7, 9))
    with pytest.raises(InvalidArguments, match=r"dimension 0 of dst must be 4$"):
        described((2, 6, 7, 7), (1, 1))
    with pytest.raises(InvalidArguments, match="count from 0, which is dense"):
        described((2, 6, 7, 7), dilations=(1, 1))
    with pytest.raises(InvalidArguments, match=r"make 6 channels"):
        described((2, 5, 7, 7))
