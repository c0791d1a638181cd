"""Matrix products of every type: exact sums of integers, scales, zero points, and all dst types."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dnnl import (
    Arg,
    MatmulDesc,
    Memory,
    MemoryDesc,
    PrimitiveAttr,
    PrimitiveDesc,
    config,
)
from dnnl.codegen.isa import caches
from dnnl.codegen.nest import work_items
from dnnl.primitives.primitive_desc import select_isa
from tests.check import Fill, memory_of
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE
from tests.primitives.products import (
    Dims,
    attr_of,
    broadcast_dims,
    inputs,
    lay_out,
    verify,
    verify_on,
)
from tests.processor import ISAS

BYTES = [("u8", "s8"), ("s8", "s8"), ("u8", "u8"), ("s8", "u8")]
THREE = [("u8", "s8", "s32"), ("s8", "s8", "f32"), ("bf16",) * 3]
LAYOUTS = ["plain", "gaps", "part", "reversed"]
ZERO_POINTS = [(0, None, None), (None, 0, None), (0, 0, 0), (1, 2, None), (None, 2, 2), (0, 2, 0)]
FLOATS = ["bf16", "f16"]
DST = ["f32", "bf16", "f16", "s32", "s8", "u8"]


every_row = pytest.mark.parametrize("isa", ISAS)
pairs = pytest.mark.parametrize("types", BYTES, ids="-".join)


def matmul(
    sizes: Dims,
    types: tuple[str, str, str],
    layouts: tuple[str, str, str] = ("any", "any", "any"),
    bias: MemoryDesc | None = None,
    batch: tuple[Dims, Dims] = ((), ()),
) -> MatmulDesc:
    """A description of sizes (M, K, N); ``batch`` are the leading dims of src and weights."""
    m, k, n = sizes
    both = tuple(map(max, *batch)) if batch[0] else ()
    dims = (*batch[0], m, k), (*batch[1], k, n), (*both, m, n)
    src, weights, dst = (
        lay_out(size, layout).with_data_type(data_type)
        for size, layout, data_type in zip(dims, layouts, types, strict=True)
    )
    return MatmulDesc(src, weights, dst, bias)


def extreme(pd: PrimitiveDesc, src: int, weights: int) -> dict[int, Memory]:
    """Memories of one value each."""
    return {
        arg: memory_of(np.full(pd.arg_desc(arg).dims, value), pd.arg_desc(arg), ENGINE)
        for arg, value in ((Arg.SRC, src), (Arg.WEIGHTS, weights))
    }


@every_pair(
    way=[*itertools.product(ISAS, BYTES)],
    layout=["any", "plain", "reversed"],
    sizes=[(1, 1, 1), (13, 5, 17), (31, 64, 35)],
)
def test_sums_of_bytes_are_exact(
    way: tuple[str, tuple[str, str]], layout: str, sizes: Dims
) -> None:
    isa, types = way
    with config.override("max_cpu_isa", isa):
        verify(matmul(sizes, (*types, "s32"), (layout,) * 3), fill="normal")


@every_pair(
    every_row,
    pairs,
    pytest.mark.parametrize("high", [*itertools.product((False, True), repeat=2)], ids=str),
)
def test_no_sum_saturates(high: tuple[bool, bool], types: tuple[str, str], isa: str) -> None:
    """Products of the largest bytes, of which two do not fit 16 bits."""
    limits = {"u8": (0, 255), "s8": (-128, 127)}
    values = [limits[name][top] for name, top in zip(types, high, strict=True)]
    with config.override("max_cpu_isa", isa):
        pd = PrimitiveDesc(matmul((9, 102, 33), (*types, "s32")), ENGINE)
        verify_on(pd, extreme(pd, *values))


@every_pair(isa=ISAS, layout=["any", "plain", "reversed"], dst=["f32", "own"], data_type=FLOATS)
def test_small_floats(data_type: str, dst: str, layout: str, isa: str) -> None:
    types = (data_type, data_type, data_type if dst == "own" else dst)
    with config.override("max_cpu_isa", isa):
        verify(matmul((15, 37, 35), types, (layout,) * 3), fill="normal")
        verify(matmul((15, 37, 35), types, (layout,) * 3))


@every_pair(
    isa=ISAS,
    types=[*BYTES, ("bf16", "bf16"), ("f16", "f16")],
    layout=["plain", "part", "gaps"],
    sizes=[(1, 24, 192), (3, 16, 64), (4, 8, 256)],
)
def test_few_rows_meet_weights_in_rows(
    sizes: Dims, layout: str, types: tuple[str, str], isa: str
) -> None:
    zeros = PrimitiveAttr()
    if types in BYTES:
        zeros.set_zero_points(Arg.SRC, 0)
        zeros.set_zero_points(Arg.WEIGHTS, 2)
    layouts = (layout, layout, "plain")
    with config.override("max_cpu_isa", isa):
        verify(matmul(sizes, (*types, "f32"), layouts), fill="normal")
        verify(matmul(sizes, (*types, "f32"), layouts, batch=((2, 1), (1, 3))), zeros)


@pytest.mark.parametrize(
    "types", [("u8", "s8", "s32"), ("u8", "u8", "f32"), ("bf16",) * 3], ids=str
)
def test_weights_in_rows_are_not_packed_for_few_rows(types: tuple[str, str, str]) -> None:
    lanes = select_isa(ENGINE).lanes
    desc = matmul((1, 64, 4 * lanes), types, ("plain",) * 3)
    assert PrimitiveDesc(desc, ENGINE).scratchpad_desc.size < desc.weights_desc.size


@every_pair(src=LAYOUTS, other=LAYOUTS, types=THREE)
def test_layouts(src: str, other: str, types: tuple[str, str, str]) -> None:
    for sizes in ((15, 12, 34), (15, 9, 34)):
        verify(matmul(sizes, types, (src, other, "plain")))
        verify(matmul(sizes, types, (src, "any", other)))


@pytest.mark.parametrize("layout", ["AB16a16b", "aB16b", "Ab8a", "BA8b4a", "behind"])
@pytest.mark.parametrize("side", [0, 1, 2])
def test_blocked_layouts(side: int, layout: str) -> None:
    for types in (("u8", "s8", "s32"), ("s8", "s8", "u8"), ("f16", "f16", "f32")):
        layouts = ["plain"] * 3
        layouts[side] = layout
        verify(matmul((19, 37, 21), types, (layouts[0], layouts[1], layouts[2])))


@every_pair(
    types=[("u8", "s8"), ("s8", "s8"), ("bf16", "bf16")],
    dst=DST,
    layout=["plain", "reversed", "AB16a16b"],
)
def test_every_dst(layout: str, dst: str, types: tuple[str, str]) -> None:
    verify(matmul((7, 12, 35), (*types, dst), ("plain", "any", layout)), fill="normal")


@every_pair(
    every_row, pytest.mark.parametrize("dst", ["f32", "s8"]), pytest.mark.parametrize("bias", DST)
)
def test_types_of_bias(bias: str, dst: str, isa: str) -> None:
    desc = MemoryDesc((1, 35), bias)
    with config.override("max_cpu_isa", isa):
        verify(matmul((7, 12, 35), ("u8", "s8", dst), bias=desc), fill="normal")


@every_pair(
    dst=["plain", "reversed", "AB16a16b"],
    types=[("u8", "s8", "s8"), ("s8", "s8", "f32"), ("f32",) * 3],
    masks=[*itertools.product((0, 1), (0, 2), (0, 1, 2, 3))],
)
def test_scales(masks: Dims, types: tuple[str, str, str], dst: str) -> None:
    attr = PrimitiveAttr()
    for arg, mask in zip((Arg.SRC, Arg.WEIGHTS, Arg.DST), masks, strict=True):
        attr.set_scales(arg, mask)
    desc = matmul((7, 12, 35), types, ("plain", "any", dst), MemoryDesc((1, 35), "f32"))
    verify(desc, attr, "normal")


@pytest.mark.parametrize("data_type", ["f32", "bf16", "f16", "e8m0", "f8_e4m3"])
@pytest.mark.parametrize("arg", [Arg.SRC, Arg.WEIGHTS, Arg.DST])
def test_types_of_scales(arg: Arg, data_type: str) -> None:
    attr = PrimitiveAttr()
    attr.set_scales(arg, 2 if arg is Arg.WEIGHTS else 1, (), data_type)
    verify(matmul((7, 12, 35), ("u8", "s8", "f32")), attr, "normal")


@every_pair(
    isa=ISAS,
    types=BYTES,
    src=[None, 0, 1],
    weights=[None, 0, 2],
    dst=[None, 2],
    k=[12, 13],
)
def test_zero_points(
    src: int | None, weights: int | None, dst: int | None, types: tuple[str, str], isa: str, k: int
) -> None:
    attr = PrimitiveAttr()
    masks = src, weights, dst
    for arg, mask in zip((Arg.SRC, Arg.WEIGHTS, Arg.DST), masks, strict=True):
        if mask is not None:
            attr.set_zero_points(arg, mask)
    with config.override("max_cpu_isa", isa):
        verify(matmul((15, k, 35), (*types, "s32")), attr, "normal")


@pytest.mark.parametrize("data_type", ["s32", "s8", "u8", "s4", "u4"])
@pytest.mark.parametrize("dst", ["plain", "reversed", "AB16a16b"])
def test_types_of_zero_points(dst: str, data_type: str) -> None:
    attr = PrimitiveAttr()
    attr.set_zero_points(Arg.SRC, 0, (), data_type)
    attr.set_zero_points(Arg.WEIGHTS, 2, (), data_type)
    attr.set_zero_points(Arg.DST, 0, (), data_type)
    values = {"u4": (3, 5, 2), "u8": (100, 7, 128)}.get(data_type, (-3, 5, -7))
    desc = matmul((7, 12, 35), ("s8", "s8", "u8"), ("plain", "plain", dst))
    pd = PrimitiveDesc(desc, ENGINE, attr)
    args = inputs(pd)
    for arg, value in zip((Arg.SRC, Arg.WEIGHTS, Arg.DST), values, strict=True):
        place = Arg.ZERO_POINTS | arg
        args[place] = memory_of(np.full(args[place].desc.dims, value), args[place].desc, ENGINE)
    verify_on(pd, args)


@pytest.mark.parametrize(
    "batch", [((2, 3), (2, 3)), ((1, 3), (2, 1)), ((2, 1), (1, 1)), ((1, 1), (2, 3))], ids=str
)
@pytest.mark.parametrize("weights", ["plain", "any", "abdc"])
def test_batches_with_all(batch: tuple[Dims, Dims], weights: str) -> None:
    attr = PrimitiveAttr()
    attr.set_scales(Arg.SRC, 0b0100)
    attr.set_scales(Arg.WEIGHTS, 0b1011)
    attr.set_scales(Arg.DST, 0b1000)
    attr.set_zero_points(Arg.SRC, 0b0001)
    attr.set_zero_points(Arg.WEIGHTS, 0b1000)
    attr.set_zero_points(Arg.DST, 0)
    attr.post_ops.append_eltwise("eltwise_relu")
    attr.post_ops.append_sum(0.5, zero_point=2)
    for dst in ("plain", "badc", "abdc"):
        bias = MemoryDesc((1, 1, 5, 18), "bf16")
        layouts = ("acbd", weights, dst)
        verify(matmul((5, 7, 18), ("s8", "s8", "s8"), layouts, bias, batch), attr)


@every_pair(isa=ISAS, types=[("u8", "s8", "u8"), ("bf16", "bf16", "bf16")], mask=[*range(4)])
def test_post_ops(mask: int, types: tuple[str, str, str], isa: str) -> None:
    operand = lay_out(broadcast_dims((7, 19), mask), "plain").with_data_type("f16")
    attr = attr_of(
        ("binary", "binary_add", operand),
        ("eltwise", "eltwise_gelu_tanh"),
        ("sum", 0.5),
        ("prelu", mask),
    )
    fill: Fill = "normal"
    with config.override("max_cpu_isa", isa):
        for dst in ("plain", "reversed", "AB16a16b"):
            verify(matmul((7, 12, 19), types, ("plain", "any", dst)), attr, fill)


@every_pair(
    pairs,
    pytest.mark.parametrize("weights", ["any", "plain"]),
    pytest.mark.parametrize(
        "sizes", [(1, 4096, 200), (2, 1004, 2048), (200, 1003, 96), (3, 20_000, 5)], ids=str
    ),
)
def test_large_products(sizes: Dims, weights: str, types: tuple[str, str]) -> None:
    verify(matmul(sizes, (*types, "s32"), ("plain", weights, "plain")), fill="normal")


@pytest.fixture
def few_in_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """One panel of 2400 k is too much, so that sums are computed in parts, by several work items
    of several panels and tiles each."""
    monkeypatch.setattr(caches, "of", lambda _cpu, sized: replace(sized, l2=2**15))
    monkeypatch.setattr(work_items, "FEW_ITEMS", 4)


@pytest.mark.usefixtures("few_in_cache")
@every_pair(
    isa=ISAS,
    rows=[33, 500],
    types=[("f32",) * 3, ("bf16", "bf16", "f32"), ("u8", "s8", "s32"), ("s8", "s8", "s32")],
)
def test_sums_in_parts(types: tuple[str, str, str], rows: int, isa: str) -> None:
    attr = PrimitiveAttr()
    if "s32" in types:
        attr.set_zero_points(Arg.SRC, 0)
    with config.override("max_cpu_isa", isa):
        desc = matmul((rows, 2400, 203), types, ("plain", "any", "plain"))
        pd = PrimitiveDesc(desc, ENGINE, attr)
        (phase,) = pd.plan.recipe.kernel().phases[-1:]
        assert phase.count > 1
        assert 0 < phase.scratch < 4 * rows * 203
        verify(desc, attr)
        verify(desc)


def test_sums_in_parts_take_no_scratchpad() -> None:
    pd = PrimitiveDesc(matmul((500, 2400, 203), ("f32",) * 3), ENGINE)
    assert pd.scratchpad_desc.size == 0


@pytest.mark.parametrize(
    "types", [("u8", "s8", "s32"), ("s8", "s8", "f32"), ("bf16",) * 3], ids=str
)
def test_nothing_to_sum(types: tuple[str, str, str]) -> None:
    attr = attr_of(("eltwise", "eltwise_linear", 2.0, 1.0))
    verify(matmul((7, 0, 19), types, ("plain", "any", "plain")), attr)


_ALONG_K = [
    # src: mask, groups; weights: mask, groups
    ((0, ()), (1, ())),
    ((2, ()), (3, ())),
    ((0, ()), (3, (6, 1))),
    ((3, (1, 4)), (2, ())),
    ((3, (1, 4)), (3, (6, 5))),
]


@every_pair(
    isa=ISAS,
    masks=_ALONG_K,
    types=[("u8", "s8", "f32"), ("s8", "s8", "s8"), ("bf16",) * 3, ("f32",) * 3],
)
def test_values_along_k(
    types: tuple[str, str, str], masks: tuple[tuple[int, Dims], tuple[int, Dims]], isa: str
) -> None:
    attr, bias = PrimitiveAttr(), MemoryDesc((1, 20), "f32")
    for arg, (mask, groups) in zip((Arg.SRC, Arg.WEIGHTS), masks, strict=True):
        attr.set_scales(arg, mask, groups)
        if types[0] in ("u8", "s8"):
            attr.set_zero_points(arg, mask, groups, "s8")
    attr.set_scales(Arg.DST, 2)
    with config.override("max_cpu_isa", isa):
        for layouts in (("plain", "any", "plain"), ("reversed", "plain", "reversed")):
            verify(matmul((7, 12, 20), types, layouts, bias), attr, "normal")


def test_zero_points_alone_along_k() -> None:
    batch: Dims
    for batch in ((), (3,)):
        attr = PrimitiveAttr()
        attr.set_zero_points(Arg.WEIGHTS, 3 << len(batch), (4, 1))
        layouts = ("plain", "any", "plain")
        verify(matmul((7, 12, 20), ("s8", "s8", "s32"), layouts, None, (batch, batch)), attr)


def test_zero_points_along_k_need_no_row_of_ones() -> None:
    """They are taken off where src is copied: tiles are those of a product with scales alone."""
    for rows in range(1, 9):
        plans: list[Any] = []
        for name in ("set_scales", "set_zero_points"):
            attr = PrimitiveAttr()
            getattr(attr, name)(Arg.SRC, 3)
            product = matmul((rows, 32, 512), ("s8", "s8", "f32"), ("plain",) * 3, None)
            plans.append(PrimitiveDesc(product, ENGINE, attr).plan.recipe.conf)
        scaled, shifted = plans
        assert (scaled.blocking, scaled.weights[1]) == (shifted.blocking, shifted.weights[1])


@pytest.mark.parametrize("types", [("f32", "s8", "f32"), ("bf16", "f8_e4m3", "f32")], ids=":".join)
def test_scales_of_src_are_applied_at_the_end(types: tuple[str, str, str]) -> None:
    """Scales of weights that change along K, for many rows, are no reason to copy src."""
    product = matmul((600, 32, 40), types, ("plain",) * 3, None)
    scaled = PrimitiveAttr()
    scaled.set_scales(Arg.WEIGHTS, 3, (8, 1))
    conf: Any = PrimitiveDesc(product, ENGINE, scaled).plan.recipe.conf
    before = [given for given, _ in conf.copies_in]
    scaled.set_scales(Arg.SRC, 0)
    conf = PrimitiveDesc(product, ENGINE, scaled).plan.recipe.conf
    assert [given for given, _ in conf.copies_in] == before
    verify(product, scaled, "normal")
