"""Weights that become floats when they are loaded, and sums that are scaled segment by segment."""

import pytest

from dnnl import (
    Arg,
    MatmulDesc,
    PrimitiveAttr,
    PrimitiveDesc,
    config,
)
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE, ISAS
from tests.primitives.products import (
    Dims,
    Types,
    inner_product_desc,
    matmul_desc,
    some_rows,
    verify,
)

# What does not change along K, groups along K, and groups of scales that differ from those of
# zero points: (mask, groups) of scales, and of zero points.
COLUMNS = ((2, ()), None)
GROUPS = ((3, (32, 1)), None)
BOTH = ((3, (32, 1)), (3, (32, 1)))
MIXED = ((3, (64, 1)), (3, (32, 1)))
ONE = ((3, (128, 1)), (0, ()))
SHIFTED = (None, (2, ()))
Values = tuple[int, Dims]
LAYOUTS = {"any": "any", "rows": "plain", "columns": "reversed"}


def _attr(
    scales: Values | None,
    zero_points: Values | None,
    scale_type: str = "f32",
    zero_type: str = "s8",
) -> PrimitiveAttr:
    attr = PrimitiveAttr()
    if scales is not None:
        attr.set_scales(Arg.WEIGHTS, *scales, scale_type)
    if zero_points is not None:
        attr.set_zero_points(Arg.WEIGHTS, *zero_points, zero_type)
    return attr


def _desc(sizes: Dims, types: Types, layout: str) -> MatmulDesc:
    return matmul_desc(sizes, types, ("plain", LAYOUTS[layout], "plain"))


@every_pair(
    some_rows,
    pytest.mark.parametrize("layout", LAYOUTS),
    pytest.mark.parametrize(
        ("types", "values", "rows"),
        [
            (("f32", "s4", "f32"), GROUPS, 1),
            (("f32", "s4", "f32"), SHIFTED, 5),
            (("bf16", "u4", "f32"), BOTH, 1),
            (("f16", "u4", "f16"), MIXED, 9),
            (("bf16", "f4_e2m1", "bf16"), GROUPS, 2),
            (("f32", "s8", "f32"), BOTH, 1),
            (("bf16", "u8", "bf16"), ONE, 7),
            (("f32", "s4", "f32"), COLUMNS, 30),
            (("f32", "u4", "f32"), BOTH, 40),
        ],
    ),
)
def test_values(
    isa: str, layout: str, types: Types, values: tuple[Values | None, Values | None], rows: int
) -> None:
    """Each type with scales and zero points of each kind, in panels, rows and columns."""
    with config.override("max_cpu_isa", isa):
        verify(_desc((rows, 128, 64), types, layout), _attr(*values), "normal")


@every_pair(layout=LAYOUTS, k=[37, 96], n=[19, 66, 224])
def test_tails(layout: str, k: int, n: int) -> None:
    """Columns that fill no vector or panel, sums that fill no word."""
    groups = (2, ()) if k % 32 else (3, (32, 1))
    verify(_desc((3, k, n), ("f32", "s4", "f32"), layout), _attr(groups, groups), "normal")


@pytest.mark.parametrize("group", [16, 24, 48])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_groups_that_no_step_divides(group: int, layout: str) -> None:
    """Groups that are smaller than what is loaded at a time, or no multiple of it."""
    attr = _attr((3, (group, 1)), (3, (group, 1)))
    verify(_desc((2, 2 * 48, 32), ("f32", "u4", "f32"), layout), attr, "normal")


@pytest.mark.parametrize("scale_type", ["bf16", "f16", "e8m0"])
@pytest.mark.parametrize("zero_type", ["s32", "u8", "u4"])
def test_types_of_values(scale_type: str, zero_type: str) -> None:
    """Scales and zero points of every type."""
    attr = _attr((3, (32, 1)), (3, (32, 1)), scale_type, zero_type)
    verify(_desc((2, 64, 96), ("bf16", "u4", "f32"), "any"), attr, "normal")


@every_pair(
    some_rows,
    pytest.mark.parametrize(
        "types", [("u8", "s8", "f32"), ("s8", "s8", "bf16"), ("s8", "u4", "f32")]
    ),
    pytest.mark.parametrize("rows", [1, 33]),
)
def test_integers_by_segments(isa: str, types: Types, rows: int) -> None:
    """Both factors have scales by groups, both have zero points; sums within a group are exact."""
    attr = PrimitiveAttr()
    attr.set_scales(Arg.SRC, 3, (1, 64))
    attr.set_scales(Arg.WEIGHTS, 3, (32, 1))
    attr.set_zero_points(Arg.SRC, 0, (), "s32")
    attr.set_zero_points(Arg.WEIGHTS, 3, (32, 1), "s8")
    with config.override("max_cpu_isa", isa):
        for layout in LAYOUTS:
            verify(_desc((rows, 128, 48), types, layout), attr, "normal")


@pytest.mark.parametrize("weights", ["f32", "bf16", "f16", "s8", "u4"])
@pytest.mark.parametrize("rows", [1, 8, 30])
def test_columns_of_any_type(weights: str, rows: int) -> None:
    """Columns side by side, as models have them, are turned in registers."""
    src = "f32" if weights in ("f32", "s8", "u4") else weights
    verify(_desc((rows, 64, 80), (src, weights, "f32"), "columns"), None, "normal")


@every_pair(
    pytest.mark.parametrize(
        "layouts", [("plain", "reversed"), ("plain", "plain"), ("aB16b", "any")]
    ),
    pytest.mark.parametrize("types", [("f32", "s4", "f32"), ("s8", "u8", "f32")]),
    pytest.mark.parametrize("values", [(1, ()), (3, (1, 32)), (3, (1, 6))], ids=str),
)
def test_inner_product(layouts: tuple[str, str], types: Types, values: Values) -> None:
    """Scales and zero points of output channels, and by groups of what is summed."""
    desc = inner_product_desc((3, 96), 48, types, (*layouts, "plain"), "f32")
    verify(desc, _attr(values, values), "normal")


@every_pair(
    pytest.mark.parametrize(
        "types", [("f32", "s4", "f32"), ("s8", "u8", "f32"), ("s8", "u4", "f32")]
    ),
    pytest.mark.parametrize("zero_points", [(0, ()), (1, ())], ids=str),
    pytest.mark.parametrize("dims", [(3, 8, 1, 1), (2, 5, 3, 2)], ids=str),
)
def test_inner_product_over_several_dimensions(
    types: Types, zero_points: Values, dims: Dims
) -> None:
    """Zero points of weights meet sums of src over all of its dimensions but the first."""
    verify(inner_product_desc(dims, 40, types, bias="f32"), _attr(None, zero_points))


@pytest.mark.parametrize("factors", [("f32", "s4"), ("f32", "u4"), ("bf16", "f4_e2m1")])
@pytest.mark.parametrize("rows", [1, 3, 7, 20])
def test_rows_of_weights_in_blocks_of_sums(factors: tuple[str, str], rows: int) -> None:
    """Rows of 4-bit weights that no cache keeps: what is summed up waits for the next rows."""
    for isa in ISAS:
        with config.override("max_cpu_isa", isa):
            verify(_desc((rows, 520, 128), (*factors, "f32"), "rows"))


@pytest.mark.parametrize("batch", [(), (3,)])
def test_batches_of_epilogues(batch: Dims) -> None:
    """Batches, a bias and post-ops behind scaled sums."""
    desc = matmul_desc((2, 64, 48), ("bf16", "s4", "bf16"), bias="f32", batch=batch)
    attr = _attr(None, None)
    bit = len(batch)
    attr.set_scales(Arg.WEIGHTS, 3 << bit, (32, 1), "bf16")
    attr.post_ops.append_eltwise("eltwise_relu")
    verify(desc, attr, "normal")


@every_pair(
    layout=LAYOUTS,
    types=[("f32", "f32", "f32"), ("f32", "s8", "f32"), ("f32", "s4", "f32")],
    rows=[1, 4],
)
def test_nothing_is_copied(layout: str, types: Types, rows: int) -> None:
    """As few rows as a tile of 16 registers has read weights of f32, bytes and 4 bits as they lie,
    in every layout. Sums of parts of k are no copy."""
    attr = None if types[1] == "f32" else _attr((3, (32, 1)), None)
    pd = PrimitiveDesc(_desc((rows, 512, 512), types, layout), ENGINE, attr)
    assert pd.scratchpad_desc.size < pd.weights_desc.size // 16


@pytest.mark.parametrize("rows", [1, 100])
def test_panels_hold_words(rows: int) -> None:
    """`any` puts eight k of a column into one word, whatever the number of rows."""
    pd = PrimitiveDesc(_desc((rows, 64, 64), ("f32", "s4", "f32"), "any"), ENGINE)
    assert pd.weights_desc.inner_blocks[-1] == (0, 8)


def test_eight_rows_are_one_tile() -> None:
    """The rows of a tile that lie apart by a page are made no wider than they have to be."""
    one, eight = (
        PrimitiveDesc(_desc((rows, 4096, 4096), ("f32", "f32", "f32"), "any"), ENGINE).weights_desc
        for rows in (1, 8)
    )
    assert eight.inner_blocks[0][1] <= one.inner_blocks[0][1]
