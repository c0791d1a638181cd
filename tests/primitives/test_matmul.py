"""Matrix products: shapes, batches, transposition, layouts, post-ops and instruction sets."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from dnnl import (
    Arg,
    InvalidArguments,
    MatmulDesc,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveAttr,
    PrimitiveDesc,
    Stream,
    config,
)
from dnnl.codegen.nest import work_items
from dnnl.kernels.product.plan.conf import ProductConf
from dnnl.reference.matmul import TOLERANCE
from dnnl.types.arg import MAX_POST_OPS
from tests.check import check, poisoned_memory, random_memory
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE, array, every_isa, execute, tensor
from tests.primitives.products import Dims, attr_of, broadcast_dims, inputs, lay_out, verify

LAYOUTS = ["any", "plain", "reversed", "gaps", "part"]
MATRICES = ["behind", "AB16a16b", "AB4b16a4b", "aB16b", "Ab8a", "BA8b8a"]


def matmul(
    sizes: Dims,
    layouts: tuple[str, str, str] = ("any", "any", "any"),
    bias: Dims | None = None,
    batch: tuple[Dims, Dims] = ((), ()),
) -> MatmulDesc:
    """A description of sizes (M, K, N); ``batch`` are the leading dims of src and weights."""
    m, k, n = sizes
    both = tuple(map(max, *batch)) if batch[0] else ()
    dims = (*batch[0], m, k), (*batch[1], k, n), (*both, m, n)
    src, weights, dst = (lay_out(*pair) for pair in zip(dims, layouts, strict=True))
    return MatmulDesc(src, weights, dst, None if bias is None else MemoryDesc(bias, "f32"))


@pytest.mark.parametrize("layout", ["any", "plain", "reversed"])
@pytest.mark.parametrize("sizes", [*itertools.product((1, 13, 31), (1, 17), (1, 16, 35))], ids=str)
def test_sizes(sizes: Dims, layout: str) -> None:
    verify(matmul(sizes, (layout, layout, layout), (1, sizes[2])))


@pytest.mark.parametrize("layouts", [*itertools.product(LAYOUTS, repeat=3)], ids="-".join)
def test_every_layout_with_every_other(layouts: tuple[str, str, str]) -> None:
    verify(matmul((15, 9, 34), layouts))


@pytest.mark.parametrize("layout", MATRICES)
@pytest.mark.parametrize("side", [0, 1, 2])
def test_other_layouts(side: int, layout: str) -> None:
    layouts = ["plain"] * 3
    layouts[side] = layout
    verify(matmul((19, 37, 21), (layouts[0], layouts[1], layouts[2])))


@pytest.mark.parametrize("layout", ["AB16a16b", "aB16b", "Ab16a"])
@pytest.mark.parametrize("side", [0, 1, 2])
def test_less_than_one_block(side: int, layout: str) -> None:
    layouts = ["plain"] * 3
    layouts[side] = layout
    verify(matmul((13, 9, 11), (layouts[0], layouts[1], layouts[2])))


@pytest.mark.parametrize("weights", ["plain", "any", "abdc", "aBcd4b4b"])
@pytest.mark.parametrize(
    "batch",
    [((2, 3), (2, 3)), ((1, 3), (2, 1)), ((2, 1), (1, 1)), ((1, 1), (2, 3)), ((1, 1), (1, 1))],
    ids=str,
)
def test_batches(batch: tuple[Dims, Dims], weights: str) -> None:
    for dst in ("plain", "badc", "abdc"):
        verify(matmul((5, 7, 18), ("acbd", weights, dst), (1, 1, 5, 18), batch))


@pytest.mark.parametrize("isa", ["avx2"])
def test_twelve_dimensions(isa: str) -> None:
    batch = (2, 1, 1, 2, 1, 1, 1, 3, 1, 2)
    with config.override("max_cpu_isa", isa):
        verify(matmul((3, 4, 5), batch=(batch, (1,) * 10)))


@pytest.mark.parametrize("dst", ["plain", "reversed", "AB16a16b"])
@pytest.mark.parametrize("mask", range(4))
def test_bias(mask: int, dst: str) -> None:
    verify(matmul((7, 5, 19), ("plain", "any", dst), broadcast_dims((7, 19), mask)))


@pytest.mark.parametrize("layout", ["ba", "AB4a8b", "any"])
def test_layouts_of_bias(layout: str) -> None:
    plain = matmul((7, 5, 19))
    bias = MemoryDesc((7, 19), "f32", layout)
    verify(MatmulDesc(plain.src_desc, plain.weights_desc, plain.dst_desc, bias))


@every_isa
@pytest.mark.parametrize("layouts", [("plain", "any", "plain"), ("reversed",) * 3, ("gaps",) * 3])
def test_every_instruction_set(isa: str, layouts: tuple[str, str, str]) -> None:
    attr = attr_of(("eltwise", "eltwise_tanh"), ("sum", 0.5))
    with config.override("max_cpu_isa", isa):
        verify(matmul((33, 65, 50), layouts, (1, 50)), attr, "normal")


@pytest.mark.parametrize(
    "sizes",
    [
        (512, 512, 512),
        (1, 4096, 1000),
        (1000, 3, 1),
        (3, 20_000, 5),
        (64, 1024, 256),
        (200, 1003, 96),
        (3, 1003, 64),
    ],
    ids=str,
)
@pytest.mark.parametrize("weights", ["any", "plain"])
def test_large_products(sizes: Dims, weights: str) -> None:
    verify(matmul(sizes, ("plain", weights, "plain")), fill="normal")


def test_agrees_with_pytorch() -> None:
    desc = matmul((9, 40, 33), ("abdc", "plain", "plain"), (1, 1, 9, 33), ((2, 1), (1, 3)))
    args = inputs(PrimitiveDesc(desc, ENGINE), "normal")
    want = torch.matmul(tensor(args[Arg.SRC]), tensor(args[Arg.WEIGHTS])) + tensor(args[Arg.BIAS])
    check(execute(desc, args), array(want), TOLERANCE("f32", 40))


@pytest.mark.parametrize("layout", ["any", "plain", "reversed", "AB16a16b"])
@pytest.mark.parametrize("bias", [None, (1, 19), (7, 1)], ids=str)
def test_nothing_to_sum(bias: Dims | None, layout: str) -> None:
    attr = attr_of(("sum", 2.0), ("eltwise", "eltwise_linear", 2.0, 1.0))
    verify(matmul((7, 0, 19), (layout, layout, layout), bias), attr)


def test_nothing_to_sum_takes_a_scratchpad_of_the_user() -> None:
    desc = matmul((7, 0, 19), ("AB16a16b", "plain", "plain"))
    pd = PrimitiveDesc(desc, ENGINE, PrimitiveAttr(scratchpad_mode="user"))
    assert not pd.scratchpad_desc.is_zero
    dst = poisoned_memory(desc.dst_desc, ENGINE)
    scratchpad = Memory(pd.scratchpad_desc, ENGINE)
    given = {**inputs(pd), Arg.DST: dst, Arg.SCRATCHPAD: scratchpad}
    Primitive(pd).execute(Stream(ENGINE), given)
    check(dst, np.zeros((7, 19)), 0.0)


@pytest.mark.parametrize("layout", ["any", "plain"])
@pytest.mark.parametrize("sizes", [(0, 3, 4), (3, 4, 0), (0, 0, 0)], ids=str)
def test_no_elements(sizes: Dims, layout: str) -> None:
    desc = matmul(sizes, (layout, layout, layout), (1, sizes[2]))
    execute(desc, inputs(PrimitiveDesc(desc, ENGINE)))


@pytest.mark.parametrize("layout", ["plain", "reversed", "AB16a16b", "part"])
@pytest.mark.parametrize("mask", range(4))
def test_binary_post_op(mask: int, layout: str) -> None:
    operand = lay_out(broadcast_dims((7, 19), mask), layout)
    for dst in ("plain", "reversed", "AB16a16b"):
        verify(
            matmul((7, 5, 19), ("plain", "any", dst)), attr_of(("binary", "binary_sub", operand))
        )


@pytest.mark.parametrize("dst", ["plain", "reversed", "AB16a16b"])
@pytest.mark.parametrize("mask", range(4))
def test_prelu_post_op(mask: int, dst: str) -> None:
    verify(matmul((7, 5, 19), ("plain", "any", dst)), attr_of(("prelu", mask)))


@pytest.mark.parametrize("dst", ["plain", "reversed", "AB16a16b"])
def test_a_chain_of_as_many_as_there_can_be(dst: str) -> None:
    kinds = [
        ("binary", "binary_add", lay_out((7, 19), "reversed")),
        ("prelu", 0b10),
        ("sum", 0.5),
        ("eltwise", "eltwise_clip", -50.0, 60.0),
    ]
    chain = kinds * (MAX_POST_OPS // len(kinds))
    verify(matmul((7, 5, 19), ("plain", "any", dst)), attr_of(*chain))


def test_source_and_weights_may_be_one_memory() -> None:
    both = random_memory(MemoryDesc((20, 20), "f32"), ENGINE)
    desc = MatmulDesc(both.desc, both.desc, both.desc)
    want = tensor(both) @ tensor(both)
    got = execute(desc, {Arg.SRC: both, Arg.WEIGHTS: both})
    check(got, array(want), TOLERANCE("f32", 20))


def test_weights_resolve_for_the_product_that_is_asked_for() -> None:
    pd = PrimitiveDesc(matmul((30, 40, 64)), ENGINE)
    assert pd.src_desc == MemoryDesc((30, 40), "f32", "ab")
    assert pd.dst_desc == MemoryDesc((30, 64), "f32", "ab")
    assert pd.weights_desc.inner_blocks
    conf = pd.plan.recipe.conf
    assert isinstance(conf, ProductConf)
    assert not conf.copies_in
    assert conf.copy_out is None


def test_work_items_outlast_their_start() -> None:
    def items(*sizes: int) -> int:
        recipe = PrimitiveDesc(matmul((sizes[0], sizes[1], sizes[2])), ENGINE).plan.recipe
        return recipe.build(recipe.conf, recipe.isa).phases[-1].count

    least = work_items.LEAST_WORK * work_items.MULTIPLY_ADDS
    assert items(200, 2, 4) == 1
    assert 1 < items(2000, 40, 40) <= 2000 * 40 * 40 // least


PLAIN = MemoryDesc((2, 3), "f32")


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        (((3,), (3,), (3,)), r"src_desc = \(3,\): expected at least \(M, K\)"),
        (((2, 3), (1, 3, 4), (2, 4)), r"weights_desc = \(1, 3, 4\): expected 2 dimensions, as src"),
        (((2, 3), (3, 4), (1, 2, 4)), r"dst_desc = \(1, 2, 4\): expected 2 dim.*; reshape adds"),
        (((2, 3), (4, 4), (2, 4)), r"weights_desc = \(4, 4\): dimension 0 must be K = 3"),
        (((2, 3), (3, 4), (2, 5)), r"dst_desc = \(2, 5\): src \(2, 3\) times .* is \(2, 4\)"),
        (((2, 1, 3), (3, 3, 4), (2, 1, 4)), r"dst_desc = \(2, 1, 4\): src"),
        (((2, 3), (3, 4), (2, 4), (2,)), r"bias_desc = \(2,\): each dimension must be 1 or that"),
        (((2, 3), (3, 4), (2, 4), (3, 4)), r"bias_desc = \(3, 4\): each .* which is \(2, 4\)"),
    ],
)
def test_bad_sizes(dims: tuple[Dims, ...], message: str) -> None:
    with pytest.raises(InvalidArguments, match=message):
        MatmulDesc(*(MemoryDesc(sizes, "f32") for sizes in dims))


def test_bad_descriptors() -> None:
    with pytest.raises(InvalidArguments, match=r"weights_desc = 'ab': expected a dnnl.MemoryDesc"):
        MatmulDesc(PLAIN, "ab", PLAIN)  # type: ignore[arg-type]
    with pytest.raises(InvalidArguments, match=r"dst_desc = .* this tensor is required"):
        MatmulDesc(PLAIN, PLAIN, MemoryDesc.zero())


def test_a_destination_on_itself() -> None:
    desc = MatmulDesc(PLAIN, MemoryDesc((3, 4), "f32"), MemoryDesc((2, 4), "f32", (0, 1)))
    with pytest.raises(InvalidArguments, match=r"dst_desc = \(0, 1\): a stride of 0"):
        PrimitiveDesc(desc, ENGINE)


@every_pair(
    every_isa,
    pytest.mark.parametrize(
        "types", [("f32",) * 3, ("bf16", "bf16", "f32"), ("f64",) * 3], ids=str
    ),
    pytest.mark.parametrize(
        ("src", "columns"),
        [((67, 64), 130), ((3, 70, 32), 128), ((65, 19), 150), ((130, 64), 30), ((15, 64), 129)],
        ids=str,
    ),
)
def test_column_major_sources(
    isa: str, types: tuple[str, str, str], src: Dims, columns: int
) -> None:
    """Transposed before the product, in rows an odd number of lines apart, where that pays off."""
    *batch, m, k = src
    dims = src, (*batch, k, columns), (*batch, m, columns)
    order = "ba" if len(src) == 2 else "acb"
    layouts = order, "ab" if len(src) == 2 else "abc", "any"
    with config.override("max_cpu_isa", isa):
        verify(
            MatmulDesc(
                *(
                    MemoryDesc(size, kind, tag)
                    for size, kind, tag in zip(dims, types, layouts, strict=True)
                )
            )
        )
