"""Operations on sizes that only the execution knows: one primitive for all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    SoftmaxDesc,
    Stream,
    SumDesc,
    Unimplemented,
    config,
)
from dnnl.codegen.open_nest import plan
from dnnl.primitives import primitive as module
from dnnl.primitives.desc import Desc
from dnnl.primitives.registry import OPERATIONS
from dnnl.tools.bench.trial import Trial
from tests import test_records as records
from tests.check import check, logical, poisoned_memory, random_memory
from tests.guard import RUNS, near
from tests.primitives import late
from tests.primitives.harness import ENGINE, ISAS, LAYOUTS, describe, every_isa, execute_all
from tests.primitives.runtime_sizes import open_attr, open_desc, trials

R = RUNTIME_DIM
MOST_CASES = 6
STREAM = Stream(ENGINE, 1)
OPEN = [
    kind
    for kind, made in OPERATIONS.items()
    if any(impl.name == "open" for impl in made.operation.implementations)
]


def run_open(made: Trial) -> None:
    """Execute a case on a primitive that knows no sizes, between guard pages, and judge that."""
    pd = PrimitiveDesc(open_desc(made.desc), ENGINE, open_attr(made.pd.attr))
    assert pd.impl_info.startswith("open:")
    primitive = Primitive(pd)
    results: list[Mapping[int, Memory]] = []
    for threads, at in RUNS:
        placed = {argument: near(memory, at) for argument, memory in made.memories.items()}
        primitive.execute(Stream(ENGINE, threads), placed)
        results.append(placed)
    if late.drawn():
        results.append(late.execute(pd.desc, pd.attr, made.memories))
    records.judge(made, results)
    made.place()


def plain(made: Trial) -> bool:
    """Whether no tensor lies in blocks."""
    descs = [tensor.desc for tensor in made.desc.tensors]
    descs += [desc for entry in made.pd.attr.post_ops for _, desc in entry.operands]
    return not any(desc.inner_blocks for desc in descs)


def refused(made: Trial) -> str | None:
    """Why run-time sizes are refused of what is done where sizes are known."""
    if made.pd.impl_info.startswith("wrapping"):
        return "unsupported data type"
    return None if plain(made) else "in blocks with run-time sizes"


def serves(made: Trial) -> bool:
    """Whether the operation takes sizes that only the execution knows in this propagation."""
    desc = made.desc
    every = desc.operation.implementations
    return any(impl.name == "open" and desc.propagation in impl.passes for impl in every)


@pytest.mark.parametrize("line", [line for kind, line in records.LINES if kind in OPEN])
def test_every_example_of_the_records(line: str) -> None:
    """Of lines with many cases some: it is types and not sizes for which code is written."""
    cases = [made for made in trials(line) if serves(made)]
    for made in cases[:: -(-len(cases) // 2) or 1]:
        refusal = refused(made)
        if refusal is None:
            run_open(made)
        else:
            with pytest.raises(Unimplemented, match=refusal):
                PrimitiveDesc(open_desc(made.desc), ENGINE, open_attr(made.pd.attr))


LINES = [
    "--eltwise --dir=FWD_I --dt=f32,bf16 --alg=swish --tag=abx,axb 1x1 5x0x3 7 3x5x7 2x3x33x35",
    "--eltwise --dir=FWD_I --inplace=true --attr-post-ops=sum:0.5+relu+mul:f32:per_oc 9x33 40x500",
    "--binary --sdt=f32:f32,bf16:f16 --ddt=f32 --alg=sub 3x5x7:3x5x7 3x5x7:1x5x1 9x33:1x33",
    "--binary --alg=add 9x33:1x1 70x500:70x500 1000x3:1x3 90x63:90x63",
    "--binary --stag=abx:axb,axb:axb --attr-scales=src0:0:0.5+src1:0:2 4x37x5x3:1x37x1x1",
    "--binary --stag=axb:axb --alg=mul 1x37x5x3:4x37x5x1",
    "--softmax --dir=FWD_I --sdt=f32 --ddt=f32,bf16 --axis=0,2 3x5x7 2x33x35 9x1x17",
    "--softmax --dir=FWD_I --stag=axb --axis=1 --attr-post-ops=mul:f32:per_oc 1x40x130 64x20x40",
    "--softmax --dir=FWD_I --alg=LOGSOFTMAX --axis=1 3x5x7 33x1x1 1x4097x8",
    "--lnorm --dir=FWD_D --flags=CH,M --dt=f32 3x7 4x3x40 9x130x33 2x1",
    "--lnorm --dir=FWD_D --flags=CH --dt=f32,bf16 5x8 2x16 7x3x5 1x9 6x1 2x5x9 41x4 3x17x24",
    "--lnorm --dir=FWD_I --attr-post-ops=mul:f32:per_oc+sum:0.5 8x33 3x2x16",
    "--softmax --dir=FWD_I --sdt=bf16 --ddt=bf16,f32 --axis=1 5x8 9x5 6x16 3x4",
    "--lnorm --dir=FWD_I --tag=axb --flags=GH --dt=bf16 --attr-scales=src:0:0.5 3x7x17 5x33x9",
    "--reduction --sdt=f32,bf16 --ddt=f32 --alg=mean 3x5x7:3x1x7 33x35:33x1 300x70:1x70",
    "--reduction --alg=max 2x19x5x7:1x19x1x1 9x33x65:1x1x1 33x35:1x35",
    "--reduction --alg=sum,max --sdt=f32,s8 16x3x49:1x3x1 9x5x7:1x5x1 3x4x65:1x4x1 5x40x8:5x40x1",
    "--reduction --sdt=s8 --ddt=s32 --stag=axb --attr-post-ops=linear:2:1 5x40x33:5x1x33",
    "--eltwise --dir=BWD_D --dt=f32,bf16 --alg=gelu_tanh,exp_dst --tag=abx,axb 5x0x3 3x5x7 2x3x33",
    "--softmax --dir=BWD_D --sdt=f32,bf16 --ddt=f32 --axis=0,1 3x5x7 2x33x35 9x1x17 64x40x3",
    "--softmax --dir=BWD_D --alg=LOGSOFTMAX --stag=axb --axis=2 3x5x7 33x1x1 1x8x1097",
    "--lnorm --dir=BWD_DW --flags=CH --dt=f32,bf16 3x7 4x3x40 9x130x33 2x1 5x8 300x17 1x9 0x5",
    "--lnorm --dir=BWD_DW --flags=C,H,M --inplace=true 7x3x5 2x5x9 200x24 33x70",
    "--lnorm --dir=BWD_D --flags=G,GM,M --tag=axb,abx --dt=f32 3x7x17 5x33x9",
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
    "--softmax --dir=FWD_I --axis=1 3x37",
    "--softmax --dir=FWD_I --axis=0 --sdt=bf16 --ddt=bf16 5x37",
    "--lnorm --dir=FWD_D --flags=CH 5x37",
    "--reduction 5x37:1x37 5x37:5x1",
    "--eltwise --dir=BWD_D --alg=swish 3x37",
    "--softmax --dir=BWD_D --axis=1 3x37",
    "--lnorm --dir=BWD_DW --flags=CH 5x37",
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


@pytest.mark.parametrize("kind", DESCRIPTIONS)
def test_one_primitive_for_many_sizes(kind: str, tmp_path: Path) -> None:
    pattern = MemoryDesc((R,) * 4, "f32")
    rng = np.random.default_rng(5)
    with config.override("cache_dir", tmp_path):
        module._cache.clear()
        pd = PrimitiveDesc(DESCRIPTIONS[kind](pattern), ENGINE)
        primitive = Primitive(pd)
        built = set(tmp_path.iterdir())
        for _ in range(20):
            dims = tuple(int(size) for size in rng.integers(0, 20, 4))
            if kind == "reduction":
                dims = tuple(max(2, size) for size in dims)
            desc = DESCRIPTIONS[kind](MemoryDesc(dims, "f32"))
            descs = {t.argument: MemoryDesc(t.desc.dims, "f32") for t in desc.tensors}
            written = [tensor.argument for tensor in desc.outputs]
            outputs = {arg: poisoned_memory(descs[arg], ENGINE) for arg in written}
            args = {
                arg: random_memory(own, ENGINE, arg, "positive")
                for arg, own in descs.items()
                if arg not in written
            }
            primitive.execute(STREAM, {**args, **outputs})
            want = desc.operation.reference.compute(
                desc, {argument: logical(memory) for argument, memory in args.items()}
            )
            for argument, memory in outputs.items():
                check(memory, want[argument], 1e-4)
        assert set(tmp_path.iterdir()) == built
    module._cache.clear()


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
    pattern = MemoryDesc((R, R), "f32")
    for data_type, tag, reason in (
        ("f32", "aB8b", "unsupported layout: .* in blocks with run-time sizes"),
        ("s64", "ab", "unsupported data type: s64"),
    ):
        desc = MemoryDesc((R, R), data_type, tag)
        made = EltwiseDesc.forward("forward_inference", "eltwise_abs", desc, desc)
        with pytest.raises(Unimplemented, match=reason):
            PrimitiveDesc(made, ENGINE)
    attr = PrimitiveAttr()
    attr.set_scales(Arg.SRC_0, 3, (1, 4))
    with pytest.raises(Unimplemented, match="groups of scales with run-time sizes"):
        PrimitiveDesc(BinaryDesc("binary_add", pattern, pattern, pattern), ENGINE, attr)


def test_stores_past_the_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of tensors larger than the caches are; rows that begin anywhere are stored so in
    part."""
    monkeypatch.setattr(plan, "_nontemporal", lambda *_: True)
    module._cache.clear()
    for line in (
        "--eltwise --dir=FWD_I --alg=relu 4x128 3x5x35",
        "--lnorm --dir=FWD_I 5x64 5x33 6x16",
        "--lnorm --dir=FWD_D --flags=CH --dt=bf16 4x96",
        "--reduction --alg=sum 40x64:1x64 8x64:8x1",
        "--binary --alg=add --sdt=bf16:bf16 --ddt=bf16 20x32:1x32 9x64:9x64",
    ):
        for made in trials(line):
            run_open(made)
    module._cache.clear()
