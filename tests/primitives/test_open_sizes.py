"""Operations on sizes that only the execution knows: one primitive for all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from random import Random

import numpy as np
import pytest

from dnnl import (
    RUNTIME_DIM,
    Arg,
    BinaryDesc,
    ConcatDesc,
    EltwiseDesc,
    InvalidArguments,
    LayerNormalizationDesc,
    Memory,
    MemoryDesc,
    PreluDesc,
    Primitive,
    PrimitiveAttr,
    PrimitiveDesc,
    ReductionDesc,
    ShuffleDesc,
    SoftmaxDesc,
    Stream,
    SumDesc,
    Unimplemented,
    config,
)
from dnnl.primitives import primitive as module
from dnnl.primitives.desc import Desc
from tests.check import check, logical, poisoned_memory, random_memory
from tests.guard import near
from tests.primitives.harness import ENGINE, ISAS, LAYOUTS, describe, every_isa, execute_all
from tests.primitives.runtime_sizes import open_desc, run_open, trials
from tests.small_caches import small_is_large

R = RUNTIME_DIM
MOST_CASES = 6
STREAM = Stream(ENGINE, 1)
OPEN = ("eltwise", "binary", "prelu", "sum", "concat", "gather", "shuffle")


LINES = [
    "--eltwise --dir=FWD_I --dt=f32,bf16 --alg=swish --tag=abx,axb 1x1 5x0x3 7 3x5x7 2x3x33x35",
    "--eltwise --dir=FWD_I --inplace=true --attr-post-ops=sum:0.5+relu+mul:f32:per_oc 9x33 40x500",
    "--binary --sdt=f32:f32,bf16:f16 --ddt=f32 --alg=sub 3x5x7:3x5x7 3x5x7:1x5x1 9x33:1x33",
    "--binary --alg=add 9x33:1x1 70x500:70x500 1000x3:1x3 90x63:90x63",
    "--binary --stag=abx:axb,axb:axb --attr-scales=src0:0:0.5+src1:0:2 4x37x5x3:1x37x1x1",
    "--binary --stag=axb:axb --alg=mul 1x37x5x3:4x37x5x1",
    "--eltwise --dir=BWD_D --dt=f32,bf16 --alg=gelu_tanh,exp_dst --tag=abx,axb 5x0x3 3x5x7 2x3x33",
    "--prelu --dir=FWD_D --sdt=f32:f32,bf16:f32,s8:s8 3x5x7:1x5 9x33x3:1 40x500:40x500 1000x3:1x3",
    "--prelu --dir=FWD_I --stag=axb:any 3x37x5:1x37 4x6x33:4x1x1",
    "--sum --sdt=f32:f32,bf16:f32:s8 --ddt=f32 --scales=0.5 3x5x7 9x33 40x500 5x0x3",
    "--sum --sdt=f32:f32:f32 --stag=abx:axb:abx --inplace=true --attr-post-ops=relu 3x5x7 9x33x2",
    "--concat --sdt=f32,bf16,s8 --axis=1 3x5x7:3x16x7:3x1x7 33x3:33x5 40x300:40x0:40x7",
    "--concat --axis=0 --dtag=abx,axb --attr-scales=msrc0:0:2 3x5x7:1x5x7",
]  # fmt: skip


@pytest.mark.parametrize("line", LINES)
def test_sizes_with_tails(line: str) -> None:
    """Some cases, each on one of the instruction sets, in turn."""
    every = [*trials(line)]
    some = Random(line).sample(every, min(len(every), MOST_CASES))
    for isa, made in zip(cycle(reversed(ISAS)), some, strict=False):
        with config.override("max_cpu_isa", isa):
            run_open(made)


SHORT = [
    "--eltwise --dir=FWD_I --alg=tanh 3x37",
    "--binary --sdt=bf16:bf16 --ddt=bf16 3x37:1x37",
    "--eltwise --dir=BWD_D --alg=swish 3x37",
    "--prelu --sdt=bf16:f32 3x37:1x37",
    "--sum --sdt=f32:bf16 3x37",
    "--concat --sdt=bf16 --axis=1 3x5:3x37",
]


@every_isa
@pytest.mark.parametrize("line", SHORT)
def test_every_instruction_set(line: str, isa: str) -> None:
    with config.override("max_cpu_isa", isa):
        for made in trials(line):
            run_open(made)


def doubled(desc: MemoryDesc) -> MemoryDesc:
    """Two tensors one behind the other along dimension 1, row-major."""
    size = R if desc.dims[1] == R else 2 * desc.dims[1]
    return MemoryDesc((desc.dims[0], size, *desc.dims[2:]), "f32")


def per_channel(desc: MemoryDesc) -> MemoryDesc:
    """A tensor with a number for each channel."""
    return MemoryDesc((1, desc.dims[1], *[1] * (desc.ndims - 2)), "f32")


DESCRIPTIONS: dict[str, Callable[[MemoryDesc], Desc]] = {
    "eltwise": lambda a: EltwiseDesc.forward("forward_inference", "eltwise_swish", a, a, 1.0),
    "softmax": lambda a: SoftmaxDesc.forward("forward_inference", "softmax_accurate", a, a, 1),
    "layer_normalization": lambda a: LayerNormalizationDesc.forward(
        "forward_training", a, a, 1e-5, "use_scale"
    ),
    "binary": lambda a: BinaryDesc("binary_sub", a, a, a),
    "reduction": lambda a: ReductionDesc(
        "reduction_sum", a, MemoryDesc((*a.dims[:2], 1, a.dims[3]), "f32")
    ),
    "concat": lambda a: ConcatDesc(1, (a, a), doubled(a)),
    "eltwise backward": lambda a: EltwiseDesc.backward("eltwise_swish", a, a, a, 1.0),
    "layer_normalization backward": lambda a: LayerNormalizationDesc.backward(
        "backward", a, a, a, 1e-5, "use_scale|use_shift"
    ),
    "softmax backward": lambda a: SoftmaxDesc.backward("softmax_log", a, a, a, 1),
    "prelu": lambda a: PreluDesc.forward("forward_inference", a, per_channel(a), a),
    "sum": lambda a: SumDesc((0.5, 2.0), (a, a), a),
}

POINTWISE = [
    kind for kind in DESCRIPTIONS if not kind.startswith(("softmax", "layer", "reduction"))
]


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if not any(map(str.isdigit, name))])
@pytest.mark.parametrize("kind", DESCRIPTIONS)
def test_any_strides(kind: str, layout: str) -> None:
    """The bits of what a kernel for one size makes, at least nearly."""
    for dims in ((2, 19, 5, 18), (3, 2, 1, 33)):
        desc = DESCRIPTIONS[kind](describe(dims, layout))
        pd = PrimitiveDesc(desc, ENGINE)
        inputs = [tensor for tensor in pd.desc.tensors if not tensor.output]
        args = {t.argument: random_memory(t.desc, ENGINE, t.argument) for t in inputs}
        want = execute_all(pd, args)
        written = {t.argument: poisoned_memory(t.desc, ENGINE) for t in pd.desc.outputs}
        got = execute_all(PrimitiveDesc(open_desc(pd.desc), ENGINE), args, written)
        for argument, memory in want.items():
            check(got[argument], logical(memory), 1e-6)


@pytest.mark.parametrize("kind", POINTWISE)
def test_one_primitive_for_many_sizes(kind: str, tmp_path: Path) -> None:
    """One kernel serves all sizes, 1 among them. Very short rows, no elements and tensors that the
    small caches of tests do not hold may have others."""
    rng = np.random.default_rng(5)
    with config.override("cache_dir", tmp_path):
        module._cache.clear()
        primitive = Primitive(
            PrimitiveDesc(DESCRIPTIONS[kind](MemoryDesc((R,) * 4, "f32")), ENGINE)
        )
        sizes = rng.integers(5, 20, (6, 4))
        for dims in (*sizes.tolist(), (2, 5, 6, 8)):
            execute_once(kind, primitive, dims)
        kernels = set(tmp_path.iterdir())
        assert len(kernels) <= 4
        for dims in ((1, 5, 17, 8), (3, 1, 6, 9), (7, 4, 1, 12), (1, 1, 1, 8)):
            execute_once(kind, primitive, dims)
            assert set(tmp_path.iterdir()) == kernels, dims
        for dims in ((1, 5, 17, 3), (3, 2, 1, 1), (1, 1, 1, 1), (2, 0, 3, 5)):
            if kind != "reduction" or min(dims) > 1:
                execute_once(kind, primitive, dims)
    module._cache.clear()


def execute_once(kind: str, primitive: Primitive, dims: Sequence[int]) -> None:
    """An execution on dense tensors of these sizes between guard pages, judged by the
    specification."""
    desc = DESCRIPTIONS[kind](MemoryDesc(dims, "f32"))
    descs = {t.argument: MemoryDesc(t.desc.dims, "f32") for t in desc.tensors}
    written = [tensor.argument for tensor in desc.outputs]
    outputs = {arg: near(poisoned_memory(descs[arg], ENGINE)) for arg in written}
    args = {
        arg: near(random_memory(own, ENGINE, arg, "positive"))
        for arg, own in descs.items()
        if arg not in written
    }
    primitive.execute(STREAM, {**args, **outputs})
    values = {argument: logical(memory) for argument, memory in args.items()}
    want = desc.operation.reference.compute(desc, values)
    for argument, memory in outputs.items():
        check(memory, want[argument], 1e-4)


def test_what_does_not_fit_is_named() -> None:
    """Errors of an execution tell the argument, its value and the rule."""
    pattern = MemoryDesc((R, 4, R), "f32", (R, R, 1))
    softmax = SoftmaxDesc.forward("forward_inference", "softmax_accurate", pattern, pattern, 1)
    go = executed(softmax, {Arg.SRC: MemoryDesc((2, 4, 3), "f32")})
    good = MemoryDesc((2, 4, 3), "f32")
    go({Arg.DST: good})
    for desc, rule in (
        (MemoryDesc((2, 4), "f32"), r"DST.*ndims must be 3.*is 2"),
        (MemoryDesc((2, 5, 3), "f32"), r"DST\]\.dims.*must be \(RUNTIME_DIM, 4, RUNTIME"),
        (MemoryDesc((2, 4, 3), "f32", "acb"), r"DST\]\.strides = \(12, 1, 4\).*, 1\)"),
        (MemoryDesc((3, 4, 3), "f32"), r"dst_desc = \(3, 4, 3\).*\(2, 4, 3\)"),
        (MemoryDesc((2, 4, 3), "bf16"), r"DST.*data_type must be f32.*is bf16"),
    ):
        with pytest.raises(InvalidArguments, match=rule):
            go({Arg.DST: desc})


def test_sizes_that_do_not_agree_are_named() -> None:
    pattern = MemoryDesc((R, R), "f32")
    add = BinaryDesc("binary_add", pattern, MemoryDesc((1, R), "f32"), pattern)
    go = executed(add, {Arg.SRC_0: MemoryDesc((3, 5), "f32"), Arg.DST: MemoryDesc((3, 5), "f32")})
    go({Arg.SRC_1: MemoryDesc((1, 5), "f32")})
    with pytest.raises(InvalidArguments, match=r"SRC_1\]\.dims = \(3, 5\).*\(1, RUNTIME_DIM\)"):
        go({Arg.SRC_1: MemoryDesc((3, 5), "f32")})
    with pytest.raises(InvalidArguments, match=r"src1_desc = \(1, 4\).*each dimension must be 1"):
        go({Arg.SRC_1: MemoryDesc((1, 4), "f32")})
    total = ReductionDesc("reduction_sum", pattern, MemoryDesc((R, 1), "f32"))
    go = executed(total, {Arg.SRC: MemoryDesc((3, 5), "f32")})
    go({Arg.DST: MemoryDesc((3, 1), "f32")})
    with pytest.raises(InvalidArguments, match=r"DST\]\.dims.*dimension 0 is not reduced"):
        go({Arg.DST: MemoryDesc((1, 1), "f32")})
    both = ConcatDesc(0, (pattern, pattern), pattern)
    sources = {Arg.MULTIPLE_SRC + n: MemoryDesc((2, 5), "f32") for n in range(2)}
    go = executed(both, sources)
    go({Arg.DST: MemoryDesc((4, 5), "f32")})
    with pytest.raises(InvalidArguments, match=r"dst_desc = \(5, 5\).*expected \(4, 5\)"):
        go({Arg.DST: MemoryDesc((5, 5), "f32")})


def executed(
    desc: Desc, fixed: Mapping[int, MemoryDesc]
) -> Callable[[Mapping[int, MemoryDesc]], None]:
    """An execution of one primitive on memories of these descriptors, and of those it is given."""
    primitive = Primitive(PrimitiveDesc(desc, ENGINE))

    def go(others: Mapping[int, MemoryDesc]) -> None:
        descs = {**fixed, **others}
        primitive.execute(STREAM, {arg: Memory(own, ENGINE) for arg, own in descs.items()})

    return go


def test_a_source_may_be_broadcast_by_the_execution() -> None:
    """Though nothing says so before; a source of stride 0 as well."""
    pattern = MemoryDesc((R, R), "f32", (R, R))
    for other in (
        MemoryDesc((1, 35), "f32"),
        MemoryDesc((9, 35), "f32", (0, 1)),
        MemoryDesc((9, 1), "f32"),
        MemoryDesc((9, 35), "f32", (1, 0)),
    ):
        args: dict[int, Memory] = {
            Arg.SRC_0: random_memory(MemoryDesc((9, 35), "f32"), ENGINE, 1),
            Arg.SRC_1: random_memory(other, ENGINE, 2),
        }
        dst: dict[int, Memory] = {Arg.DST: poisoned_memory(MemoryDesc((9, 35), "f32"), ENGINE)}
        pd = PrimitiveDesc(BinaryDesc("binary_add", pattern, pattern, pattern), ENGINE)
        want = logical(args[Arg.SRC_0]) + logical(args[Arg.SRC_1])
        check(execute_all(pd, args, dst)[Arg.DST], want, 1e-6)


def test_an_operand_of_a_post_op_is_open() -> None:
    pattern = MemoryDesc((R, R), "f32")
    attr = PrimitiveAttr()
    attr.post_ops.append_binary("binary_mul", MemoryDesc((1, R), "f32"))
    desc = EltwiseDesc.forward("forward_inference", "eltwise_abs", pattern, pattern)
    primitive = Primitive(PrimitiveDesc(desc, ENGINE, attr))
    operand = Arg.post_op(0) | Arg.SRC_1
    for dims in ((3, 5), (1, 70), (200, 33)):
        src = random_memory(MemoryDesc(dims, "f32"), ENGINE, 1)
        factor = random_memory(MemoryDesc((1, dims[1]), "f32"), ENGINE, 2)
        dst = poisoned_memory(src.desc, ENGINE)
        primitive.execute(STREAM, {Arg.SRC: src, Arg.DST: dst, operand: factor})
        check(dst, abs(logical(src)) * logical(factor), 1e-6)
    wrong = Memory(MemoryDesc((1, 32), "f32"), ENGINE)
    with pytest.raises(InvalidArguments, match=r"post_ops\[0\]\.src1_desc = \(1, 32\)"):
        primitive.execute(STREAM, {Arg.SRC: src, Arg.DST: dst, operand: wrong})
    with pytest.raises(InvalidArguments, match=r"SRC_1.*missing"):
        primitive.execute(STREAM, {Arg.SRC: src, Arg.DST: dst})
    known = MemoryDesc((3, 5), "f32")
    attr = PrimitiveAttr()
    attr.post_ops.append_binary("binary_mul", MemoryDesc((1, 5), "f32", (R, 1)))
    desc = EltwiseDesc.forward("forward_inference", "eltwise_abs", known, known)
    with pytest.raises(Unimplemented, match=r"run-time dimension: of .*SRC_1 beside known sizes"):
        PrimitiveDesc(desc, ENGINE, attr)


@pytest.mark.parametrize("strides", [(1, 8), (40, 2), (0, 1), (1, 0)])
def test_rows_in_pairs_beside_an_operand_that_is_no_row(strides: tuple[int, int]) -> None:
    """What is known of rows says nothing of the operands of post-ops."""
    pattern = MemoryDesc((R, R), "f32", (R, R))
    attr = PrimitiveAttr()
    attr.post_ops.append_binary("binary_add", pattern)
    desc = LayerNormalizationDesc.forward("forward_inference", pattern, pattern, 1e-5, 0)
    primitive = Primitive(PrimitiveDesc(desc, ENGINE, attr))
    src = random_memory(MemoryDesc((7, 19), "f32"), ENGINE, 1)
    other = random_memory(MemoryDesc((7, 19), "f32", strides), ENGINE, 2)
    dst = poisoned_memory(src.desc, ENGINE)
    operand = Arg.post_op(0) | Arg.SRC_1
    primitive.execute(STREAM, {Arg.SRC: src, Arg.DST: dst, operand: near(other)})
    rows = logical(src)
    rows = rows - rows.mean(1, keepdims=True)
    check(dst, rows / np.sqrt((rows**2).mean(1, keepdims=True) + 1e-5) + logical(other), 1e-5)


def test_what_has_no_code_for_all_sizes() -> None:
    desc = MemoryDesc((R, R), "s64")
    made = EltwiseDesc.forward("forward_inference", "eltwise_abs", desc, desc)
    with pytest.raises(Unimplemented, match="unsupported data type: s64"):
        PrimitiveDesc(made, ENGINE)


@pytest.mark.parametrize("tags", [("nChw16c", "nchw"), ("nhwc", "nChw8c"), ("nChw16c", "nChw16c")])
def test_blocks(tags: tuple[str, str]) -> None:
    """One primitive for numbers of channels around whole blocks."""
    first, second = (MemoryDesc((R, R, R, R), "f32", tag) for tag in tags)
    desc = EltwiseDesc.forward("forward_inference", "eltwise_abs", first, second)
    primitive = Primitive(PrimitiveDesc(desc, ENGINE))
    for dims in (
        (2, 16, 3, 5),
        (3, 35, 2, 7),
        (2, 5, 4, 4),
        (2, 48, 5, 5),
        (2, 1, 3, 3),
        (0, 2, 3, 4),
    ):
        src, dst = (MemoryDesc(dims, "f32", tag) for tag in tags)
        args = {
            Arg.SRC: near(random_memory(src, ENGINE)),
            Arg.DST: near(poisoned_memory(dst, ENGINE)),
        }
        primitive.execute(STREAM, args)
        check(args[Arg.DST], abs(logical(args[Arg.SRC])), 0.0)


def test_parts_of_blocks_are_joined() -> None:
    """The second source begins anywhere in a block."""
    pattern = MemoryDesc((R, R, R), "f32", "aBc16b")
    primitive = Primitive(PrimitiveDesc(ConcatDesc(1, (pattern, pattern), pattern), ENGINE))
    for first, second in ((16, 5), (32, 16), (7, 30), (1, 20), (33, 1), (0, 4), (5, 0)):
        sources = [MemoryDesc((2, size, 3), "f32", "aBc16b") for size in (first, second)]
        args: dict[int, Memory] = {
            Arg.MULTIPLE_SRC + n: near(random_memory(own, ENGINE, n))
            for n, own in enumerate(sources)
        }
        both = np.concatenate([logical(memory) for memory in args.values()], 1)
        dst = near(poisoned_memory(MemoryDesc(both.shape, "f32", "aBc16b"), ENGINE))
        primitive.execute(STREAM, {**args, Arg.DST: dst})
        check(dst, both, 0.0)


@pytest.mark.parametrize("group", [3, 8])
def test_groups_are_shuffled(group: int) -> None:
    pattern = MemoryDesc((R, R, R), "f32")
    desc = ShuffleDesc.forward("forward_inference", pattern, pattern, 1, group)
    primitive = Primitive(PrimitiveDesc(desc, ENGINE))
    for rows in (2, 5, 1, 16):
        src = near(random_memory(MemoryDesc((2, rows * group, 7), "f32"), ENGINE))
        dst = near(poisoned_memory(src.desc, ENGINE))
        primitive.execute(STREAM, {Arg.SRC: src, Arg.DST: dst})
        exchanged = logical(src).reshape(2, rows, group, 7).swapaxes(1, 2)
        check(dst, exchanged.reshape(src.desc.dims), 0.0)
    odd = Memory(MemoryDesc((2, group + 1, 7), "f32"), ENGINE)
    with pytest.raises(InvalidArguments, match=f"group_size = {group}"):
        primitive.execute(STREAM, {Arg.SRC: odd, Arg.DST: Memory(odd.desc, ENGINE)})


def test_scales_of_groups() -> None:
    pattern = MemoryDesc((R, R), "s8")
    attr = PrimitiveAttr()
    attr.set_scales(Arg.SRC_0, 3, (1, 4))
    desc = BinaryDesc("binary_add", pattern, pattern, pattern.with_data_type("f32"))
    primitive = Primitive(PrimitiveDesc(desc, ENGINE, attr))
    for dims in ((3, 40), (5, 8), (1, 4), (2, 132)):
        a, b = (random_memory(MemoryDesc(dims, "s8"), ENGINE, seed) for seed in (1, 2))
        scales = random_memory(MemoryDesc((dims[0], dims[1] // 4), "f32"), ENGINE, 3, "positive")
        dst = near(poisoned_memory(MemoryDesc(dims, "f32"), ENGINE))
        args = {Arg.SRC_0: near(a), Arg.SRC_1: near(b), Arg.DST: dst}
        primitive.execute(STREAM, {**args, Arg.SCALES | Arg.SRC_0: near(scales)})
        check(dst, logical(a) * logical(scales).repeat(4, 1) + logical(b), 1e-6)


PAST_THE_CACHES = [
    "--eltwise --dir=FWD_I --alg=relu 4x1280 30x5x35",
    "--binary --alg=add --sdt=bf16:bf16 --ddt=bf16 20x320:1x320 9x640:9x640",
]


def test_stores_past_the_caches() -> None:
    """As those of tensors larger than the caches are."""
    module._cache.clear()
    with small_is_large():
        for line in PAST_THE_CACHES:
            for made in trials(line):
                run_open(made)
    module._cache.clear()
