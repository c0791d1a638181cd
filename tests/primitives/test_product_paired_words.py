"""Weights of 4 bits beside a src that is bf16, or may become it: an instruction multiplies pairs of
bf16, which weights become in registers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dnnl import Arg, PrimitiveAttr, PrimitiveDesc, config
from tests.primitives.harness import ENGINE
from tests.primitives.products import (
    Dims,
    Types,
    inner_product_desc,
    matmul_desc,
    verify,
)

ISA = "avx512_core_bf16"
FACTORS = (
    "bf16 by {} to f32 by avx512bf16.dpbf16ps.512, 8 at a time, {} converted to bf16 in registers"
)
pytestmark = pytest.mark.isa(ISA)
weights_of_4_bits = pytest.mark.parametrize("weights", ["s4", "u4", "f4_e2m1"])


@pytest.fixture(autouse=True)
def _without_matrix_unit() -> Iterator[None]:
    """A matrix unit has better ways."""
    with config.override("max_cpu_isa", ISA):
        yield


def _attr(
    scales: tuple[int, Dims] = (3, (32, 1)), zero_points: str = "", fpmath: str = "strict"
) -> PrimitiveAttr:
    """Scales, and zero points of a type, for weights."""
    attr = PrimitiveAttr(fpmath_mode=fpmath, fpmath_apply_to_int=True)
    attr.set_scales(Arg.WEIGHTS, *scales)
    if zero_points:
        attr.set_zero_points(Arg.WEIGHTS, *scales, zero_points)
    return attr


def _factors(sizes: Dims, types: Types, attr: PrimitiveAttr, weights: str = "any") -> str:
    desc = matmul_desc(sizes, types, ("plain", weights, "plain"))
    return PrimitiveDesc(desc, ENGINE, attr).info(1).factors


@weights_of_4_bits
@pytest.mark.parametrize("sizes", [(1, 64, 100), (7, 96, 33), (13, 256, 64), (40, 32, 300)])
def test_groups_of_scales(sizes: Dims, weights: str) -> None:
    """Nothing is rounded: codes of 4 bits have fewer digits than bf16, and scales are those of
    sums. The largest tiles are 12 rows high."""
    types = ("bf16", weights, "f32")
    assert _factors(sizes, types, _attr()) == FACTORS.format(weights, weights)
    for zero_points in ["", "u4"] if weights[0] != "f" else [""]:
        verify(matmul_desc(sizes, types), _attr(zero_points=zero_points), "normal")


@weights_of_4_bits
def test_every_k_meets_its_own_weight(weights: str) -> None:
    """Sums of small integers are exact, so that a single wrong term shows."""
    attr = PrimitiveAttr(fpmath_mode="strict", fpmath_apply_to_int=True)
    for rows in (1, 3, 12, 200):
        verify(matmul_desc((rows, 72, 50), ("bf16", weights, "f32")), attr)
    verify(matmul_desc((5, 40, 35), ("bf16", weights, "bf16"), batch=(3,)), attr)
    verify(inner_product_desc((7, 16, 9), 50, ("bf16", weights, "f32")), attr)


def test_terms_that_fill_no_word() -> None:
    for terms in (1, 7, 9, 37):
        verify(matmul_desc((6, terms, 35), ("bf16", "s4", "f32")), _attr((2, ())))


@pytest.mark.parametrize("fpmath", ["bf16", "any"])
def test_f32_that_may_be_bf16(fpmath: str) -> None:
    attr, types = _attr(zero_points="u4", fpmath=fpmath), ("f32", "u4", "f32")
    for sizes in ((1, 64, 100), (20, 96, 33)):
        assert _factors(sizes, types, attr) == FACTORS.format("u4", "u4")
        verify(matmul_desc(sizes, types), attr, "normal", rounded=(Arg.SRC,))


def test_f32_stays_f32_unasked() -> None:
    assert _factors((4, 64, 100), ("f32", "u4", "f32"), _attr()).startswith("f32 by u4 ")


def test_many_rows_that_may_be_rounded_meet_a_copy() -> None:
    """A copy of bf16 is made once, but words in registers again for every tile."""
    types = ("bf16", "s4", "f32")
    for rows, fpmath, copied in ((255, "bf16", False), (256, "bf16", True), (511, "strict", False)):
        desc = matmul_desc((rows, 64, 48), types)
        pd = PrimitiveDesc(desc, ENGINE, _attr(fpmath=fpmath))
        assert (pd.scratchpad_desc.size > 0) == copied


def test_one_packed_tensor_serves_f32_and_bf16() -> None:
    descs = {
        PrimitiveDesc(
            matmul_desc((rows, 256, 96), (src, "s4", "f32")), ENGINE, _attr()
        ).weights_desc
        for src in ("f32", "bf16")
        for rows in (1, 8, 40)
    }
    assert len(descs) == 1


@pytest.mark.parametrize("layout", ["plain", "reversed"])
def test_weights_in_rows_and_columns(layout: str) -> None:
    """They are no panels, and become f32."""
    assert _factors((5, 64, 64), ("bf16", "s4", "f32"), _attr(), layout).startswith("f32 by s4 ")
    verify(matmul_desc((5, 64, 64), ("bf16", "s4", "f32"), ("plain", layout, "plain")), _attr())
