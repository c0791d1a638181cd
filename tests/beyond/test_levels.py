"""Kernels of instruction sets that the processor at hand lacks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from dnnl import Arg, PrimitiveAttr, PrimitiveDesc, config
from tests.beyond.levels import LACKING, beyond
from tests.primitives.harness import ENGINE
from tests.primitives.products import Window, convolution_desc, matmul_desc, verify

_MULTIPLY = {
    "avx512_core_vnni": [("u8", "s8", "s8"), ("s8", "s8", "s32")],
    "avx512_core_bf16": [("bf16", "bf16", "f32"), ("bf16", "s4", "f32")],
    "avx512_core_amx": [("bf16", "bf16", "bf16"), ("u8", "s8", "s8")],
}
"""Types for which a row has instructions of its own."""
CASES = [(row, types) for row, pairs in _MULTIPLY.items() if row in LACKING for types in pairs]


@pytest.fixture(autouse=True)
def _every_row() -> Iterator[None]:
    with beyond():
        yield


@pytest.mark.parametrize(("row", "types"), CASES, ids=str)
def test_products(row: str, types: tuple[str, str, str]) -> None:
    attr = PrimitiveAttr(fpmath_apply_to_int=True)
    if types[-1] == "s8":
        attr.set_scales(Arg.DST, 0)
    desc = matmul_desc((21, 72, 50), types)
    with config.override("max_cpu_isa", row):
        assert PrimitiveDesc(desc, ENGINE, attr).impl_info == f"brgemm:{row}"
        verify(desc, attr)


@pytest.mark.parametrize(("row", "types"), [case for case in CASES if "s4" not in case[1]], ids=str)
def test_convolutions(row: str, types: tuple[str, str, str]) -> None:
    desc = convolution_desc(Window((6, 7), (3, 3), padding_l=(1, 1)), 2, (19, 40), bias=False)
    src, weights, dst = types
    desc = replace(
        desc,
        src_desc=desc.src_desc.with_data_type(src),
        weights_desc=desc.weights_desc.with_data_type(weights),
        dst_desc=desc.dst_desc.with_data_type(dst),
    )
    with config.override("max_cpu_isa", row):
        verify(desc)
