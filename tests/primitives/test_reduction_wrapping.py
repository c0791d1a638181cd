"""Reductions of integers of any width, in the type of dst, against NumPy's arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from dnnl import Arg, Memory, MemoryDesc, ReductionDesc, Unimplemented, config
from dnnl.reference import reduction as reference
from dnnl.types.dtype import DataType
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE, ISAS, execute

DIMS = (5, 37, 9)
SOURCES = ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64", "boolean"]
RESULTS = ["s16", "u16", "u32", "s64", "u64"]


@every_pair(
    isa=ISAS,
    source=SOURCES,
    held=RESULTS,
    alg=["sum", "mul", "max", "min"],
    axes=[(0,), (1,), (2,), (0, 2)],
)
def test_sums_and_products_wrap(
    isa: str, source: str, held: str, alg: str, axes: tuple[int, ...]
) -> None:
    src, dst = DataType[source].numpy, DataType[held]
    raw = np.random.default_rng(1).integers(0, 256, (*DIMS, src.itemsize), np.uint8)
    values = (raw % 2 if source == "boolean" else raw).view(src).reshape(DIMS)
    left = tuple(1 if axis in axes else extent for axis, extent in enumerate(DIMS))
    memory = Memory.from_numpy(values, engine=ENGINE)
    desc = ReductionDesc(f"reduction_{alg}", memory.desc, MemoryDesc(left, held))
    with config.override("max_cpu_isa", isa):
        got = execute(desc, {Arg.SRC: memory}).numpy()
    assert got.dtype == dst.numpy
    np.testing.assert_array_equal(got, reference.wrapped(values, desc.alg_kind, left, dst))


@pytest.mark.parametrize(("alg", "function"), [("max", np.any), ("min", np.all)])
def test_extremes_of_truth_values(alg: str, function: np.ufunc) -> None:
    values = np.random.default_rng(2).integers(0, 3, (40, 3)) > 0
    memory = Memory.from_numpy(values, engine=ENGINE)
    for left, axis in (((1, 3), 0), ((40, 1), 1)):
        desc = ReductionDesc(f"reduction_{alg}", memory.desc, MemoryDesc(left, "boolean"))
        got = execute(desc, {Arg.SRC: memory}).numpy()
        np.testing.assert_array_equal(got, function(values, axis=axis, keepdims=True))


def test_what_is_refused() -> None:
    def refused(alg: str, source: str, held: str) -> None:
        memory = Memory(MemoryDesc((2, 3), source), ENGINE)
        with pytest.raises(Unimplemented, match="wrapping: "):
            execute(ReductionDesc(alg, memory.desc, MemoryDesc((2, 1), held)), {Arg.SRC: memory})

    refused("reduction_mean", "s64", "s64")
    refused("reduction_sum", "boolean", "boolean")
    refused("reduction_sum", "s64", "f32")
