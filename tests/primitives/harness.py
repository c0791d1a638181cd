"""Running a primitive the hard way: guard pages around every buffer, one and two threads.

`execute` runs one primitive three times: with buffers that end at a page which nobody may touch,
on one thread and on two, then with buffers that begin at one. The results must be the same bits,
and the inputs must be as they were. In some tests it runs once more on another engine, see `late`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import pytest
import torch

from dnnl import Arg, Engine, Memory, MemoryDesc, Primitive, PrimitiveAttr, PrimitiveDesc, Stream
from dnnl.primitives.desc import Desc
from dnnl.reference.arrays import Array
from tests import processor
from tests.check import logical, poisoned_memory, random_memory, same_bits
from tests.guard import RUNS, guarded_scratch, near
from tests.primitives import late

ENGINE = Engine("cpu")
_SAME = ("avx2_vnni", "avx512_core_vnni", "avx512_core_fp16", "avx512_core_amx")
ROUNDING_ISAS = [name for name in processor.ISAS if name not in _SAME]
ISAS = [name for name in ROUNDING_ISAS if name != "avx512_core_bf16"]  # f32 kernels as avx512_core
LAYOUTS = ["nchw", "nhwc", "nChw16c", "nChw8c", "dcba", "ABcd4b16a4b", "gaps", "part", "part16"]

every_isa = pytest.mark.parametrize("isa", ISAS)
every_rounding_isa = pytest.mark.parametrize("isa", ROUNDING_ISAS)
"""Those besides that convert to bf16 in another way."""


def describe(dims: tuple[int, ...], layout: str) -> MemoryDesc:
    """An f32 descriptor. Besides tags: ``gaps`` (rows with space behind), ``part`` (a region of a
    larger plain tensor), ``part16`` (one of a larger tensor in blocks of 16 channels)."""
    if layout == "gaps":
        strides = [prod(extent + 1 for extent in dims[dim + 1 :]) for dim in range(len(dims))]
        return MemoryDesc(dims, "f32", strides)
    if layout == "part":
        whole = MemoryDesc([extent + 2 for extent in dims], "f32")
        return whole.submemory(dims, [1] * len(dims))
    if layout == "part16":
        whole = MemoryDesc([dims[0] + 1, dims[1] + 16, *dims[2:]], "f32", "aBcd16b")
        return whole.submemory(dims, [1, 16] + [0] * (len(dims) - 2))
    return MemoryDesc(dims, "f32", layout)


def source(dims: tuple[int, ...], layout: str, seed: int = 1) -> Memory:
    """Random numbers in some layout."""
    return random_memory(describe(dims, layout), ENGINE, seed)


def typed_source(dims: tuple[int, ...], layout: str, data_type: str, seed: int = 1) -> Memory:
    """Numbers of any type in some layout."""
    return random_memory(describe(dims, layout).with_data_type(data_type), ENGINE, seed)


def vector(length: int, seed: int) -> Memory:
    """One positive number for each channel."""
    return random_memory(MemoryDesc((length,), "f32"), ENGINE, seed, "positive")


def execute(
    desc: Desc,
    args: Mapping[int, Memory],
    attr: PrimitiveAttr | None = None,
    dst: Memory | None = None,
) -> Memory:
    """The destination after one execution, poisoned before it unless ``dst`` says what it held.

    ``dst`` may be one of ``args``: then the execution is in place.
    """
    outputs: dict[int, Memory] = {} if dst is None else {Arg.DST: dst}
    return execute_all(PrimitiveDesc(desc, ENGINE, attr), args, outputs)[Arg.DST]


def execute_all(
    pd: PrimitiveDesc, args: Mapping[int, Memory], outputs: Mapping[int, Memory] | None = None
) -> dict[int, Memory]:
    """Every output after one execution, poisoned before it unless ``outputs`` has what it held."""
    primitive = Primitive(pd)
    old = outputs or {}
    open_ = [tensor for tensor in pd.desc.outputs if tensor.argument not in old]
    written = {**{t.argument: poisoned_memory(t.desc, ENGINE) for t in open_}, **old}
    given = {**args, **written}
    kept = {id(memory) for memory in written.values()}
    results: list[dict[int, Memory]] = []
    for threads, at in RUNS:
        placed = {id(memory): near(memory, at) for memory in given.values()}
        now = {arg: placed[id(memory)] for arg, memory in given.items()}
        with guarded_scratch():
            primitive.execute(Stream(ENGINE, threads), now)
        results.append({arg: now[arg] for arg in written})
        for arg, memory in args.items():
            if id(memory) not in kept:
                assert same_bits(now[arg], memory), f"argument {arg} was written"
    first, *others = results
    for other in others:
        for arg in written:
            assert same_bits(first[arg], other[arg]), f"1 and 2 threads differ in {arg}"
    if late.drawn():
        for arg, memory in late.execute(pd.desc, pd.attr, given).items():
            want = next((first[o] for o in written if given[o] is given[arg]), given[arg])
            assert same_bits(memory, want), f"argument {arg} differs on a late engine"
    return first


def tensor(memory: Memory) -> torch.Tensor:
    """The elements for PyTorch, in double precision."""
    return torch.from_numpy(logical(memory).copy())


def array(result: torch.Tensor) -> Array:
    """What PyTorch made of it."""
    values: Array = result.numpy()
    return values
