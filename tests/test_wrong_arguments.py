"""Whatever is passed where, what is raised is an error of the library."""

from __future__ import annotations

import enum
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import pytest

import dnnl
from dnnl import Arg, config

ENGINE = dnnl.Engine("cpu")
STREAM = dnnl.Stream(ENGINE)
IMAGE = dnnl.MemoryDesc((2, 3, 4, 4), "f32")
INTEGERS = dnnl.MemoryDesc((2, 3), "s64")
WEIGHTS = dnnl.MemoryDesc((3, 3, 3, 3), "f32")
COPY = dnnl.PrimitiveDesc(dnnl.ReorderDesc(IMAGE, IMAGE), ENGINE)
MEMORY = dnnl.Memory(IMAGE, ENGINE)
ARGS = {Arg.SRC: MEMORY, Arg.DST: dnnl.Memory(IMAGE, ENGINE)}
WINDOW = ((1, 1), (3, 3), (1, 1), (1, 1), (0, 0))
INFERENCE = "forward_inference"


def matrix(*dims: int) -> dnnl.MemoryDesc:
    return dnnl.MemoryDesc(dims, "f32")


#: What can be called, and arguments that it takes.
CALLS: dict[str, tuple[Callable[..., object], tuple[Any, ...]]] = {
    "BatchNormalizationDesc.forward": (
        dnnl.BatchNormalizationDesc.forward, (INFERENCE, IMAGE, IMAGE, 1e-5, "none")),
    "BatchNormalizationDesc.backward": (
        dnnl.BatchNormalizationDesc.backward, ("backward", IMAGE, IMAGE, IMAGE, 1e-5, "none")),
    "BinaryDesc": (dnnl.BinaryDesc, ("binary_add", IMAGE, IMAGE, IMAGE)),
    "ConcatDesc": (dnnl.ConcatDesc, (0, [IMAGE, IMAGE], dnnl.MemoryDesc((4, 3, 4, 4), "f32"))),
    "ConvolutionDesc.forward": (
        dnnl.ConvolutionDesc.forward, (INFERENCE, "convolution_direct", IMAGE, WEIGHTS, IMAGE,
        (1, 1), (1, 1), (1, 1), (0, 0), None)),
    "EltwiseDesc.forward": (
        dnnl.EltwiseDesc.forward, (INFERENCE, "eltwise_linear", IMAGE, IMAGE, 1.0, 2.0)),
    "EltwiseDesc.backward": (
        dnnl.EltwiseDesc.backward, ("eltwise_linear", IMAGE, IMAGE, IMAGE, 1.0, 2.0)),
    "ExactDesc": (dnnl.ExactDesc, ("add", [INTEGERS, INTEGERS], INTEGERS)),
    "GroupNormalizationDesc.forward": (
        dnnl.GroupNormalizationDesc.forward, (INFERENCE, IMAGE, IMAGE, 3, 1e-5, "none")),
    "GroupNormalizationDesc.backward": (
        dnnl.GroupNormalizationDesc.backward, ("backward", IMAGE, IMAGE, IMAGE, 3, 1e-5, "none")),
    "InnerProductDesc.forward": (
        dnnl.InnerProductDesc.forward, (INFERENCE, IMAGE, matrix(5, 3, 4, 4), matrix(2, 5), None)),
    "LayerNormalizationDesc.forward": (
        dnnl.LayerNormalizationDesc.forward, (INFERENCE, IMAGE, IMAGE, 1e-5, "none")),
    "LayerNormalizationDesc.backward": (
        dnnl.LayerNormalizationDesc.backward, ("backward", IMAGE, IMAGE, IMAGE, 1e-5, "none")),
    "GatherDesc": (
        dnnl.GatherDesc, (matrix(5, 3), dnnl.MemoryDesc((4,), "s32"), matrix(4, 3), 0)),
    "LrnDesc.forward": (
        dnnl.LrnDesc.forward, (INFERENCE, "lrn_across_channels", IMAGE, IMAGE, 5, 1.0, 1.0, 1.0)),
    "LrnDesc.backward": (
        dnnl.LrnDesc.backward, ("lrn_across_channels", IMAGE, IMAGE, IMAGE, 5, 1.0, 1.0, 1.0)),
    "MatmulDesc": (dnnl.MatmulDesc, (matrix(2, 3), matrix(3, 4), matrix(2, 4), None)),
    "PoolingDesc.forward": (
        dnnl.PoolingDesc.forward, (INFERENCE, "pooling_max", IMAGE, IMAGE, *WINDOW)),
    "PoolingDesc.backward": (dnnl.PoolingDesc.backward, ("pooling_max", IMAGE, IMAGE, *WINDOW)),
    "PreluDesc.forward": (
        dnnl.PreluDesc.forward, (INFERENCE, IMAGE, dnnl.MemoryDesc((1, 3, 1, 1), "f32"), IMAGE)),
    "PreluDesc.backward": (dnnl.PreluDesc.backward, (IMAGE, IMAGE, IMAGE, IMAGE, IMAGE)),
    "ReductionDesc": (
        dnnl.ReductionDesc, ("reduction_norm_lp_sum", IMAGE, dnnl.MemoryDesc((2, 3, 1, 1), "f32"),
        2.0, 1e-3)),
    "ReorderDesc": (dnnl.ReorderDesc, (IMAGE, IMAGE)),
    "ResamplingDesc.forward": (
        dnnl.ResamplingDesc.forward, (INFERENCE, "resampling_linear", IMAGE,
        dnnl.MemoryDesc((2, 3, 8, 8), "f32"), (2.0, 2.0))),
    "ResamplingDesc.backward": (
        dnnl.ResamplingDesc.backward, ("resampling_linear", IMAGE,
        dnnl.MemoryDesc((2, 3, 8, 8), "f32"), (2.0, 2.0))),
    "ShuffleDesc.forward": (dnnl.ShuffleDesc.forward, (INFERENCE, IMAGE, IMAGE, 1, 3)),
    "ShuffleDesc.backward": (dnnl.ShuffleDesc.backward, (IMAGE, IMAGE, 1, 3)),
    "SoftmaxDesc.forward": (
        dnnl.SoftmaxDesc.forward, (INFERENCE, "softmax_accurate", IMAGE, IMAGE, 1)),
    "SoftmaxDesc.backward": (
        dnnl.SoftmaxDesc.backward, ("softmax_accurate", IMAGE, IMAGE, IMAGE, 1)),
    "SoftmaxV1Desc.forward": (dnnl.SoftmaxV1Desc.forward, (INFERENCE, IMAGE, 1)),
    "SoftmaxV1Desc.backward": (dnnl.SoftmaxV1Desc.backward, (IMAGE, IMAGE, 1)),
    "LogSoftmaxDesc.forward": (dnnl.LogSoftmaxDesc.forward, (INFERENCE, IMAGE, 1)),
    "LogSoftmaxDesc.backward": (dnnl.LogSoftmaxDesc.backward, (IMAGE, IMAGE, 1)),
    "SumDesc": (dnnl.SumDesc, ([1.0, 2.0], [IMAGE, IMAGE], IMAGE)),
    "Compensation": (dnnl.Compensation, (1, 1)),
    "Engine": (dnnl.Engine, ("cpu", 0)),
    "Engine.count": (dnnl.Engine.count, ("cpu",)),
    "FormatTag": (dnnl.FormatTag, ("nchw",)),
    "Memory": (dnnl.Memory, (IMAGE, ENGINE, np.zeros(96, np.float32))),
    "Memory.from_numpy": (dnnl.Memory.from_numpy, (np.zeros((2, 3)), "ab", ENGINE)),
    "Memory.compensation": (MEMORY.compensation, ("s8s8",)),
    "Memory.reorder_to": (MEMORY.reorder_to, ("nhwc",)),
    "Memory.write": (MEMORY.write, (MEMORY.data,)),
    "MemoryDesc": (dnnl.MemoryDesc, ((2, 3), "f32", "ab")),
    "MemoryDesc.compensation_desc": (IMAGE.compensation_desc, ("s8s8",)),
    "MemoryDesc.matches_tag": (IMAGE.matches_tag, ("nchw",)),
    "MemoryDesc.offset": (IMAGE.offset, ((0, 1, 2, 3),)),
    "MemoryDesc.permute_axes": (IMAGE.permute_axes, ((0, 2, 1, 3),)),
    "MemoryDesc.reshape": (IMAGE.reshape, ((6, 16),)),
    "MemoryDesc.submemory": (IMAGE.submemory, ((1, 1, 1, 1), (0, 0, 0, 0))),
    "MemoryDesc.with_compensation": (IMAGE.with_compensation, (None,)),
    "MemoryDesc.with_data_type": (IMAGE.with_data_type, ("s8",)),
    "MemoryDesc.with_tag": (IMAGE.with_tag, ("nhwc",)),
    "PostOps.append_binary": (dnnl.PrimitiveAttr().post_ops.append_binary, ("binary_add", IMAGE)),
    "PostOps.append_depthwise": (
        dnnl.PrimitiveAttr().post_ops.append_depthwise, ("f32", "f32", "f32", 3, 1, 1)),
    "PostOps.append_eltwise": (
        dnnl.PrimitiveAttr().post_ops.append_eltwise, ("eltwise_linear", 1.0, 2.0)),
    "PostOps.append_function": (dnnl.PrimitiveAttr().post_ops.append_function, (abs, IMAGE)),
    "PostOps.append_prelu": (dnnl.PrimitiveAttr().post_ops.append_prelu, (2,)),
    "PostOps.append_sum": (dnnl.PrimitiveAttr().post_ops.append_sum, (1.0, 0, "f32")),
    "Primitive": (dnnl.Primitive, (COPY,)),
    "Primitive.bind": (dnnl.Primitive(COPY).bind, (STREAM, ARGS)),
    "Primitive.execute": (dnnl.Primitive(COPY).execute, (STREAM, ARGS, ())),
    "PrimitiveAttr": (dnnl.PrimitiveAttr, ("library", "strict", False)),
    "PrimitiveAttr.set_dropout": (
        dnnl.PrimitiveAttr().set_dropout, (None, "s64", False, False)),
    "PrimitiveAttr.set_scales": (dnnl.PrimitiveAttr().set_scales, ("SRC", 1, (), "f32")),
    "PrimitiveAttr.set_zero_points": (dnnl.PrimitiveAttr().set_zero_points, ("SRC", 1, (), "s32")),
    "PrimitiveAttr.with_post_ops": (dnnl.PrimitiveAttr().with_post_ops, ((),)),
    "PrimitiveDesc": (dnnl.PrimitiveDesc, (COPY.desc, ENGINE, None, None)),
    "PrimitiveDesc.arg_desc": (COPY.arg_desc, ("DST",)),
    "Stream": (dnnl.Stream, (ENGINE, 1)),
    "load": (dnnl.load, ("no_such_model.onnx",)),
    "set_num_threads": (dnnl.set_num_threads, (None,)),
    "config.get": (config.get, ("verbose",)),
    **{f"config.set({knob.name!r})": (partial(config.set, knob.name), (None,))
       for knob in config.KNOBS},
}  # fmt: skip

WRONG: tuple[Any, ...] = (
    None, "", "x", "f32", b"ab", True, 3.5, float("nan"), -1, 2**63, 10**30, -(10**30), (), [],
    [None], [1, [2]], (1, 2), (10**30,), {}, {"x": None}, object(),
)  # fmt: skip
ENUMS = [
    value
    for value in (getattr(dnnl, name) for name in dnnl.__all__)
    if isinstance(value, type) and issubclass(value, enum.Enum)
]


@pytest.fixture(autouse=True)
def _settings_stay() -> Any:
    yield
    for knob in config.KNOBS:
        config.set(knob.name, None)


def attempt(call: Callable[..., object], *args: object) -> None:
    with suppress(dnnl.Error):
        call(*args)


@pytest.mark.parametrize("name", CALLS)
def test_an_argument_of_the_wrong_kind(name: str) -> None:
    call, good = CALLS[name]
    for place in range(len(good)):
        for wrong in (*WRONG, np.zeros(3)):
            attempt(call, *good[:place], wrong, *good[place + 1 :])
    for wrong in (*WRONG, np.zeros(3)):
        attempt(call, *[wrong] * len(good))


@pytest.mark.parametrize("enum_class", ENUMS)
def test_what_no_member_is(enum_class: type[enum.Enum]) -> None:
    for wrong in WRONG:
        attempt(enum_class, wrong)
    first = next(iter(enum_class))
    assert enum_class(first.name) is first


def test_every_public_name_is_tried() -> None:
    tried = {name.split(".")[0] for name in CALLS} | {made.__name__ for made in ENUMS}
    values = {"RUNTIME_DIM", "Event", "get_num_threads"}  # which take no arguments
    errors = {"Error", "InvalidArguments", "OutOfMemory", "Unimplemented"}
    assert set(dnnl.__all__) <= tried | values | errors
