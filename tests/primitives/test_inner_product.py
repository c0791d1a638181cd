"""Inner products: sizes, spatial dimensions, layouts, post-ops and instruction sets."""

from __future__ import annotations

import pytest
import torch.nn.functional as F  # noqa: N812 - the name everybody gives it

from dnnl import (
    Arg,
    InnerProductDesc,
    InvalidArguments,
    MemoryDesc,
    PrimitiveDesc,
    config,
)
from dnnl.reference.inner_product import TOLERANCE
from tests.check import check
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE, LAYOUTS, array, every_isa, execute, tensor
from tests.primitives.products import Dims, attr_of, broadcast_dims, inputs, lay_out, verify

FORWARD = "forward_inference"


def inner_product(
    dims: Dims,
    outputs: int,
    layouts: tuple[str, str, str] = ("any", "any", "any"),
    bias: bool = True,
) -> InnerProductDesc:
    """A description for a source of ``dims``."""
    every = dims, (outputs, *dims[1:]), (dims[0], outputs)
    src, weights, dst = (lay_out(*pair) for pair in zip(every, layouts, strict=True))
    bias_desc = MemoryDesc((outputs,), "f32") if bias else None
    return InnerProductDesc.forward(FORWARD, src, weights, dst, bias_desc)


@every_pair(
    pytest.mark.parametrize("outputs", [1, 3, 17, 32, 100]),
    pytest.mark.parametrize("batch", [1, 13, 31]),
    pytest.mark.parametrize("spatial", [(), (3,), (2, 3), (2, 1, 3)], ids=str),
)
def test_sizes(spatial: Dims, batch: int, outputs: int) -> None:
    verify(inner_product((batch, 19, *spatial), outputs))


@pytest.mark.parametrize("dst", ["any", "plain", "reversed", "gaps", "part", "AB16a16b", "Ab8a"])
@pytest.mark.parametrize("src", [*LAYOUTS, "any", "behind", "aBcD3d8b"])
def test_layouts(src: str, dst: str) -> None:
    verify(inner_product((5, 19, 2, 3), 18, (src, "any", dst)))


@pytest.mark.parametrize(
    "weights", ["plain", "bcda", "dcba", "ABcd4b16a4b", "Abcd16a", "aBcd16b", "gaps", "part"]
)
@pytest.mark.parametrize("src", ["plain", "nhwc", "nChw8c"])
def test_layouts_of_weights(src: str, weights: str) -> None:
    verify(inner_product((2, 19, 2, 3), 18, (src, weights, "plain")))


@pytest.mark.parametrize("src", ["ab", "ba", "aB16b", "AB8a8b", "part"])
@pytest.mark.parametrize("weights", ["ab", "ba", "BA16a16b", "any"])
def test_layouts_of_matrices(src: str, weights: str) -> None:
    verify(inner_product((14, 21), 34, (src, weights, "ab")))


def test_a_part_of_a_block_and_padding_without_blocks() -> None:
    src = MemoryDesc((5, 64), "f32", "aB64b").submemory((5, 19), (0, 0))
    weights = MemoryDesc((18, 19), "f32")
    dst = MemoryDesc((5, 18), "f32", (20, 1), padded_dims=(7, 19))
    verify(InnerProductDesc.forward(FORWARD, src, weights, dst))


@every_isa
@pytest.mark.parametrize("src", ["plain", "nhwc", "nChw16c"])
def test_every_instruction_set(isa: str, src: str) -> None:
    attr = attr_of(("eltwise", "eltwise_relu"), ("sum", 0.5))
    with config.override("max_cpu_isa", isa):
        verify(inner_product((15, 35, 3, 2), 50, (src, "any", "any")), attr, "normal")


@pytest.mark.parametrize(
    ("dims", "outputs"), [((1, 2048), 1000), ((4, 512, 7, 7), 256), ((2, 9216), 64)], ids=str
)
@pytest.mark.parametrize("weights", ["any", "plain"])
def test_layers_of_networks(dims: Dims, outputs: int, weights: str) -> None:
    verify(inner_product(dims, outputs, ("plain", weights, "plain")), fill="normal")


@pytest.mark.parametrize("bias", [None, "a", "any", "gap"])
def test_bias(bias: str | None) -> None:
    descs = {
        "a": MemoryDesc((18,), "f32"),
        "any": MemoryDesc((18,), "f32", "any"),
        "gap": MemoryDesc((18,), "f32", (2,), offset0=3),
    }
    plain = inner_product((5, 19), 18)
    descriptors = plain.src_desc, plain.weights_desc, plain.dst_desc
    given = descs[bias] if bias else None
    verify(InnerProductDesc.forward("forward_training", *descriptors, given))


def test_agrees_with_pytorch() -> None:
    desc = inner_product((9, 33, 2, 2), 20, ("nhwc", "plain", "ba"))
    args = inputs(PrimitiveDesc(desc, ENGINE), "normal")
    flat = tensor(args[Arg.SRC]).flatten(1), tensor(args[Arg.WEIGHTS]).flatten(1)
    check(
        execute(desc, args), array(F.linear(*flat, tensor(args[Arg.BIAS]))), TOLERANCE("f32", 132)
    )


@pytest.mark.parametrize("layout", ["any", "plain", "last"])
@pytest.mark.parametrize("dims", [(3, 0), (3, 4, 0), (3, 0, 2, 2)], ids=str)
def test_nothing_to_sum(dims: Dims, layout: str) -> None:
    verify(inner_product(dims, 17, (layout, layout, "any")))


@pytest.mark.parametrize(("dims", "outputs"), [((0, 3), 4), ((3, 4), 0)], ids=str)
def test_no_elements(dims: Dims, outputs: int) -> None:
    verify(inner_product(dims, outputs, ("plain", "plain", "plain")))


@pytest.mark.parametrize("dst", ["plain", "reversed", "AB16a16b"])
@pytest.mark.parametrize("mask", range(4))
def test_post_ops(mask: int, dst: str) -> None:
    operand = lay_out(broadcast_dims((5, 18), mask), "reversed")
    attr = attr_of(("binary", "binary_sub", operand), ("sum", 2.0), ("prelu", mask))
    verify(inner_product((5, 19), 18, ("any", "any", dst)), attr)


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        (((3,), (4,), (3,)), r"src_desc = \(3,\): expected \(N, IC\) and up to 3 spatial"),
        (((1,) * 6, (1,) * 6, (1, 1)), r"src_desc = \(1, 1, 1, 1, 1, 1\): expected"),
        (((2, 3), (4, 5), (2, 4)), r"weights_desc = \(4, 5\): after the output .* as src, \(3,\)"),
        (((2, 3, 7), (4, 3), (2, 4)), r"weights_desc = \(4, 3\): after .* as src, \(3, 7\)"),
        (((2, 3), (4, 3), (4, 2)), r"dst_desc = \(4, 2\): expected \(2, 4\), batch and output"),
        (((2, 3), (4, 3), (2, 4), (3,)), r"bias_desc = \(3,\): expected \(4,\), the output chan"),
    ],
)
def test_bad_sizes(dims: tuple[Dims, ...], message: str) -> None:
    with pytest.raises(InvalidArguments, match=message):
        InnerProductDesc.forward(FORWARD, *(MemoryDesc(sizes, "f32") for sizes in dims))


def test_bad_parameters() -> None:
    plain = MemoryDesc((2, 3), "f32")
    with pytest.raises(InvalidArguments, match=r"prop_kind = 'backward': expected forward"):
        InnerProductDesc.forward("backward", plain, plain, plain)
    wide, dst = MemoryDesc((4, 3), "f32"), MemoryDesc((2, 4), "f32")
    with pytest.raises(InvalidArguments, match=r"^prop_kind = .*; the gradients are backward_data"):
        InnerProductDesc.forward("backward_data", plain, wide, dst)
    with pytest.raises(InvalidArguments, match=r"^diff_dst_desc = \(2, 5\): expected \(2, 4\)"):
        InnerProductDesc.backward_data(plain, wide, MemoryDesc((2, 5), "f32"))
    with pytest.raises(InvalidArguments, match=r"^diff_bias_desc = \(2,\): expected \(4,\)"):
        InnerProductDesc.backward_weights(plain, wide, dst, MemoryDesc((2,), "f32"))
    with pytest.raises(InvalidArguments, match=r"diff_weights_desc = \(4, 4\): after the output"):
        InnerProductDesc.backward_weights(plain, MemoryDesc((4, 4), "f32"), dst)
    with pytest.raises(InvalidArguments, match=r"src_desc = .* this tensor is required"):
        InnerProductDesc.forward(FORWARD, None, plain, plain)  # type: ignore[arg-type]
    with pytest.raises(InvalidArguments, match=r"weights_desc = .* this tensor is required"):
        InnerProductDesc.forward(FORWARD, plain, MemoryDesc.zero(), plain)
