"""What a device would compute: its code, run on a processor (see `tests.codegen.emulation`), what
one computes whose memory is far and whose work is late (see `tests.device`), and what a processor
of another architecture computes (see `tests.qemu`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest

from dnnl import (
    Arg,
    BatchNormalizationDesc,
    BinaryDesc,
    ConcatDesc,
    EltwiseDesc,
    Engine,
    InnerProductDesc,
    MatmulDesc,
    Memory,
    MemoryDesc,
    PoolingDesc,
    PrimitiveDesc,
    ReductionDesc,
    ReorderDesc,
    ResamplingDesc,
    SoftmaxDesc,
    SumDesc,
)
from dnnl.codegen.isa import DEVICES, Isa
from dnnl.reference import (
    batch_normalization,
    binary,
    eltwise,
    pooling,
    reduction,
    resampling,
    softmax,
)
from dnnl.reference import sum as sums
from dnnl.reference.concat import concat
from dnnl.reference.conversions import convert
from dnnl.reference.reorder import QUANTIZED_TOLERANCE
from dnnl.types.kinds import Alg
from tests.check import check, logical
from tests.codegen.emulation import emulated
from tests.device import FAR
from tests.pairs import every_pair
from tests.primitives import late
from tests.primitives import test_matmul_open as open_products
from tests.primitives import test_reorder_attributes as attributes
from tests.primitives import test_reorder_runtime as open_reorders
from tests.primitives.harness import ENGINE, describe, execute, source, typed_source, vector
from tests.primitives.products import Window, attr_of, convolution_desc, lay_out, verify
from tests.primitives.runtime_sizes import run_open, trials
from tests.primitives.test_convolution_types import typed
from tests.primitives.test_matmul_types import matmul
from tests.qemu.engine import QEMU, missing
from tests.qemu.instead import instead
from tests.test_records import LINES, judge, results_between_guard_pages

FORWARD = "forward_inference"
DIMS = (2, 19, 5, 7)
TYPES = [
    ("f32", "s8"), ("u8", "f32"), ("s8", "s8"), ("f32", "bf16"), ("bf16", "f16"), ("f16", "f64"),
    ("f64", "s32"), ("s32", "f64"), ("f32", "f8_e4m3"), ("f8_e5m2", "f32"), ("e8m0", "f32"),
    ("f32", "s4"), ("u4", "u4"), ("f4_e2m1", "bf16"),
]  # fmt: skip
NEON = pytest.param(QEMU, marks=pytest.mark.skipif(bool(missing()), reason=missing()))
PRODUCTS = [("bf16", "bf16", "f32"), ("f16",) * 3, ("u8", "s8", "s32"), ("s8", "s8", "s8")]
OPEN_NESTS = [
    "--binary --sdt=bf16:f32 --ddt=f32 --alg=add 9x33:1x33 3x5x7:3x1x7 70x500:70x500",
    "--softmax --dir=FWD_I --axis=1 --stag=abx,axb 3x35x7 2x70 5x1",
    "--softmax --dir=BWD_D --axis=0 9x40",
    "--lnorm --dir=FWD_D --flags=CH 5x37 300x9",
    "--lnorm --dir=BWD_DW --flags=CH 5x37 300x9",
    "--reduction --alg=mean 40x300:1x300 1200x3:1x3 3x4001:3x1 5x7:1x1",
]
ENCODED = [line for _, line in LINES if "--encoding" in line or "--grouped" in line]
OPEN_PRODUCTS = [
    "--stag=ab,ba --wtag=ab,ba --dtag=ab 35x47:47x33 1x300:300x5",
    "--dt=bf16,s8:u8:f32 --stag=abc --wtag=acb --dtag=abc --bia-dt=f32 --bia_mask=4 2x7x33:2x33x9",
    "--dt=u8:s8:u8 --wtag=ab --attr-scales=wei:2 --attr-zero-points=src:0:3+wei:0:1 35x147:147x33",
]
LAYOUTS = [("nchw", "nhwc"), ("nhwc", "nChw16c"), ("nChw8c", "part"), ("part16", "dcba")]


# Devices of scalars, and those whose vectors are one register or two.
ROWS = [row for row in DEVICES if row.lanes in (1, 8)]


def _name(device: Isa | Engine) -> str:
    return device.name if isinstance(device, Isa) else device.kind


@pytest.fixture(scope="module", autouse=True, params=[*ROWS, FAR, NEON], ids=_name)
def device(request: pytest.FixtureRequest) -> Iterator[None]:
    with _executing(request.param):
        yield


def _executing(device: Isa | Engine) -> AbstractContextManager[object]:
    """Executions are those of a device, or happen there too."""
    if isinstance(device, Isa):
        return emulated(device)
    return late.everywhere() if device is FAR else instead(device)


@pytest.mark.parametrize("row", DEVICES, ids=_name)
def test_it_is_the_code_of_the_device(row: Isa) -> None:
    with emulated(row) as device:
        desc = ReorderDesc(source(DIMS, "nchw").desc, source(DIMS, "nhwc").desc)
        pd = PrimitiveDesc(desc, ENGINE)
    assert pd.isa is device
    text = str(pd.plan.recipe.kernel().module)
    assert "ptr addrspace(1)" in text
    assert all(int(lanes) <= (row.most_lanes or 0) for lanes in re.findall(r"<(\d+) x \w+>", text))


@pytest.mark.parametrize("types", TYPES, ids=">".join)
@pytest.mark.parametrize("layouts", LAYOUTS, ids=">".join)
def test_reorder(layouts: tuple[str, str], types: tuple[str, str]) -> None:
    memory = typed_source(DIMS, layouts[0], types[0])
    desc = ReorderDesc(memory.desc, describe(DIMS, layouts[1]).with_data_type(types[1]))
    check(execute(desc, {Arg.SRC: memory}), convert(logical(memory), types[1]), 0.0)


@pytest.mark.parametrize("name", attributes.CASES)
def test_reorder_with_attributes(name: str) -> None:
    memory = typed_source(attributes.DIMS, "nhwc", "s8")
    old = typed_source(attributes.DIMS, "nChw16c", "u8", seed=2)
    case = attributes.CASES[name]
    check(*attributes.run(memory, old, case), QUANTIZED_TOLERANCE("u8"))


@every_pair(
    pytest.mark.parametrize("alg", ["softmax_accurate", "softmax_log"]),
    pytest.mark.parametrize("axis", [1, 3]),
    pytest.mark.parametrize("layouts", LAYOUTS, ids=">".join),
)
def test_softmax(layouts: tuple[str, str], axis: int, alg: str) -> None:
    memory = source(DIMS, layouts[0])
    desc = SoftmaxDesc.forward(FORWARD, alg, memory.desc, describe(DIMS, layouts[1]), axis)
    want = softmax.softmax(logical(memory), axis, alg)
    bound = softmax.TOLERANCE("f32", DIMS[axis])
    check(execute(desc, {Arg.SRC: memory}), want, bound)


@pytest.mark.parametrize("alg", [alg for alg in Alg if alg.is_eltwise], ids=str)
def test_eltwise(alg: Alg) -> None:
    memory = source(DIMS, "nhwc")
    desc = EltwiseDesc.forward(FORWARD, alg, memory.desc, describe(DIMS, "nChw16c"), 0.5, 2.0)
    want = eltwise.eltwise(alg, logical(memory), 0.5, 2.0)
    check(execute(desc, {Arg.SRC: memory}), want, eltwise.tolerance(alg)("f32"))


@pytest.mark.parametrize("dims", [DIMS, (1, 19, 1, 1), (2, 1, 5, 1)])
def test_binary(dims: tuple[int, ...]) -> None:
    first, second = source(DIMS, "nChw16c"), source(dims, "nchw", seed=2)
    desc = BinaryDesc("binary_max", first.desc, second.desc, describe(DIMS, "nhwc"))
    want = binary.binary("binary_max", logical(first), logical(second))
    check(execute(desc, {Arg.SRC_0: first, Arg.SRC_1: second}), want, 0.0)


def test_sum() -> None:
    memories = [source(DIMS, "nhwc"), source(DIMS, "nChw16c", 2), source(DIMS, "part", 3)]
    scales = (1.0, -0.5, 3.0)
    desc = SumDesc(scales, [memory.desc for memory in memories], describe(DIMS, "nChw8c"))
    args = {Arg.multiple_src(number): memory for number, memory in enumerate(memories)}
    want = sums.sum_([logical(memory) for memory in memories], scales)
    check(execute(desc, args), want, sums.TOLERANCE("f32", 3))


@pytest.mark.parametrize("axis", [1, 3])
def test_concat(axis: int) -> None:
    memories = [source(DIMS, "nhwc"), source(DIMS, "nChw16c", 2)]
    want = concat([logical(memory) for memory in memories], axis)
    dst = describe(want.shape, "nChw16c")
    desc = ConcatDesc(axis, [memory.desc for memory in memories], dst)
    args = {Arg.multiple_src(number): memory for number, memory in enumerate(memories)}
    check(execute(desc, args), want, 0.0)


@pytest.mark.parametrize("layouts", LAYOUTS, ids=">".join)
def test_batch_normalization(layouts: tuple[str, str]) -> None:
    flags = "use_global_stats|use_scale|use_shift|fuse_norm_relu"
    memory, dst = source(DIMS, layouts[0]), describe(DIMS, layouts[1])
    desc = BatchNormalizationDesc.forward(FORWARD, memory.desc, dst, 1e-3, flags)
    names = (Arg.MEAN, Arg.VARIANCE, Arg.SCALE, Arg.SHIFT)
    given: dict[int, Memory] = {name: vector(19, 10 + name) for name in names}
    want = batch_normalization.batch_normalization(
        logical(memory), *map(logical, given.values()), epsilon=1e-3, fuse_relu=True
    )
    check(execute(desc, {Arg.SRC: memory, **given}), want, batch_normalization.TOLERANCE("f32"))


@pytest.mark.parametrize("alg", ["pooling_max", "pooling_avg_exclude_padding"])
def test_pooling(alg: str) -> None:
    memory = source(DIMS, "nchw")
    strides, kernel, padding = (2, 2), (3, 3), (1, 1)
    dst = describe((2, 19, 3, 4), "nhwc")
    desc = PoolingDesc.forward(FORWARD, alg, memory.desc, dst, strides, kernel, padding)
    want = pooling.pooling(logical(memory), alg, kernel=kernel, strides=strides, padding_l=padding)
    check(execute(desc, {Arg.SRC: memory}), want, pooling.TOLERANCE[alg]("f32", 9))


@pytest.mark.parametrize("left", [(2, 19, 1, 1), (1, 19, 1, 1), (2, 1, 5, 7), (1, 1, 1, 1)])
@pytest.mark.parametrize("layouts", LAYOUTS, ids=">".join)
def test_reduction(layouts: tuple[str, str], left: tuple[int, ...]) -> None:
    memory = source(DIMS, layouts[0])
    for alg in ("reduction_max", "reduction_norm_lp_sum"):
        desc = ReductionDesc(alg, memory.desc, describe(left, layouts[1]), 2.0)
        want = reduction.reduction(logical(memory), alg, left, 2.0)
        check(execute(desc, {Arg.SRC: memory}), want, reduction.TOLERANCE[alg]("f32", 1000))


@pytest.mark.parametrize("alg", ["resampling_nearest", "resampling_linear"])
@pytest.mark.parametrize("layouts", LAYOUTS, ids=">".join)
def test_resampling(layouts: tuple[str, str], alg: str) -> None:
    memory, dst = source(DIMS, layouts[0]), describe((2, 19, 9, 4), layouts[1])
    desc = ResamplingDesc.forward(FORWARD, alg, memory.desc, dst)
    want = resampling.resampling(logical(memory), alg, (9, 4))
    check(execute(desc, {Arg.SRC: memory}), want, resampling.TOLERANCE[alg]("f32", 4))


@pytest.mark.parametrize("columns", [1, 3, 50])
@pytest.mark.parametrize("layout", ["any", "plain", "reversed", "behind"])
def test_matmul(layout: str, columns: int) -> None:
    dims = ((2, 13, 20), (1, 20, columns), (2, 13, columns), (1, 1, columns))
    verify(MatmulDesc(*(lay_out(each, layout) for each in dims)))


def test_matmul_with_post_ops() -> None:
    factors = MemoryDesc((13, 1), "f32")
    attr = attr_of(
        ("eltwise", "eltwise_gelu_tanh", 0.0, 0.0), ("binary", "binary_mul", factors), ("sum", 0.5)
    )
    dims = ((13, 20), (20, 51), (13, 51), (1, 51))
    verify(MatmulDesc(*(lay_out(each, "plain") for each in dims)), attr, fill="normal")


@pytest.mark.parametrize("types", PRODUCTS, ids="-".join)
@pytest.mark.parametrize("layout", ["any", "plain", "reversed"])
def test_matmul_of_types(layout: str, types: tuple[str, str, str]) -> None:
    verify(matmul((13, 37, 35), types, (layout,) * 3))
    verify(matmul((1, 37, 35), types, (layout,) * 3))


@pytest.mark.parametrize("line", OPEN_NESTS)
def test_sizes_that_only_the_execution_knows(line: str) -> None:
    for made in trials(line):
        run_open(made)


@pytest.mark.parametrize("line", OPEN_PRODUCTS)
def test_matmul_of_such_sizes(line: str) -> None:
    for made in trials(f"--matmul {line}"):
        run_open(made, open_products.with_neighbours(made.desc))


@pytest.mark.parametrize("types", [("f32", "s8"), ("u8", "s4"), ("f4_e2m1", "bf16")], ids=">".join)
def test_reorder_of_such_sizes(types: tuple[str, str]) -> None:
    open_reorders.test_types(types, "default")


@pytest.mark.parametrize(
    "line", [line for _, line in LINES if "encoding" in line or "grou" in line]
)
def test_matmul_of_encodings(line: str) -> None:
    every = [*trials(line)]
    for made in every[:: -(-len(every) // 4)]:
        judge(made, results_between_guard_pages(made))


@pytest.mark.parametrize("layout", ["any", "plain"])
def test_inner_product(layout: str) -> None:
    dims = ((4, 6, 3, 3), (11, 6, 3, 3), (4, 11))
    verify(InnerProductDesc.forward(FORWARD, *(lay_out(each, layout) for each in dims)))


@pytest.mark.parametrize("layouts", [("any",) * 3, ("plain",) * 3, ("block16", "plain", "last")])
@pytest.mark.parametrize(
    "channels", [(21, 10), (4, 6, 5), (20, 1, 1)], ids=["whole", "groups", "depthwise"]
)
def test_convolution(channels: tuple[int, ...], layouts: tuple[str, str, str]) -> None:
    window = Window((9, 13), (3, 2), (1, 2), (1, 1))
    verify(convolution_desc(window, 2, channels, layouts))


@pytest.mark.parametrize("layouts", [("any", "any", "any"), ("plain", "plain", "plain")], ids=str)
def test_winograd(layouts: tuple[str, str, str]) -> None:
    desc = convolution_desc(Window((9, 6), (3, 3), padding_l=(1, 1)), 2, (20, 19), layouts)
    verify(replace(desc, alg_kind=Alg.convolution_winograd), fill="normal")


@pytest.mark.parametrize("types", [("bf16", "bf16"), ("f16", "u8")], ids="-".join)
@pytest.mark.parametrize("layout", ["any", "plain", "block16"])
def test_convolution_of_types(layout: str, types: tuple[str, str]) -> None:
    window = Window((5, 9), (3, 3), padding_l=(1, 1))
    desc = convolution_desc(window, 2, (19, 35), (layout, "any", layout))
    verify(typed(desc, *types), fill="normal")
