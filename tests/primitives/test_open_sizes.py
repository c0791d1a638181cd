"""Operations on sizes that only the execution knows: one primitive for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

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
    Primitive,
    PrimitiveAttr,
    PrimitiveDesc,
    ReductionDesc,
    SoftmaxDesc,
    Stream,
    Unimplemented,
    config,
)
from dnnl.codegen.kernel import Kernel, Recipe
from dnnl.primitives import primitive as module
from dnnl.primitives.desc import Desc
from dnnl.primitives.registry import OPERATIONS
from dnnl.tools.bench.cases import Interpreter
from dnnl.tools.bench.trial import Trial
from dnnl.types.kinds import FormatKind
from dnnl.types.post_ops import PostOpBinary, PostOpFunction
from tests import test_records as records
from tests.check import check, logical, poisoned_memory, random_memory
from tests.guard import RUNS, near
from tests.primitives import late
from tests.primitives.harness import ENGINE, LAYOUTS, describe, every_isa, execute_all
from tests.primitives.runtime_sizes import opened

R = RUNTIME_DIM
STREAM = Stream(ENGINE, 1)
OPEN = [
    kind
    for kind, made in OPERATIONS.items()
    if any(impl.name == "open" for impl in made.operation.implementations)
]


def open_desc(desc: Desc) -> Desc:
    """The description with all open that is not broadcast."""

    fields: dict[str, object] = {}
    for role in desc.operation.roles:
        if role.field:
            value = getattr(desc, role.field)
            fields[role.field] = tuple(map(some, value)) if role.many else some(value)
    return replace(desc, **fields)


def some(tensor: MemoryDesc) -> MemoryDesc:
    """The descriptor with all open along which it is not broadcast."""
    if tensor.format_kind is not FormatKind.blocked:
        return MemoryDesc.zero()  # there is none, or nobody asks for its layout
    return opened(tensor, sum(1 << dim for dim, size in enumerate(tensor.dims) if size != 1))


def open_attr(attr: PrimitiveAttr) -> PrimitiveAttr:
    """The attribute with the operands of post-ops open in the same way."""
    entries = [
        entry.mapped(some) if isinstance(entry, PostOpBinary | PostOpFunction) else entry
        for entry in attr.post_ops
    ]
    return attr.with_layouts(entries, attr.dropout)


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


def trials(line: str) -> Iterator[Trial]:
    """The cases of a line of `dnnl bench`."""
    for case in Interpreter().cases(line.split()):
        kind = next(k for k, made in OPERATIONS.items() if made.operation.driver is case.driver)
        yield records.trial(case, OPERATIONS[kind])


def plain(made: Trial) -> bool:
    """Whether no tensor lies in blocks."""
    descs = [tensor.desc for tensor in made.desc.tensors]
    descs += [desc for entry in made.pd.attr.post_ops for _, desc in entry.operands]
    return not any(desc.inner_blocks for desc in descs)


EXAMPLES = [line for kind, line in records.LINES if kind in OPEN and "BWD" not in line]


@pytest.mark.parametrize("line", EXAMPLES)
def test_every_example_of_the_records(line: str) -> None:
    for made in trials(line):
        if plain(made):
            run_open(made)
        else:
            with pytest.raises(Unimplemented, match="in blocks beside run-time sizes"):
                PrimitiveDesc(open_desc(made.desc), ENGINE, open_attr(made.pd.attr))


LINES = [
    "--eltwise --dir=FWD_I --dt=f32,bf16,f16 --alg=tanh --tag=abx,axb 1x1 5x0x3 7 3x5x7 2x3x33x35",
    "--eltwise --dir=FWD_I --inplace=true --attr-post-ops=sum:0.5+relu+mul:f32:per_oc 9x33 40x500",
    "--binary --sdt=f32:f32,bf16:f16 --ddt=f32 --alg=sub 3x5x7:3x5x7 3x5x7:1x5x1 9x33:1x33 9x33:1x1",
    "--binary --sdt=f32:f32 --stag=abx:axb,axb:axb --alg=mul --attr-scales=src0:0:0.5+src1:0:2 "
    "4x37x5x3:1x37x1x1 1x37x5x3:4x37x5x1 70x500:70x500",
    "--softmax --dir=FWD_I --sdt=f32,bf16,f16 --ddt=f32,bf16 --axis=0,1,2 3x5x7 2x33x35 9x1x17",
    "--softmax --dir=FWD_I --stag=axb --alg=LOGSOFTMAX --axis=1 --attr-post-ops=mul:f32:per_oc "
    "3x5x7 1x40x130 33x1x1 64x20x40",
    "--lnorm --dir=FWD_I,FWD_D --flags=CH,GC,M --dt=f32,bf16 3x7 4x3x40 9x130x33 2x1",
    "--lnorm --dir=FWD_D --tag=axb --flags=H 3x7x17 --attr-scales=src:0:0.5 5x33x9",
    "--reduction --sdt=f32,bf16,s8 --ddt=f32 --alg=sum,mean,max 3x5x7:3x1x7 33x35:33x1 33x35:1x35 "
    "2x19x5x7:1x19x1x1 9x33x65:1x1x1 300x70:1x70",
    "--reduction --sdt=s8 --ddt=s32 --alg=sum --stag=axb --attr-post-ops=linear:2:1 5x40x33:5x1x33",
    "--concat --sdt=f32,bf16,s8 --axis=1 3x5x7:3x16x7:3x1x7 33x3:33x5 40x300:40x0:40x7",
    "--concat --axis=0 --dtag=abx,axb --attr-scales=msrc0:0:2 3x5x7:1x5x7",
]  # fmt: skip


@every_isa
@pytest.mark.parametrize("line", LINES)
def test_sizes_with_tails(line: str, isa: str) -> None:
    with config.override("max_cpu_isa", isa):
        for made in trials(line):
            run_open(made)


DESCRIPTIONS = {
    "eltwise": lambda a: EltwiseDesc.forward("forward_inference", "eltwise_swish", a, a, 1.0),
    "softmax": lambda a: SoftmaxDesc.forward("forward_inference", "softmax_accurate", a, a, 1),
    "layer_normalization": lambda a: LayerNormalizationDesc.forward(
        "forward_training", a, a, 1e-5, "use_scale"
    ),
    "binary": lambda a: BinaryDesc("binary_sub", a, a, a),
    "reduction": lambda a: ReductionDesc(
        "reduction_sum", a, MemoryDesc((*a.dims[:2], 1, a.dims[3]), "f32")
    ),
    "concat": lambda a: ConcatDesc(1, (a, a), MemoryDesc(
        (a.dims[0], R if a.dims[1] == R else 2 * a.dims[1], *a.dims[2:]), "f32"
    )),
}  # fmt: skip


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if not any(map(str.isdigit, name))])
@pytest.mark.parametrize("kind", DESCRIPTIONS)
def test_any_strides(kind: str, layout: str) -> None:
    """The bits of what a kernel for one size makes, at least nearly."""
    for dims in ((2, 19, 5, 18), (1, 40, 4, 16), (3, 2, 1, 33)):
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
def test_one_primitive_for_many_sizes(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Recipe] = []
    original = Recipe.kernel

    def kernel(recipe: Recipe) -> Kernel:
        built.append(recipe)
        return original(recipe)

    monkeypatch.setattr(Recipe, "kernel", kernel)
    pattern = MemoryDesc((R,) * 4, "f32")
    rng = np.random.default_rng(5)
    with config.override("cache_dir", ""):
        module._cache.clear()
        pd = PrimitiveDesc(DESCRIPTIONS[kind](pattern), ENGINE)
        primitive = Primitive(pd)
        assert len(built) == 1
        for _ in range(20):
            dims = tuple(int(size) for size in rng.integers(0, 20, 4))
            if kind == "reduction":
                dims = tuple(max(2, size) for size in dims)
            desc = DESCRIPTIONS[kind](MemoryDesc(dims, "f32"))
            inputs = [tensor for tensor in desc.tensors if not tensor.output]
            args = {t.argument: random_memory(t.desc, ENGINE, t.argument) for t in inputs}
            outputs = {
                t.argument: poisoned_memory(MemoryDesc(t.desc.dims, "f32"), ENGINE)
                for t in desc.outputs
            }
            primitive.execute(STREAM, {**args, **outputs})
            want = desc.operation.reference.compute(
                desc, {argument: logical(memory) for argument, memory in args.items()}
            )
            for argument, memory in outputs.items():
                check(memory, want[argument], 1e-4)
        assert len(built) == 1
    module._cache.clear()
