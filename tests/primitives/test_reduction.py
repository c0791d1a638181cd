"""Reduction: any dimensions to size 1, in any layouts and types."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from dnnl import (
    Arg,
    InvalidArguments,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveAttr,
    PrimitiveDesc,
    ReductionDesc,
    Stream,
    Unimplemented,
    config,
)
from dnnl.reference import reduction as reference
from dnnl.reference.arrays import Array
from dnnl.reference.tolerance import EXACT
from tests.check import check, logical, memory_of, random_memory
from tests.pairs import every_pair
from tests.primitives.harness import (
    ENGINE,
    ISAS,
    LAYOUTS,
    describe,
    every_isa,
    execute,
    source,
    typed_source,
)

DIMS = (3, 35, 5, 18)
ALGS = [*reference.TOLERANCE]
LEFT = [(3, 35, 5, 1), (3, 1, 5, 18), (1, 35, 1, 1), (1, 1, 1, 1)]

TYPES = [
    ("bf16", "bf16"), ("bf16", "f32"), ("f16", "f16"), ("f32", "bf16"), ("f32", "s8"),
    ("s8", "s8"), ("s8", "f32"), ("u8", "u8"), ("u8", "s32"), ("s32", "s32"), ("s32", "f16"),
]  # fmt: skip


def count(src: Sequence[int], dst: Sequence[int]) -> int:
    """How many elements become one."""
    return int(np.prod(src) // np.prod(dst))


def run(
    alg: str, src: Memory, dst: MemoryDesc, p: float = 0.0, eps: float = 0.0
) -> tuple[Memory, Array]:
    """What the primitive and the reference make of src."""
    result = execute(ReductionDesc(alg, src.desc, dst, p, eps), {Arg.SRC: src})
    return result, reference.reduction(logical(src), alg, dst.dims, p or 1.0, eps)


def verify(alg: str, src: Memory, dst: MemoryDesc, p: float = 0.0, eps: float = 0.0) -> None:
    length = count(src.desc.dims, dst.dims)
    check(*run(alg, src, dst, p, eps), reference.TOLERANCE[alg](dst.data_type, length))


def check_exact(result: Memory, want: Array) -> None:
    check(result, want, EXACT("s32"))
    np.testing.assert_array_equal(logical(result), want)


@every_pair(isa=ISAS, alg=ALGS, left=LEFT, layout=["nchw", "nChw16c"])
def test_algorithms(left: tuple[int, ...], alg: str, layout: str, isa: str) -> None:
    with config.override("max_cpu_isa", isa):
        src = source(DIMS, layout)
        if alg == "reduction_mul":  # whose result is neither 0 nor infinite
            near = np.random.default_rng(1).uniform(0.97, 1.03, DIMS)
            src = memory_of(near, src.desc, ENGINE)
        verify(alg, src, describe(left, layout), 2.5, 0.125)


@pytest.mark.parametrize("left", LEFT)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str, left: tuple[int, ...]) -> None:
    """Blocks and gaps on either side; what pads a block is no factor."""
    near = np.random.default_rng(1).uniform(0.97, 1.03, DIMS)
    for at, to in ((layout, "nhwc"), ("nchw", layout)):
        src = memory_of(near, describe(DIMS, at), ENGINE)
        verify("reduction_mul", src, describe(left, to))


@every_isa
@pytest.mark.parametrize("types", TYPES, ids=">".join)
def test_types(types: tuple[str, str], isa: str) -> None:
    with config.override("max_cpu_isa", isa):
        for alg, layout, left in (
            ("reduction_sum", "nchw", (3, 35, 1, 1)),
            ("reduction_max", "nchw", (3, 35, 5, 1)),
            ("reduction_mean", "nChw16c", (3, 1, 5, 18)),
        ):
            memory = typed_source(DIMS, layout, types[0])
            verify(alg, memory, describe(left, layout).with_data_type(types[1]))


@every_pair(
    every_isa,
    pytest.mark.parametrize("layout", ["ab", "ba"]),
    pytest.mark.parametrize("left", [(1, 1), (700, 1), (1, 301)]),
)
def test_sums_of_integers_are_exact(left: tuple[int, int], layout: str, isa: str) -> None:
    """Such as f32 does not hold; shared out, too."""
    dims = (700, 301)
    values = np.random.default_rng(1).integers(2**12 - 40, 2**12, dims)
    dst = MemoryDesc(left, "s32")
    with config.override("max_cpu_isa", isa):
        src = memory_of(values, MemoryDesc(dims, "s32", layout), ENGINE)
        for alg in ("reduction_sum", "reduction_max", "reduction_min"):
            check_exact(*run(alg, src, dst))
        bytes_ = memory_of(values % 256, MemoryDesc(dims, "u8", layout), ENGINE)
        check_exact(*run("reduction_sum", bytes_, dst))


def test_extremes_of_large_integers() -> None:
    """Neighbours that f32 would take for equal, at both ends of the range."""
    ends = np.array([[-(2**31), 2**31 - 1, 7], [2**31 - 2, 2**31 - 3, -(2**31) + 1]])
    src = memory_of(ends, MemoryDesc(ends.shape, "s32"), ENGINE)
    for alg in ("reduction_max", "reduction_min"):
        for left in ((2, 1), (1, 3), (1, 1)):
            check_exact(*run(alg, src, MemoryDesc(left, "s32")))


@every_isa
@pytest.mark.parametrize(("dims", "left"), [((1, 2**20), (1, 1)), ((2**16, 24), (1, 24))])
def test_long_sums_are_accurate(dims: tuple[int, int], left: tuple[int, int], isa: str) -> None:
    """Positive numbers, of which one sum after the other would lose the last digits."""
    values = np.random.default_rng(1).uniform(0.5, 1.5, dims)
    src = memory_of(values, MemoryDesc(dims, "f32"), ENGINE)
    with config.override("max_cpu_isa", isa):
        result, want = run("reduction_sum", src, MemoryDesc(left, "f32"))
    np.testing.assert_allclose(logical(result), want, rtol=4e-7)


def test_few_results_are_shared_out() -> None:
    for dims, left in (((1, 2**18), (1, 1)), ((2**12, 64), (1, 64)), ((64, 2**12), (64, 1))):
        desc = ReductionDesc("reduction_sum", MemoryDesc(dims, "f32"), MemoryDesc(left, "f32"))
        first, *_ = PrimitiveDesc(desc, ENGINE).plan.recipe.kernel().phases
        assert first.count >= 16


def test_nan_and_infinities() -> None:
    values = np.random.default_rng(1).standard_normal((9, 70))
    values[0, 5], values[1, :], values[2, 3], values[3, :] = np.nan, np.nan, np.inf, -np.inf
    src = memory_of(values, MemoryDesc(values.shape, "f32"), ENGINE)
    for alg in ("reduction_max", "reduction_min", "reduction_sum"):
        for left in ((9, 1), (1, 70)):
            verify(alg, src, MemoryDesc(left, "f32"))


@pytest.mark.parametrize("layout", ["nchw", "nhwc", "nChw16c"])
@pytest.mark.parametrize("types", [("f32", "f32"), ("s8", "s8"), ("bf16", "u8"), ("u8", "s32")])
def test_post_ops(types: tuple[str, str], layout: str) -> None:
    src = typed_source(DIMS, layout, types[0])
    for left in ((3, 35, 1, 1), (1, 35, 1, 1), (3, 1, 5, 18)):
        old = random_memory(describe(left, layout).with_data_type(types[1]), ENGINE, 2)
        channel = source((1, left[1], 1, 1), "nchw", 3)
        attr = PrimitiveAttr()
        attr.post_ops.append_sum(0.5)
        attr.post_ops.append_binary("binary_mul", channel.desc)
        attr.post_ops.append_eltwise("eltwise_relu", 0.5)
        desc = ReductionDesc("reduction_mean", src.desc, old.desc)
        args = {int(Arg.SRC): src, Arg.post_op(1) | Arg.SRC_1: channel}
        want = reference.reduction(logical(src), "reduction_mean", left) + 0.5 * logical(old)
        want = want * logical(channel)
        want = np.where(want > 0, want, 0.5 * want)
        bound = reference.TOLERANCE["reduction_mean"](types[1], count(DIMS, left))
        check(execute(desc, args, attr, old), want, bound)


def test_an_open_layout_has_the_order_of_src_and_blocks_of_what_is_kept() -> None:
    def chosen(src: str, left: tuple[int, ...]) -> MemoryDesc:
        open_ = MemoryDesc(left, "f32", "any")
        desc = ReductionDesc("reduction_sum", describe(DIMS, src), open_)
        return PrimitiveDesc(desc, ENGINE).dst_desc

    assert chosen("nhwc", (3, 35, 5, 1)) == describe((3, 35, 5, 1), "nhwc")
    assert chosen("nChw16c", (3, 35, 1, 1)) == describe((3, 35, 1, 1), "nChw16c")
    assert chosen("nChw16c", (3, 1, 5, 18)) == describe((3, 1, 5, 18), "nchw")
    assert chosen("gaps", (1, 35, 5, 18)) == describe((1, 35, 5, 18), "nchw")


@pytest.mark.parametrize("dims", [(), (1,), (7,), (2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3)])
def test_any_number_of_dimensions(dims: tuple[int, ...]) -> None:
    src = random_memory(MemoryDesc(dims, "f32"), ENGINE)
    for left in (dims, (1,) * len(dims), (*dims[:-1], *(1 for _ in dims[-1:]))):
        for alg in ("reduction_sum", "reduction_max", "reduction_norm_lp_max"):
            verify(alg, src, MemoryDesc(left, "f32"), 2.0)


def test_nothing_to_do() -> None:
    src, dst = (Memory(MemoryDesc(dims, "f32"), ENGINE) for dims in ((0, 5), (0, 1)))
    desc = ReductionDesc("reduction_sum", src.desc, dst.desc)
    primitive = Primitive(PrimitiveDesc(desc, ENGINE))
    primitive.execute(Stream(ENGINE), {Arg.SRC: src, Arg.DST: dst})


@pytest.mark.parametrize("left", [(3, 5), (2, 5, 1), (3, 4, 7), (1, 1, 7, 1), (0, 5, 7)])
def test_dst_has_the_dims_of_src_or_ones(left: tuple[int, ...]) -> None:
    with pytest.raises(InvalidArguments, match="each dimension must be that of src"):
        ReductionDesc("reduction_sum", MemoryDesc((3, 5, 7), "f32"), MemoryDesc(left, "f32"))


def test_an_empty_dimension_is_no_element() -> None:
    with pytest.raises(InvalidArguments, match="each dimension must be that of src"):
        ReductionDesc("reduction_sum", MemoryDesc((3, 0), "f32"), MemoryDesc((3, 1), "f32"))


def test_a_norm_has_a_power() -> None:
    src, dst = MemoryDesc((3, 5), "f32"), MemoryDesc((3, 1), "f32")
    with pytest.raises(InvalidArguments, match="must be at least 1"):
        ReductionDesc("reduction_norm_lp_sum", src, dst)
    with pytest.raises(InvalidArguments, match="p"):
        ReductionDesc("reduction_norm_lp_sum", src, dst, float("nan"))
    ReductionDesc("reduction_sum", src, dst)


def test_refusals() -> None:
    src, dst = MemoryDesc((3, 5), "f4_e2m1"), MemoryDesc((3, 1), "f32")
    with pytest.raises(Unimplemented, match="unsupported data type: f4_e2m1"):
        PrimitiveDesc(ReductionDesc("reduction_sum", src, dst), ENGINE)
