"""Pooling of other types than f32: computed in f32, converted at both ends."""

from __future__ import annotations

import pytest

from dnnl import Arg, PoolingDesc, config
from dnnl.reference import pooling as reference
from tests.check import check, logical
from tests.primitives.harness import describe, every_isa, execute, typed_source

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
