"""Convolution: geometries, channels, groups, layouts and instruction sets."""

from __future__ import annotations

from itertools import cycle

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name everybody gives it

from dnnl import Arg, ConvolutionDesc, MemoryDesc, PrimitiveDesc, config
from dnnl.reference.convolution import TOLERANCE
from tests.check import check, random_memory
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE, LAYOUTS, array, every_isa, execute, tensor
from tests.primitives.products import (
    DIRECT,
    Dims,
    Window,
    attr_of,
    convolution_desc,
    inputs,
    verify,
)

SAME = Window((5, 6), (3, 3), padding_l=(1, 1))
PEERS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}

WINDOWS = [
    Window((9,), (3,), padding_l=(1,)),
    Window((40,), (5,), (3,), (2,)),
    Window((7,), (1,), (2,)),
    Window((8, 7), (3, 3)),
    Window((14, 15), (3, 3), (2, 2), (1, 1)),
    Window((9, 8), (3, 2), (2, 1), (0, 1), (2, 0), (0, 2)),
    Window((7, 28), (7, 7), (2, 2), (3, 3), (2, 2)),
    Window((6, 6), (2, 2), (1, 1), (1, 1), (0, 0)),
    Window((6, 6), (3, 3), (2, 2), (1, 1), (-1, -2)),
    Window((13, 13), (1, 1), (2, 2)),
    Window((3, 2), (5, 7), padding_l=(2, 3)),
    Window((2, 2), (5, 5), (1, 1), (3, 4), (4, 3), (1, 0)),
    Window((1, 1), (3, 3), padding_l=(1, 1)),
    Window((1, 30), (1, 3), padding_l=(0, 1)),
    Window((30, 1), (3, 1), padding_l=(1, 0)),
    Window((12, 11), (3, 3), padding_l=(5, 5), dilations=(4, 4)),
    Window((4, 5, 6), (3, 3, 3), padding_l=(1, 1, 1)),
    Window((5, 6, 7), (3, 2, 3), (1, 2, 1), (1, 0, 2), (0, 1, 1), (0, 0, 1)),
    Window((2, 3, 2), (1, 1, 1)),
]
# Outputs far from the image see nothing of it and hold the bias alone.
TAPLESS = [
    Window((3,), (2,), padding_l=(6,)),
    Window((3, 4), (2, 2), (1, 2), (7, 5), (6, 8)),
    Window((3, 4), (1, 1), (1, 1), (2, 0), (0, 3)),
    Window((4, 4), (2, 2), padding_l=(40, 0), padding_r=(0, 41), dilations=(39, 40)),
    Window((3, 3, 3), (2, 2, 2), padding_l=(3, 4, 5)),
]
# So many taps near the border that which of them lie inside is found out at run time.
LONG = [
    Window((250,), (101,), padding_l=(50,)),
    Window((230,), (90,), (3,), (70,), (40,), (1,)),
    Window((5,), (150,), padding_l=(80,), padding_r=(120,)),
    Window((1500,), (3,), padding_l=(1400,), padding_r=(1300,), dilations=(1399,)),
    Window((40, 30), (3, 30), padding_l=(1, 0)),
    Window((150, 1), (101, 1), (2, 1), padding_l=(60, 0), padding_r=(40, 0)),
    Window((9, 33, 2), (2, 19, 2), padding_l=(1, 10, 0)),
    Window((60, 3), (31, 3), padding_l=(15, 1)),
]


@pytest.mark.parametrize("layout", ["any", "plain", "last"])
@pytest.mark.parametrize("window", WINDOWS + TAPLESS, ids=str)
def test_windows(window: Window, layout: str) -> None:
    verify(convolution_desc(window, 2, (20, 18), (layout, "any", layout)))


@pytest.mark.parametrize(
    ("window", "layout"), list(zip(LONG, cycle(("any", "plain", "last")), strict=False)), ids=str
)
def test_long_windows(window: Window, layout: str) -> None:
    verify(convolution_desc(window, 2, (10, 18), (layout, "any", layout)))


@pytest.mark.parametrize("layout", ["any", "plain", "last"])
@pytest.mark.parametrize("window", LONG[:2], ids=str)
def test_long_windows_of_single_channels(window: Window, layout: str) -> None:
    verify(convolution_desc(window, 2, (9, 1, 1), (layout, "any", layout)))


@pytest.mark.parametrize("channels", [(20, 18), (2, 16, 16), (5, 1, 1)], ids=str)
@pytest.mark.parametrize("window", [WINDOWS[1], WINDOWS[5], WINDOWS[11], WINDOWS[17]], ids=str)
def test_agrees_with_pytorch(window: Window, channels: Dims) -> None:
    desc = convolution_desc(window, 2, channels, ("plain", "plain", "plain"))
    args = inputs(PrimitiveDesc(desc, ENGINE))
    strides, left, right, dilations = window.filled
    widths = [w for pair in zip(reversed(left), reversed(right), strict=True) for w in pair]
    weights = tensor(args[Arg.WEIGHTS])
    want = PEERS[len(strides)](
        F.pad(tensor(args[Arg.SRC]), widths),
        weights.flatten(0, 1) if len(channels) == 3 else weights,
        tensor(args[Arg.BIAS]),
        stride=strides,
        dilation=tuple(d + 1 for d in dilations),
        groups=channels[0] if len(channels) == 3 else 1,
    )
    length = channels[-1] * torch.Size(window.kernel).numel()
    check(execute(desc, args), array(want), TOLERANCE("f32", length))


@pytest.mark.parametrize("dst", [*LAYOUTS, "any", "behind"])
@pytest.mark.parametrize("src", [*LAYOUTS, "any", "behind"])
def test_every_layout_into_every_other(src: str, dst: str) -> None:
    # Sizes that leave tails everywhere: in blocks, in vectors, in the tiles of registers.
    verify(convolution_desc(SAME, 2, (21, 19), (src, "any", dst)))


@every_isa
@pytest.mark.parametrize(
    ("src", "channels", "strides"),
    [
        *(("any", (260, 20), (2, 3)), ("plain", (300, 19), (1, 2)), ("last", (257, 16), (2, 3))),
        *(("nChw8c", (260, 17), (1, 2)), ("gaps", (260, 9), (2, 3)), ("abCd3c", (260, 8), (2, 3))),
        *(("any", (2, 256, 24), (1, 2)), ("last", (3, 258, 5), (1, 2))),
    ],
)
def test_pixels_that_are_apart_meet_many_outputs(
    src: str, channels: Dims, strides: Dims, isa: str
) -> None:
    """They are copied side by side, once for all panels; weights of `any` are read as they are."""
    with config.override("max_cpu_isa", isa):
        window = Window((9, 13), (1, 1), strides)
        desc = convolution_desc(window, 2, channels, (src, "any", "any"))
        pd = PrimitiveDesc(desc, ENGINE)
        assert {packing.name for packing in pd.info(1).packing} == {"src"}
        verify(desc)


@pytest.mark.parametrize("size", [(31,), (5, 6, 8)], ids=str)
def test_lines_and_volumes_of_pixels_that_are_apart(size: Dims) -> None:
    ones = (1,) * len(size)
    verify(convolution_desc(Window(size, ones, (2,) * len(size)), 1, (260, 40)))


@pytest.mark.parametrize("dst", LAYOUTS)
def test_every_layout_of_a_small_destination(dst: str) -> None:
    # Fewer channels than one panel of the destination's blocks is wide.
    with config.override("max_cpu_isa", "avx2"):
        verify(convolution_desc(SAME, 1, (3, 4), ("any", "any", dst)))


@pytest.mark.parametrize(
    "layout", ["Abcd16a", "ABcd16a16b", "aBCd4c16b", "abcD4d", "abCd3c", "aBcd32b", "aBcd4b4b"]
)
@pytest.mark.parametrize("side", [0, 2])
def test_blocks_of_other_dimensions(side: int, layout: str) -> None:
    layouts = ["any", "any", "any"]
    layouts[side] = layout
    window = Window((6, 7), (3, 3), (1, 2), (1, 1))
    verify(convolution_desc(window, 18, (3, 17), (layouts[0], layouts[1], layouts[2])))


@pytest.mark.parametrize("src", ["plain", "nChw8c"])
@pytest.mark.parametrize(
    "weights", ["plain", "cdba", "dcba", "ABcd16b16a", "ABcd4b16a4b", "Abcd32a", "aBcD2d8b", "gaps"]
)
def test_layouts_of_weights(src: str, weights: str) -> None:
    verify(convolution_desc(SAME, 1, (34, 19), (src, weights, "any")))


@every_pair(layout=["any", "nhwc"], outputs=[1, 3, 17, 32, 48, 100], inputs=[1, 3, 17, 32, 48, 100])
def test_channels(inputs: int, outputs: int, layout: str) -> None:
    verify(convolution_desc(SAME, 1, (outputs, inputs), (layout, "any", layout)))


@pytest.mark.parametrize("layout", ["any", "plain", "nChw8c", "part"])
@pytest.mark.parametrize(
    "channels",
    [
        (1, 17, 5),
        (2, 16, 16),
        (2, 3, 5),
        (3, 32, 8),
        (4, 8, 16),
        (5, 17, 1),
        (2, 1, 48),
        (16, 2, 1),
    ],
    ids=str,
)
def test_groups(channels: Dims, layout: str) -> None:
    verify(convolution_desc(SAME, 2, channels, (layout, "any", layout)))


@pytest.mark.parametrize("weights", ["plain", "edcba", "aBCde16c16b", "Abcde8a", "decab"])
@pytest.mark.parametrize("channels", [(3, 17, 5), (19, 1, 1)], ids=str)
def test_layouts_of_grouped_weights(channels: Dims, weights: str) -> None:
    verify(convolution_desc(SAME, 1, channels, ("any", weights, "any")))


@every_pair(
    pytest.mark.parametrize(
        ("src", "dst"), [("any", "any"), ("plain", "plain"), ("last", "last"), ("last", "block8")]
    ),
    pytest.mark.parametrize("window", [*WINDOWS[1:18:4], *TAPLESS[:2]], ids=str),
    pytest.mark.parametrize("channels", [1, 17, 48]),
)
def test_depthwise(channels: int, window: Window, src: str, dst: str) -> None:
    desc = convolution_desc(window, 2, (channels, 1, 1), (src, "any", dst))
    assert PrimitiveDesc(desc, ENGINE).impl_info.startswith("depthwise:")
    verify(desc)


@every_isa
def test_depthwise_of_more_channels_than_a_cache_keeps(isa: str) -> None:
    with config.override("max_cpu_isa", isa):
        verify(convolution_desc(SAME, 2, (1307, 1, 1), ("last", "any", "last")))


@pytest.mark.parametrize("dst", LAYOUTS)
@pytest.mark.parametrize("src", ["nchw", "nhwc", "part16"])
def test_depthwise_layouts(src: str, dst: str) -> None:
    verify(convolution_desc(SAME, 2, (19, 1, 1), (src, "any", dst)))


@every_pair(
    every_isa,
    pytest.mark.parametrize("layout", ["any", "plain", "block16"]),
    pytest.mark.parametrize(
        ("window", "channels"),
        [
            (WINDOWS[4], (35, 19)),
            (WINDOWS[5], (2, 17, 16)),
            (WINDOWS[4], (20, 1, 1)),
            (WINDOWS[17], (5, 6)),
            (Window((6, 7), (1, 1)), (40, 17)),
            (TAPLESS[1], (17, 3)),
        ],
        ids=str,
    ),
)
def test_every_instruction_set(isa: str, window: Window, channels: Dims, layout: str) -> None:
    attr = attr_of(("eltwise", "eltwise_relu"), ("sum", 0.5))
    with config.override("max_cpu_isa", isa):
        verify(convolution_desc(window, 2, channels, (layout, "any", layout)), attr, "normal")


@pytest.mark.parametrize("tag", [None, "a", "any", "gap", "behind"])
@pytest.mark.parametrize("channels", [(19, 5), (2, 17, 5), (19, 1, 1)], ids=str)
def test_bias(channels: Dims, tag: str | None) -> None:
    plain = convolution_desc(SAME, 1, channels, bias=False)
    outputs = plain.dst_desc.dims[1:2]
    descs = {
        "a": MemoryDesc(outputs, "f32"),
        "any": MemoryDesc(outputs, "f32", "any"),
        "gap": MemoryDesc(outputs, "f32", (3,)),
        "behind": MemoryDesc(outputs, "f32", (1,), offset0=7),
    }
    three = plain.src_desc, plain.weights_desc, plain.dst_desc
    bias = descs[tag] if tag else None
    window = plain.strides, plain.padding_l
    verify(ConvolutionDesc.forward(*DIRECT, *three, *window, bias_desc=bias))


@pytest.mark.parametrize(
    ("window", "channels"),
    [
        (Window((56, 56), (3, 3), padding_l=(1, 1)), (64, 64)),
        (Window((112, 112), (7, 7), (2, 2), (3, 3)), (64, 3)),
        (Window((56, 56), (1, 1)), (256, 64)),
        (Window((28, 28), (1, 1), (2, 2)), (512, 256)),
        (Window((14, 14), (3, 3), padding_l=(1, 1)), (256, 256)),
        (Window((7, 7), (3, 3), padding_l=(1, 1)), (512, 512)),
        (Window((7, 7), (1, 1)), (2048, 512)),
        (Window((28, 28), (3, 3), (2, 2), (1, 1)), (32, 4, 4)),
        (Window((56, 56), (3, 3), padding_l=(1, 1)), (96, 1, 1)),
    ],
    ids=str,
)
@pytest.mark.parametrize("layout", ["any", "nhwc"])
def test_layers_of_networks(window: Window, channels: Dims, layout: str) -> None:
    verify(convolution_desc(window, 1, channels, (layout, "any", layout)), fill="normal")


@pytest.mark.parametrize("layout", ["any", "plain", "last"])
@pytest.mark.parametrize("bias", [False, True])
def test_no_channels_to_sum(bias: bool, layout: str) -> None:
    verify(convolution_desc(SAME, 2, (17, 0), (layout, "any", layout), bias))


@pytest.mark.parametrize("channels", [(5, 3), (3, 1, 1)], ids=str)
def test_no_pixels_but_padding(channels: Dims) -> None:
    verify(convolution_desc(Window((0, 4), (1, 2), padding_l=(1, 0)), 2, channels))


@pytest.mark.parametrize("user", [False, True])
@pytest.mark.parametrize(
    ("batch", "window", "channels"),
    [
        (0, SAME, (3, 5)),
        (1, SAME, (0, 5)),
        (1, Window((0, 3), (1, 1)), (3, 5)),
        (2, SAME, (0, 1, 1)),
    ],
    ids=str,
)
def test_no_elements(batch: int, window: Window, channels: Dims, user: bool) -> None:
    desc = convolution_desc(window, batch, channels, ("plain", "plain", "plain"))
    attr = attr_of()
    attr.scratchpad_mode = "user" if user else "library"
    execute(desc, inputs(PrimitiveDesc(desc, ENGINE, attr)), attr)


def test_source_and_weights_may_be_one_memory() -> None:
    desc = MemoryDesc((4, 4, 3, 3), "f32")
    both = random_memory(desc, ENGINE)
    dst = MemoryDesc((4, 4, 1, 1), "f32")
    conv = ConvolutionDesc.forward(*DIRECT, desc, desc, dst, (1, 1), (0, 0))
    want = F.conv2d(tensor(both), tensor(both))
    got = execute(conv, {Arg.SRC: both, Arg.WEIGHTS: both})
    check(got, array(want), TOLERANCE("f32", 36))


def test_training_is_the_same_forward() -> None:
    desc = convolution_desc(SAME, 1, (5, 4))
    args = inputs(PrimitiveDesc(desc, ENGINE))
    training = ConvolutionDesc.forward(
        "forward_training",
        "convolution_auto",
        desc.src_desc,
        desc.weights_desc,
        desc.dst_desc,
        desc.strides,
        desc.padding_l,
        bias_desc=desc.bias_desc,
    )
    assert (execute(desc, args).data == execute(training, args).data).all()


@pytest.mark.parametrize("dst", ["plain", "part", "padded"])
@pytest.mark.parametrize("src", ["plain", "part"])
def test_a_part_of_a_block_and_padding_without_blocks(src: str, dst: str) -> None:
    """What lies beside a region in a block of 64 channels belongs to others."""

    def activation(dims: Dims, layout: str) -> MemoryDesc:
        if layout == "part":
            whole = (dims[0], 64, *dims[2:])
            return MemoryDesc(whole, "f32", "aBcd64b").submemory(dims, (0, 0, 0, 0))
        padded = (dims[0], dims[1], dims[2] + 1, dims[3] + 2) if layout == "padded" else dims
        return MemoryDesc(dims, "f32", MemoryDesc(padded, "f32").strides, padded_dims=padded)

    tensors = activation((2, 19, 5, 6), src), MemoryDesc((21, 19, 3, 3), "f32")
    verify(
        ConvolutionDesc.forward(
            *DIRECT, *tensors, activation((2, 21, 5, 6), dst), (1, 1), (1, 1), (1, 1)
        )
    )


@every_pair(
    every_isa,
    pytest.mark.parametrize("weights", ["any", "plain", "gaps"]),
    pytest.mark.parametrize(
        ("image", "channels"), [((9, 11), (20, 18)), ((64,), (1, 3)), ((4, 5, 6), (7, 40))], ids=str
    ),
)
def test_planes_of_pixels(image: Dims, channels: Dims, weights: str, isa: str) -> None:
    """Where tiles are lower than vectors, pixels are the columns of a product of matrices."""
    with config.override("max_cpu_isa", isa):
        window = Window(image, (1,) * len(image))
        desc = convolution_desc(window, 2, channels, ("plain", weights, "plain"))
        verify(desc)
        channel = MemoryDesc((1, channels[0], *[1] * len(image)), "f32")
        attr = attr_of(
            ("sum", 0.5),
            ("binary", "binary_mul", channel),
            ("prelu", 2),
            ("binary", "binary_add", MemoryDesc(desc.dst_desc.dims, "f32")),
        )
        verify(desc, attr)
        impl = PrimitiveDesc(desc, ENGINE).impl_info
        assert impl.startswith("planes" if isa.startswith("avx2") else "brgemm")
