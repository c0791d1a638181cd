"""Products of a matrix and a vector, and of two vectors: folds along k, and what is none."""

from __future__ import annotations

import pytest

from dnnl import Arg, MatmulDesc, Memory, MemoryDesc, Primitive, PrimitiveDesc, Stream, config
from tests.check import same_bits
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE
from tests.primitives.products import Dims, attr_of, inputs, lay_out, matmul_desc, verify
from tests.processor import ISAS

SIZES = [(1, 64, 1), (1, 70_001, 1), (13, 300, 1), (1, 999, 35), (300, 65, 1), (1, 5_000, 7)]
LAYOUTS = ["plain", "reversed", "gaps", "behind", "any"]


@every_pair(
    sizes=SIZES,
    src=LAYOUTS,
    weights=LAYOUTS,
    types=[
        ("f32", "f32", "f32"),
        ("bf16", "bf16", "f32"),
        ("f16", "f16", "f16"),
        ("f64", "f64", "f64"),
        ("bf16", "f16", "bf16"),
    ],
    bias=[None, "f32", "bf16"],
    isa=ISAS,
    batch=[(), (2,)],
)
def test_vectors(
    sizes: Dims,
    src: str,
    weights: str,
    types: tuple[str, str, str],
    bias: str | None,
    isa: str,
    batch: Dims,
) -> None:
    with config.override("max_cpu_isa", isa):
        verify(matmul_desc(sizes, types, (src, weights, "plain"), bias, batch))


@pytest.mark.parametrize("sizes", SIZES[1:4], ids=str)
def test_post_ops(sizes: Dims) -> None:
    operand = MemoryDesc((sizes[0], 1), "f32")
    attr = attr_of(("sum", 0.5), ("binary", "binary_mul", operand), ("eltwise", "eltwise_relu"))
    verify(matmul_desc(sizes, ("f32", "f32", "f32"), bias="f32"), attr)


def test_batches_are_broadcast() -> None:
    src, weights, dst = (lay_out(dims, "plain") for dims in ((3, 1, 200), (1, 200, 1), (3, 1, 1)))
    verify(MatmulDesc(src, weights, dst))


@pytest.mark.parametrize(
    ("sizes", "layouts", "name"),
    [
        ((1, 10_000, 1), ("any", "any", "any"), "fold"),
        ((500, 500, 1), ("plain", "any", "plain"), "fold"),
        ((1, 500, 500), ("plain", "reversed", "plain"), "fold"),
        ((1, 500, 15), ("plain", "plain", "plain"), "fold"),
        ((1, 500, 16), ("plain", "plain", "plain"), "brgemm"),
        ((1, 500, 500), ("plain", "any", "plain"), "brgemm"),
        ((2_000, 500, 1), ("reversed", "any", "plain"), "brgemm"),
        ((1, 8, 1), ("plain", "plain", "plain"), "brgemm"),
        ((2, 500, 2), ("plain", "plain", "plain"), "brgemm"),
    ],
    ids=str,
)
def test_what_is_a_fold(sizes: Dims, layouts: tuple[str, str, str], name: str) -> None:
    pd = PrimitiveDesc(matmul_desc(sizes, ("f32", "f32", "f32"), layouts), ENGINE)
    assert pd.impl_info.partition(":")[0] == name


def test_one_column_is_not_padded_to_a_vector() -> None:
    for layout in ("plain", "reversed"):
        desc = matmul_desc((2_000, 500, 1), ("f32", "f32", "f32"), (layout, "any", "plain"))
        pd = PrimitiveDesc(desc, ENGINE)
        assert pd.weights_desc.size == 4 * 500
        assert pd.scratchpad_desc.size <= 4 * 2_000 * 16
        verify(desc)


@pytest.mark.parametrize("sizes", [(1, 300_001, 1), (3, 100_003, 1)], ids=str)
def test_threads_change_no_bit(sizes: Dims) -> None:
    pd = PrimitiveDesc(matmul_desc(sizes, ("f32", "f32", "f32")), ENGINE)
    primitive, args = Primitive(pd), inputs(pd)
    results = []
    for threads in (1, 2, 3, 7):
        dst = Memory(pd.dst_desc, ENGINE)
        primitive.execute(Stream(ENGINE, threads), {**args, Arg.DST: dst})
        results.append(dst)
    assert all(same_bits(results[0], other) for other in results[1:])


@pytest.mark.skipif("avx2" not in ISAS, reason="needs avx2")
@pytest.mark.parametrize(("rows", "size", "width"), [(1, 2048, 32), (2, 2048, 16), (1, 64, 32)])
def test_width_of_panels(rows: int, size: int, width: int) -> None:
    """A single row reads two lines of weights a step, as does one whose weights are cached."""
    a, b = MemoryDesc((rows, size), "f32"), MemoryDesc((size, size), "f32", "any")
    with config.override("max_cpu_isa", "avx2"):
        pd = PrimitiveDesc(MatmulDesc(a, b, a), ENGINE)
    assert str(pd.weights_desc.tag) == f"Ba{width}b"
