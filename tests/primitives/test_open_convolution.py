"""Convolutions of images whose sizes only executions know."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dnnl import (
    RUNTIME_DIM,
    Arg,
    ConvolutionDesc,
    DeconvolutionDesc,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveAttr,
    PrimitiveDesc,
    config,
)
from dnnl.primitives.desc import Desc
from dnnl.types.kinds import FormatKind
from tests.check import check, logical, poisoned_memory, random_memory
from tests.primitives.harness import ENGINE, describe, execute_all
from tests.primitives.runtime_sizes import judged, trials

SIZES = (
    *((2, 9, 11), (1, 9, 11), (3, 14, 7), (2, 2, 2), (2, 9, 30)),
    *((1, 1, 1), (2, 1, 16), (0, 5, 5), (2, 5, 33), (1, 8, 29)),
)
"""Batch, height and width: none, images smaller than kernels, and rows of one tile and of many."""

DENSE = "--stag=axb --dtag=axb"
BLOCKED = "--stag=aBx16b --dtag=aBx16b"
LAYERS = {
    "depthwise": (f"{DENSE} --wtag=gihwo g48ic48oc48kh3kw3ph1pw1", 2),
    "depthwise stride 2": (f"{DENSE} --wtag=hwigo g40ic40oc40kh3kw3sh2sw2ph1pw1", 2),
    "depthwise 5x5": (f"{DENSE} --wtag=hwigo g40ic40oc40kh5kw5ph2pw2", 2),
    "depthwise, blocked": (f"{BLOCKED} --wtag=hwigo g40ic40oc40kh3kw3ph1pw1", 4),
    "depthwise, added": (
        f"{DENSE} --wtag=hwigo --attr-post-ops=sum+relu g40ic40oc40kh3kw3ph1pw1",
        2,
    ),
    "1x1": (f"{DENSE} --wtag=hwio ic24oc40kh1kw1", 2),
    "1x1, blocked": (f"{BLOCKED} --wtag=hwio ic32oc48kh1kw1", 2),
    "1x1, added": (f"{DENSE} --wtag=hwio --attr-post-ops=sum+relu ic24oc40kh1kw1", 2),
    "3x3": (f"{DENSE} --wtag=hwio ic24oc40kh3kw3ph1pw1", 3),
    "3x3 stride 2": (f"{DENSE} --wtag=hwio ic24oc40kh3kw3sh2sw2ph1pw1", 3),
    "3x3, blocked": (f"{BLOCKED} --wtag=hwio ic16oc32kh3kw3ph1pw1", 3),
    "3x3, plain": ("--stag=abx --dtag=abx --wtag=oihw ic24oc40kh3kw3ph1pw1", 4),
    "3x3, added": (f"{DENSE} --wtag=hwio --attr-post-ops=sum+relu ic24oc40kh3kw3ph1pw1", 2),
    "1x1 stride 2": (f"{DENSE} --wtag=hwio ic24oc40kh1kw1sh2sw2", 2),
    "bytes": (f"{DENSE} --wtag=hwio --dt=u8:s8:s32 ic32oc40kh3kw3ph1pw1", 3),
    "signed bytes": (
        f"{DENSE} --wtag=hwio --dt=s8:s8:f32 --attr-zero-points=src:common:3 ic32oc40kh1kw1",
        3,
    ),
    "bytes, zero points": (
        (
            f"{DENSE} --wtag=hwio --dt=u8:s8:s32 --attr-zero-points=src:common:7+wei:common:3 "
            "ic32oc40kh3kw3ph1pw1"
        ),
        4,
    ),
    "signed bytes, stride 2": (
        (
            f"{DENSE} --wtag=any --dt=s8:s8:u8 --attr-zero-points=src:common:300+dst:common:3 "
            "--attr-scales=src:common:0.25+wei:per_oc ic30oc40kh5kw3sh2sw2ph2pw1"
        ),
        3,
    ),
    "bytes, added": (
        (
            f"{DENSE} --wtag=any --dt=u8:s8:f32 --attr-zero-points=src:common:9 "
            "--attr-post-ops=sum+relu g4ic32oc64kh3kw3ph1pw1"
        ),
        3,
    ),
    "depthwise bytes": (
        (
            f"{DENSE} --wtag=any --dt=u8:s8:u8 --attr-zero-points=src:common:9+dst:common:3 "
            "g40ic40oc40kh3kw3sh2sw2ph1pw1"
        ),
        2,
    ),
    "depthwise signed bytes": (
        (
            f"{DENSE} --wtag=hwigo --dt=s8:s8:f32 --attr-scales=wei:per_oc "
            "--attr-post-ops=sum+relu g100ic100oc100kh5kw3ph4pw1dh1"
        ),
        2,
    ),
    "groups": (f"{DENSE} --wtag=goihw g8ic32oc32kh3kw3ph1pw1", 2),
}
PLAIN = "--stag=abx --dtag=abx"
BF16 = "--dt=bf16:bf16:bf16"
GRADIENTS = {
    "1x1 by weights": f"--dir=BWD_W {DENSE} --wtag=hwio ic24oc40kh1kw1",
    "1x1 by weights, blocked": f"--dir=BWD_W {BLOCKED} --wtag=hwio ic32oc48kh1kw1",
    "1x1 by weights, plain": f"--dir=BWD_W {PLAIN} --wtag=oihw ic24oc64kh1kw1",
    "1x1 by weights, stride 2": f"--dir=BWD_W {DENSE} --wtag=hwio ic24oc40kh1kw1sh2sw2",
    "3x3 by weights": f"--dir=BWD_WB {DENSE} --wtag=hwio ic24oc40kh3kw3ph1pw1",
    "3x3 by weights, stride 2": f"--dir=BWD_W {DENSE} --wtag=hwio ic24oc40kh3kw3sh2sw2ph1pw1",
    "3x3 by weights, blocked": f"--dir=BWD_W {BLOCKED} --wtag=oihw ic16oc32kh3kw3ph1pw1",
    "3x3 by weights, plain": f"--dir=BWD_WB {PLAIN} --wtag=oihw ic24oc40kh3kw3ph1pw1",
    "3x3 by weights, many channels": f"--dir=BWD_W {BLOCKED} --wtag=hwio ic96oc160kh3kw3ph1pw1",
    "3x3 by weights, bf16": f"--dir=BWD_WB {BF16} {BLOCKED} --wtag=oihw ic16oc32kh3kw3ph1pw1",
    "1x1 by weights, bf16": f"--dir=BWD_W {BF16} {DENSE} --wtag=oihw ic24oc40kh1kw1",
    "7x7 by weights, 3 channels": f"--dir=BWD_W {PLAIN} --wtag=oihw ic3oc32kh7kw7sh2ph3pw3",
    "groups by weights": f"--dir=BWD_W {DENSE} --wtag=goihw g8ic32oc32kh3kw3ph1pw1",
    "1x1 by data": f"--dir=BWD_D {DENSE} --wtag=hwio ic24oc40kh1kw1",
    "3x3 by data": f"--dir=BWD_D {DENSE} --wtag=hwio ic24oc40kh3kw3ph1pw1",
    "5x3 by data, dilated": f"--dir=BWD_D {DENSE} --wtag=hwio ic24oc40kh5kw3ph4dh1dw1pw2",
    "3x3 by data, blocked": f"--dir=BWD_D {BLOCKED} --wtag=oihw ic16oc32kh3kw3ph1pw1",
    "3x3 by data, plain": f"--dir=BWD_D {PLAIN} --wtag=oihw ic24oc40kh3kw3ph1pw1",
    "3x3 by data, bf16": f"--dir=BWD_D {BF16} {DENSE} --wtag=hwio ic24oc40kh3kw3ph1pw1",
    "3x3 by data, stride 2": f"--dir=BWD_D {DENSE} --wtag=hwio ic24oc40kh3kw3sh2sw2ph1pw1",
    "1x1 by data, stride 2": f"--dir=BWD_D {DENSE} --wtag=hwio ic24oc40kh1kw1sh2sw2",
    "5x5 by data, plain": f"--dir=BWD_D {PLAIN} --wtag=oihw ic24oc40kh5kw5sh2sw2ph2pw2",
    "3x3 by data, stride 2, aB": f"--dir=BWD_D {BLOCKED} --wtag=any ic16oc32kh3kw3sh2sw2ph1pw1",
    "depthwise by data": f"--dir=BWD_D {DENSE} --wtag=hwigo g40ic40oc40kh3kw3ph1pw1",
    "depthwise by data, 5x3": f"--dir=BWD_D {DENSE} --wtag=any g48ic48oc48kh5kw3ph2dw1pw2",
    "depthwise by data, s2": f"--dir=BWD_D {DENSE} --wtag=any g40ic40oc40kh3kw3sh2sw2ph1pw1",
    "depthwise by weights": f"--dir=BWD_WB {DENSE} --wtag=hwigo g40ic40oc40kh3kw3ph1pw1",
    "depthwise by weights, s2": f"--dir=BWD_W {DENSE} --wtag=any g40ic40oc40kh3kw3sh2sw2ph1pw1",
    "depthwise by weights, 5x5": f"--dir=BWD_W {BLOCKED} --wtag=any g48ic48oc48kh5kw5ph2pw2",
    "depthwise by weights, blocked": f"--dir=BWD_W {BLOCKED} --wtag=any g64ic64oc64kh3kw3ph1pw1",
    "depthwise by weights, plain": f"--dir=BWD_WB {PLAIN} --wtag=goihw g24ic24oc24kh3kw3ph1pw1",
    "depthwise by weights, bf16": f"--dir=BWD_W {BF16} {DENSE} --wtag=any g40ic40oc40kh3kw3ph1pw1",
    "groups by data": f"--dir=BWD_D {DENSE} --wtag=goihw g8ic32oc32kh3kw3ph1pw1",
}
TRANSPOSED = {
    "2x2": f"--dir=FWD_B {DENSE} --wtag=any ic24oc40kh2kw2sh2sw2",
    "3x3, stride 2": f"--dir=FWD_B {DENSE} --wtag=any ic24oc40kh3kw3sh2sw2ph1pw1",
    "4x4, stride 2": f"--dir=FWD_D {BLOCKED} --wtag=any ic32oc48kh4kw4sh2sw2ph1pw1",
    "3x3": f"--dir=FWD_B {DENSE} --wtag=any ic24oc40kh3kw3ph1pw1",
    "groups that cut blocks": f"--dir=FWD_B {BLOCKED} --wtag=any g2ic40oc48kh3kw3sh2sw2ph1pw1",
    "depthwise": f"--dir=FWD_B {DENSE} --attr-post-ops=relu --wtag=any g24ic24oc24kh3kw3sh2sw2pw1",
    "depthwise 1x1": f"--dir=FWD_B {DENSE} --wtag=any g32ic32oc32kh1kw1sh2sw2",
    "groups of four": f"--dir=FWD_B {DENSE} --wtag=goihw g8ic32oc32kh3kw3sh2sw2ph1pw1",
    "1x1, stride 3": f"--dir=FWD_B {PLAIN} --wtag=any ic24oc40kh1kw1sh3sw3",
    "2x2, added": f"--dir=FWD_B {DENSE} --attr-post-ops=sum+relu --wtag=any ic24oc40kh2kw2sh2sw2",
    "4x4, factors of channels": (
        f"--dir=FWD_B {BF16} {BLOCKED} --attr-scales=dst:common:2 "
        "--attr-post-ops=mul:f32:per_oc+eltwise_swish --wtag=any ic32oc48kh4kw4sh2sw2ph1pw1"
    ),
    "2x2, stride 3, without taps": (
        f"--dir=FWD_B {DENSE} --attr-scales=src:common:0.5+dst:common:2 "
        "--attr-post-ops=add:f32:per_oc+sum:0.5+tanh --wtag=any g2ic24oc40kh2kw2sh3sw3"
    ),
    "bytes": (
        f"--dir=FWD_B {DENSE} --dt=u8:s8:u8 --attr-scales=src:common:0.25+wei:per_oc "
        "--attr-zero-points=src:common:7+dst:common:3 --attr-post-ops=relu "
        "--wtag=any ic30oc40kh4kw4sh2sw2ph1pw1"
    ),
    "signed bytes": (
        f"--dir=FWD_B {DENSE} --dt=s8:s8:f32 --attr-zero-points=src:common:-130+wei:common:2 "
        "--wtag=any ic32oc40kh3kw3sh2sw2ph1pw1"
    ),
    "bytes in groups": (
        f"--dir=FWD_D {DENSE} --dt=u8:s8:s32 --attr-zero-points=src:common:9 "
        "--wtag=any g4ic32oc48kh5kw5sh2sw2ph2pw2"
    ),
    "bytes, stride 3, without taps": (
        f"--dir=FWD_B {DENSE} --dt=s8:s8:s8 --attr-zero-points=src:common:5+dst:common:-3 "
        "--attr-scales=dst:common:2 --attr-post-ops=sum:0.5 --wtag=any ic32oc40kh2kw2sh3sw3"
    ),
    "3x3, stride 2, by data": f"--dir=BWD_D {DENSE} --wtag=any ic24oc40kh3kw3sh2sw2ph1pw1",
    "3x3, stride 2, by weights": f"--dir=BWD_WB {DENSE} --wtag=any ic24oc40kh3kw3sh2sw2ph1pw1",
}
_KERNELS = 7
"""The most kernels of a gradient, by the bytes of its tensors and for the least sizes."""


def opened(desc: Desc) -> Desc:
    """The description with all sizes of src and dst open but the channels."""
    fields = {}
    for role in desc.operation.roles:
        given = getattr(desc, role.field) if role.field else None
        if isinstance(given, MemoryDesc) and role.name.removeprefix("diff_") in ("src", "dst"):
            fields[role.field] = opened_image(given)
    return replace(desc, **fields)


def opened_image(tensor: MemoryDesc) -> MemoryDesc:
    """An activation with all sizes open but the channels."""
    if tensor.format_kind is not FormatKind.blocked or tensor.tag is None:
        return tensor
    dims = [size if dim == 1 else RUNTIME_DIM for dim, size in enumerate(tensor.dims)]
    return MemoryDesc(dims, tensor.data_type, tensor.tag)


@pytest.mark.parametrize("isa", ["avx512_core", "avx2"])
def test_the_direct_algorithm_is_chosen(isa: str) -> None:
    """Winograd's refuses open sizes."""
    with config.override("max_cpu_isa", isa):
        (trial,) = trials("--conv --alg=AUTO --stag=axb --dtag=axb --wtag=hwio ic64ih40oc64kh3ph1")
        pd = PrimitiveDesc(opened(trial.desc), ENGINE)
        assert pd.impl_info.startswith("brgemm")
        judged(Primitive(pd), trial)


@pytest.mark.parametrize("isa", ["avx512_core_bf16", "avx512_core", "avx2", "sse41"])
@pytest.mark.parametrize("layer", [*LAYERS, *GRADIENTS])
def test_ten_sizes(layer: str, isa: str) -> None:
    line, most = LAYERS.get(layer) or (GRADIENTS[layer], _KERNELS)
    judge_sizes("conv", line, isa, most)


@pytest.mark.parametrize("isa", ["avx512_core_bf16", "avx512_core", "avx2", "sse41"])
@pytest.mark.parametrize("layer", TRANSPOSED)
def test_ten_sizes_of_deconvolutions(layer: str, isa: str) -> None:
    judge_sizes("deconv", TRANSPOSED[layer], isa, _KERNELS)


@pytest.mark.parametrize("operand", [(3, 16, 5, 6), (1, 16, 5, 6), (3, 16, 1, 6), (1, 16, 5, 1)])
def test_an_operand_may_be_broadcast_by_the_execution(operand: tuple[int, ...]) -> None:
    """Along images and pixels, of which a first kernel is for others."""
    src, dst = describe((3, 8, 5, 6), "nhwc"), describe((3, 16, 5, 6), "nhwc")
    weights, other = MemoryDesc((16, 8, 1, 1), "f32"), describe(operand, "nhwc")
    attr = PrimitiveAttr()
    attr.post_ops.append_binary("binary_add", opened_image(dst))
    images = opened_image(src), weights, opened_image(dst)
    desc = ConvolutionDesc.forward("forward_inference", "convolution_direct", *images, 1, 0)
    pd = PrimitiveDesc(desc, ENGINE, attr)
    for added in (dst, other):
        x, w, y = (
            random_memory(own, ENGINE, seed) for seed, own in enumerate((src, weights, added))
        )
        args = {Arg.SRC: x, Arg.WEIGHTS: w, Arg.post_op(0) | Arg.SRC_1: y}
        got = execute_all(pd, args, {Arg.DST: poisoned_memory(dst, ENGINE)})[Arg.DST]
        products = np.einsum("nihw,oi->nohw", logical(x), logical(w)[..., 0, 0])
        check(got, products + logical(y), 1e-5)


@pytest.mark.parametrize("groups", [1, 16])
def test_pixels_without_taps_are_rounded_as_others(groups: int) -> None:
    """0.0155 / 0.0103 is below 1.5, and 1.5 by the reciprocal: all pixels are their bias."""
    size = (groups, 16 // groups, 16 // groups, 1, 1) if groups > 1 else (16, 16, 1, 1)
    src, dst = MemoryDesc((2, 16, 3, 4), "u8", "nhwc"), MemoryDesc((2, 16, 5, 7), "s8", "nhwc")
    weights, bias = MemoryDesc(size, "s8"), MemoryDesc((16,), "f32")
    attr = PrimitiveAttr()
    attr.set_scales(Arg.DST, 0)
    images = opened_image(src), weights, opened_image(dst)
    desc = DeconvolutionDesc.forward(
        "forward_inference", "deconvolution_direct", *images, 2, 0, bias_desc=bias
    )
    given = {
        Arg.SRC: random_memory(src, ENGINE, 1),
        Arg.WEIGHTS: Memory(weights, ENGINE, np.zeros(weights.size, np.int8)),
        Arg.BIAS: Memory(bias, ENGINE, np.full(16, 0.015463917, np.float32)),
        Arg.SCALES | Arg.DST: Memory(
            MemoryDesc((1,), "f32"), ENGINE, np.array([0.010309278], np.float32)
        ),
    }
    pd = PrimitiveDesc(desc, ENGINE, attr)
    got = execute_all(pd, given, {Arg.DST: poisoned_memory(dst, ENGINE)})[Arg.DST]
    assert np.unique(logical(got)).size == 1


def judge_sizes(driver: str, line: str, isa: str, most: int) -> None:
    """Compute all sizes of a layer with one primitive, which has at most so many kernels."""
    options, _, shape = line.rpartition(" ")
    made: Primitive | None = None
    with config.override("max_cpu_isa", isa):
        for batch, height, width in SIZES:
            given = f"{options} mb{batch}{shape}ih{height}iw{width}"
            (trial,) = trials(f"--{driver} {given}")
            if made is None:
                pd = PrimitiveDesc(opened(trial.desc), ENGINE, trial.pd.attr)
                made = Primitive(pd)
            judged(made, trial)
        assert pd.variants is not None
        assert len(pd.variants.every) <= most
