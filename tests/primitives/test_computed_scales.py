"""Scales of dst that an execution computes: microscaling formats and small floats."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from dnnl import (
    Arg,
    DataType,
    InvalidArguments,
    Memory,
    MemoryDesc,
    PrimitiveAttr,
    PrimitiveDesc,
    Unimplemented,
    config,
)
from dnnl.primitives.desc import Desc
from dnnl.reference.conversions import convert
from dnnl.reference.post_ops import apply_post_ops
from dnnl.reference.quantization import computed_scales, expand, quantize_computed
from tests.check import check, logical, poisoned_memory
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE, every_isa, execute_all
from tests.primitives.products import (
    Types,
    Window,
    convolution_desc,
    expected,
    inner_product_desc,
    inputs,
    matmul_desc,
)

MODES = {"dynamic_mx": ("e8m0", (1, 32)), "dynamic_fp": ("f8_e4m3", (1, 16))}
SCALES = Arg.SCALES | Arg.DST
# A product of every number with one is that number.
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, -1e38, 1e-38, 1e-41, -1e-45, 448.0, 449.0]


def computed(mode: str, ndims: int = 2) -> PrimitiveAttr:
    data_type, groups = MODES[mode]
    attr = PrimitiveAttr()
    attr.set_scales(Arg.DST, (1 << ndims) - 1, groups, data_type, mode)
    return attr


def run(pd: PrimitiveDesc, args: dict[int, Memory]) -> tuple[Memory, Memory]:
    """dst and its scales."""
    written = {SCALES: poisoned_memory(pd.arg_desc(SCALES), ENGINE)}
    results = execute_all(pd, args, written)
    return results[Arg.DST], results[SCALES]


def verify(desc: Desc, attr: PrimitiveAttr) -> None:
    """Sums that no rounding changes, as dst and its scales have them."""
    pd = PrimitiveDesc(desc, ENGINE, attr)
    args = inputs(pd, "integers")
    dst, scales = run(pd, args)
    values = {arg: logical(memory) for arg, memory in args.items()}
    sums = expected(pd, values)[0]
    results = apply_post_ops(sums, tuple(pd.attr.post_ops), values)
    kind, spec = pd.dst_desc.data_type, pd.attr.scales[Arg.DST]
    want = computed_scales(results, spec, kind)
    check(scales, want, 0.0)
    quantized = quantize_computed(results, expand(want, results.shape, spec), kind)
    check(dst, convert(quantized, kind), 0.0)


@every_pair(
    every_isa,
    pytest.mark.parametrize("mode", MODES),
    pytest.mark.parametrize("dst", ["f8_e5m2", "f8_e4m3", "f4_e2m1", "s8"]),
)
def test_of_each_type(dst: str, mode: str, isa: str) -> None:
    with config.override("max_cpu_isa", isa):
        verify(matmul_desc((7, 20, 96), ("f32", "f32", dst), bias="f32"), computed(mode))


@pytest.mark.parametrize(
    "types",
    [
        ("bf16", "bf16", "f8_e4m3"),
        ("f16", "f16", "f4_e2m1"),
        ("u8", "s8", "s8"),
        ("f8_e4m3", "f8_e4m3", "f8_e5m2"),
    ],
    ids=str,
)
@pytest.mark.parametrize("batch", [(), (3,)])
def test_of_products_of_each_type(types: Types, batch: tuple[int, ...]) -> None:
    desc = matmul_desc((5, 24, 64), types, batch=batch)
    verify(desc, computed("dynamic_mx", 2 + len(batch)))


@pytest.mark.parametrize("layout", ["plain", "ba"])
def test_of_each_layout_behind_post_ops(layout: str) -> None:
    attr = computed("dynamic_mx")
    attr.post_ops.append_eltwise("eltwise_relu", 0.5)
    attr.post_ops.append_binary("binary_mul", MemoryDesc((1, 64), "f32"))
    verify(matmul_desc((9, 20, 64), ("f32", "f32", "f8_e4m3"), ("any", "any", layout)), attr)


def test_of_inner_product() -> None:
    verify(inner_product_desc((5, 7, 3), 64, ("f32", "f32", "f8_e5m2")), computed("dynamic_mx"))


@every_pair(
    every_isa,
    pytest.mark.parametrize("mode", MODES),
    pytest.mark.parametrize("dst", ["f8_e5m2", "f8_e4m3", "f4_e2m1"]),
)
def test_of_what_is_no_number_too_large_or_too_small(dst: str, mode: str, isa: str) -> None:
    rows = np.zeros((1, 16 * len(SPECIAL) * 2), np.float32)
    rows[0, ::32] = SPECIAL
    rows[0, 16::32] = SPECIAL[::-1]
    rows[0, 5::32] = np.float32(1e-40)
    with config.override("max_cpu_isa", isa):
        desc = matmul_desc((1, 1, rows.size), ("f32", "f32", dst), ("plain",) * 3)
        pd = PrimitiveDesc(desc, ENGINE, computed(mode))
        one = Memory.from_numpy(np.ones((1, 1), np.float32))
        got, scales = run(pd, {Arg.SRC: one, Arg.WEIGHTS: Memory.from_numpy(rows)})
    kind, spec = pd.dst_desc.data_type, pd.attr.scales[Arg.DST]
    want = computed_scales(rows, spec, kind)
    check(scales, want, 0.0)
    quantized = quantize_computed(rows, expand(want, rows.shape, spec), kind)
    check(got, convert(quantized, kind), 0.0)


@pytest.mark.parametrize(("dst", "largest"), [("f8_e5m2", 15), ("f8_e4m3", 8), ("f4_e2m1", 2)])
def test_scales_are_those_of_the_microscaling_formats(dst: str, largest: int) -> None:
    """The exponent of the largest magnitude less that of the type, written out."""
    numbers = np.random.default_rng(3).standard_normal((4, 96)).astype(np.float32)
    numbers *= np.exp2(np.random.default_rng(4).integers(-30, 30, (4, 96))).astype(np.float32)
    desc = matmul_desc((4, 4, 96), ("f32", "f32", dst), ("plain",) * 3)
    pd = PrimitiveDesc(desc, ENGINE, computed("dynamic_mx"))
    args = {
        Arg.SRC: Memory.from_numpy(np.eye(4, dtype=np.float32)),
        Arg.WEIGHTS: Memory.from_numpy(numbers),
    }
    got, scales = run(pd, {int(arg): memory for arg, memory in args.items()})
    most = np.abs(numbers).reshape(4, 3, 32).max(-1)
    powers = np.exp2(np.floor(np.log2(most)) - largest)
    assert (logical(scales) == powers).all()
    kind: Any = {
        "f8_e5m2": ml_dtypes.float8_e5m2,
        "f8_e4m3": ml_dtypes.float8_e4m3fn,
        "f4_e2m1": ml_dtypes.float4_e2m1fn,
    }[dst]
    limit = float(DataType[dst].max)
    shares: NDArray[Any] = np.clip(numbers / np.repeat(powers, 32, axis=1), -limit, limit)
    assert (logical(got) == shares.astype(kind).astype(np.float64)).all()


def test_a_product_goes_on_with_what_another_made() -> None:
    """dst and its scales are src and its scales of the next product."""
    rng = np.random.default_rng(5)
    x, a, b = (
        rng.standard_normal(shape).astype(np.float32) for shape in ((8, 48), (48, 64), (64, 32))
    )
    first = PrimitiveDesc(
        matmul_desc((8, 48, 64), ("f32", "f32", "f8_e4m3"), ("plain",) * 3),
        ENGINE,
        computed("dynamic_mx"),
    )
    args = {int(Arg.SRC): Memory.from_numpy(x), int(Arg.WEIGHTS): Memory.from_numpy(a)}
    made, scales = run(first, args)
    attr = PrimitiveAttr()
    attr.set_scales(Arg.SRC, 3, (1, 32), "e8m0")
    kinds = ("f8_e4m3", "f8_e4m3", "f32")
    second = PrimitiveDesc(matmul_desc((8, 64, 32), kinds, ("plain",) * 3), ENGINE, attr)
    weights = Memory.from_numpy(b.astype(ml_dtypes.float8_e4m3fn))
    args = {Arg.SRC: made, Arg.WEIGHTS: weights, Arg.SCALES | Arg.SRC: scales}
    got = logical(execute_all(second, args)[Arg.DST])
    want = (x @ a).astype(np.float64) @ b
    assert np.linalg.norm(got - want) < 0.05 * np.linalg.norm(want)


@pytest.mark.parametrize(
    ("given", "name", "rule"),
    [
        ((Arg.SRC, 3, (1, 32), "e8m0", "dynamic_mx"), "arg", "DST"),
        ((Arg.DST, 3, (1, 16), "e8m0", "dynamic_mx"), "groups", r"\(1, 32\)"),
        ((Arg.DST, 3, (1, 32), "f8_e4m3", "dynamic_mx"), "data_type", "e8m0"),
        ((Arg.DST, 3, (1, 32), "f8_e4m3", "dynamic_fp"), "groups", r"\(1, 16\)"),
        ((Arg.DST, 3, (1, 32), "e8m0", "dynamic"), "quantization_mode", "dynamic_mx"),
    ],
)
def test_what_is_no_such_attribute(given: tuple[Any, ...], name: str, rule: str) -> None:
    with pytest.raises(InvalidArguments, match=rf"{name}.*{rule}"):
        PrimitiveAttr().set_scales(*given)


def test_a_mask_has_every_dimension() -> None:
    attr = PrimitiveAttr()
    attr.set_scales(Arg.DST, 2, (1, 32), "e8m0", "dynamic_mx")
    with pytest.raises(InvalidArguments, match=r"mask.*every dimension"):
        PrimitiveDesc(matmul_desc((4, 4, 64), ("f32", "f32", "f8_e4m3")), ENGINE, attr)


def test_groups_divide_rows() -> None:
    desc = matmul_desc((4, 4, 40), ("f32", "f32", "f8_e4m3"))
    with pytest.raises(InvalidArguments, match=r"groups.*32 does not divide dimension 1.* 40"):
        PrimitiveDesc(desc, ENGINE, computed("dynamic_mx"))


def test_what_has_no_such_scales() -> None:
    attr = computed("dynamic_mx")
    with pytest.raises(Unimplemented, match="bf16 with scales that are computed; it takes s8"):
        PrimitiveDesc(matmul_desc((4, 4, 64), ("f32", "f32", "bf16")), ENGINE, attr)
    attr.post_ops.append_sum()
    with pytest.raises(Unimplemented, match="a sum with numbers whose scale is about to change"):
        PrimitiveDesc(matmul_desc((4, 4, 64), ("f32", "f32", "f8_e4m3")), ENGINE, attr)
    attr = computed("dynamic_mx")
    attr.set_dropout()
    with pytest.raises(Unimplemented, match="dropout with scales of DST that are computed"):
        PrimitiveDesc(matmul_desc((4, 4, 64), ("f32", "f32", "f8_e4m3")), ENGINE, attr)
    attr = computed("dynamic_mx")
    attr.set_zero_points(Arg.DST)
    with pytest.raises(Unimplemented, match="zero points of DST with scales of DST"):
        PrimitiveDesc(matmul_desc((4, 4, 64), ("f32", "f32", "s8")), ENGINE, attr)
    image = convolution_desc(Window((34,), (3,)), 1, (4, 4))
    with pytest.raises(Unimplemented, match="scales of DST that the library computes"):
        PrimitiveDesc(image, ENGINE, computed("dynamic_mx", 3))


def test_spec_in_words() -> None:
    assert str(computed("dynamic_mx")) == "attr-scales:dst:3:e8m0:1x32:dynamic_mx"
