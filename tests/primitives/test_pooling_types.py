"""Pooling of other types than f32: computed in f32, converted at both ends."""

from __future__ import annotations

import numpy as np
import pytest

from dnnl import Arg, PoolingDesc, PrimitiveDesc, config
from dnnl.reference import pooling as reference
from tests.check import check, logical, memory_of
from tests.primitives.harness import (
    ENGINE,
    describe,
    every_isa,
    execute,
    execute_all,
    typed_source,
)

ALGS = ["pooling_max", "pooling_avg_include_padding", "pooling_avg_exclude_padding"]
TYPES = [("bf16", "bf16"), ("s8", "s8"), ("u8", "f16")]


@every_isa
@pytest.mark.parametrize("types", TYPES, ids=">".join)
@pytest.mark.parametrize("alg", ALGS)
def test_types(alg: str, types: tuple[str, str], isa: str) -> None:
    window = {"strides": (2, 1), "kernel": (3, 2), "padding_l": (1, 1)}
    memory = typed_source((2, 19, 9, 18), "nhwc", types[0])
    dst = describe((2, 19, 5, 19), "nChw16c").with_data_type(types[1])
    desc = PoolingDesc.forward("forward_inference", alg, memory.desc, dst, **window)
    with config.override("max_cpu_isa", isa):
        result = execute(desc, {Arg.SRC: memory})
    want = reference.pooling(logical(memory), alg, **window, lowest=dst.data_type.min)
    check(result, want, reference.TOLERANCE[alg](types[1], 6))


@every_isa
@pytest.mark.parametrize("alg", ALGS)
@pytest.mark.parametrize("layout", ["nchw", "nhwc", "nChw16c"])
def test_large_integers(layout: str, alg: str, isa: str) -> None:
    """Neighbours that f32 would take for equal; the last of each pair is the larger."""
    window = {"strides": (2, 1), "kernel": (3, 2), "padding_l": (1, 1)}
    dims = (2, 19, 9, 18)
    rng = np.random.default_rng(1)
    values = rng.integers(-4, 4, dims) * 2**28 + np.arange(np.prod(dims)).reshape(dims)
    src = memory_of(values, describe(dims, layout).with_data_type("s32"), ENGINE)
    dst = describe((2, 19, 5, 19), layout).with_data_type("s32")
    desc = PoolingDesc.forward("forward_training", alg, src.desc, dst, **window)
    with config.override("max_cpu_isa", isa):
        results = execute_all(PrimitiveDesc(desc, ENGINE), {Arg.SRC: src})
    want = reference.pooling(values, alg, **window, lowest=dst.data_type.min)
    check(results[Arg.DST], want, reference.TOLERANCE[alg]("s32", 6))
    if alg == ALGS[0]:
        taps = reference.pooling_workspace(values, **window, lowest=dst.data_type.min)
        check(results[Arg.WORKSPACE], taps, reference.TOLERANCE[alg]("u8"))
