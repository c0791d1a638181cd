"""Sums of the rows of src that the user has: what zero points of weights are multiplied by."""

from __future__ import annotations

import numpy as np
import pytest

from dnnl import (
    Arg,
    DataType,
    InvalidArguments,
    Memory,
    PrimitiveAttr,
    PrimitiveDesc,
    Unimplemented,
    config,
)
from dnnl.primitives.desc import Desc
from tests.check import check, logical, memory_of
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE, execute
from tests.primitives.products import Types, inner_product_desc, inputs, matmul_desc, some_rows

TERMS, COLUMNS = 96, 40
REDUCTIONS = Arg.PRECOMPUTED_REDUCTIONS | Arg.SRC


def attr_of(weights: int, given: int, ndims: int = 2, *, per_column: bool = True) -> PrimitiveAttr:
    """Scales and zero points for ``weights`` terms each, sums of ``given`` terms."""
    attr = PrimitiveAttr()
    both, column = 3 << (ndims - 2), 1 << (ndims - 1)
    mask = both if weights < TERMS else column if per_column else 0
    groups = (weights, 1) if weights < TERMS else ()
    attr.set_scales(Arg.WEIGHTS, mask, groups)
    attr.set_zero_points(Arg.WEIGHTS, mask, groups)
    attr.set_precomputed_reductions(Arg.SRC, (1 << ndims) - 1, (1, given))
    return attr


def verify(desc: Desc, attr: PrimitiveAttr) -> None:
    """Sums that are not those of src show that they are taken. Of a signed src they are true:
    VNNI shifts the weights beside it, which the same sums correct."""
    pd = PrimitiveDesc(desc, ENGINE, attr)
    args = inputs(pd, "integers")
    src, weights = logical(args[Arg.SRC]), logical(args[Arg.WEIGHTS])
    own = pd.arg_desc(REDUCTIONS)
    each = TERMS // own.dims[-1]
    sums = src.reshape(*own.dims, each).sum(-1)
    if pd.src_desc.data_type is DataType.u8:
        sums += np.random.default_rng(9).integers(1, 9, sums.shape)
    args[REDUCTIONS] = memory_of(sums, own, ENGINE)
    scales, zero_points = (
        np.repeat(values, TERMS // values.shape[-2], axis=-2)
        for values in (logical(args[flag | Arg.WEIGHTS]) for flag in (Arg.SCALES, Arg.ZERO_POINTS))
    )
    # Each term has its share of the sum that it belongs to.
    shares = np.repeat(sums, each, axis=-1) / each
    want = src @ (scales * weights) - shares @ np.broadcast_to(scales * zero_points, weights.shape)
    check(execute(pd.desc, args, pd.attr), want, 1e-4)


@every_pair(
    some_rows,
    pytest.mark.parametrize(
        "types", [("u8", "s8", "f32"), ("s8", "s8", "f32"), ("s8", "u4", "f32")]
    ),
    pytest.mark.parametrize(("weights", "given"), [(96, 96), (96, 32), (32, 32), (32, 16)]),
)
def test_are_taken(weights: int, given: int, types: Types, isa: str) -> None:
    with config.override("max_cpu_isa", isa):
        verify(matmul_desc((7, TERMS, COLUMNS), types), attr_of(weights, given))


@pytest.mark.parametrize("layout", ["plain", "ba"])
@pytest.mark.parametrize("rows", [1, 5, 70])
def test_of_each_layout(rows: int, layout: str) -> None:
    desc = matmul_desc((rows, TERMS, COLUMNS), ("u8", "s8", "f32"), ("any", "any", layout))
    verify(desc, attr_of(TERMS, TERMS, per_column=False))


def test_of_a_batch() -> None:
    desc = matmul_desc((5, TERMS, COLUMNS), ("u8", "s8", "f32"), batch=(3,))
    verify(desc, attr_of(32, 16, 3))


def test_are_the_sums_of_src_for_the_same_result() -> None:
    desc = matmul_desc((6, TERMS, COLUMNS), ("u8", "s8", "s32"))
    attr = PrimitiveAttr()
    attr.set_zero_points(Arg.WEIGHTS, 2)
    args = inputs(PrimitiveDesc(desc, ENGINE, attr), "integers")
    want = execute(desc, args, attr)
    attr.set_precomputed_reductions(Arg.SRC, 3, (1, 48))
    sums = logical(args[Arg.SRC]).reshape(6, 2, 48).sum(-1).astype(np.int32)
    got = execute(desc, {**args, REDUCTIONS: Memory.from_numpy(sums)}, attr)
    assert (logical(got) == logical(want)).all()


def test_other_attributes() -> None:
    with pytest.raises(InvalidArguments, match=r"arg.*SRC"):
        PrimitiveAttr().set_precomputed_reductions(Arg.WEIGHTS, 3, (1, 32))
    with pytest.raises(InvalidArguments, match=r"data_type.*s32"):
        PrimitiveAttr().set_precomputed_reductions(Arg.SRC, 3, (1, 32), "s8")
    text = "attr-precomputed-reductions:src0:3:s32:1x32"
    assert text in str(attr_of(32, 32))
    assert attr_of(32, 32) != attr_of(32, 16)


@pytest.mark.parametrize(
    ("mask", "groups", "name", "rule"),
    [
        (2, (1, 32), "mask", "every dimension: 3"),
        (3, (7, 32), "groups", "one row"),
        (3, (1, 36), "groups", "36 does not divide"),
        (3, (1, 48), "groups", "48 neighbours do not share"),
    ],
)
def test_sums_that_do_not_fit(mask: int, groups: tuple[int, int], name: str, rule: str) -> None:
    attr = attr_of(32, 32)
    attr.set_precomputed_reductions(Arg.SRC, mask, groups)
    with pytest.raises(InvalidArguments, match=f"{name}.*{rule}"):
        PrimitiveDesc(matmul_desc((7, TERMS, COLUMNS), ("s8", "s8", "f32")), ENGINE, attr)


def test_nothing_to_be_multiplied_by_them() -> None:
    attr = attr_of(32, 32)
    with pytest.raises(Unimplemented, match="without zero points of weights and a src of u8"):
        PrimitiveDesc(matmul_desc((7, TERMS, 40), ("f32", "s8", "f32")), ENGINE, attr)
    attr = PrimitiveAttr()
    attr.set_precomputed_reductions(Arg.SRC, 3, (1, 32))
    with pytest.raises(Unimplemented, match="without zero points of weights and a src of u8"):
        PrimitiveDesc(matmul_desc((7, TERMS, 40), ("s8", "s8", "f32")), ENGINE, attr)
    with pytest.raises(Unimplemented, match="precomputed_reductions"):
        PrimitiveDesc(inner_product_desc((7, TERMS), 40, ("s8", "s8", "f32")), ENGINE, attr)
