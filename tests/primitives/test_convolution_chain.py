"""The post-op `append_depthwise`: a 1x1 convolution and a depthwise one in one primitive."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name everybody gives it

from dnnl import (
    Arg,
    ConvolutionDesc,
    DeconvolutionDesc,
    InvalidArguments,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveAttr,
    PrimitiveDesc,
    Unimplemented,
    config,
)
from dnnl.kernels.convolution.chain import ChainConf
from dnnl.reference import convolution_chain as reference
from dnnl.reference.arrays import Array
from dnnl.reference.convolution import TOLERANCE, convolution
from dnnl.reference.post_ops import apply_post_ops
from dnnl.reference.quantization import dequantize, expand, quantize
from dnnl.types.post_ops import PostOpDepthwise
from tests.check import check, logical, poisoned_memory, random_memory
from tests.primitives.harness import ENGINE, array, every_isa, execute_all, tensor
from tests.primitives.products import DIRECT, inputs, lay_out
from tests.work_items import assert_apart

DW_WEIGHTS, DW_BIAS = Arg.POST_OP_DW | Arg.WEIGHTS, Arg.POST_OP_DW | Arg.BIAS
DW_DST = Arg.POST_OP_DW | Arg.DST
FLOATS = ("f32", "f32", "f32", "f32")
# Kernel, stride and padding.
SIZES = [(3, 1, 1), (3, 2, 1), (5, 1, 2), (5, 2, 1), (3, 1, 0), (2, 3, 1), (1, 1, 0), (7, 2, 6)]


def chained(
    sizes: tuple[int, int, int] = (3, 1, 1),
    types: tuple[str, str, str, str] = FLOATS,
    before: Any = None,
    behind: Any = None,
    bias: str = "f32",
) -> PrimitiveAttr:
    """Attributes with a depthwise convolution; ``types`` are those of both weights, of the
    intermediate and of dst."""
    attr = PrimitiveAttr()
    if before is not None:
        getattr(attr.post_ops, f"append_{before[0]}")(*before[1:])
    attr.post_ops.append_depthwise(types[1], bias, types[3], *sizes)
    if behind is not None:
        getattr(attr.post_ops, f"append_{behind[0]}")(*behind[1:])
    return attr


def point(
    dims: tuple[int, int, int, int],
    outputs: int,
    types: tuple[str, str, str, str] = FLOATS,
    layouts: tuple[str, str] = ("any", "any"),
    bias: bool = True,
) -> ConvolutionDesc:
    """A 1x1 convolution of src with ``dims``; ``types`` are those of src, weights, intermediate
    and dst."""
    n, c, h, w = dims
    src = lay_out(dims, layouts[0]).with_data_type(types[0])
    dst = lay_out((n, outputs, h, w), layouts[1]).with_data_type(types[2])
    weights = MemoryDesc((outputs, c, 1, 1), types[1], "any")
    bias_desc = MemoryDesc((outputs,), "f32") if bias else None
    return ConvolutionDesc.forward(*DIRECT, src, weights, dst, (1, 1), (0, 0), bias_desc=bias_desc)


def expected(pd: PrimitiveDesc, args: Mapping[int, Memory], old: Memory | None = None) -> Array:
    """What the reference makes of the arguments."""
    values = {arg: logical(memory) for arg, memory in args.items()}
    desc, attr = pd.desc, pd.attr

    def parameter(flag: Arg, arg: int) -> Any:
        specs = attr.scales if flag is Arg.SCALES else attr.zero_points
        plain = 1.0 if flag is Arg.SCALES else 0.0
        dims = desc.quantized(arg).dims
        return expand(values[flag | arg], dims, specs[arg]) if arg in specs else plain

    def both(arg: int) -> tuple[Any, Any]:
        return parameter(Arg.SCALES, arg), parameter(Arg.ZERO_POINTS, arg)

    meant = {arg: dequantize(values[arg], *both(arg)) for arg in (Arg.SRC, Arg.WEIGHTS, DW_WEIGHTS)}
    assert isinstance(desc, ConvolutionDesc)
    result = convolution(
        meant[Arg.SRC],
        meant[Arg.WEIGHTS],
        values.get(Arg.BIAS),
        strides=desc.strides,
        padding_l=desc.padding_l,
    )
    before, behind = desc.stages(attr.post_ops)
    entry = attr.post_ops[behind.begin - 1]
    assert isinstance(entry, PostOpDepthwise)
    first = apply_post_ops(result, before.entries, values)
    between = reference.intermediate(first, before.dst.data_type, *both(Arg.DST))
    second = reference.depthwise(between.meant, meant[DW_WEIGHTS], values.get(DW_BIAS), entry)
    held = None if old is None else logical(old)
    last = apply_post_ops(second, behind.entries, values, held, begin=behind.begin)
    return quantize(last, *both(DW_DST))


def powers(pd: PrimitiveDesc, args: dict[int, Memory]) -> None:
    """Make all scales powers of two, with which nothing rounds before it is stored."""
    for arg, memory in args.items():
        if arg & Arg.SCALES:
            values = 2.0 ** (np.arange(memory.desc.nelems()) % 3 - 1)
            memory.data[:] = values.astype(np.float32).view(np.uint8)


def verify(desc: ConvolutionDesc, attr: PrimitiveAttr, *, banded: bool | None = None) -> None:
    """Run a chain of small integers, whose sums are exact, and compare with the reference."""
    pd = PrimitiveDesc(desc, ENGINE, attr)
    conf = pd.plan.recipe.conf
    assert isinstance(conf, ChainConf)
    assert banded is None or banded == (conf.bands is not None)
    args = inputs(pd, "integers")
    powers(pd, args)
    got = execute_all(pd, args)[Arg.DST]
    check(got, expected(pd, args), TOLERANCE(pd.dst_desc.data_type, 1))


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_agrees_with_pytorch(sizes: tuple[int, int, int]) -> None:
    kernel, stride, padding = sizes
    desc = point((2, 5, 17, 40), 48)
    pd = PrimitiveDesc(desc, ENGINE, chained(sizes, behind=("eltwise", "eltwise_relu")))
    args = inputs(pd)
    first = F.conv2d(tensor(args[Arg.SRC]), tensor(args[Arg.WEIGHTS]), tensor(args[Arg.BIAS]))
    places = [ceil(size / stride) for size in (17, 40)]
    right = [(o - 1) * stride + kernel - i - padding for o, i in zip(places, (17, 40), strict=True)]
    image = F.pad(first.float().double(), (padding, right[1], padding, right[0]))
    weights = tensor(args[DW_WEIGHTS]).squeeze(2)
    want = F.conv2d(image, weights, tensor(args[DW_BIAS]), stride, groups=48).relu()
    assert tuple(want.shape) == pd.dst_desc.dims
    got = execute_all(pd, args)[Arg.DST]
    check(got, array(want), TOLERANCE("f32", 5 * kernel**2))


@every_isa
@pytest.mark.parametrize("outputs", [64, 19])
def test_instruction_sets(outputs: int, isa: str) -> None:
    with config.override("max_cpu_isa", isa):
        verify(point((1, 7, 12, 33), outputs), chained((3, 2, 1)), banded=outputs == 64 or None)


@pytest.mark.parametrize("dims", [(1, 4, 1, 1), (3, 16, 9, 4), (1, 3, 40, 2), (2, 1, 6, 50)])
@pytest.mark.parametrize("outputs", [1, 32, 80, 144])
def test_shapes(outputs: int, dims: tuple[int, int, int, int]) -> None:
    verify(point(dims, outputs), chained((3, 1, 1), before=("eltwise", "eltwise_relu")))


@every_isa
@pytest.mark.parametrize("width", [2, 3, 7])
def test_rows_shorter_than_a_tile(width: int, isa: str) -> None:
    """Tiles of a band hold no more than one row of the intermediate."""
    with config.override("max_cpu_isa", isa):
        verify(point((1, 4, 40, width), 64), chained((3, 1, 1)), banded=True)


@pytest.mark.parametrize("dst", ["any", "plain", "nhwc", "nChw8c", "aBcd32b"])
@pytest.mark.parametrize("src", ["any", "plain", "nhwc", "gaps", "dcba"])
def test_layouts(src: str, dst: str) -> None:
    verify(point((2, 18, 9, 34), 96, layouts=(src, dst)), chained((3, 2, 1)))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "types",
    [
        ("bf16", "bf16", "bf16", "bf16"),
        ("bf16", "bf16", "bf16", "f32"),
        ("f16", "f16", "f16", "f32"),
        ("f32", "bf16", "f16", "f32"),
        ("bf16", "f8_e4m3", "f4_e2m1", "f32"),
        ("f16", "s4", "bf16", "f8_e5m2"),
        ("u8", "u4", "u8", "bf16"),
        ("f64", "f64", "f64", "f64"),
        ("u8", "s8", "u8", "u8"),
        ("u8", "s8", "s8", "f32"),
        ("s8", "s8", "u8", "s32"),
        ("s8", "s8", "s8", "s8"),
    ],
    ids=str,
)
def test_types(types: tuple[str, str, str, str], bias: bool) -> None:
    attr = chained(
        (3, 1, 1), types, before=("eltwise", "eltwise_relu"), bias="f32" * bias or "undef"
    )
    verify(point((2, 8, 7, 35), 64, types, bias=bias), attr)


@pytest.mark.parametrize("isa", ["sse41", "avx2", "default"])
@pytest.mark.parametrize("mask", [0, 2])
def test_quantized(mask: int, isa: str) -> None:
    attr = chained((3, 2, 1), ("u8", "s8", "s8", "u8"), behind=("eltwise", "eltwise_relu"))
    attr.set_scales(Arg.SRC)
    attr.set_scales(Arg.WEIGHTS, mask // 2)
    attr.set_scales(Arg.DST, mask)
    attr.set_scales(DW_WEIGHTS, mask // 2 * 3)
    attr.set_scales(DW_DST, mask)
    attr.set_zero_points(Arg.DST, mask)
    attr.set_zero_points(DW_DST)
    with config.override("max_cpu_isa", isa):
        verify(point((2, 12, 9, 33), 128, ("u8", "s8", "s8", "u8")), attr, banded=True)


def test_zero_points_of_src_need_phases() -> None:
    attr = chained((3, 1, 1), ("u8", "s8", "u8", "u8"))
    attr.set_zero_points(Arg.SRC)
    attr.set_zero_points(Arg.DST)
    verify(point((1, 8, 7, 35), 64, ("u8", "s8", "u8", "u8")), attr, banded=False)


MIDDLE, LAST = (2, 64, 11, 36), (2, 64, 6, 18)


def _mask(dims: tuple[int, ...], mask: int) -> tuple[int, ...]:
    return tuple(size if mask >> d & 1 else 1 for d, size in enumerate(dims))


@pytest.mark.parametrize("mask", [0, 2, 15, 9, 4])
def test_operands_on_either_side(mask: int) -> None:
    add, sub = (MemoryDesc(_mask(dims, mask), "f32") for dims in (MIDDLE, LAST))
    attr = chained(
        (3, 2, 1), before=("binary", "binary_add", add), behind=("binary", "binary_sub", sub)
    )
    verify(point((2, 6, 11, 36), 64), attr, banded=True)


def test_operands_of_any_layout() -> None:
    attr = chained(
        (3, 2, 1),
        before=("binary", "binary_max", MemoryDesc(MIDDLE, "bf16", "any")),
        behind=("function", lambda x, y: x * y + 1, MemoryDesc(_mask(LAST, 2), "f32")),
    )
    pd = PrimitiveDesc(point((2, 6, 11, 36), 64), ENGINE, attr)
    args = inputs(pd, "integers")
    place = Arg.post_op(2) | Arg.SRC_1
    args[place] = Memory.from_numpy(np.arange(64, dtype=np.float32).reshape(1, 64, 1, 1) % 5)
    check(execute_all(pd, args)[Arg.DST], expected(pd, args), TOLERANCE("f32", 1))


@pytest.mark.parametrize(("mask", "banded"), [(2, True), (0, True), (6, False), (15, False)])
def test_prelu_on_either_side(mask: int, banded: bool) -> None:
    attr = chained((3, 2, 1), before=("prelu", mask), behind=("prelu", mask))
    verify(point((2, 6, 11, 36), 64), attr, banded=banded)


def test_a_sum_behind() -> None:
    attr = chained((3, 2, 1), behind=("sum", 2.0))
    pd = PrimitiveDesc(point((2, 6, 11, 36), 64), ENGINE, attr)
    args, old = inputs(pd, "integers"), random_memory(pd.dst_desc, ENGINE, 7, "integers")
    want = expected(pd, args, old)
    check(execute_all(pd, args, {Arg.DST: old})[Arg.DST], want, TOLERANCE("f32", 1))


def test_items_stay_apart() -> None:
    pd = PrimitiveDesc(point((1, 5, 40, 33), 96), ENGINE, chained((3, 1, 1)))
    args = inputs(pd, "integers")
    args[Arg.DST] = poisoned_memory(pd.dst_desc, ENGINE)
    assert_apart(Primitive(pd), args)
    check(args[Arg.DST], expected(pd, args), TOLERANCE("f32", 1))


@pytest.mark.parametrize("dims", [(0, 4, 5, 5), (2, 4, 0, 5)])
def test_empty(dims: tuple[int, int, int, int]) -> None:
    verify(point(dims, 16), chained())


def test_what_a_description_tells() -> None:
    pd = PrimitiveDesc(point((2, 6, 11, 36), 64), ENGINE, chained((3, 2, 1)))
    assert pd.impl_info.startswith("chain:")
    assert pd.dst_desc.dims == LAST
    assert pd.arg_desc(DW_WEIGHTS).dims == (64, 1, 1, 3, 3)
    assert pd.arg_desc(DW_BIAS).dims == (64,)
    assert "dw:k3s2p1" in pd.verbose_fields()


def test_a_missing_argument_is_named() -> None:
    pd = PrimitiveDesc(point((1, 6, 5, 6), 16), ENGINE, chained())
    args = inputs(pd)
    del args[DW_WEIGHTS]
    with pytest.raises(InvalidArguments, match=r"POST_OP_DW\|WEIGHTS"):
        execute_all(pd, args)


def test_operands_have_the_dims_of_their_side() -> None:
    attr = chained((3, 2, 1), behind=("binary", "binary_add", MemoryDesc(MIDDLE, "f32")))
    with pytest.raises(InvalidArguments, match=r"post_ops\[1\]"):
        PrimitiveDesc(point((2, 6, 11, 36), 64), ENGINE, attr)


def test_refusals() -> None:
    twice = chained(behind=("depthwise", "f32", "f32", "f32", 3, 1, 1))
    image, kernel = MemoryDesc((1, 4, 6, 6), "f32"), MemoryDesc((4, 4, 3, 3), "f32")
    wide = ConvolutionDesc.forward(*DIRECT, image, kernel, image, (1, 1), (1, 1))
    turned = DeconvolutionDesc.forward(
        "forward_inference", "deconvolution_direct", image, kernel, image, (1, 1), (1, 1)
    )
    for desc, attr in ((wide, chained()), (turned, chained()), (point((1, 4, 6, 6), 4), twice)):
        with pytest.raises(Unimplemented, match="may follow a 1x1 convolution"):
            PrimitiveDesc(desc, ENGINE, attr)
    with pytest.raises(Unimplemented, match="behind one with a kernel of 3x3; it may follow a 1x1"):
        PrimitiveDesc(wide, ENGINE, chained())
    with pytest.raises(Unimplemented, match="2 depthwise convolutions; one may follow"):
        PrimitiveDesc(point((1, 4, 6, 6), 4), ENGINE, twice)
    with pytest.raises(Unimplemented, match="a sum before a depthwise"):
        PrimitiveDesc(point((1, 4, 6, 6), 4), ENGINE, chained(before=("sum",)))


def test_the_reference_agrees_with_pytorch() -> None:
    rng = np.random.default_rng(5)
    image, weights = rng.normal(size=(2, 3, 7, 8)), rng.normal(size=(3, 1, 1, 3, 3))
    entry = chained((3, 2, 1)).post_ops[0]
    assert isinstance(entry, PostOpDepthwise)
    want = F.conv2d(
        F.pad(torch.from_numpy(image), (1, 1, 1, 1)),
        torch.from_numpy(weights[:, 0]),
        None,
        2,
        0,
        1,
        3,
    )
    got = reference.depthwise(image, weights, None, entry)
    np.testing.assert_allclose(got, want.numpy()[:, :, :4, :4], rtol=1e-12)
