"""What an error tells who took a rule for another library's."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import dnnl
from dnnl import Arg, InvalidArguments, MemoryDesc
from tests.primitives.harness import ENGINE

STREAM = dnnl.Stream(ENGINE)
FORWARD = "forward_inference"


def md(*dims: int, data_type: str = "f32") -> MemoryDesc:
    return MemoryDesc(dims, data_type)


SHORTS = md(4, data_type="s16")


def test_a_part_of_a_memory_begins_with_its_bytes() -> None:
    array = np.random.default_rng(3).standard_normal((4, 6)).astype(np.float32)
    whole = dnnl.Memory.from_numpy(array)
    part = whole.desc.submemory((2, 3), (1, 2))
    hint = rf"96 bytes, .* needs 68; pass the first of them: memory.data\[:{part.size}\]"
    with pytest.raises(InvalidArguments, match=hint):
        dnnl.Memory(part, ENGINE, whole.data)
    memory = dnnl.Memory(part, ENGINE, whole.data[: part.size])
    np.testing.assert_array_equal(memory.numpy(), array[1:3, 2:5])


@pytest.mark.parametrize(
    ("dst", "dilations", "hinted"), [(6, (1, 1), True), (5, (0, 0), False), (1, (4, 1), True)]
)
def test_dilations_count_from_zero(dst: int, dilations: tuple[int, int], hinted: bool) -> None:
    hint = r"dilations = .* count from 0, which is dense; what others write so is"
    hint += rf" \({dilations[0] - 1}, 0\)"
    src = md(1, 8, 8, 8)
    weights, out, one, none = md(8, 8, 3, 3), md(1, 8, dst, dst), (1, 1), (0, 0)
    convolution = partial(
        dnnl.ConvolutionDesc.forward, FORWARD, "convolution_direct", src, weights, out, one
    )
    pooling = partial(dnnl.PoolingDesc.forward, FORWARD, "pooling_max", src, out, one, (3, 3))
    for describe in (convolution, pooling):
        with pytest.raises(InvalidArguments) as caught:
            describe(none, none, dilations)
        assert (caught.value.hint != "") is hinted
        if hinted:
            assert caught.match(hint)


def convolution(channels: int, weights: MemoryDesc) -> dnnl.ConvolutionDesc:
    src, dst = md(1, channels, 4, 4), md(1, 8, 4, 4)
    return dnnl.ConvolutionDesc.forward(
        FORWARD, "convolution_direct", src, weights, dst, (1, 1), (1, 1)
    )


def test_weights_of_groups_have_a_dimension_for_them() -> None:
    weights = md(8, 3, 3, 3)
    hint = r"weights of 4 groups have the dims \(g, o, i, \.\.\.\): reshape\(\(4, 2, 3, 3, 3\)\)"
    with pytest.raises(InvalidArguments, match=hint):
        convolution(12, weights)
    assert convolution(12, weights.reshape((4, 2, 3, 3, 3))).channels == (4, 2, 3)
    with pytest.raises(InvalidArguments, match=r"take 3 channels$"):
        convolution(13, weights)


@pytest.mark.parametrize(
    ("desc", "reason"),
    [
        (
            dnnl.SumDesc([1.0], [SHORTS], SHORTS),
            "s16; it takes f16, bf16, f32, s32, s8, u8, f64, f8_e5m2 or f8_e4m3",
        ),
        (
            dnnl.MatmulDesc(md(2, 3, data_type="u8"), md(3, 4), md(2, 4)),
            "u8 times f32; u8 is multiplied by s8, u8, s4 or u4",
        ),
    ],
)
def test_a_refused_type_is_told_the_others(desc: Any, reason: str) -> None:
    with pytest.raises(dnnl.Unimplemented, match=f"unsupported data type: {reason}"):
        dnnl.PrimitiveDesc(desc, ENGINE)


@pytest.mark.parametrize("call", ["set_scales", "set_zero_points"])
def test_the_name_of_an_argument_is_in_capitals(call: str) -> None:
    attr = dnnl.PrimitiveAttr()
    with pytest.raises(InvalidArguments, match=r"arg = 'src': .*; did you mean 'SRC'\?"):
        getattr(attr, call)("src")


def test_keys_that_are_no_arguments() -> None:
    relu = dnnl.EltwiseDesc.forward(FORWARD, "eltwise_relu", md(4), md(4))
    primitive = dnnl.Primitive(dnnl.PrimitiveDesc(relu, ENGINE))
    memory = dnnl.Memory(md(4), ENGINE)
    good: dict[Any, dnnl.Memory] = {Arg.SRC: memory, Arg.DST: memory}
    for args, rule in (
        (
            {"src": memory, Arg.DST: memory},
            r"args\[SRC\].*'src' is no dnnl.Arg; write dnnl.Arg.SRC",
        ),
        ({"SRC": memory, "dst": memory}, r"args\[SRC\].*'SRC' is no dnnl.Arg; write dnnl.Arg.SRC"),
        (
            {**good, "input": memory},
            r"args = 'input': keys are members of dnnl.Arg; write dnnl.Arg.SRC",
        ),
        ({**good, None: memory}, "args = None: keys are members of dnnl.Arg"),
        ({Arg.SRC: memory}, r"args\[DST\] = None: missing; .*; there are SRC$"),
        ({Arg.WEIGHTS: memory, Arg.DST: memory}, r"args\[SRC\].*; there are WEIGHTS, DST$"),
        ({}, r"args\[SRC\].*; there are no arguments$"),
    ):
        with pytest.raises(InvalidArguments, match=rule):
            primitive.execute(STREAM, args)
    primitive.execute(STREAM, {np.int64(1): memory, 17: memory})
