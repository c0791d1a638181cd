"""Winograd's algorithm on images whose sizes only executions know."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name everybody gives it

from dnnl import (
    RUNTIME_DIM,
    Arg,
    ConvolutionDesc,
    InvalidArguments,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveAttr,
    PrimitiveDesc,
    Stream,
    config,
    reorder,
)
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE, ISAS

RNG = np.random.default_rng(29)
CHANNELS, OUTPUTS = 19, 36
SIZES = [(2, 9, 12), (5, 40, 7), (3, 6, 65)]
SMALL = [(3, 2, 31), (2, 4, 4), (2, 65, 3)]
"""A tile is as high or as wide as these, or more: they may have kernels of their own."""


def images(*dims: int) -> np.ndarray:
    return RNG.standard_normal(dims, np.float32)


def described(tag: str, weights: MemoryDesc) -> PrimitiveDesc:
    """A convolution of any images with relu behind it."""
    src, dst = (
        MemoryDesc((RUNTIME_DIM, own, RUNTIME_DIM, RUNTIME_DIM), "f32", tag)
        for own in (CHANNELS, OUTPUTS)
    )
    bias, attr = MemoryDesc((OUTPUTS,), "f32"), PrimitiveAttr()
    attr.post_ops.append_eltwise("eltwise_relu")
    desc = ConvolutionDesc.forward(
        "forward_inference", "convolution_winograd", src, weights, dst, 1, 1, bias_desc=bias
    )
    return PrimitiveDesc(desc, ENGINE, attr)


@every_pair(isa=ISAS, tag=["nhwc", "nchw"], tile=[0, 2, 4])
def test_any_images(isa: str, tag: str, tile: int) -> None:
    """Weights are transformed by each execution where ``tile`` is 0."""
    taps, bias = images(OUTPUTS, CHANNELS, 3, 3), images(OUTPUTS)
    dims = taps.shape
    weights = MemoryDesc.winograd(dims, "f32", tile, 16) if tile else MemoryDesc(dims, "f32")
    with config.override("max_cpu_isa", isa):
        pd = described(tag, weights)
        primitive, stream = Primitive(pd), Stream(ENGINE)
        made = Memory(pd.weights_desc, ENGINE)
        reorder(Memory.from_numpy(taps), made)
        assert pd.variants is not None
        kernels = []
        for batch, height, width in (*SIZES, *SMALL):
            x = images(batch, CHANNELS, height, width)
            dst = Memory(MemoryDesc((batch, OUTPUTS, height, width), "f32", tag), ENGINE)
            args = {Arg.SRC: Memory.from_numpy(x, tag), Arg.WEIGHTS: made, Arg.DST: dst}
            primitive.execute(stream, {**args, Arg.BIAS: Memory.from_numpy(bias)})
            given = [torch.from_numpy(own) for own in (x, taps, bias)]
            want = F.relu(F.conv2d(given[0], given[1], given[2], padding=1)).numpy()
            np.testing.assert_allclose(dst.numpy(), want, rtol=0, atol=2e-5 * np.abs(want).max())
            kernels.append(len(pd.variants.every))
    if tag == "nhwc":  # copies of planes may have two
        assert kernels[len(SIZES) - 1] == 1, "it serves all images of several tiles"


def test_transformed_weights_must_be_those_of_the_description() -> None:
    dims = (OUTPUTS, CHANNELS, 3, 3)
    pd = described("nhwc", MemoryDesc.winograd(dims, "f32", 4, 16))
    src, dst = (
        Memory(MemoryDesc((2, own, 6, 6), "f32", "nhwc"), ENGINE) for own in (CHANNELS, OUTPUTS)
    )
    other = Memory(MemoryDesc.winograd(dims, "f32", 2, 16), ENGINE)
    args = {Arg.SRC: src, Arg.WEIGHTS: other, Arg.DST: dst}
    bias = Memory(MemoryDesc((OUTPUTS,), "f32"), ENGINE)
    with pytest.raises(InvalidArguments, match=r"WEIGHTS.*winograd:2x16.*winograd:4x16"):
        Primitive(pd).execute(Stream(ENGINE), {**args, Arg.BIAS: bias})
