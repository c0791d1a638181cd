"""What tiles prefetch while threads pack panels on the fly: the weights that are packed next."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from llvmlite import ir
from numpy.typing import NDArray

from dnnl import PrimitiveDesc, config
from dnnl.codegen.compile import jit
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import I64, PTR, Emitter, i64
from dnnl.codegen.isa import caches
from dnnl.codegen.isa.caches import LINE, Caches
from tests.launch import launch
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE
from tests.primitives.products import Dims, matmul_desc
from tests.processor import ISAS
from tests.small_caches import small_caches


class Counters:
    """How often each line of some memory is prefetched."""

    def __init__(self, begin: int, nbytes: int) -> None:
        self._begin, self._nbytes = begin, nbytes
        self.lines = np.zeros(nbytes // LINE + 1, np.int64)

    def count(self, e: Emitter, pointer: ir.Value, *, second_level: bool = False) -> None:
        """Count instead of prefetching; the last counter is that of all other memory."""
        place = e.b.sub(e.b.ptrtoint(pointer, I64), i64(self._begin))
        inside = e.b.icmp_unsigned("<", place, i64(self._nbytes))
        line = e.b.select(inside, e.b.lshr(place, i64(6)), i64(self.lines.size - 1))
        counters = e.b.inttoptr(i64(self.lines.ctypes.data), PTR)
        counter = e.element(counters, line, I64)
        e.b.store(e.b.add(e.b.load(counter, typ=I64), i64(1)), counter)


def _in_lines(nbytes: int) -> NDArray[np.uint8]:
    """Zeros that begin at a line."""
    room = np.zeros(nbytes + LINE, np.uint8)
    return room[-room.ctypes.data % LINE :][:nbytes]


@every_pair(
    isa=sorted({"sse41", "avx2", "avx512_core_vnni"} & {*ISAS}),
    layout=["plain", "reversed"],
    sizes=[(130, 192, 320), (77, 768, 256), (60, 3072, 320)],
)
def test_weights_that_are_packed_next(
    isa: str, layout: str, sizes: Dims, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each line once or twice, where K groups of a panel have whole lines: in rows, and in columns
    of whole panels."""

    def usual(cpu: str, sized: Caches) -> Caches:
        return replace(small_caches(cpu, sized), l2=2**20)

    (m, k, n), size = sizes, 4
    src, weights, dst = (_in_lines(count * size) for count in (m * k, k * n, m * n))
    counters = Counters(weights.ctypes.data, k * n * size)
    monkeypatch.setattr(caches, "of", usual)
    monkeypatch.setattr(vector, "prefetch", counters.count)
    with config.override("max_cpu_isa", isa), config.override("cache_limit", 0):
        recipe = PrimitiveDesc(
            matmul_desc(sizes, ("f32",) * 3, ("plain", layout, "plain")), ENGINE
        ).plan.recipe
        made = jit.built(recipe)
    launch(ENGINE.load(made), [own.ctypes.data for own in (src, weights, dst)])
    every = counters.lines[:-1]
    conf: Any = recipe.conf
    lines = LINE // (size * recipe.isa.lanes * conf.blocking.tile.vectors)
    in_parts = conf.blocking.steps > 0
    if lines > 1 or (in_parts and layout == "reversed"):
        assert not every.any()
    else:
        assert every.all()
        assert np.median(every) <= 2
