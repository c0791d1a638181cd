"""Dropout: the bits of its random numbers, whatever the layout, the vectors and the threads."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from dnnl import (
    Arg,
    BinaryDesc,
    DataType,
    EltwiseDesc,
    InvalidArguments,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveAttr,
    PrimitiveDesc,
    SoftmaxDesc,
    Stream,
    Unimplemented,
    config,
)
from dnnl.primitives.desc import Desc
from dnnl.reference import dropout as reference
from dnnl.reference import softmax as softmax_reference
from dnnl.reference.arrays import Array
from dnnl.reference.tolerance import Bound
from tests.check import check, logical, poisoned_memory
from tests.device import FAR
from tests.pairs import every_pair
from tests.primitives.harness import (
    ENGINE,
    LAYOUTS,
    describe,
    every_isa,
    execute_all,
    source,
    typed_source,
)

DIMS = (2, 19, 5, 7)
SEED, CHANCE = 0x123456789, 0.3
ROWS = MemoryDesc((4, 32), "f32")


def one(value: float, data_type: type) -> Memory:
    return Memory.from_numpy(np.array([value], data_type))


def softmax(src: MemoryDesc, dst: MemoryDesc, axis: int = 1) -> SoftmaxDesc:
    return SoftmaxDesc.forward("forward_training", "softmax_accurate", src, dst, axis)


def square(src: MemoryDesc, dst: MemoryDesc) -> EltwiseDesc:
    return EltwiseDesc.forward("forward_training", "eltwise_square", src, dst)


def told(seed: int, offset: int | None, chance: float = CHANCE) -> dict[int, Memory]:
    numbers = {Arg.DROPOUT_PROBABILITY: one(chance, np.float32)}
    numbers[Arg.DROPOUT_SEED] = one(seed, np.int64)
    if offset is not None:
        numbers[Arg.DROPOUT_OFFSET] = one(offset, np.int64)
    return {int(argument): memory for argument, memory in numbers.items()}


def run(
    desc: Desc,
    src: Memory,
    plain: Array,
    layout: str | None = "any",
    offset: int | None = None,
    tolerance: Bound | float = 2e-6,
) -> None:
    """``plain`` is the result before elements are dropped."""
    dims = src.desc.dims
    attr = PrimitiveAttr()
    mask = None
    if layout is not None:
        open_ = layout == "any"
        mask = MemoryDesc(dims, "u8", "any") if open_ else describe(dims, layout)
        mask = mask.with_data_type("u8")
    attr.set_dropout(mask, use_offset=offset is not None)
    pd = PrimitiveDesc(desc, ENGINE, attr)
    desc_of_mask = pd.arg_desc(Arg.DROPOUT_MASK)
    if layout == "any":
        assert desc_of_mask == pd.dst_desc.with_data_type("u8")
    written: dict[int, Memory] = {}
    if layout is not None:
        written[Arg.DROPOUT_MASK] = poisoned_memory(desc_of_mask, ENGINE)
    results = execute_all(pd, {Arg.SRC: src, **told(SEED, offset)}, written)
    want, kept = reference.dropout(plain, CHANCE, SEED, offset or 0)
    check(results[Arg.DST], want, tolerance)
    if layout is not None:
        check(results[Arg.DROPOUT_MASK], kept, 0.0)


@pytest.mark.parametrize("axis", [1, 3])
@pytest.mark.parametrize(("layout", "mask"), [*pairwise([*LAYOUTS, LAYOUTS[0]]), ("nhwc", "any")])
def test_layouts_of_softmax(layout: str, mask: str, axis: int) -> None:
    src = source(DIMS, layout)
    run(softmax(src.desc, src.desc, axis), src, softmax_reference.softmax(logical(src), axis), mask)


@pytest.mark.parametrize(("layout", "mask"), [*pairwise([*LAYOUTS, LAYOUTS[0]]), ("nhwc", "any")])
def test_layouts_of_eltwise(layout: str, mask: str) -> None:
    src = source(DIMS, layout)
    run(square(src.desc, src.desc), src, logical(src) ** 2, mask, offset=12)


@every_pair(
    every_isa,
    pytest.mark.parametrize("mask", [None, "any"]),
    pytest.mark.parametrize("offset", [None, 0, 1, -1, 2**40 + 3]),
    pytest.mark.parametrize(
        ("dims", "tag"),
        [
            ((5, 13), "ab"),
            ((3, 48), "ab"),
            ((7, 132), "ab"),
            ((33, 4), "ba"),
            ((1, 3), "ab"),
            ((2, 40), "aB16b"),
            ((64, 3), "ab"),
        ],
    ),
)
def test_numbers(
    isa: str, dims: tuple[int, ...], tag: str, offset: int | None, mask: str | None
) -> None:
    """Rows of whole blocks and others, vectors along rows and across, tails."""
    src = source(dims, tag)
    with config.override("max_cpu_isa", isa):
        want = softmax_reference.softmax(logical(src), 1)
        run(softmax(src.desc, src.desc), src, want, mask, offset)


@pytest.mark.parametrize("data_type", ["bf16", "f16"])
@pytest.mark.parametrize("layout", ["nchw", "nChw16c"])
def test_types(layout: str, data_type: str) -> None:
    src = typed_source(DIMS, layout, data_type)
    want = softmax_reference.softmax(logical(src), 1)
    run(softmax(src.desc, src.desc), src, want, "any", 3, 0.01)


def test_double_precision() -> None:
    src = typed_source(DIMS, "nhwc", "f64")
    run(
        square(src.desc, src.desc),
        src,
        logical(src) ** 2,
        "any",
        3,
        Bound(DataType.f64, 1e-15, floor=None),
    )


@pytest.mark.parametrize("seed", [-5, 5, -(2**31)])
def test_a_seed_of_32_bits(seed: int) -> None:
    """Its sign goes on in the upper half, which counts where there is an offset."""
    src = source((4, 32), "ab")
    for offset in (0, 9):
        attr = PrimitiveAttr()
        attr.set_dropout(MemoryDesc((4, 32), "u8"), "s32", True)
        pd = PrimitiveDesc(square(src.desc, src.desc), ENGINE, attr)
        args = {Arg.SRC: src, **told(0, offset), Arg.DROPOUT_SEED: one(seed, np.int32)}
        mask = poisoned_memory(pd.arg_desc(Arg.DROPOUT_MASK), ENGINE)
        results = execute_all(pd, args, {Arg.DROPOUT_MASK: mask})
        want = reference.survivors((4, 32), CHANCE, seed, offset)
        check(results[Arg.DROPOUT_MASK], want.astype(float), 0.0)


@pytest.mark.parametrize("chance", [0.0, 1.0])
def test_all_and_nothing(chance: float) -> None:
    src = source((4, 33), "ab")
    attr = PrimitiveAttr()
    attr.set_dropout()
    pd = PrimitiveDesc(square(src.desc, src.desc), ENGINE, attr)
    made = execute_all(pd, {Arg.SRC: src, **told(1, None, chance)})
    check(made[Arg.DST], logical(src) ** 2 * (1 - chance), 1e-6)


def test_before_post_ops_and_the_scale() -> None:
    src = source((6, 20), "ab")
    attr = PrimitiveAttr()
    attr.set_dropout()
    attr.post_ops.append_eltwise("eltwise_linear", 2.0, 1.0)
    attr.set_scales(Arg.DST)
    args = {Arg.SRC: src, **told(SEED, None), Arg.SCALES | Arg.DST: one(0.5, np.float32)}
    made = execute_all(PrimitiveDesc(softmax(src.desc, src.desc), ENGINE, attr), args)
    kept, _ = reference.dropout(softmax_reference.softmax(logical(src), 1), CHANCE, SEED)
    check(made[Arg.DST], (kept * 2 + 1) / 0.5, 4e-6)


def test_in_place() -> None:
    src = source(DIMS, "nChw16c")
    want, _ = reference.dropout(logical(src) ** 2, CHANCE, SEED)
    attr = PrimitiveAttr()
    attr.set_dropout()
    pd = PrimitiveDesc(square(src.desc, src.desc), ENGINE, attr)
    made = execute_all(pd, {Arg.SRC: src, **told(SEED, None)}, {Arg.DST: src})
    check(made[Arg.DST], want, 2e-6)


def given() -> tuple[Primitive, dict[int, Memory]]:
    attr = PrimitiveAttr()
    attr.set_dropout(MemoryDesc((4, 32), "u8"), "s64", use_offset=True)
    primitive = Primitive(PrimitiveDesc(softmax(ROWS, ROWS), ENGINE, attr))
    mask = Memory(MemoryDesc((4, 32), "u8"), ENGINE)
    args = told(1, 2)
    args |= {Arg.SRC: source((4, 32), "ab"), Arg.DST: Memory(ROWS, ENGINE)}
    return primitive, {**args, Arg.DROPOUT_MASK: mask}


@pytest.mark.parametrize("name", ["PROBABILITY", "SEED", "OFFSET", "MASK"])
def test_every_argument_is_required(name: str) -> None:
    primitive, args = given()
    del args[Arg[f"DROPOUT_{name}"]]
    with pytest.raises(InvalidArguments, match=rf"args\[DROPOUT_{name}\] = None: missing"):
        primitive.execute(Stream(ENGINE), args)


@pytest.mark.parametrize(
    ("name", "kind"), [("PROBABILITY", np.float64), ("SEED", np.int32), ("OFFSET", np.int32)]
)
def test_types_of_arguments(name: str, kind: type) -> None:
    primitive, args = given()
    args[Arg[f"DROPOUT_{name}"]] = one(1, kind)
    with pytest.raises(InvalidArguments, match=rf"args\[DROPOUT_{name}\].*must be"):
        primitive.execute(Stream(ENGINE), args)


def test_a_number_may_have_no_dimensions() -> None:
    primitive, args = given()
    args[Arg.DROPOUT_SEED] = Memory.from_numpy(np.array(1, np.int64))
    primitive.execute(Stream(ENGINE), args)


def test_the_mask_is_an_output() -> None:
    primitive, args = given()
    src = args[Arg.SRC]
    args[Arg.DROPOUT_MASK] = Memory(MemoryDesc((4, 32), "u8"), ENGINE, src.data[:128])
    with pytest.raises(InvalidArguments, match=r"args\[DROPOUT_MASK\].*share memory with SRC"):
        primitive.execute(Stream(ENGINE), args)
    flat = MemoryDesc((4, 32), "u8", (0, 1))
    attr = PrimitiveAttr()
    attr.set_dropout(flat)
    with pytest.raises(InvalidArguments, match="a stride of 0 is for sources"):
        PrimitiveDesc(softmax(ROWS, ROWS), ENGINE, attr)


def test_a_mask_of_other_dims() -> None:
    attr = PrimitiveAttr()
    attr.set_dropout(MemoryDesc((32, 4), "u8"))
    with pytest.raises(InvalidArguments, match=r"mask_desc = \(32, 4\).*dims of dst.*\(4, 32\)"):
        PrimitiveDesc(softmax(ROWS, ROWS), ENGINE, attr)


def test_who_has_none() -> None:
    attr = PrimitiveAttr()
    attr.set_dropout()
    backward = SoftmaxDesc.backward("softmax_accurate", ROWS, ROWS, ROWS, 1)
    for desc in (BinaryDesc("binary_add", ROWS, ROWS, ROWS), backward):
        with pytest.raises(Unimplemented, match="unsupported attribute: dropout"):
            PrimitiveDesc(desc, ENGINE, attr)


def test_numbers_in_the_memory_of_the_host() -> None:
    attr = PrimitiveAttr()
    attr.set_dropout(use_host_scalars=True)
    assert PrimitiveDesc(softmax(ROWS, ROWS), ENGINE, attr).attr == attr
    with pytest.raises(Unimplemented, match=r"use_host_scalars on Engine\('far"):
        PrimitiveDesc(softmax(ROWS, ROWS), FAR, attr)


def test_no_elements() -> None:
    empty = MemoryDesc((0, 3), "f32")
    attr = PrimitiveAttr()
    attr.set_dropout(MemoryDesc((0, 3), "u8"))
    primitive = Primitive(PrimitiveDesc(softmax(empty, empty), ENGINE, attr))
    args = {Arg.SRC: Memory(empty, ENGINE), Arg.DST: Memory(empty, ENGINE)}
    primitive.execute(Stream(ENGINE), args)
