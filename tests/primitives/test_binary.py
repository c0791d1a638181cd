"""Binary: two tensors in any layouts, either of them broadcast."""

from __future__ import annotations

from itertools import cycle

import numpy as np
import pytest

from dnnl import (
    Arg,
    BinaryDesc,
    InvalidArguments,
    Memory,
    MemoryDesc,
    PrimitiveAttr,
    PrimitiveDesc,
    Unimplemented,
    config,
)
from dnnl.reference import binary as reference
from tests.check import check, logical
from tests.primitives.harness import (
    ENGINE,
    LAYOUTS,
    array,
    describe,
    every_isa,
    execute,
    source,
    tensor,
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
    with pytest.raises(Unimplemented, match="unsupported parameter: binary_select"):
        PrimitiveDesc(BinaryDesc("binary_select", a, a, a), ENGINE)
