"""What products ask for ahead: panels of weights that come from beyond the caches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from llvmlite import ir
from numpy.typing import NDArray

import dnnl
from dnnl import config
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import I64, PTR, Emitter, i64
from dnnl.primitives.desc import Desc
from dnnl.types.arg import Arg
from tests.check import poisoned_memory, random_memory
from tests.primitives.products import Window, convolution_desc

LINE = 64
ENGINE = dnnl.Engine("cpu")
Counted = Callable[[Desc], NDArray[np.int64]]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Counted:
    """How often a product asks for each line of its weights."""

    def run(desc: Desc) -> NDArray[np.int64]:
        pd = dnnl.PrimitiveDesc(desc, ENGINE)
        weights = random_memory(pd.arg_desc(Arg.WEIGHTS), ENGINE)
        counts = np.zeros(weights.desc.size // LINE + 1, np.int64)

        def count(e: Emitter, pointer: ir.Value, *, second_level: bool = False) -> None:
            if not second_level:
                return
            offset = e.b.sub(e.b.ptrtoint(pointer, I64), i64(weights.data.ctypes.data))
            line = e.smaller(e.b.lshr(offset, i64(6)), i64(len(counts) - 1))
            place = e.element(e.b.inttoptr(i64(counts.ctypes.data), PTR), line, I64)
            e.b.store(e.b.add(e.b.load(place, typ=I64), i64(1)), place)

        monkeypatch.setattr(vector, "prefetch", count)
        with config.override("cache_dir", tmp_path), config.override("primitive_cache_capacity", 0):
            primitive = dnnl.Primitive(pd)
        args = {
            Arg.SRC: random_memory(pd.arg_desc(Arg.SRC), ENGINE),
            Arg.WEIGHTS: weights,
            Arg.DST: poisoned_memory(pd.arg_desc(Arg.DST), ENGINE),
        }
        primitive.execute(dnnl.Stream(ENGINE, 1), args)
        return counts[:-1]

    return run


def matmul(rows: int, k: int, columns: int) -> dnnl.MatmulDesc:
    src, dst = (dnnl.MemoryDesc((rows, size), "f32") for size in (k, columns))
    return dnnl.MatmulDesc(src, dnnl.MemoryDesc((k, columns), "f32", "any"), dst)


@pytest.mark.parametrize(
    ("rows", "k", "columns"),
    [(64, 512, 1024), (197, 512, 1024), (64, 4096, 512), (1, 1024, 1024)],
    ids=["few tiles", "many tiles", "sums in parts", "one tile"],
)
def test_panels_from_memory_are_asked_for(
    rows: int, k: int, columns: int, counted: Counted
) -> None:
    """All but the first of a work item, of which each tile asks for its part."""
    assert (counted(matmul(rows, k, columns)) > 0).mean() > 0.75


@pytest.mark.parametrize("layout", ["any", "nhwc"])
@pytest.mark.parametrize("size", [7, 14], ids=str)
def test_panels_of_windows_are_asked_for(size: int, layout: str, counted: Counted) -> None:
    """All taps of them, whether these are loops or written out."""
    window = Window((size, size), (3, 3), padding_l=(1, 1))
    desc = convolution_desc(window, 1, (256, 128), (layout, "any", layout), bias=False)
    assert (counted(desc) > 0).mean() > 0.75


def test_weights_that_stay_in_the_cache_are_not_asked_for(counted: Counted) -> None:
    assert not counted(matmul(64, 64, 128)).any()
