"""What tiles prefetch while threads pack panels on the fly: the weights that are packed next."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dnnl import PrimitiveDesc, config
from dnnl.codegen.compile import jit
from dnnl.codegen.ir import vector
from dnnl.codegen.isa import caches
from dnnl.codegen.isa.caches import LINE, Caches
from tests.launch import launch
from tests.pairs import every_pair
from tests.prefetched import Counters, in_lines
from tests.primitives.harness import ENGINE
from tests.primitives.products import Dims, matmul_desc
from tests.processor import ISAS
from tests.small_caches import small_caches


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
    src, weights, dst = (in_lines(count * size) for count in (m * k, k * n, m * n))
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
