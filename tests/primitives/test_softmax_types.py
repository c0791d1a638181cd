"""Softmax of other types than f32: computed in f32, with scales at both ends."""

from __future__ import annotations

import numpy as np
import pytest

from dnnl import Arg, Memory, MemoryDesc, PrimitiveAttr, SoftmaxDesc, config
from dnnl.reference import softmax as reference
from tests.check import check, logical, memory_of
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE, every_isa, execute, typed_source

DIMS = (2, 19, 5, 7)
ALGS = ["softmax_accurate", "softmax_log"]
FLOATS = [("bf16", "bf16"), ("f16", "f32"), ("f32", "bf16"), ("bf16", "f16")]
NARROW = [("u8", "u8"), ("s8", "f32"), ("f32", "s8"), ("f16", "f8_e5m2"), ("f8_e4m3", "f8_e4m3")]


def one(value: float) -> Memory:
    """A scale for all elements."""
    return memory_of(np.array([value]), MemoryDesc((1,), "f32"), ENGINE)


@every_pair(
    every_isa,
    pytest.mark.parametrize("alg", ALGS),
    pytest.mark.parametrize("types", FLOATS, ids=">".join),
    pytest.mark.parametrize(("layout", "axis"), [("nchw", 3), ("nchw", 1), ("nChw16c", 1)]),
)
def test_floats(layout: str, axis: int, types: tuple[str, str], alg: str, isa: str) -> None:
    memory = typed_source(DIMS, layout, types[0])
    dst = memory.desc.with_data_type(types[1])
    desc = SoftmaxDesc.forward("forward_training", alg, memory.desc, dst, axis)
    with config.override("max_cpu_isa", isa):
        result = execute(desc, {Arg.SRC: memory})
    want = reference.softmax(logical(memory), axis, alg)
    check(result, want, reference.TOLERANCE(types[1], DIMS[axis]))


@every_pair(
    every_isa,
    pytest.mark.parametrize("types", NARROW, ids=">".join),
    pytest.mark.parametrize(("layout", "axis"), [("nchw", 3), ("nhwc", 1)]),
)
def test_scales(layout: str, axis: int, types: tuple[str, str], isa: str) -> None:
    memory = typed_source(DIMS, layout, types[0])
    dst = memory.desc.with_data_type(types[1])
    attr = PrimitiveAttr()
    attr.set_scales(Arg.SRC)
    attr.set_scales(Arg.DST)
    attr.post_ops.append_eltwise("eltwise_linear", 2.0, 0.25)
    scales = {Arg.SCALES | Arg.SRC: one(0.0625), Arg.SCALES | Arg.DST: one(0.03125)}
    desc = SoftmaxDesc.forward("forward_inference", ALGS[0], memory.desc, dst, axis)
    with config.override("max_cpu_isa", isa):
        result = execute(desc, {Arg.SRC: memory, **scales}, attr)
    plain = reference.softmax(0.0625 * logical(memory), axis)
    want = (2.0 * plain + 0.25) / 0.03125
    check(result, want, reference.TOLERANCE(types[1], DIMS[axis]))


@pytest.mark.parametrize("types", [("bf16", "bf16"), ("s8", "s8")], ids=">".join)
def test_in_place(types: tuple[str, str]) -> None:
    memory = typed_source(DIMS, "nChw16c", types[0])
    want = reference.softmax(logical(memory), 1)
    desc = SoftmaxDesc.forward("forward_inference", ALGS[0], memory.desc, memory.desc, 1)
    result = execute(desc, {Arg.SRC: memory}, dst=memory)
    check(result, want, reference.TOLERANCE(types[1], 19))


def test_a_masked_row_has_exact_zeros() -> None:
    rows = np.full((3, 40), -np.inf)
    rows[:, 5:9] = [1.0, 2.0, 3.0, 4.0]
    memory = memory_of(rows, MemoryDesc((3, 40), "f32"), ENGINE)
    desc = SoftmaxDesc.forward("forward_inference", ALGS[0], memory.desc, memory.desc, 1)
    result = logical(execute(desc, {Arg.SRC: memory}))
    assert not result[:, :5].any()
    assert not result[:, 9:].any()
