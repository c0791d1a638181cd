"""Pooling: windows that hang over the borders, in any layout."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from dnnl import (
    Arg,
    InvalidArguments,
    Memory,
    MemoryDesc,
    PoolingDesc,
    PrimitiveAttr,
    PrimitiveDesc,
    config,
)
from dnnl.reference import pooling as reference
from dnnl.reference.arrays import Array
from tests.check import assert_close, check, logical, memory_of
from tests.pairs import every_pair
from tests.primitives.harness import (
    ENGINE,
    LAYOUTS,
    array,
    describe,
    every_isa,
    execute,
    source,
    tensor,
)

ALGS = ["pooling_max", "pooling_avg_include_padding", "pooling_avg_exclude_padding"]
DIMS = (2, 19, 9, 37)


@dataclass(frozen=True)
class Window:
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    padding_l: tuple[int, ...]
    padding_r: tuple[int, ...]
    dilations: tuple[int, ...]

    def apply(self, values: Array, alg: str) -> Array:
        return reference.pooling(
            values,
            alg,
            kernel=self.kernel,
            strides=self.strides,
            padding_l=self.padding_l,
            padding_r=self.padding_r,
            dilations=self.dilations,
        )

    def desc(self, alg: str, src: MemoryDesc, dst: MemoryDesc) -> PoolingDesc:
        return PoolingDesc.forward(
            "forward_inference",
            alg,
            src,
            dst,
            self.strides,
            self.kernel,
            self.padding_l,
            self.padding_r,
            self.dilations,
        )


RESNET = Window((3, 3), (2, 2), (1, 1), (1, 1), (0, 0))
LOPSIDED = Window((2, 3), (1, 3), (1, 0), (0, 2), (1, 2))
WHOLE = Window((9, 37), (1, 1), (0, 0), (0, 0), (0, 0))
DENSE = Window((3, 2), (1, 1), (0, 1), (2, 0), (0, 0))
OUTSIDE = Window((1, 3), (1, 1), (2, 1), (1, 1), (0, 0))
WINDOWS = {"resnet": RESNET, "lopsided": LOPSIDED, "whole": WHOLE, "dense": DENSE}


def run(window: Window, alg: str, memory: Memory, layout: str) -> None:
    want = window.apply(logical(memory), alg)
    desc = window.desc(alg, memory.desc, describe(want.shape, layout))
    bound = reference.TOLERANCE[alg]("f32", math.prod(window.kernel))
    check(execute(desc, {Arg.SRC: memory}), want, bound)


@every_pair(window=[*WINDOWS], alg=ALGS, layout=LAYOUTS)
def test_windows(layout: str, alg: str, window: str) -> None:
    run(WINDOWS[window], alg, source(DIMS, layout), layout)


@pytest.mark.parametrize("alg", ALGS[:2])
@pytest.mark.parametrize("layout", ["nchw", "nhwc", "nChw16c"])
def test_windows_in_the_padding(layout: str, alg: str) -> None:
    """Whole rows of windows of one tap there; averages without padding have none."""
    run(OUTSIDE, alg, source(DIMS, layout), layout)


@pytest.mark.parametrize("alg", ALGS)
def test_windows_far_larger_than_the_image(alg: str) -> None:
    """2^31 taps, of which all but six lie in the padding of every window."""
    memory = source((2, 3, 4, 5), "nchw")
    huge, inside = 2**31 - 1, 4
    window = Window((2, huge), (2, 2), (0, huge // 2), (0, huge // 2), (0, 0))
    seen = window.desc(alg, memory.desc, describe((2, 3, 2, 3), "nchw"))
    cut = Window((2, inside + 5), (2, 2), (0, inside), (0, inside), (0, 0))
    want = cut.apply(logical(memory), alg)
    if alg == "pooling_avg_include_padding":
        want = want * (math.prod(cut.kernel) / (2 * huge))
    check(execute(seen, {Arg.SRC: memory}), want, 1e-6)


@pytest.mark.parametrize("alg", ALGS)
@pytest.mark.parametrize(
    ("src", "dst"), [("nchw", "nhwc"), ("nhwc", "nchw"), ("nChw16c", "part"), ("gaps", "nChw8c")]
)
def test_another_layout_for_the_result(src: str, dst: str, alg: str) -> None:
    run(RESNET, alg, source(DIMS, src), dst)


@every_pair(
    every_isa,
    pytest.mark.parametrize("layout", ["nchw", "nhwc", "nChw16c"]),
    pytest.mark.parametrize(("alg", "window"), list(zip(ALGS, WINDOWS, strict=False))),
)
def test_every_instruction_set(isa: str, layout: str, alg: str, window: str) -> None:
    with config.override("max_cpu_isa", isa):
        run(WINDOWS[window], alg, source(DIMS, layout), layout)


@pytest.mark.parametrize("alg", ALGS)
@pytest.mark.parametrize(
    ("dims", "tag", "window"),
    [
        ((2, 5, 50), "abc", Window((5,), (2,), (2,), (3,), (0,))),
        ((2, 20, 50), "aBc16b", Window((5,), (4,), (0,), (0,), (1,))),
        ((1, 3, 5, 6, 20), "abcde", Window((3, 2, 2), (2, 1, 2), (1, 0, 1), (1, 1, 0), (0, 1, 0))),
        ((1, 20, 5, 6, 7), "acdeb", Window((2, 3, 2), (1, 2, 1), (1, 1, 0), (1, 1, 1), (1, 0, 0))),
        ((1, 20, 4, 6, 9), "abCde4c", Window((2, 2, 3), (1, 2, 2), (1,) * 3, (0,) * 3, (0,) * 3)),
        # Blocks of the image that are not full: their padding is no tap.
        ((2, 3, 9, 37), "abCd4c", DENSE),
        ((1, 20, 9, 37), "aBCD16b2c8d", DENSE),
        # Every other element, the last of the buffer included.
        ((1, 1, 31), "abc", Window((1,), (2,), (0,), (0,), (0,))),
        ((1, 1, 46), "abc", Window((1,), (3,), (0,), (0,), (0,))),
        ((1, 1, 1, 1), "abcd", Window((1, 1), (1, 1), (0, 0), (0, 0), (0, 0))),
        ((1, 2, 3, 4), "abcd", Window((3, 3), (5, 5), (0, 0), (0, 0), (0, 0))),
    ],
)
def test_ranks(dims: tuple[int, ...], tag: str, window: Window, alg: str) -> None:
    run(window, alg, source(dims, tag), tag)


@every_isa
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_a_maximum_of_special_values(isa: str, layout: str) -> None:
    """A NaN is the maximum, and -inf of a window of nothing else."""
    values = logical(source(DIMS, "nchw")).copy()
    values[0, 3] = -np.inf
    values[1, 2, 4:6, 7:9] = np.nan
    values[1, 5, 3, 3] = np.inf
    memory = memory_of(values, describe(DIMS, layout), ENGINE)
    with config.override("max_cpu_isa", isa):
        run(RESNET, "pooling_max", memory, layout)


def test_defaults_and_any() -> None:
    src = describe((2, 19, 8, 8), "nChw16c")
    dst = MemoryDesc((2, 19, 5, 5), "f32", "any")
    desc = PoolingDesc.forward("forward_inference", "pooling_max", src, dst, (2, 2), (2, 2), (1, 1))
    assert desc.padding_r == (1, 1)
    assert desc.dilations == (0, 0)
    pd = PrimitiveDesc(desc, ENGINE)
    assert pd.dst_desc == describe((2, 19, 5, 5), "nChw16c")
    assert pd.verbose_fields().endswith(
        ",alg:pooling_max,mb2ic19_ih8oh5kh2sh2dh0ph1_iw8ow5kw2sw2dw0pw1"
    )


@pytest.mark.parametrize("layout", ["nchw", "nChw16c"])
def test_post_ops(layout: str) -> None:
    memory = source(DIMS, layout)
    value = RESNET.apply(logical(memory), ALGS[2])
    old, other = source(value.shape, layout, 2), source((1, 19, 1, 1), "nchw", 3)
    attr = PrimitiveAttr()
    attr.post_ops.append_sum()
    attr.post_ops.append_binary("binary_mul", other.desc)
    attr.post_ops.append_eltwise("eltwise_relu")
    args = {Arg.SRC: memory, Arg.post_op(1) | Arg.SRC_1: other}
    want = np.maximum((value + logical(old)) * logical(other), 0.0)
    desc = RESNET.desc(ALGS[2], memory.desc, old.desc)
    check(execute(desc, args, attr, old), want, 2e-6)


@pytest.mark.parametrize("alg", ALGS)
def test_as_pytorch(alg: str) -> None:
    memory = source(DIMS, "nhwc")
    if alg == ALGS[0]:
        want = torch.nn.functional.max_pool2d(tensor(memory), 3, 2, 1)
    else:
        include = alg == ALGS[1]
        want = torch.nn.functional.avg_pool2d(tensor(memory), 3, 2, 1, count_include_pad=include)
    desc = RESNET.desc(alg, memory.desc, MemoryDesc(tuple(want.shape), "f32", "any"))
    assert_close(logical(execute(desc, {Arg.SRC: memory})), array(want), 1e-6)


def test_training() -> None:
    memory = source(DIMS, "nchw")
    want = DENSE.apply(logical(memory), ALGS[1])
    window = (DENSE.strides, DENSE.kernel, DENSE.padding_l, DENSE.padding_r)
    dst = MemoryDesc(want.shape, "f32", "any")
    desc = PoolingDesc.forward("forward_training", ALGS[1], memory.desc, dst, *window)
    check(execute(desc, {Arg.SRC: memory}), want, 2e-6)


def test_no_elements() -> None:
    memory = source((0, 3, 8, 8), "nchw")
    desc = RESNET.desc(ALGS[0], memory.desc, MemoryDesc((0, 3, 4, 4), "f32"))
    execute(desc, {Arg.SRC: memory})


def test_bad_arguments() -> None:
    src, dst = describe((2, 3, 8, 8), "nchw"), describe((2, 3, 4, 4), "nchw")

    def pooling(**change: object) -> PoolingDesc:
        given: dict[str, object] = {
            "prop_kind": "forward_inference",
            "alg_kind": "pooling_max",
            "src_desc": src,
            "dst_desc": dst,
            "strides": (2, 2),
            "kernel": (2, 2),
            "padding_l": (0, 0),
        }
        return PoolingDesc.forward(**{**given, **change})  # type: ignore[arg-type]

    pooling()
    with pytest.raises(InvalidArguments, match=r"dst_desc = \(2, 3, 4, 5\).*\(2, 3, 4, 4\)"):
        pooling(dst_desc=describe((2, 3, 4, 5), "nchw"))
    with pytest.raises(InvalidArguments, match=r"strides = \(2, 0\).*at least 1"):
        pooling(strides=(2, 0))
    for name in ("strides", "kernel", "padding_l"):
        with pytest.raises(InvalidArguments, match=f"{name} = None: expected a sequence of int"):
            pooling(**{name: None})
    with pytest.raises(InvalidArguments, match=r"kernel = \(2,\).*each of 2 spatial"):
        pooling(kernel=(2,))
    with pytest.raises(InvalidArguments, match=r"padding_l = \(0, -1\).*at least 0"):
        pooling(padding_l=(0, -1), padding_r=(0, 0))
    with pytest.raises(InvalidArguments, match=r"padding_r = \(0, 0\.5\).*integers"):
        pooling(padding_r=(0, 0.5))
    with pytest.raises(InvalidArguments, match=r"kernel = \(9, 2\).*9 of 8"):
        pooling(kernel=(9, 2))
    wide = describe((2, 3, 6, 6), "nchw")
    with pytest.raises(InvalidArguments, match=r"padding_l = \(2, 2\).*less than 2"):
        pooling(alg_kind="pooling_avg_exclude_padding", padding_l=(2, 2), dst_desc=wide)
    with pytest.raises(InvalidArguments, match=r"alg_kind.*pooling_avg_exclude_padding"):
        pooling(alg_kind="pooling_avg")
    with pytest.raises(InvalidArguments, match=r"src_desc = \(2, 3\).*3 to 5"):
        pooling(src_desc=MemoryDesc((2, 3), "f32"))


def test_the_class_itself_takes_names_too() -> None:
    src, dst = describe((2, 3, 8, 8), "nchw"), describe((2, 3, 4, 4), "nchw")
    window = ((2, 2), (2, 2), (0, 0))
    whole = (*window, (0, 0), (0, 0), *[MemoryDesc.zero()] * 3)
    named = PoolingDesc("forward_inference", "pooling_max", src, dst, *whole)  # type: ignore[arg-type]
    assert named == PoolingDesc.forward("forward_inference", "pooling_max", src, dst, *window)
