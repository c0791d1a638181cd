"""Reductions, softmax and normalizations of sizes that only executions know."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from random import Random

import pytest

from dnnl import (
    RUNTIME_DIM,
    Arg,
    BatchNormalizationDesc,
    GroupNormalizationDesc,
    InvalidArguments,
    LayerNormalizationDesc,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveDesc,
    ReductionDesc,
    SoftmaxDesc,
    Stream,
    config,
)
from dnnl.primitives.desc import Desc
from tests.check import check, logical, poisoned_memory, random_memory
from tests.guard import RUNS, near
from tests.primitives.harness import ENGINE, ISAS
from tests.primitives.runtime_sizes import run_open, trials

R = RUNTIME_DIM
Shape = tuple[int, ...]
KINDS = (
    "softmax", "reduction", "layer_normalization", "batch_normalization", "group_normalization",
)  # fmt: skip
MOST_CASES = 4


LINES = [
    "--softmax --dir=FWD_I --sdt=f32 --ddt=f32,bf16 --axis=0,2 3x5x7 2x33x35 9x1x17",
    "--softmax --dir=FWD_I --stag=axb --axis=1 --attr-post-ops=mul:f32:per_oc 1x40x130 64x20x40",
    "--softmax --dir=FWD_I --alg=LOGSOFTMAX --axis=1 3x5x7 33x1x1 1x4097x8",
    "--softmax --dir=FWD_I --sdt=bf16 --ddt=bf16,f32 --axis=1 5x8 9x5 6x16 3x4",
    "--softmax --dir=BWD_D --sdt=f32,bf16 --ddt=f32 --axis=0,1 3x5x7 2x33x35 9x1x17 64x40x3",
    "--softmax --dir=BWD_D --alg=LOGSOFTMAX --stag=axb --axis=2 3x5x7 33x1x1 1x8x1097",
    "--lnorm --dir=FWD_D --flags=CH,M --dt=f32 3x7 4x3x40 9x130x33 2x1",
    "--lnorm --dir=FWD_D --flags=CH --dt=f32,bf16 5x8 2x16 7x3x5 1x9 6x1 2x5x9 41x4 3x17x24",
    "--lnorm --dir=FWD_I --attr-post-ops=mul:f32:per_oc+sum:0.5 8x33 3x2x16",
    "--lnorm --dir=FWD_I --tag=axb --flags=GH --dt=bf16 --attr-scales=src:0:0.5 3x7x17 5x33x9",
    "--lnorm --dir=BWD_DW --flags=CH --dt=f32,bf16 3x7 4x3x40 9x130x33 2x1 5x8 300x17 1x9 0x5",
    "--lnorm --dir=BWD_DW --flags=C,H,M --inplace=true 7x3x5 2x5x9 200x24 33x70",
    "--lnorm --dir=BWD_D --flags=G,GM,M --tag=axb,abx --dt=f32 3x7x17 5x33x9",
    "--reduction --sdt=f32,bf16 --ddt=f32 --alg=mean 3x5x7:3x1x7 33x35:33x1 300x70:1x70",
    "--reduction --alg=max 2x19x5x7:1x19x1x1 9x33x65:1x1x1 33x35:1x35",
    "--reduction --alg=sum,max --sdt=f32,s8 16x3x49:1x3x1 9x5x7:1x5x1 3x4x65:1x4x1 5x40x8:5x40x1",
    "--reduction --sdt=s8 --ddt=s32 --stag=axb --attr-post-ops=linear:2:1 5x40x33:5x1x33",
    "--bnorm --dir=FWD_D,BWD_DW --flags=CH,CHR --tag=abx,axb,aBx16b mb3ic19ih5 mb2ic40ih33 mb1ic3",
    "--bnorm --dir=FWD_I --flags=GCH,GCHA --dt=f32,bf16 --tag=axb mb3ic17ih7iw5 mb20ic5ih1",
    "--gnorm --dir=FWD_D,BWD_DW --flags=CH --tag=abx,axb g4mb2ic20ih9 g3mb3ic48ih3iw5 g2ic64ih33",
    "--gnorm --dir=FWD_I --flags=G,H --dt=bf16:f32 --tag=axb g5mb2ic5ih7 g1mb3ic19ih5",
]


@pytest.mark.parametrize("line", LINES[::2])
def test_sizes_with_tails(line: str) -> None:
    """Some cases, each on one of the instruction sets, in turn."""
    every = [*trials(line)]
    some = Random(line).sample(every, min(len(every), MOST_CASES))
    for isa, made in zip(cycle(reversed(ISAS)), some, strict=False):
        with config.override("max_cpu_isa", isa):
            run_open(made)


SHORT = [
    "--softmax --dir=FWD_I --axis=1 3x37",
    "--softmax --dir=FWD_I --axis=0 --sdt=bf16 --ddt=bf16 5x37",
    "--softmax --dir=BWD_D --axis=1 3x37",
    "--lnorm --dir=FWD_D --flags=CH 5x37",
    "--lnorm --dir=BWD_DW --flags=CH 5x37",
    "--reduction 5x37:1x37 5x37:5x1",
    "--bnorm --dir=FWD_D,BWD_DW --flags=CH mb2ic19ih5",
    "--gnorm --dir=FWD_D,BWD_DW --flags=CH --tag=axb g3mb2ic21ih5",
]


@pytest.mark.parametrize(
    ("line", "isa"), [(own, isa) for n, own in enumerate(SHORT) for isa in ISAS[n % 2 :: 2]]
)
def test_every_instruction_set(line: str, isa: str) -> None:
    """Every other one for each line, in turn."""
    with config.override("max_cpu_isa", isa):
        for made in trials(line):
            run_open(made)


def reduced(alg: str, *dims: int) -> Callable[[MemoryDesc], Desc]:
    """A description that reduces ``dims``."""

    def describe(src: MemoryDesc) -> Desc:
        left = [1 if dim in dims else size for dim, size in enumerate(src.dims)]
        return ReductionDesc(f"reduction_{alg}", src, MemoryDesc(left, "f32"), 2.0)

    return describe


AFFINE = "use_scale|use_shift"
DESCRIPTIONS: dict[str, tuple[Callable[[MemoryDesc], Desc], str]] = {
    "softmax": (
        lambda a: SoftmaxDesc.forward("forward_inference", "softmax_accurate", a, a, 1), "ab",
    ),
    "softmax backward": (lambda a: SoftmaxDesc.backward("softmax_log", a, a, a, 1), "acb"),
    "sum of columns": (reduced("sum", 0), "ab"),
    "mean of rows": (reduced("mean", 2), "abc"),
    "norm of images": (reduced("norm_lp_sum", 0, 2, 3), "abcd"),
    "layers": (
        lambda a: LayerNormalizationDesc.forward(
            "forward_training", a, a, 1e-5, AFFINE, MemoryDesc(a.dims[:-1], "f32")
        ),
        "abc",
    ),
    "layers backward": (
        lambda a: LayerNormalizationDesc.backward(
            "backward", a, a, a, 1e-5, AFFINE, MemoryDesc(a.dims[:-1], "f32")
        ),
        "ab",
    ),
    "batches": (
        lambda a: BatchNormalizationDesc.forward("forward_training", a, a, 1e-5, AFFINE),
        "abcd",
    ),
    "batches backward": (
        lambda a: BatchNormalizationDesc.backward("backward", a, a, a, 1e-5, AFFINE), "acdb",
    ),
    "batches with a relu": (
        lambda a: BatchNormalizationDesc.forward(
            "forward_training", a, a, 1e-5, f"{AFFINE}|fuse_norm_relu"
        ),
        "aBcd8b",
    ),
    "groups": (
        lambda a: GroupNormalizationDesc.forward("forward_training", a, a, 4, 1e-5, AFFINE),
        "abcd",
    ),
    "groups backward": (
        lambda a: GroupNormalizationDesc.backward("backward", a, a, a, 4, 1e-5, AFFINE),
        "acdb",
    ),
}  # fmt: skip
"""What is described, and the layout."""
MOST_KERNELS = 8
"""A batch of 1 or 0, rows below 48 elements, few rows, rows that no cache holds, and large tensors
whose rows are whole vectors have kernels of their own."""
SIZES: list[Shape] = [
    (7, 64, 9, 11), (16, 64, 28, 28), (3, 8, 5, 70), (2, 128, 14, 14), (1, 64, 12, 12),
    (5, 4, 3, 2), (0, 16, 4, 4), (33, 68, 20, 7), (9, 12, 40, 64), (2, 64, 31, 97),
]  # fmt: skip


@pytest.mark.parametrize("name", DESCRIPTIONS)
@pytest.mark.covers
def test_ten_sizes(name: str) -> None:
    """Sizes of 1 and 0, and rows of all lengths, through one primitive."""
    describe, tag = DESCRIPTIONS[name]
    ndims = sum(letter.isalpha() and letter.lower() in "abcd" for letter in set(tag.lower()))
    pattern = describe(MemoryDesc((R,) * ndims, "f32", tag))
    pd = PrimitiveDesc(pattern, ENGINE)
    primitive = Primitive(pd)
    for dims in SIZES:
        shape = dims[:ndims] if ndims > 2 else (dims[0] * dims[2], dims[1] * dims[3])
        if name.startswith(("sum", "mean", "norm")) and min(shape) < 2:
            continue  # 1 in dst would say that nothing is reduced
        desc = PrimitiveDesc(describe(MemoryDesc(shape, "f32", tag)), ENGINE).desc
        seen = run(primitive, desc)
        assert len(seen) == 1, "the bits do not depend on the number of threads"
    variants = pd.variants
    assert variants is not None
    assert len(variants.every) <= MOST_KERNELS


def run(primitive: Primitive, desc: Desc) -> set[bytes]:
    """Execute and judge; all results of the first output."""
    written = [tensor.argument for tensor in desc.outputs]
    given = {
        tensor.argument: random_memory(tensor.desc, ENGINE, tensor.argument, "positive")
        for tensor in desc.tensors
        if tensor.argument not in written
    }
    want = desc.operation.reference.compute(
        desc, {argument: logical(memory) for argument, memory in given.items()}
    )
    seen = set()
    for threads, at in (*RUNS, (5, "end")):
        outputs = {t.argument: near(poisoned_memory(t.desc, ENGINE), at) for t in desc.outputs}
        placed = {argument: near(memory, at) for argument, memory in given.items()}
        primitive.execute(Stream(ENGINE, threads), {**placed, **outputs})
        for argument, memory in outputs.items():
            check(memory, want[argument], 1e-4)
        seen.add(outputs[written[0]].data.tobytes())
    return seen


# What is reduced to what: a few results of much, lines that are short, uneven pieces, several axes
# to cut, nothing to cut.
SHAPES: list[tuple[Shape, Shape]] = [
    ((4096, 3), (1, 3)), ((1024, 8), (1, 8)), ((331, 8), (1, 8)), ((640, 48), (1, 48)),
    ((300, 100), (1, 100)), ((97, 300), (1, 300)), ((270, 170), (1, 1)), ((3, 14001), (1, 1)),
    ((2, 5, 133, 35), (1, 5, 1, 1)), ((7, 1129, 9), (7, 1, 9)), ((2, 3, 40, 331), (2, 1, 40, 1)),
    ((5, 27, 31, 13), (1, 27, 1, 13)), ((40, 2, 300), (1, 2, 300)), ((9, 2000), (9, 1)),
    ((1, 5), (1, 1)), ((64, 1), (1, 1)), ((1, 40000), (1, 1)),
]  # fmt: skip
TAGS = {2: ("ab", "ba"), 3: ("abc", "bca"), 4: ("abcd", "acdb")}
PARTS = [(*shape, TAGS[len(shape[0])][n % 2]) for n, shape in enumerate(SHAPES)]


@pytest.mark.parametrize(("dims", "left", "tag"), PARTS[::2])
def test_results_of_parts(dims: Shape, left: Shape, tag: str) -> None:
    number = PARTS.index((dims, left, tag))
    alg = ("sum", "mean", "max", "norm_lp_sum")[number % 4]
    dst = MemoryDesc(left, "f32")
    with config.override("max_cpu_isa", ISAS[number % len(ISAS)]):
        want = ReductionDesc(f"reduction_{alg}", MemoryDesc(dims, "f32", tag), dst, 2.0)
        src = MemoryDesc([R if size > 1 else 1 for size in dims], "f32", tag)
        line = MemoryDesc([R if size > 1 else 1 for size in left], "f32")
        pattern = ReductionDesc(f"reduction_{alg}", src, line, 2.0)
        assert len(run(Primitive(PrimitiveDesc(pattern, ENGINE)), want)) == 1


def test_statistics_of_another_size_are_named() -> None:
    """Also once other sizes went through."""
    pattern = MemoryDesc((R, R, R), "f32", "abc")
    desc = BatchNormalizationDesc.forward("forward_training", pattern, pattern, 1e-5, None)
    primitive = Primitive(PrimitiveDesc(desc, ENGINE))

    def go(channels: int, others: int) -> None:
        image, line = MemoryDesc((2, channels, 5), "f32"), MemoryDesc((others,), "f32")
        descs = {Arg.SRC: image, Arg.DST: image, Arg.MEAN: line, Arg.VARIANCE: line}
        memories = {argument: Memory(own, ENGINE) for argument, own in descs.items()}
        primitive.execute(Stream(ENGINE, 1), memories)

    for channels in (67, 70, 5):
        with pytest.raises(InvalidArguments, match="MEAN"):
            go(channels, channels - 3)
        go(channels, channels)


def test_groups_divide_the_channels_of_executions() -> None:
    pattern = MemoryDesc((R, R, R), "f32", "abc")
    desc = GroupNormalizationDesc.forward("forward_inference", pattern, pattern, 4, 1e-5, None)
    primitive = Primitive(PrimitiveDesc(desc, ENGINE))
    image = Memory(MemoryDesc((2, 6, 5), "f32"), ENGINE)
    with pytest.raises(InvalidArguments, match=r"multiple of 4|divide the number of channels"):
        primitive.execute(Stream(ENGINE, 1), {Arg.SRC: image, Arg.DST: image})
