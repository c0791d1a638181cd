"""Panels that threads make: of weights in rows and columns, and of weights of few bits."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from dnnl import Arg, InnerProductDesc, MatmulDesc, PrimitiveAttr, PrimitiveDesc, config
from dnnl.codegen.epilogue.quantization import Quantization
from dnnl.codegen.isa import caches
from dnnl.codegen.isa.caches import Caches
from dnnl.kernels.product.pack.decompressed import DecompressedPacking
from dnnl.kernels.product.pack.on_the_fly import PanelPacking
from dnnl.kernels.product.pack.repacked import RepackedPacking
from dnnl.kernels.product.pack.unpacked import UnpackedPacking
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE
from tests.primitives.products import Dims, Types, inner_product_desc, matmul_desc, verify
from tests.processor import ISAS
from tests.small_caches import small_caches

# Those that multiply bf16 by an instruction.
_NARROW = sorted({"avx512_core_amx"} & {*ISAS})
narrow_rows = pytest.mark.parametrize("isa", _NARROW)
Values = tuple[int, Dims]
COLUMNS, GROUPS, LARGE, ONE = (2, ()), (3, (8, 1)), (3, (32, 1)), (0, ())


def _attr(
    scales: Values | None = None,
    zero_points: Values | None = None,
    mode: str = "bf16",
    types: tuple[str, str] = ("f32", "s8"),
) -> PrimitiveAttr:
    attr = PrimitiveAttr(fpmath_mode=mode, fpmath_apply_to_int=True)
    if scales is not None:
        attr.set_scales(Arg.WEIGHTS, *scales, types[0])
    if zero_points is not None:
        attr.set_zero_points(Arg.WEIGHTS, *zero_points, types[1])
    return attr


def _packing(desc: MatmulDesc | InnerProductDesc, attr: PrimitiveAttr) -> PanelPacking | None:
    conf: Any = PrimitiveDesc(desc, ENGINE, attr).plan.recipe.conf
    packing: PanelPacking | None = conf.packing
    return packing


def _verify(desc: MatmulDesc | InnerProductDesc, attr: PrimitiveAttr) -> None:
    """Panels are made on the way to a right result; scaled weights are rounded to bf16."""
    packing = _packing(desc, attr)
    assert isinstance(packing, DecompressedPacking)
    scaled = packing.quantization != Quantization()
    verify(desc, attr, "normal", rounded=(Arg.SRC, Arg.WEIGHTS) if scaled else (Arg.SRC,))


@every_pair(
    narrow_rows,
    pytest.mark.parametrize(
        ("types", "scales", "zero_points"),
        [
            (("bf16", "s4", "f32"), LARGE, None),
            (("f32", "s4", "f32"), GROUPS, LARGE),
            (("bf16", "u4", "bf16"), LARGE, GROUPS),
            (("f32", "u4", "f32"), None, ONE),
            (("bf16", "f4_e2m1", "f32"), LARGE, None),
            (("bf16", "f8_e4m3", "f32"), LARGE, None),
            (("bf16", "f8_e5m2", "bf16"), COLUMNS, None),
            (("bf16", "s8", "f32"), LARGE, LARGE),
            (("f32", "u8", "bf16"), COLUMNS, COLUMNS),
            (("f32", "s8", "f32"), COLUMNS, None),
        ],
    ),
    pytest.mark.parametrize("rows", [6, 33]),
)
def test_values(
    isa: str, types: Types, scales: Values | None, zero_points: Values | None, rows: int
) -> None:
    """Each type with scales and zero points of each kind."""
    with config.override("max_cpu_isa", isa):
        _verify(matmul_desc((rows, 96, 70), types), _attr(scales, zero_points))


@every_pair(narrow_rows, k=[8, 24, 264, 1000], n=[15, 32, 50], weights=["s4", "u8"])
def test_tails(isa: str, k: int, n: int, weights: str) -> None:
    """Columns that fill no vector or panel, words that fill no block of a matrix unit, sums in
    several blocks."""
    with config.override("max_cpu_isa", isa):
        _verify(matmul_desc((19, k, n), ("bf16", weights, "f32")), _attr(GROUPS, GROUPS))


@narrow_rows
@pytest.mark.parametrize("rows", [150, 700])
def test_many_rows(isa: str, rows: int) -> None:
    """Blocks of rows make the same panels again."""
    with config.override("max_cpu_isa", isa):
        _verify(matmul_desc((rows, 512, 40), ("bf16", "s4", "f32")), _attr(LARGE))


@narrow_rows
def test_bf16_needs_no_leave_where_nothing_is_rounded(isa: str) -> None:
    """Weights of few bits are numbers of bf16; what changes within a sum is not."""
    exact, rounded = _attr(COLUMNS, mode="strict"), _attr(LARGE, mode="strict")
    with config.override("max_cpu_isa", isa):
        for weights in ("s4", "u8", "f4_e2m1"):
            _verify(matmul_desc((20, 64, 48), ("bf16", weights, "f32")), exact)
            assert _packing(matmul_desc((20, 64, 48), ("bf16", weights, "f32")), rounded) is None
            src = "f32" if weights != "f4_e2m1" else "f16"
            assert _packing(matmul_desc((20, 64, 48), (src, weights, "f32")), exact) is None


@every_pair(
    narrow_rows,
    pytest.mark.parametrize("weights", ["f4_e2m1", "f8_e4m3", "s4"]),
    pytest.mark.parametrize("rows", [3, 17]),
)
def test_powers_of_two_round_nothing(isa: str, weights: str, rows: int) -> None:
    """Scales of microscaling formats need no leave for bf16."""
    desc, attr = matmul_desc((rows, 96, 70), ("bf16", weights, "f32")), _attr(None, mode="strict")
    attr.set_scales(Arg.WEIGHTS, *LARGE, "e8m0")
    with config.override("max_cpu_isa", isa):
        assert (_packing(desc, attr) is None) == (rows < 6)
        verify(desc, attr, "normal")


@narrow_rows
@pytest.mark.parametrize("types", [("bf16", "f16"), ("e8m0", "s32"), ("f16", "u4")])
def test_types_of_values(isa: str, types: tuple[str, str]) -> None:
    """Scales and zero points of every type."""
    desc = matmul_desc((9, 64, 96), ("bf16", "u4", "f32"))
    zero_points = GROUPS if types[1] != "f16" else None
    with config.override("max_cpu_isa", isa):
        _verify(desc, _attr(LARGE, zero_points, types=types))


@narrow_rows
def test_batches_of_epilogues(isa: str) -> None:
    """Weights of a batch, and one for all of it, with a bias and post-ops behind scaled sums."""
    attr = _attr((6, (32, 1)))
    attr.post_ops.append_eltwise("eltwise_relu")
    attr.post_ops.append_sum(0.5)
    desc = matmul_desc((10, 64, 48), ("bf16", "s4", "bf16"), bias="f32", batch=(3,))
    with config.override("max_cpu_isa", isa):
        _verify(desc, attr)


@narrow_rows
@pytest.mark.parametrize("values", [COLUMNS, LARGE])
def test_inner_product(isa: str, values: Values) -> None:
    """Output channels are the first dimension of weights."""
    mask, groups = values
    turned = (1, ()) if mask == 2 else (3, groups[::-1])
    desc = inner_product_desc((12, 96), 50, ("bf16", "s4", "f32"), bias="f32")
    with config.override("max_cpu_isa", isa):
        _verify(desc, _attr(turned, turned))


@narrow_rows
@pytest.mark.parametrize("types", [("bf16", "s4"), ("bf16", "bf16"), ("u8", "s8")])
def test_blocks_of_src_have_words_of_padding(isa: str, types: tuple[str, str]) -> None:
    """Panels that are cut as src is are not made, which would end before src does."""
    for weights in ("any", "ab"):
        desc = inner_product_desc((12, 24), 50, (*types, "f32"), ("aB16b", weights, "plain"))
        with config.override("max_cpu_isa", isa):
            assert _packing(desc, _attr()) is None
            verify(desc, _attr())


@narrow_rows
def test_weights_serve_any_number_of_rows(isa: str) -> None:
    """A step of one row and a prompt of many read the same panels, and nothing is copied."""
    with config.override("max_cpu_isa", isa):
        for weights in ("s4", "s8"):
            pds = [
                PrimitiveDesc(
                    matmul_desc((rows, 512, 512), ("bf16", weights, "f32")), ENGINE, _attr(LARGE)
                )
                for rows in (1, 2, 6, 40, 600)
            ]
            if isa == "avx512_core_amx":
                assert len({pd.weights_desc for pd in pds}) == 1
            assert {pd.scratchpad_desc.size for pd in pds[2:]} == {0}


@narrow_rows
def test_other_layouts_are_copied(isa: str) -> None:
    """Weights in rows or columns are not in panels: right all the same."""
    with config.override("max_cpu_isa", isa):
        for layout in ("plain", "reversed"):
            desc = matmul_desc((40, 64, 48), ("bf16", "s4", "f32"), ("plain", layout, "plain"))
            assert _packing(desc, _attr(LARGE)) is None
            verify(desc, _attr(LARGE), "normal", rounded=(Arg.SRC, Arg.WEIGHTS))


@narrow_rows
def test_info_tells_of_panels(isa: str) -> None:
    with config.override("max_cpu_isa", isa):
        desc = matmul_desc((40, 64, 48), ("bf16", "s4", "f32"))
        told = PrimitiveDesc(desc, ENGINE, _attr(LARGE)).info().factors
    assert told.endswith("threads pack panels of bf16 from s4")


_BYTES = sorted({"sse41", "avx2", "avx512_core_vnni", "avx512_core_amx"} & {*ISAS})


@every_pair(
    isa=_BYTES,
    types=[("s8", "s4"), ("u8", "u4"), ("s8", "u4"), ("u8", "s4")],
    sizes=[(1, 264, 50), (7, 20, 15), (40, 1000, 33), (19, 64, 96)],
)
def test_bytes(isa: str, types: tuple[str, str], sizes: Dims) -> None:
    """Words that fill no block, columns that fill no panel, a batch, and an inner product."""
    rows, terms, columns = sizes
    with config.override("max_cpu_isa", isa):
        for desc in (
            matmul_desc(sizes, (*types, "s32")),
            matmul_desc(sizes, (*types, "f32"), bias="f32", batch=(3,)),
            inner_product_desc((rows, terms), columns, (*types, "s8")),
        ):
            assert isinstance(_packing(desc, PrimitiveAttr()), UnpackedPacking)
            verify(desc)


@every_pair(isa=_BYTES, rows=[1, 12], types=[("s8", "s4"), ("u8", "u4")])
def test_bytes_in_segments(isa: str, rows: int, types: tuple[str, str]) -> None:
    """Scales and zero points by groups of weights, and sums of several segments a block."""
    for scales, zero_points in ((LARGE, None), (LARGE, (3, (16, 1))), ((3, (64, 1)), LARGE)):
        attr = _attr(scales, zero_points)
        attr.set_scales(Arg.SRC, 3, (1, 64))
        with config.override("max_cpu_isa", isa):
            desc = matmul_desc((rows, 768, 70), (*types, "f32"))
            assert isinstance(_packing(desc, attr), UnpackedPacking)
            verify(desc, attr, "normal")


@pytest.mark.parametrize("isa", _BYTES)
@pytest.mark.parametrize("rows", [1, 20])
def test_bytes_beside_a_zero_point_of_src(isa: str, rows: int) -> None:
    """A row of ones meets all of a panel beside a matrix unit, which is copied then."""
    attr = PrimitiveAttr()
    attr.set_zero_points(Arg.SRC, 0)
    with config.override("max_cpu_isa", isa):
        verify(matmul_desc((rows, 300, 70), ("u8", "s4", "f32")), attr)


@pytest.fixture
def usual_caches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A second-level cache that keeps src, as panels of rows and columns are made for."""

    def kept(cpu: str, sized: Caches) -> Caches:
        return replace(small_caches(cpu, sized), l2=2**20)

    monkeypatch.setattr(caches, "of", kept)
    with config.override("cache_limit", 0):
        yield


NARROW = [("bf16", "bf16", "f32"), ("s8", "s8", "f32")]


@pytest.mark.usefixtures("usual_caches")
@every_pair(
    isa=sorted({"sse41", "avx2", "avx512_core_vnni", ISAS[-1]} & {*ISAS}),
    way=[*product(["plain", "reversed"], [("f32",) * 3, *NARROW])],
    sizes=[(37, 40, 70), (19, 260, 33), (200, 1028, 17), (33, 8, 15)],
)
def test_weights_in_rows_and_columns(isa: str, way: tuple[str, Types], sizes: Dims) -> None:
    """Columns that fill no panel, words that fill no square, sums in several blocks, and zero
    points, for which the columns of weights are summed up."""
    layout, types = way
    desc = matmul_desc(sizes, types, ("plain", layout, "plain"), batch=(2,))
    attr = PrimitiveAttr()
    if types[0] == "s8":
        attr.set_zero_points(Arg.SRC, 0)
    with config.override("max_cpu_isa", isa):
        verify(desc, attr)
        verify(
            inner_product_desc((sizes[0], sizes[1]), sizes[2], types, ("plain", layout, "plain"))
        )


@pytest.mark.usefixtures("usual_caches")
@pytest.mark.parametrize("isa", sorted({"sse41", "avx2"} & {*ISAS}))
@pytest.mark.parametrize("sizes", [(20, 100, 1100), (7, 33, 1045), (40, 37, 4112)])
def test_rows_with_pages_of_their_own(isa: str, sizes: Dims) -> None:
    """Several panels are made side by side, in blocks of few rows; the last ones fill no group and
    no panel."""
    with config.override("max_cpu_isa", isa):
        desc = matmul_desc(sizes, ("f32",) * 3, ("plain",) * 3)
        info = PrimitiveDesc(desc, ENGINE).info(1)
        assert info.factors.endswith("threads pack panels of f32")
        assert " panels meet" in info.block
        verify(desc)
        verify(inner_product_desc((20, sizes[1]), sizes[2], ("f32",) * 3, ("plain", "ba", "plain")))


@pytest.mark.usefixtures("usual_caches")
@pytest.mark.parametrize("layout", ["plain", "reversed"])
def test_weights_are_not_copied(layout: str) -> None:
    desc = matmul_desc((64, 96, 70), ("f32", "f32", "f32"), ("plain", layout, "plain"))
    assert isinstance(_packing(desc, PrimitiveAttr()), RepackedPacking)
    assert PrimitiveDesc(desc, ENGINE).scratchpad_desc.size == 0
