"""Binary: two tensors in any layouts, either of them broadcast."""

from __future__ import annotations

from itertools import cycle

import numpy as np
import pytest
import torch

from dnnl import (
    Arg,
    BinaryDesc,
    InvalidArguments,
    Memory,
    MemoryDesc,
    PrimitiveAttr,
    PrimitiveDesc,
    config,
)
from dnnl.reference import binary as reference
from tests.check import check, logical, memory_of
from tests.pairs import every_pair
from tests.primitives.harness import (
    ENGINE,
    ISAS,
    LAYOUTS,
    array,
    describe,
    every_isa,
    execute,
    source,
    tensor,
    typed_source,
)

DIMS = (2, 19, 5, 7)
NEXT = [*LAYOUTS[1:], LAYOUTS[0]]
ALGS = [alg for alg in reference.ALGS if alg != "binary_select"]


def run(alg: str, a: Memory, b: Memory, dst: MemoryDesc, attr: PrimitiveAttr | None = None) -> None:
    result = execute(BinaryDesc(alg, a.desc, b.desc, dst), {Arg.SRC_0: a, Arg.SRC_1: b}, attr)
    check(result, reference.binary(alg, logical(a), logical(b)), reference.TOLERANCE("f32"))


def rounded(dims: tuple[int, ...], layout: str, seed: int) -> Memory:
    """Halves, among which there are equal ones and no zero."""
    memory = source(dims, layout, seed)
    values = memory.data.view(np.float32)
    finite = np.isfinite(values) & (values != 0)
    values[finite] = np.round(values[finite] * 2) / 2 + 0.25
    return memory


@every_isa
@pytest.mark.parametrize("alg", ALGS)
def test_functions(isa: str, alg: str) -> None:
    a, b = rounded(DIMS, "nChw8c", 1), rounded(DIMS, "nchw", 2)
    with config.override("max_cpu_isa", isa):
        run(alg, a, b, describe(DIMS, "nChw16c"))


@pytest.mark.parametrize(("src1", "dst"), list(zip(LAYOUTS, NEXT, strict=True)))
@pytest.mark.parametrize("src0", ["nchw", "nhwc", "nChw16c", "part"])
def test_layouts(src0: str, src1: str, dst: str) -> None:
    run("binary_sub", source(DIMS, src0), source(DIMS, src1, 2), describe(DIMS, dst))


@pytest.mark.parametrize("kept", range(16))
def test_broadcast_of_either_side(kept: int) -> None:
    """The dimensions whose bit is not in ``kept`` have size 1."""
    small = tuple(extent if kept >> dim & 1 else 1 for dim, extent in enumerate(DIMS))
    layouts = cycle(["nchw", "nChw16c", "nhwc"])
    for layout in ("nchw", "nhwc", "nChw8c"):
        full, part = source(DIMS, layout), source(small, next(layouts), 2)
        run("binary_sub", full, part, describe(DIMS, layout))
        run("binary_sub", part, full, describe(DIMS, layout))


def test_broadcast_of_both_sides_at_once() -> None:
    a, b = source((2, 1, 5, 1), "nchw"), source((1, 19, 1, 7), "nhwc", 2)
    for layout in ("nchw", "nhwc", "nChw16c"):
        run("binary_mul", a, b, describe(DIMS, layout))


def test_any() -> None:
    open_desc = MemoryDesc(DIMS, "f32", "any")
    blocked = describe(DIMS, "nChw16c")
    pd = PrimitiveDesc(BinaryDesc("binary_add", blocked, open_desc, open_desc), ENGINE)
    assert pd.src1_desc == blocked
    assert pd.dst_desc == blocked
    row = MemoryDesc((1, 19, 1, 1), "f32")
    pd = PrimitiveDesc(BinaryDesc("binary_add", row, blocked, open_desc), ENGINE)
    assert pd.dst_desc == blocked


@pytest.mark.parametrize("layout", ["nchw", "nChw16c"])
def test_in_place(layout: str) -> None:
    a, b = source(DIMS, layout), source(DIMS, "nhwc", 2)
    want = logical(a) * logical(b)
    desc = BinaryDesc("binary_mul", a.desc, b.desc, a.desc)
    check(execute(desc, {Arg.SRC_0: a, Arg.SRC_1: b}, dst=a), want, 1e-7)


def test_a_tensor_with_itself() -> None:
    a = source(DIMS, "nchw")
    run("binary_add", a, a, a.desc)


def test_post_ops() -> None:
    a, b, old = (source(DIMS, "nChw16c", seed) for seed in (1, 2, 3))
    c = source((1, 19, 1, 1), "nchw", 4)
    attr = PrimitiveAttr()
    attr.post_ops.append_sum(2.0)
    attr.post_ops.append_binary("binary_max", c.desc)
    attr.post_ops.append_eltwise("eltwise_square")
    desc = BinaryDesc("binary_add", a.desc, b.desc, old.desc)
    args = {Arg.SRC_0: a, Arg.SRC_1: b, Arg.post_op(1) | Arg.SRC_1: c}
    value = logical(a) + logical(b) + 2 * logical(old)
    want = np.maximum(value, logical(c)) ** 2
    check(execute(desc, args, attr, old), want, 1e-6)


def test_as_pytorch() -> None:
    a, b = source(DIMS, "nchw"), source((2, 1, 1, 7), "nchw", 2)
    desc = BinaryDesc("binary_div", a.desc, b.desc, a.desc)
    result = execute(desc, {Arg.SRC_0: a, Arg.SRC_1: b})
    check(result, array(tensor(a) / tensor(b)), 1e-7)


@pytest.mark.parametrize(("a", "b"), [((0, 3), (1, 3)), ((2, 0), (2, 0))])
def test_no_elements(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    left, right = source(a, "ab"), source(b, "ab")
    dims = tuple(0 if 0 in pair else max(pair) for pair in zip(a, b, strict=True))
    desc = BinaryDesc("binary_add", left.desc, right.desc, MemoryDesc(dims, "f32"))
    execute(desc, {Arg.SRC_0: left, Arg.SRC_1: right})


def test_bad_arguments() -> None:
    a = MemoryDesc((2, 3), "f32")
    with pytest.raises(InvalidArguments, match=r"src1_desc = \(2, 4\).*\(2, 3\)"):
        BinaryDesc("binary_add", a, MemoryDesc((2, 4), "f32"), a)
    with pytest.raises(InvalidArguments, match=r"src1_desc = \(3,\)"):
        BinaryDesc("binary_add", a, MemoryDesc((3,), "f32"), a)
    with pytest.raises(InvalidArguments, match=r"dst_desc = \(1, 3\).*\(2, 3\)"):
        BinaryDesc("binary_add", a, a, MemoryDesc((1, 3), "f32"))
    with pytest.raises(InvalidArguments, match=r"alg_kind.*expected one of binary_add"):
        BinaryDesc("eltwise_relu", a, a, a)
    with pytest.raises(InvalidArguments, match=r"src0_desc.*layout"):
        BinaryDesc("binary_add", MemoryDesc((2, 3), "f32", "any"), a, a)
    condition = a.with_data_type("s8")
    with pytest.raises(InvalidArguments, match=r"src2_desc.*required"):
        BinaryDesc("binary_select", a, a, a)
    with pytest.raises(InvalidArguments, match=r"src2_desc.*the other functions take none"):
        BinaryDesc("binary_add", a, a, a, condition)
    with pytest.raises(InvalidArguments, match=r"src2_desc.*a condition is of type s8"):
        BinaryDesc("binary_select", a, a, a, a)
    with pytest.raises(InvalidArguments, match=r"src2_desc = \(2, 1\).*the dims of src0"):
        BinaryDesc("binary_select", a, a, a, MemoryDesc((2, 1), "s8"))


def condition_of(dims: tuple[int, ...], layout: str, seed: int = 9) -> Memory:
    """Zeros and other numbers of s8."""
    numbers = np.random.default_rng(seed).integers(-2, 2, dims)
    return memory_of(numbers, describe(dims, layout).with_data_type("s8"), ENGINE)


def select(
    a: Memory, b: Memory, condition: Memory, dst: MemoryDesc, result: Memory | None = None
) -> Memory:
    """src2 ? src0 : src1, checked."""
    desc = BinaryDesc("binary_select", a.desc, b.desc, dst, condition.desc)
    want = reference.binary("binary_select", logical(a), logical(b), logical(condition))
    made = execute(desc, {Arg.SRC_0: a, Arg.SRC_1: b, Arg.SRC_2: condition}, dst=result)
    check(made, want, reference.TOLERANCE(dst.data_type))
    return made


@every_pair(isa=ISAS, condition=LAYOUTS, dst=["nhwc", "nChw16c"])
def test_select(dst: str, condition: str, isa: str) -> None:
    a, b = source(DIMS, "nChw8c"), source(DIMS, "nchw", 2)
    with config.override("max_cpu_isa", isa):
        select(a, b, condition_of(DIMS, condition), describe(DIMS, dst))


@pytest.mark.parametrize("types", [("s8", "u8", "s8"), ("bf16", "f32", "f16"), ("f64",) * 3])
def test_select_of_types(types: tuple[str, str, str]) -> None:
    a, b = (
        typed_source(DIMS, "nhwc", kind, seed) for kind, seed in zip(types, (1, 2), strict=False)
    )
    dst = describe(DIMS, "nChw16c").with_data_type(types[2])
    select(a, b, condition_of(DIMS, "nhwc"), dst)


@pytest.mark.parametrize("small", [(1, 19, 1, 7), (2, 1, 5, 1), (1, 1, 1, 1)])
def test_select_broadcasts_either_side(small: tuple[int, ...]) -> None:
    dst = describe(DIMS, "nhwc")
    full, part = source(DIMS, "nchw"), source(small, "nchw", 2)
    select(full, part, condition_of(DIMS, "nChw16c"), dst)
    select(part, full, condition_of(small, "nhwc"), dst)


def test_select_in_place_and_any() -> None:
    a, b, condition = source(DIMS, "nChw16c"), source(DIMS, "nhwc", 2), condition_of(DIMS, "nchw")
    select(a, b, condition, a.desc, a)
    open_desc = MemoryDesc(DIMS, "s8", "any")
    desc = BinaryDesc("binary_select", a.desc, b.desc, a.desc, open_desc)
    settled = PrimitiveDesc(desc, ENGINE).arg_desc(Arg.SRC_2)
    assert settled == a.desc.with_data_type("s8")


def test_select_as_pytorch() -> None:
    a, b, condition = source(DIMS, "nchw"), source(DIMS, "nchw", 2), condition_of(DIMS, "nchw")
    made = select(a, b, condition, a.desc)
    check(made, array(torch.where(tensor(condition) != 0, tensor(a), tensor(b))), 0.0)


@every_pair(
    isa=ISAS,
    data_type=["f32", "bf16", "s8"],
    alg=["binary_add", "binary_div", "binary_ge", "binary_select"],
)
def test_scales(alg: str, data_type: str, isa: str) -> None:
    """One number for each source, which multiplies what is stored."""
    a, b = (typed_source(DIMS, "nchw", data_type, seed) for seed in (1, 2))
    ones = {"binary_div": memory_of(np.ones(DIMS), b.desc, ENGINE)}
    b, condition = ones.get(alg, b), condition_of(DIMS, "nhwc")
    attr, scales = PrimitiveAttr(), dict[int, Memory]()
    for arg, value in ((Arg.SRC_0, 0.5), (Arg.SRC_1, 0.25)):
        attr.set_scales(arg, mask=0)
        scales[Arg.SCALES | arg] = memory_of([value], MemoryDesc((1,), "f32"), ENGINE)
    selects: dict[int, Memory] = {Arg.SRC_2: condition} if alg == "binary_select" else {}
    desc = BinaryDesc(
        alg, a.desc, b.desc, describe(DIMS, "nChw16c"), condition.desc if selects else None
    )
    args: dict[int, Memory] = {Arg.SRC_0: a, Arg.SRC_1: b, **selects, **scales}
    with config.override("max_cpu_isa", isa):
        made = execute(desc, args, attr)
    want = reference.binary(alg, 0.5 * logical(a), 0.25 * logical(b), logical(condition))
    check(made, want, reference.TOLERANCE("f32"))


def test_scales_of_one_side_alone() -> None:
    a, b = source(DIMS, "nchw"), source((1, 19, 1, 1), "nchw", 2)
    attr = PrimitiveAttr()
    attr.set_scales(Arg.SRC_1, mask=0)
    factor = memory_of([3.0], MemoryDesc((1,), "f32"), ENGINE)
    args: dict[int, Memory] = {Arg.SRC_0: a, Arg.SRC_1: b, Arg.SCALES | Arg.SRC_1: factor}
    made = execute(BinaryDesc("binary_add", a.desc, b.desc, a.desc), args, attr)
    check(made, logical(a) + 3 * logical(b), 1e-7)


@pytest.mark.parametrize("layout", ["nchw", "nChw16c"])
def test_a_selection_as_post_op(layout: str) -> None:
    a, b, other = (source(DIMS, layout, seed) for seed in (1, 2, 3))
    condition = condition_of(DIMS, "nhwc")
    attr = PrimitiveAttr()
    attr.post_ops.append_eltwise("eltwise_square")
    attr.post_ops.append_binary("binary_select", other.desc, condition.desc)
    flag = Arg.post_op(1)
    args = {Arg.SRC_0: a, Arg.SRC_1: b, flag | Arg.SRC_1: other, flag | Arg.SRC_2: condition}
    made = execute(BinaryDesc("binary_add", a.desc, b.desc, a.desc), args, attr)
    value = (logical(a) + logical(b)) ** 2
    check(made, np.where(logical(condition) != 0, value, logical(other)), 1e-6)


def test_the_condition_of_a_post_op() -> None:
    a = MemoryDesc(DIMS, "f32", "nChw16c")
    attr = PrimitiveAttr()
    attr.post_ops.append_binary("binary_select", a, MemoryDesc(DIMS, "s8", "any"))
    pd = PrimitiveDesc(BinaryDesc("binary_add", a, a, a), ENGINE, attr)
    assert pd.arg_desc(Arg.post_op(0) | Arg.SRC_2) == a.with_data_type("s8")
    attr = PrimitiveAttr()
    attr.post_ops.append_binary("binary_select", a, MemoryDesc((1, 19, 1, 1), "s8"))
    with pytest.raises(InvalidArguments, match=r"post_ops\[0\]\.src2_desc.*the dims of dst"):
        PrimitiveDesc(BinaryDesc("binary_add", a, a, a), ENGINE, attr)


@pytest.mark.parametrize("data_type", ["f8_e5m2", "f8_e4m3", "f64"])
def test_other_floats(data_type: str) -> None:
    a, b = typed_source(DIMS, "nhwc", data_type), typed_source((1, 19, 1, 1), "nchw", data_type, 2)
    dst = describe(DIMS, "nChw16c").with_data_type(data_type)
    result = execute(BinaryDesc("binary_sub", a.desc, b.desc, dst), {Arg.SRC_0: a, Arg.SRC_1: b})
    check(result, logical(a) - logical(b), reference.TOLERANCE(data_type))
