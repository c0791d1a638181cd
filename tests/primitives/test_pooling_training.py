"""Pooling in training: which tap was the maximum, and gradients gathered from all windows."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

from dnnl import (
    Arg,
    InvalidArguments,
    Memory,
    MemoryDesc,
    PoolingDesc,
    PrimitiveDesc,
    Unimplemented,
    config,
)
from dnnl.primitives.desc import Desc
from dnnl.reference import pooling as reference
from dnnl.reference.arrays import Array
from tests.check import assert_close, check, logical, memory_of, random_values
from tests.primitives.harness import (
    ENGINE,
    LAYOUTS,
    describe,
    every_isa,
    execute_all,
    source,
    typed_source,
)

MAX, INCLUDE, EXCLUDE = ALGS = [
    "pooling_max", "pooling_avg_include_padding", "pooling_avg_exclude_padding",
]  # fmt: skip


@dataclass(frozen=True)
class Window:
    strides: tuple[int, ...]
    kernel: tuple[int, ...]
    padding_l: tuple[int, ...]
    padding_r: tuple[int, ...]
    dilations: tuple[int, ...]

    @staticmethod
    def of(kernel: int, stride: int = 1, padding: int = 0, dilation: int = 0) -> Window:
        """A square of two dimensions."""
        pads = (padding,) * 2
        return Window((stride,) * 2, (kernel,) * 2, pads, pads, (dilation,) * 2)

    def out(self, dims: tuple[int, ...]) -> tuple[int, ...]:
        return reference.pooling(np.zeros(dims), INCLUDE, **self.given).shape

    @property
    def given(self) -> dict[str, Any]:
        return asdict(self)

    def tolerance(self, alg: str, data_type: str = "f32") -> Any:
        return reference.BACKWARD_TOLERANCE(data_type, math.prod(self.kernel))


def forward(alg: str, src: MemoryDesc, dst: MemoryDesc, window: Window) -> Desc:
    return PoolingDesc.forward("forward_training", alg, src, dst, **window.given)


def backward(alg: str, diff_src: MemoryDesc, diff_dst: MemoryDesc, window: Window) -> Desc:
    return PoolingDesc.backward(alg, diff_src, diff_dst, **window.given)


def ties(dims: tuple[int, ...], layout: str, data_type: str = "f32") -> Memory:
    """Few different numbers, so that there are equal maxima."""
    values = np.round(2 * random_values(dims, "f32", 5)) + 3
    return memory_of(values, describe(dims, layout).with_data_type(data_type), ENGINE)


def train(src: Memory, window: Window, layout: str, kind: str = "f32") -> None:
    """A maximum and its workspace."""
    dst = describe(window.out(src.desc.dims), layout).with_data_type(kind)
    pd = PrimitiveDesc(forward(MAX, src.desc, dst, window), ENGINE)
    results = execute_all(pd, {Arg.SRC: src})
    values = logical(src)
    bound = reference.TOLERANCE[MAX](kind)
    check(results[Arg.DST], reference.pooling(values, MAX, **window.given), bound)
    taps = reference.pooling_workspace(values, **window.given)
    assert str(pd.workspace_desc.data_type) == {"uint8": "u8", "int32": "s32"}[str(taps.dtype)]
    check(results[Arg.WORKSPACE], taps, reference.TOLERANCE[MAX](pd.workspace_desc.data_type))


def back(
    alg: str, dims: tuple[int, ...], window: Window, layouts: tuple[str, str], kind: str = "f32"
) -> None:
    """A gradient, of a maximum by the workspace of a random source."""
    diff_src = describe(dims, layouts[0]).with_data_type(kind)
    diff_dst = typed_source(window.out(dims), layouts[1], kind)
    args: dict[int, Memory] = {Arg.DIFF_DST: diff_dst}
    taps, hint = None, None
    if alg == MAX:
        hint = PrimitiveDesc(forward(alg, diff_src, diff_dst.desc, window), ENGINE)
        taps = reference.pooling_workspace(
            logical(ties(dims, "abcde"[: len(dims)])), **window.given
        )
        args[Arg.WORKSPACE] = memory_of(taps, hint.workspace_desc, ENGINE)
    pd = PrimitiveDesc(backward(alg, diff_src, diff_dst.desc, window), ENGINE, hint=hint)
    want = reference.pooling_backward(logical(diff_dst), alg, dims, **window.given, workspace=taps)
    check(execute_all(pd, args)[Arg.DIFF_SRC], want, window.tolerance(alg, kind))


DIMS = (2, 19, 9, 37)
RESNET = Window.of(3, 2, 1)
WINDOWS = {
    "resnet": RESNET,
    "dense": Window.of(3, 1, 1),
    "side by side": Window.of(2, 2),
    "apart": Window.of(2, 3),
    "lopsided": Window((1, 3), (2, 3), (1, 0), (0, 2), (1, 2)),
    "dilated": Window((2, 4), (3, 2), (1, 3), (1, 0), (1, 3)),
    "whole": Window((1, 1), (9, 37), (0, 0), (0, 0), (0, 0)),
    "wide": Window((2, 2), (9, 12), (4, 6), (4, 5), (0, 0)),
    "cropped": Window((1, 2), (3, 2), (0, 1), (-2, -5), (0, 0)),
}


# Each window in each layout, and so with one of the algorithms, or of further layouts.
PLAIN = ["nchw", "nhwc", "nChw16c"]
FURTHER = ["ABcd4b16a4b", "part16", "nChw8c"]
TURNS = [
    (layout, window, (number + turn) % 3)
    for number, window in enumerate(WINDOWS)
    for turn, layout in enumerate(PLAIN)
]


@pytest.mark.parametrize(("layout", "window", "turn"), TURNS)
def test_which_tap(layout: str, window: str, turn: int) -> None:
    train(ties(DIMS, FURTHER[turn] if layout == "nhwc" else layout), WINDOWS[window], layout)


@every_isa
@pytest.mark.parametrize("layout", ["nchw", "nhwc", "nChw8c"])
def test_which_tap_on_every_instruction_set(isa: str, layout: str) -> None:
    with config.override("max_cpu_isa", isa):
        train(ties(DIMS, layout), WINDOWS["whole" if layout == "nhwc" else "resnet"], layout)


@pytest.mark.parametrize("kind", ["bf16", "f16", "s8", "u8", "s32"])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_which_tap_of_other_types(layout: str, kind: str) -> None:
    train(
        ties(DIMS, layout, kind), WINDOWS["whole" if layout == "nchw" else "resnet"], layout, kind
    )


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_which_tap_of_infinities_and_nan(layout: str) -> None:
    """The last NaN, and the first tap inside where all are -inf."""
    values = logical(source(DIMS, "nchw")).copy()
    values[0, 3] = -np.inf
    values[1, 2, 2:7, 5:11] = np.nan
    src = memory_of(values, describe(DIMS, layout), ENGINE)
    train(src, RESNET, layout)
    train(src, replace(RESNET, padding_l=(4, 5), padding_r=(5, 4)), layout)


@pytest.mark.parametrize(("layout", "window", "turn"), TURNS)
def test_gradients(layout: str, window: str, turn: int) -> None:
    back(MAX, DIMS, WINDOWS[window], (layout, layout))
    if turn:
        back(ALGS[turn], DIMS, WINDOWS[window], (layout, layout))


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name not in ("nchw", "nhwc")])
@pytest.mark.parametrize(("alg", "window"), [(MAX, "resnet"), (EXCLUDE, "dense")])
def test_gradients_in_any_layout(alg: str, window: str, layout: str) -> None:
    back(alg, DIMS, WINDOWS[window], (layout, layout))


@pytest.mark.parametrize(
    "layouts", [("nchw", "nhwc"), ("nhwc", "nchw"), ("part", "nChw16c"), ("nChw8c", "gaps")]
)
def test_gradients_between_layouts(layouts: tuple[str, str]) -> None:
    back(MAX, DIMS, RESNET, layouts)
    back(INCLUDE, DIMS, WINDOWS["dense"], layouts)


@every_isa
@pytest.mark.parametrize(
    ("alg", "window", "layout"),
    [
        (MAX, "resnet", "nchw"),
        (MAX, "dense", "nhwc"),
        (EXCLUDE, "dense", "nChw16c"),
        (MAX, "wide", "nhwc"),
    ],
)
def test_gradients_on_every_instruction_set(isa: str, alg: str, window: str, layout: str) -> None:
    with config.override("max_cpu_isa", isa):
        back(alg, DIMS, WINDOWS[window], (layout, layout))


@pytest.mark.parametrize("kind", ["bf16", "f16"])
@pytest.mark.parametrize("layout", ["nchw", "nhwc", "nChw16c"])
def test_gradients_of_other_types(layout: str, kind: str) -> None:
    back(MAX, DIMS, RESNET, (layout, layout), kind)
    back(EXCLUDE, DIMS, WINDOWS["side by side"], (layout, layout), kind)


RANKS = [
    ((2, 5, 50), "abc", Window((2,), (5,), (2,), (3,), (0,))),
    ((2, 20, 50), "aBc16b", Window((4,), (5,), (0,), (0,), (1,))),
    ((2, 3, 2), "abc", Window((1,), (1,), (0,), (-1,), (0,))),
    ((1, 3, 5, 6, 20), "abcde", Window((2, 1, 2), (3, 2, 2), (1, 0, 1), (1, 1, 0), (0, 1, 0))),
    ((1, 20, 5, 6, 7), "acdeb", Window((1, 2, 1), (2, 3, 2), (1, 1, 0), (1, 1, 1), (1, 0, 0))),
    ((1, 20, 5, 6, 7), "aBcde8b", Window((2,) * 3, (3,) * 3, (1,) * 3, (1,) * 3, (0,) * 3)),
    # Blocks of the image that are not full: nothing is given back to their padding.
    ((2, 3, 9, 37), "abCd4c", WINDOWS["dense"]),
    ((2, 3, 9, 37), "abCd4c", RESNET),
    ((1, 20, 9, 37), "aBCD16b2c8d", Window.of(3, 1, 2)),
    ((1, 1, 1, 1), "abcd", Window.of(1)),
    ((1, 2, 3, 4), "abcd", Window.of(3, 5)),
    ((1, 2, 40, 40), "abcd", Window.of(17, 1, 8)),
    # Of equal maxima the first tap wins, which is not the first in memory here.
    ((2, 19, 7, 6), "adcb", RESNET),
    ((2, 5, 7, 6), "abdc", RESNET),
]


@pytest.mark.parametrize(("dims", "tag", "window"), RANKS)
def test_ranks(dims: tuple[int, ...], tag: str, window: Window) -> None:
    train(ties(dims, tag), window, tag)
    back(MAX, dims, window, (tag, tag))
    back(EXCLUDE if len(dims) == 4 else INCLUDE, dims, window, (tag, tag))


@pytest.mark.parametrize(("layout", "window"), [("nchw", Window.of(2, 2)), ("nhwc", RESNET)])
def test_gradients_that_no_cache_holds(layout: str, window: Window) -> None:
    back(MAX, (1, 64, 228, 228), window, (layout, layout))


@pytest.mark.parametrize("alg", ALGS)
def test_as_pytorch(alg: str) -> None:
    """Forward and backward by the library's own workspace, against autograd."""
    src = source(DIMS, "nhwc")
    leaf = torch.from_numpy(logical(src).copy()).requires_grad_()
    if alg == MAX:
        value = torch.nn.functional.max_pool2d(leaf, 3, 2, 1)
    else:
        value = torch.nn.functional.avg_pool2d(leaf, 3, 2, 1, count_include_pad=alg == INCLUDE)
    diff_dst = source(tuple(value.shape), "nhwc", 2)
    (want,) = torch.autograd.grad(value, leaf, torch.from_numpy(logical(diff_dst).copy()))

    open_dst = MemoryDesc(diff_dst.desc.dims, "f32", "any")
    pd = PrimitiveDesc(forward(alg, src.desc, open_dst, RESNET), ENGINE)
    made = execute_all(pd, {Arg.SRC: src})
    open_src = MemoryDesc(DIMS, "f32", "any")
    back_pd = PrimitiveDesc(backward(alg, open_src, open_dst, RESNET), ENGINE, hint=pd)
    assert back_pd.diff_src_desc == src.desc
    assert back_pd.diff_dst_desc == pd.dst_desc
    assert back_pd.workspace_desc == pd.workspace_desc
    args: dict[int, Memory] = {Arg.DIFF_DST: diff_dst}
    if alg == MAX:
        args[Arg.WORKSPACE] = made[Arg.WORKSPACE]
    gradient: Array = want.numpy()
    assert_close(logical(execute_all(back_pd, args)[Arg.DIFF_SRC]), gradient, 1e-6)


def test_the_workspace_lies_as_dst_did() -> None:
    """Also where the gradient of dst does not."""
    src, dst = describe(DIMS, "nchw"), describe(RESNET.out(DIMS), "nChw16c")
    hint = PrimitiveDesc(forward(MAX, src, dst, RESNET), ENGINE)
    diff_dst = describe(RESNET.out(DIMS), "nhwc")
    desc = backward(MAX, describe(DIMS, "nhwc"), diff_dst, RESNET)
    assert PrimitiveDesc(desc, ENGINE, hint=hint).workspace_desc == dst.with_data_type("u8")
    assert PrimitiveDesc(desc, ENGINE).workspace_desc == diff_dst.with_data_type("u8")
    average = backward(INCLUDE, describe(DIMS, "nhwc"), diff_dst, RESNET)
    assert PrimitiveDesc(average, ENGINE).workspace_desc.is_zero


def test_inference_leaves_nothing() -> None:
    src, dst = describe(DIMS, "nchw"), describe(RESNET.out(DIMS), "nchw")
    desc = PoolingDesc.forward("forward_inference", MAX, src, dst, **RESNET.given)
    assert PrimitiveDesc(desc, ENGINE).workspace_desc.is_zero


@pytest.mark.parametrize("alg", ALGS)
def test_no_elements(alg: str) -> None:
    dims = (0, 3, 8, 8)
    if alg == MAX:
        train(source(dims, "nchw"), RESNET, "nchw")
    back(alg, dims, RESNET, ("nchw", "nchw"))


def test_bad_arguments() -> None:
    src, dst = describe(DIMS, "nchw"), describe(RESNET.out(DIMS), "nchw")
    with pytest.raises(InvalidArguments, match=r"diff_dst_desc = \(2, 19, 9, 37\)"):
        backward(MAX, src, src, RESNET)
    with pytest.raises(InvalidArguments, match=r"diff_src_desc = \(2, 3\).*3 to 5"):
        backward(MAX, MemoryDesc((2, 3), "f32"), dst, RESNET)
    with pytest.raises(InvalidArguments, match=r"workspace_desc.*expected u8 and the dims of dst"):
        replace(backward(MAX, src, dst, RESNET), workspace_desc=dst)  # type: ignore[call-arg]


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("alg", ALGS)
def test_gradients_of_windows_far_larger_than_the_image(alg: str, layout: str) -> None:
    """Of millions of taps all but six lie in the padding of every window."""
    dims, huge, inside = (2, 3, 4, 5), 2**22 - 1, 4
    many = Window((2, 2), (2, huge), (0, huge // 2), (0, huge // 2), (0, 0))
    few = Window((2, 2), (2, inside + 5), (0, inside), (0, inside), (0, 0))
    src, given = source(dims, layout), source((2, 3, 2, 3), layout, 2)
    results = []
    for window in (many, few):
        args: dict[int, Memory] = {Arg.DIFF_DST: given}
        if alg == MAX:
            pd = PrimitiveDesc(forward(alg, src.desc, given.desc, window), ENGINE)
            args[Arg.WORKSPACE] = execute_all(pd, {Arg.SRC: src})[Arg.WORKSPACE]
        desc = backward(alg, src.desc, given.desc, window)
        results.append(execute_all(PrimitiveDesc(desc, ENGINE), args)[Arg.DIFF_SRC])
    want = logical(results[1])
    if alg == INCLUDE:
        want = want * (math.prod(few.kernel) / math.prod(many.kernel))
    check(results[0], want, 1e-6)
    assert np.any(want)


def test_taps_that_no_workspace_tells_apart_are_refused() -> None:
    src, dst = describe((2, 3, 4, 5), "nchw"), describe((2, 3, 3, 3), "nchw")
    window = Window((2, 2), (2, 2**24), (1, 2**23), (1, 2**23), (0, 0))
    for desc in (forward(MAX, src, dst, window), backward(MAX, src, dst, window)):
        with pytest.raises(Unimplemented, match="33554432 taps; a workspace numbers 16777216"):
            PrimitiveDesc(desc, ENGINE)
    PrimitiveDesc(backward(EXCLUDE, src, dst, window), ENGINE)
