"""Reductions of run-time sizes in parts: what the parts are, the room for them, their merger."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from unittest.mock import patch

import numpy as np
import pytest

from dnnl import (
    RUNTIME_DIM,
    Arg,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveAttr,
    PrimitiveDesc,
    ReductionDesc,
    Stream,
    config,
)
from dnnl.codegen.epilogue.attributes import Attributes
from dnnl.codegen.ir.kernel import Arguments
from dnnl.codegen.isa import Isa
from dnnl.codegen.open_nest.fold import OpenFold
from dnnl.codegen.open_nest.plan import Loops
from dnnl.kernels.reduction import reduction
from dnnl.primitives.primitive_desc import select_isa
from dnnl.types.kinds import Alg
from tests.check import check, logical, poisoned_memory, random_memory
from tests.guard import RUNS, near
from tests.primitives.harness import ENGINE, ISAS, every_isa
from tests.primitives.runtime_sizes import opened

Shape = tuple[int, ...]

# What is reduced to what: a few results of much, lines that are short, uneven pieces, one loop that
# a single part cannot hold, nothing to cut.
SHAPES: list[tuple[Shape, Shape]] = [
    ((4096, 3), (1, 3)), ((1024, 8), (1, 8)), ((331, 8), (1, 8)), ((640, 48), (1, 48)),
    ((300, 100), (1, 100)), ((97, 300), (1, 300)), ((70, 70), (1, 1)), ((3, 4001), (1, 1)),
    ((2, 5, 33, 35), (1, 5, 1, 1)), ((7, 129, 9), (7, 1, 9)), ((2, 3, 40, 31), (2, 1, 40, 1)),
    ((5, 7, 11, 13), (1, 7, 1, 13)), ((40, 2, 300), (1, 2, 300)), ((9, 2000), (9, 1)),
    ((1, 5), (1, 1)), ((64, 1), (1, 1)), ((1, 4000), (1, 1)),
]  # fmt: skip
TAGS = {2: ("ab", "ba"), 3: ("abc", "acb", "bca"), 4: ("abcd", "acdb", "dbca")}
LEVELS = (0, 777, 4099, 50021, 2**21)
CASES = [(*shape, tag) for shape in SHAPES for tag in TAGS[len(shape[0])]]


def described(alg: str, src: MemoryDesc, dst: MemoryDesc) -> ReductionDesc:
    """The reduction, its dst a dense tensor."""
    return ReductionDesc(f"reduction_{alg}", src, dst, 2.0 if "norm" in alg else 0.0)


def open_pd(
    alg: str, src: MemoryDesc, dst: MemoryDesc, attr: PrimitiveAttr | None = None
) -> PrimitiveDesc:
    """The reduction of all sizes that reduces the same dimensions."""
    kept = kept_of(src, dst)
    return PrimitiveDesc(described(alg, opened(src), opened(dst, kept)), ENGINE, attr)


def kept_of(src: MemoryDesc, dst: MemoryDesc) -> int:
    """The mask of the dimensions that are not reduced."""
    pairs = enumerate(zip(src.dims, dst.dims, strict=True))
    return sum(1 << dim for dim, (extent, left) in pairs if extent == left)


@pytest.mark.parametrize(("dims", "kept", "tag"), CASES)
@pytest.mark.parametrize("l2", LEVELS)
def test_every_element_is_in_one_part(dims: Shape, kept: Shape, tag: str, l2: int) -> None:
    isa = select_isa(ENGINE)
    isa = replace(isa, caches=replace(isa.caches, l2=l2))
    for level in (isa, replace(isa, vector_bits=256)):
        fold, loops, count = cut(MemoryDesc(dims, "f32", tag), MemoryDesc(kept, "f32"), level)
        places = np.array(list(walked(loops)))
        assert sorted(places[:, 0]) == list(range(int(np.prod(dims))))
        assert np.unique(places[:, 1]).size == count * np.prod(kept)
        assert places[:, 1].max() < fold.scratch.nelems()


def cut(src: MemoryDesc, dst: MemoryDesc, isa: Isa) -> tuple[OpenFold, Loops, int]:
    """A sum over known sizes, its loops, and how many parts it has."""
    both = opened(src), opened(dst, kept_of(src, dst))
    conf = reduction.configure(Alg.reduction_sum, 0.0, 0.0, *both, isa, Attributes())
    assert isinstance(conf, reduction.ReductionConf)
    made = replace(conf, src=src, dst=dst)
    (fold,) = reduction.OPEN.nests(made, Arguments())
    (pattern,) = reduction.OPEN.nests(reduction.OPEN.shared(made), Arguments())
    assert isinstance(fold, OpenFold)
    assert isinstance(pattern, OpenFold)
    nest = fold._parts.part(fold.fold)
    loops, count = fold._cut(Loops.of(nest, pattern._nests[1]), isa)
    return fold, loops, count


def walked(loops: Loops) -> Iterator[tuple[int, int]]:
    """The places of src and of the result of each iteration, in the way of the code."""
    outer = [loops.part, *loops.outer, loops.lines, loops.lane]
    for at in product(*(range(loop.extent) for loop in outer)):
        inner = [range(loop.extent) for loop in loops.reduced]
        if loops.piece:
            inner[0] = range(min(loops.piece, loops.reduced[0].extent - at[0] * loops.piece))
        for inside in product(*inner):
            pairs = list(zip((*at, *inside), (*outer, *loops.reduced), strict=True))
            src, dst = (
                start + sum(index * loop.strides[operand] for index, loop in pairs)
                for operand, start in enumerate(loops.starts)
            )
            yield src, dst


@pytest.mark.parametrize("rows", [10**4, 10**6, 2**20 + 1])
@pytest.mark.parametrize("columns", [1, 3, 64, 1000, 16383, 70000])
def test_parts_fit_their_room(rows: int, columns: int) -> None:
    isa = select_isa(ENGINE)
    for l2 in LEVELS:
        level = replace(isa, caches=replace(isa.caches, l2=l2))
        src, dst = MemoryDesc((rows, columns), "f32"), MemoryDesc((1, columns), "f32")
        fold, _, count = cut(src, dst, level)
        assert count == 1 or count * columns <= fold.scratch.nelems()
        assert count > 1 or columns > 1000


@pytest.mark.parametrize(("dims", "kept", "tag"), CASES)
def test_results_of_parts(dims: Shape, kept: Shape, tag: str) -> None:
    """The scratchpad lies between guard pages, and full of what is no number."""
    number = CASES.index((dims, kept, tag))
    alg = ("sum", "mean", "max", "norm_lp_sum")[number % 4]
    level, l2 = ISAS[number % len(ISAS)], LEVELS[number % len(LEVELS)]
    with config.override("max_cpu_isa", level):
        isa = select_isa(ENGINE)
        small = replace(isa, caches=replace(isa.caches, l2=l2))
        with patch("dnnl.primitives.primitive_desc.select_isa", lambda _: small):
            run(alg, MemoryDesc(dims, "f32", tag), MemoryDesc(kept, "f32"))


@every_isa
def test_results_of_every_instruction_set(isa: str) -> None:
    with config.override("max_cpu_isa", isa):
        run("mean", MemoryDesc((640, 24), "f32"), MemoryDesc((1, 24), "f32"))
        run("sum", MemoryDesc((3, 4001), "bf16"), MemoryDesc((1, 1), "f32"))
        run("max", MemoryDesc((2, 3, 40, 31), "s8"), MemoryDesc((1, 3, 1, 1), "s32"))
        run("norm_lp_sum", MemoryDesc((700, 9), "f64"), MemoryDesc((1, 9), "f64"))


def run(alg: str, src: MemoryDesc, dst: MemoryDesc) -> None:
    """Execute and judge; the bits are the same for any number of threads."""
    pd = open_pd(alg, src, dst, PrimitiveAttr(scratchpad_mode="user"))
    primitive = Primitive(pd)
    given = random_memory(src, ENGINE, 1)
    want = described(alg, src, dst)
    values = want.operation.reference.compute(want, {Arg.SRC: logical(given)})
    seen = set()
    for threads, at in (*RUNS, (5, "end")):
        memories: dict[int, Memory] = {
            Arg.SRC: near(given, at),
            Arg.DST: near(poisoned_memory(dst, ENGINE), at),
            Arg.SCRATCHPAD: near(poisoned_memory(pd.scratchpad_desc, ENGINE), at),
        }
        primitive.execute(Stream(ENGINE, threads), memories)
        check(memories[Arg.DST], values[Arg.DST], 1e-4)
        seen.add(memories[Arg.DST].data.tobytes())
    assert len(seen) == 1


def test_the_scratchpad_is_the_same_for_all_sizes() -> None:
    """A user has it before sizes are known; what reduces nothing needs none."""
    pattern, line = MemoryDesc((RUNTIME_DIM,) * 2, "f32"), MemoryDesc((1, RUNTIME_DIM), "f32")
    attr = PrimitiveAttr(scratchpad_mode="user")
    assert (
        PrimitiveDesc(described("sum", pattern, line), ENGINE, attr).scratchpad_desc.size == 2**18
    )
    assert PrimitiveDesc(described("sum", pattern, pattern), ENGINE, attr).scratchpad_desc.is_zero
