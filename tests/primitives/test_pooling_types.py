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

MAX, INCLUDE, EXCLUDE = (
    "pooling_max", "pooling_avg_include_padding", "pooling_avg_exclude_padding",
)  # fmt: skip
TYPES = [
    (MAX, "bf16", "bf16"), (EXCLUDE, "bf16", "bf16"), (MAX, "s8", "s8"), (INCLUDE, "s8", "s8"),
    (MAX, "u8", "f16"), (EXCLUDE, "u8", "f16"),
]  # fmt: skip


@every_isa
@pytest.mark.parametrize(("alg", "src", "result"), TYPES)
def test_types(alg: str, src: str, result: str, isa: str) -> None:
    window = {"strides": (2, 1), "kernel": (3, 2), "padding_l": (1, 1)}
    memory = typed_source((2, 19, 9, 18), "nhwc", src)
    dst = describe((2, 19, 5, 19), "nChw16c").with_data_type(result)
    desc = PoolingDesc.forward("forward_inference", alg, memory.desc, dst, **window)
    with config.override("max_cpu_isa", isa):
        made = execute(desc, {Arg.SRC: memory})
    want = reference.pooling(logical(memory), alg, **window)
    check(made, want, reference.TOLERANCE[alg](result, 6))


@every_isa
@pytest.mark.parametrize(
    ("layout", "alg"),
    [("nchw", MAX), ("nhwc", MAX), ("nchw", EXCLUDE), ("nhwc", INCLUDE), ("nChw16c", EXCLUDE)],
)
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
    want = reference.pooling(values, alg, **window)
    check(results[Arg.DST], want, reference.TOLERANCE[alg]("s32", 6))
    if alg == MAX:
        taps = reference.pooling_workspace(values, **window)
        check(results[Arg.WORKSPACE], taps, reference.TOLERANCE[alg]("u8"))
