"""What matmul and inner product take besides floats and bytes: compressed
weights, f64, and floats of 4 and 8 bits."""

from __future__ import annotations

from typing import Any

import pytest

import dnnl.math
from dnnl import Arg, MatmulDesc, MemoryDesc, PrimitiveAttr, PrimitiveDesc, Unimplemented, config
from dnnl.primitives.primitive_desc import select_isa
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE
from tests.primitives.products import (
    ANY,
    ROWS,
    Dims,
    Types,
    attr_of,
    inner_product_desc,
    matmul_desc,
    scaled,
    some_rows,
    verify,
)
from tests.processor import ISAS

SOME_FLOATS = ["f32", "bf16", "f16", "f8_e4m3", "f8_e5m2", "f4_e2m1"]


@some_rows
@pytest.mark.parametrize("src", ["f32", "bf16", "f16", "u8"])
def test_compressed_weights(src: str, isa: str) -> None:
    weights = {"f32": "s8", "bf16": "u4", "f16": "u8", "u8": "s4"}[src]
    types = (src, weights, "f32" if src == "u8" else src)
    with config.override("max_cpu_isa", isa):
        for layouts in (ANY, ROWS):
            verify(matmul_desc((7, 12, 36), types, layouts), fill="normal")
        verify(matmul_desc((1, 24, 128), types, ROWS), fill="normal")
        verify(inner_product_desc((7, 6, 2), 36, types), fill="normal")


@pytest.mark.parametrize("weights", ["s8", "u4"])
@pytest.mark.parametrize(
    ("scale", "zero_point"),
    [((0, ()), None), ((2, ()), (2, ())), ((3, (6, 1)), (3, (6, 1))), ((3, (4, 5)), (0, ()))],
    ids=str,
)
def test_decompression(
    scale: tuple[int, Dims], zero_point: tuple[int, Dims] | None, weights: str
) -> None:
    """Scales and zero points of whole matrices, columns, and groups of weights."""
    attr = scaled({Arg.WEIGHTS: scale}, {Arg.WEIGHTS: zero_point} if zero_point else {})
    for src, layout in (("f32", "plain"), ("bf16", "reversed")):
        layouts = (layout, "any", layout)
        verify(matmul_desc((7, 12, 20), (src, weights, "f32"), layouts, "f32"), attr, "normal")


def test_decompression_by_matrix() -> None:
    attr = scaled({Arg.WEIGHTS: (7, (4, 1))}, {Arg.WEIGHTS: (5, ())})
    verify(matmul_desc((7, 12, 20), ("f16", "s8", "f16"), ROWS, None, (3,)), attr, "normal")


def test_what_is_not_scaled_is_not_copied() -> None:
    """Weights of bytes beside floats are read as they are, and so is a src of f32; those scaled by
    groups are floats in memory only where many rows meet them."""
    by_column, by_group = (scaled({Arg.WEIGHTS: values}, {}) for values in ((2, ()), (3, (16, 1))))

    def copied(rows: int, attr: PrimitiveAttr) -> int:
        desc = matmul_desc((rows, 64, 96), ("f32", "s8", "f32"))
        return PrimitiveDesc(desc, ENGINE, attr).scratchpad_desc.size

    assert copied(31, by_column) == copied(31, by_group) == 0
    assert copied(600, by_group) == 4 * 64 * 96


@some_rows
@pytest.mark.parametrize("layout", ["any", "reversed"])
def test_f64(layout: str, isa: str) -> None:
    layouts = (layout,) * 3
    with config.override("max_cpu_isa", isa):
        for sizes in ((1, 5, 3), (15, 37, 35)):
            verify(matmul_desc(sizes, ("f64",) * 3, layouts, "f64"), fill="normal")
        verify(inner_product_desc((15, 7, 2), 35, ("f64",) * 3, layouts, "bf16"), fill="normal")


@some_rows
def test_f64_with_attributes(isa: str) -> None:
    operand = MemoryDesc((1, 35), "f64")
    attr = attr_of(("binary", "binary_mul", operand), ("eltwise", "eltwise_relu"), ("sum", 0.5))
    groups = scaled({Arg.WEIGHTS: (3, (4, 5)), Arg.DST: (0, ())}, {})
    with config.override("max_cpu_isa", isa):
        for dst in ("plain", "reversed", "AB16a16b"):
            layouts = ("plain", "any", dst)
            verify(matmul_desc((15, 12, 35), ("f64",) * 3, layouts, "s8"), attr, "normal")
            verify(inner_product_desc((15, 12), 35, ("f64",) * 3, layouts), attr, "normal")
        verify(matmul_desc((15, 12, 35), ("f64",) * 3, ROWS), groups, "normal")


@some_rows
@pytest.mark.parametrize(
    "types",
    [
        ("f8_e5m2", "f8_e4m3", "f32"),
        ("f8_e4m3", "f8_e4m3", "f8_e5m2"),
        ("f4_e2m1", "f4_e2m1", "f4_e2m1"),
        ("bf16", "f8_e5m2", "bf16"),
        ("f16", "f4_e2m1", "f32"),
    ],
    ids="-".join,
)
def test_tiny_floats(types: Types, isa: str) -> None:
    with config.override("max_cpu_isa", isa):
        verify(matmul_desc((15, 12, 35), types, ROWS, "f32"), fill="normal")
        verify(inner_product_desc((15, 6, 2), 36, types, bias="bf16"), fill="normal")


@every_pair(
    isa=ISAS,
    src=SOME_FLOATS,
    weights=SOME_FLOATS,
    rows=[1, 15, 40],
    layouts=[ANY, ROWS, ("reversed",) * 3],
)
def test_any_two_floats(
    isa: str, src: str, weights: str, rows: int, layouts: tuple[str, str, str]
) -> None:
    with config.override("max_cpu_isa", isa):
        verify(matmul_desc((rows, 12, 36), (src, weights, "f32"), layouts, "f32"), fill="normal")
        verify(inner_product_desc((rows, 6, 2), 36, (src, weights, src)), fill="normal")


def test_tiny_floats_with_groups_of_scales() -> None:
    attr = PrimitiveAttr()
    attr.set_scales(Arg.SRC, 3, (1, 32), "e8m0")
    attr.set_scales(Arg.WEIGHTS, 3, (32, 1), "e8m0")
    for kind in ("f4_e2m1", "f8_e4m3"):
        verify(matmul_desc((6, 64, 34), (kind, kind, "f32"), ROWS), attr, "normal")


@some_rows
@pytest.mark.parametrize("types", [("f32", "f32"), ("f32", "s4"), ("bf16", "u8")], ids="-".join)
def test_floats_that_may_be_narrowed(types: tuple[str, str], isa: str) -> None:
    """Small integers have no more digits than bf16, so that results are exact."""
    attr = PrimitiveAttr(fpmath_mode="bf16", fpmath_apply_to_int=True)
    if types[1] != "f32":
        attr.set_zero_points(Arg.WEIGHTS, 2)
    with config.override("max_cpu_isa", isa):
        for layouts in (ANY, ROWS, ("reversed",) * 3):
            verify(matmul_desc((15, 37, 35), (*types, "f32"), layouts), attr)
            desc = matmul_desc((33, 37, 35), (*types, "f32"), layouts)
            verify(desc, attr)
            narrow = "bf16" if any(dot.a == "bf16" for dot in select_isa(ENGINE).dots) else "f32"
            assert _multiplied_as(desc, attr) == narrow
        verify(inner_product_desc((15, 7, 3), 35, (*types, "f32")), attr)


def test_nothing_is_narrowed_unasked() -> None:
    of_floats, of_bytes = (matmul_desc((7, 12, 35), ("f32", b, "f32")) for b in ("f32", "s8"))
    cases = [(of_floats, "strict"), (of_floats, "f16"), (of_bytes, "bf16")]
    for desc, mode in cases:
        attr = PrimitiveAttr(fpmath_mode=mode)
        assert _multiplied_as(desc, attr) == "f32"


def _multiplied_as(desc: MatmulDesc, attr: PrimitiveAttr) -> str:
    conf: Any = PrimitiveDesc(desc, ENGINE, attr).plan.recipe.conf
    name: str = conf.multiply.dot.a
    return name


@pytest.mark.parametrize(
    ("types", "message"),
    [
        (("u8", "f16", "f32"), "u8 times f16; u8 is multiplied by s8, u8, s4 or u4"),
        (("f64", "f32", "f64"), "f64 times f32; f64 is multiplied by f64"),
        (("f64", "f64", "f32"), "f32; it takes f64"),
        (("s4", "s8", "f32"), "s4; it takes"),
        (("f32", "f32", "f64"), "f64; it takes"),
    ],
)
def test_what_is_refused(types: Types, message: str) -> None:
    for desc in (matmul_desc((7, 12, 20), types), inner_product_desc((7, 12), 20, types)):
        with pytest.raises(Unimplemented, match=f"unsupported data type: {message}"):
            PrimitiveDesc(desc, ENGINE)


def test_functions_without_f64_are_refused() -> None:
    attr = PrimitiveAttr()
    attr.post_ops.append_function(dnnl.math.sin)
    PrimitiveDesc(matmul_desc((7, 12, 20), ("f32",) * 3), ENGINE, attr)
    with pytest.raises(Unimplemented, match="post-op 0: sin of f64; tensors of f32 have it"):
        PrimitiveDesc(matmul_desc((7, 12, 20), ("f64",) * 3), ENGINE, attr)


def test_zero_points_of_floats_are_refused() -> None:
    attr = scaled({}, {Arg.SRC: (0, ())})
    with pytest.raises(Unimplemented, match="zero points of SRC, whose type bf16"):
        PrimitiveDesc(inner_product_desc((7, 12), 20, ("bf16",) * 3), ENGINE, attr)
