"""The gradients of convolutions, their transposes and inner products."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from dnnl import (
    Arg,
    ConvolutionDesc,
    DeconvolutionDesc,
    InnerProductDesc,
    Memory,
    MemoryDesc,
    PrimitiveAttr,
    PrimitiveDesc,
    Unimplemented,
)
from dnnl.primitives.desc import Desc
from dnnl.reference.tolerance import PRODUCT_SUM
from tests.check import check, random_memory
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE, ISAS, execute_all, tensor
from tests.primitives.lines import judged
from tests.primitives.products import Window, lay_out

Dims = tuple[int, ...]
Descs = Mapping[str, MemoryDesc]
Torch = Callable[..., Any]
_CALLS = {
    ConvolutionDesc: (functional.conv1d, functional.conv2d, functional.conv3d),
    DeconvolutionDesc: (
        functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d,
    ),
}  # fmt: skip
_WINDOWS = [
    Window((9,), (3,), (2,), (1,)),
    Window((7, 8), (3, 2), (1, 2), (1, 0)),
    Window((9, 10), (3, 3), (1, 1), (1, 2), dilations=(1, 0)),
    Window((8, 6), (1, 1), (2, 2)),
    Window((4, 5, 6), (2, 3, 1), (1, 2, 1), (1, 1, 0)),
]
_CHANNELS = [(33, 19), (3, 4, 5), (2, 16, 32), (18, 1, 1)]
_TYPES = [("f32", "f32", "f32"), ("bf16", "bf16", "f32"), ("f64", "f64", "f64")]
_LAYOUTS = [
    ("any", "any", "any"), ("last", "any", "last"), ("plain", "plain", "plain"),
    ("block16", "plain", "last"), ("reversed", "reversed", "plain"),
    ("behind", "reversed", "behind"),
]  # fmt: skip


def sliding(
    kind: type[ConvolutionDesc] | type[DeconvolutionDesc],
    window: Window,
    channels: Dims,
    layouts: tuple[str, str, str],
    types: tuple[str, str, str],
) -> tuple[Desc, Desc, Torch]:
    """Both gradients of a kernel that slides over images, and what PyTorch calls it."""
    groups = channels[0] if len(channels) == 3 else 1
    outputs, inputs = groups * channels[-2], groups * channels[-1]
    small, large = (window.dst, window.src)[:: 1 if kind is DeconvolutionDesc else -1]
    dims = (3, inputs, *small), (*channels, *window.kernel), (3, outputs, *large)
    src, weights, dst = (
        lay_out(size, layout).with_data_type(of)
        for size, layout, of in zip(dims, layouts, types, strict=True)
    )
    strides, left, right, dilations = window.filled
    alg, place = f"{kind.operation.kind}_direct", (strides, left, right, dilations)
    bias = MemoryDesc((outputs,), types[2])
    ours = (
        kind.backward_data(alg, src, weights, dst, *place),
        kind.backward_weights(alg, src, weights, dst, *place, diff_bias_desc=bias),
    )
    call: Any = _CALLS[kind][len(strides) - 1]
    steps = [gap + 1 for gap in dilations]

    def theirs(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Any:
        w = w if len(channels) == 3 else w[None]
        if kind is ConvolutionDesc:
            return call(x, w.flatten(0, 1), b, strides, left, steps, groups)
        w = w.transpose(1, 2).flatten(0, 1)
        shrunk = call(x, w, b, strides, left, 0, groups, steps)
        behind = [want - got for want, got in zip(large, shrunk.shape[2:], strict=True)]
        return call(x, w, b, strides, left, behind, groups, steps)

    return *ours, theirs


def verify(ours: tuple[Desc, Desc], theirs: Torch, attr: PrimitiveAttr | None = None) -> None:
    """Both gradients are those of PyTorch, in double precision, of the same numbers."""
    by_data, by_weights = (PrimitiveDesc(desc, ENGINE, attr) for desc in ours)
    src, weights = (
        random_memory(desc, ENGINE, seed)
        for seed, desc in enumerate((by_weights.src_desc, by_data.weights_desc))
    )
    leaves = [tensor(memory).requires_grad_() for memory in (src, weights)]
    bias = torch.zeros(by_weights.diff_bias_desc.dims, dtype=torch.float64, requires_grad=True)
    dst = theirs(*leaves, bias)
    # Both read one gradient, in the layout that each asks for.
    numbers = random_memory(by_data.diff_dst_desc, ENGINE, 2)
    again = random_memory(by_weights.diff_dst_desc, ENGINE, 2)
    want = torch.autograd.grad(dst, (*leaves, bias), tensor(numbers))
    made = execute_all(by_data, {Arg.DIFF_DST: numbers, Arg.WEIGHTS: weights})
    made |= execute_all(by_weights, {Arg.SRC: src, Arg.DIFF_DST: again})
    results = Arg.DIFF_SRC, Arg.DIFF_WEIGHTS, Arg.DIFF_BIAS
    lengths = prod(weights.desc.dims), *[prod((dst.shape[0], *dst.shape[2:]))] * 2
    for argument, wanted, length in zip(results, want, lengths, strict=True):
        memory: Memory = made[argument]
        check(memory, wanted.numpy(), PRODUCT_SUM(memory.desc.data_type, length))


@every_pair(
    kind=[ConvolutionDesc, DeconvolutionDesc],
    window=_WINDOWS,
    channels=_CHANNELS,
    layouts=_LAYOUTS,
    types=_TYPES,
)
def test_sliding_gradients_are_those_of_pytorch(
    kind: Any, window: Window, channels: Dims, layouts: Any, types: Any
) -> None:
    *ours, theirs = sliding(kind, window, channels, layouts, types)
    verify((ours[0], ours[1]), theirs)


@every_pair(
    dims=[(17, 40), (5, 3, 7), (4, 19, 3, 5), (1, 64, 2, 2), (3, 5, 2, 3, 4)],
    outputs=[33, 1, 64],
    layouts=[
        ("any", "any", "plain"), ("plain", "any", "any"), ("plain", "plain", "plain"),
        ("plain", "reversed", "reversed"), ("reversed", "plain", "behind"),
        ("behind", "any", "plain"),
    ],
    types=_TYPES,
)  # fmt: skip
def test_inner_product_gradients_are_those_of_pytorch(
    dims: Dims, outputs: int, layouts: Any, types: Any
) -> None:
    every = dims, (outputs, *dims[1:]), (dims[0], outputs)
    src, weights, dst = (
        lay_out(size, layout).with_data_type(of)
        for size, layout, of in zip(every, layouts, types, strict=True)
    )
    bias = MemoryDesc((outputs,), types[2])
    ours = (
        InnerProductDesc.backward_data(src, weights, dst),
        InnerProductDesc.backward_weights(src, weights, dst, bias),
    )
    verify(ours, lambda x, w, b: functional.linear(x.flatten(1), w.flatten(1), b))


@every_pair(
    isa=ISAS,
    types=["f32", "bf16", "f16", "bf16:f32:bf16", "f16:f16:f32", "f8_e5m2", "f64", "f4_e2m1"],
    layouts=["--stag=axb --dtag=axb", "--stag=abx --dtag=abx", "", "--stag=aBx8b --dtag=axb"],
    case=[
        ("convolution", "mb3_ic20oc33_ih7oh4kh3sh2ph1"),
        ("convolution", "g2mb3_ic12oc20_ih7oh7kh3ph1"),
        ("deconvolution", "mb3_ic20oc33_ih4oh7kh3sh2ph1"),
        ("deconvolution", "g2mb3_ic12oc20_ih7oh7kh3ph1"),
        ("inner_product", "mb9ic20ih3oc33"),
        ("inner_product", "mb2ic64oc64"),
    ],
)  # fmt: skip
def test_every_instruction_set(isa: str, types: str, layouts: str, case: tuple[str, str]) -> None:
    kind, size = case
    if kind == "inner_product":
        layouts = layouts.partition(" ")[0]
    for _ in judged(kind, f"--dir=BWD_D,BWD_WB --dt={types} {layouts} {size}", isa):
        pass


@every_pair(
    isa=ISAS,
    types=["f32", "bf16"],
    stag=["aBx4b", "aBx8b", "aBx16b", "axb"],
    dtag=["aBx8b", "aBx16b", "axb"],
    size=[
        "mb4_ic32oc64_ih9iw11oh9ow11kh3kw3ph1pw1", "g2mb2_ic64oc96_ih9iw11oh5ow6kh3kw3sh2sw2ph1pw1",
        "mb6_ic64oc32_ih7oh7kh1", "mb3_ic48oc64_id4ih3iw5od4oh3ow5kd3kh1kw3pd1pw1",
    ],
)  # fmt: skip
def test_weights_from_blocks_of_channels(
    isa: str, types: str, stag: str, dtag: str, size: str
) -> None:
    """Whole blocks are read in place, and so are pairs of images of bf16 with channels last."""
    for _ in judged(
        "convolution", f"--dir=BWD_W --dt={types} --stag={stag} --dtag={dtag} {size}", isa
    ):
        pass


@every_pair(
    isa=ISAS,
    types=["f32", "bf16", "f16:f32:f16", "bf16:bf16:f32", "f8_e5m2"],
    stag=["axb", "abx", "aBx16b", "aBx8b", "aBx32b"],
    dtag=["axb", "abx", "aBx16b", "aBx64b"],
    size=[
        "mb6_ic20oc33_ih5oh5kh1", "mb4_ic3oc16_id4ih3iw5od2oh3ow2kd1kh1kw1sd2sw3",
        "g2mb2_ic64oc96_ih9iw11oh5ow6kh1kw1sh2sw2", "mb8_ic64oc128_iw192ow192kw1",
        "mb2_ic544oc1024_ih2oh2kh1", "mb8_ic96oc320_ih28oh28kh1",
    ],
)  # fmt: skip
def test_weights_of_one_tap(isa: str, types: str, stag: str, dtag: str, size: str) -> None:
    """Threads copy channels and pixels: incomplete panels and tiles, several items of either
    channels, parts, blocks, and pixels that are skipped."""
    line = f"--dir=BWD_WB --dt={types} --stag={stag} --dtag={dtag} {size}"
    assert len([*judged("convolution", line, isa)]) == 1


@pytest.mark.parametrize("sizes", [(0, 3, 5), (2, 0, 5), (2, 3, 0)])
@pytest.mark.parametrize(("layout", "kind"), [("plain", "f32"), ("any", "f32"), ("any", "bf16")])
def test_sums_of_nothing_are_zero(sizes: Dims, layout: str, kind: str) -> None:
    batch, inputs, outputs = sizes

    def lay(dims: Dims) -> MemoryDesc:
        return lay_out(dims, layout).with_data_type(kind)

    matrices = lay((batch, inputs)), lay((outputs, inputs)), lay((batch, outputs))
    lines = (
        lay((batch, inputs, 6)), lay((outputs, inputs, 3)), lay((batch, outputs, 4)),
    )  # fmt: skip
    bias, alg = lay((outputs,)), "convolution_direct"
    every: list[Desc] = [
        InnerProductDesc.backward_data(*matrices),
        InnerProductDesc.backward_weights(*matrices, bias),
        ConvolutionDesc.backward_data(alg, *lines, 1, 0),
        ConvolutionDesc.backward_weights(alg, *lines, 1, 0, diff_bias_desc=bias),
    ]
    for desc in every:
        pd = PrimitiveDesc(desc, ENGINE)
        given = {t.argument: t.desc for t in pd.desc.tensors if not t.output}
        made = execute_all(pd, {a: random_memory(d, ENGINE, a) for a, d in given.items()})
        for argument, memory in made.items():
            empty = batch == 0 or argument != Arg.DIFF_BIAS
            assert not (empty and memory.numpy().any()), argument


def test_gradients_of_a_matmul_are_matmuls() -> None:
    """As the program of the page says."""
    page = (Path(__file__).parents[2] / "docs" / "products.md").read_text(encoding="utf-8")
    program = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[-1]
    assert "diff_weights = matmul(" in program
    exec(compile(program, "products.md", "exec"), {})


def test_layouts_follow_the_forward_description() -> None:
    """Those of activations; weights are laid out as the kernel of the gradient likes."""
    lay = partial(lay_out, layout="any")
    src, weights, dst = lay((2, 32, 9, 9)), lay((48, 32, 3, 3)), lay((2, 48, 9, 9))
    ends = {"plain": (lay_out(src.dims, "plain"), lay_out(dst.dims, "plain")), "any": (src, dst)}
    alg, place = "convolution_direct", (1, 1)
    for given_src, given_dst in ends.values():
        forward = ConvolutionDesc.forward(
            "forward_training", alg, given_src, weights, given_dst, *place
        )
        hint = PrimitiveDesc(forward, ENGINE)
        data = ConvolutionDesc.backward_data(alg, src, weights, dst, *place)
        own = PrimitiveDesc(data, ENGINE, hint=hint)
        assert (own.diff_src_desc, own.diff_dst_desc) == (hint.src_desc, hint.dst_desc)
        gradient = ConvolutionDesc.backward_weights(alg, src, weights, dst, *place)
        own = PrimitiveDesc(gradient, ENGINE, hint=hint)
        assert (own.src_desc, own.diff_dst_desc) == (hint.src_desc, hint.dst_desc)


def test_what_a_gradient_refuses() -> None:
    f32 = partial(MemoryDesc, data_type="f32")
    matrices = f32((2, 3)), f32((5, 3)), f32((2, 5))
    relu = PrimitiveAttr()
    relu.post_ops.append_eltwise("eltwise_relu")
    bytes_ = [desc.with_data_type("s8") for desc in matrices]
    lines = f32((2, 3, 6)), f32((5, 3, 3)), f32((2, 5, 4))
    winograd = ConvolutionDesc.backward_data("convolution_winograd", *lines, 1, 0)
    refused: list[tuple[Desc, PrimitiveAttr | None, str]] = [
        (InnerProductDesc.backward_data(*matrices), relu, "unsupported attribute: post_ops"),
        (InnerProductDesc.backward_weights(*bytes_), None, "src_desc of s8; gradients take floats"),
        (ConvolutionDesc.backward_data("convolution_direct", *lines, 1, 0), relu, "post_ops"),
        (winograd, None, "winograd: unsupported shape: 1 dimensions of space"),
    ]
    for desc, attr, reason in refused:
        with pytest.raises(Unimplemented, match=reason):
            PrimitiveDesc(desc, ENGINE, attr)
