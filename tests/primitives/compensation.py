"""Weights with compensation: how a reorder into them is run, and what must lie behind them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dnnl import Arg, Memory, MemoryDesc, ReorderDesc
from dnnl.reference.reorder import QUANTIZED_TOLERANCE
from tests.check import POISON, check, logical
from tests.primitives.harness import ENGINE, execute


def assert_sums(memory: Memory, stored: NDArray[np.float64]) -> None:
    """What lies behind the weights is as NumPy has it, to the last byte."""
    desc = memory.desc
    assert desc.compensation is not None
    nbytes = desc.with_compensation(None).size
    begin = -(-nbytes // 4) * 4
    assert (memory.data[nbytes:begin] == POISON).all()
    want = []
    for kind, factor in (("s8s8", -128), ("zero_points", -1)):
        mask = desc.compensation.masks.get(kind, 0)
        if not mask:
            continue
        summed = tuple(d for d in range(desc.ndims) if not mask >> d & 1)
        sums = factor * stored.astype(np.int64).sum(axis=summed, keepdims=True)
        np.testing.assert_array_equal(memory.compensation(kind), sums)
        padded = [
            (0, more - size if mask >> d & 1 else 0)
            for d, (size, more) in enumerate(zip(desc.dims, desc.padded_dims, strict=True))
        ]
        want.append(np.pad(sums, padded).reshape(-1))
    np.testing.assert_array_equal(memory.data[begin:].view(np.int32), np.concatenate(want))


def alone(memory: Memory) -> Memory:
    """The weights without what is behind them."""
    desc = memory.desc.with_compensation(None)
    return Memory(desc, ENGINE, memory.data[: desc.size])


def run(src: Memory, dst: MemoryDesc) -> Memory:
    """A reorder without attributes, its weights checked; they must be integers of s8 in src."""
    result = execute(ReorderDesc(src.desc, dst), {Arg.SRC: src})
    check(alone(result), logical(src), QUANTIZED_TOLERANCE("s8"))
    assert_sums(result, logical(src))
    return result
