"""Small tensors are treated as large ones here: shared out over threads, stored past the caches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from dnnl import config
from dnnl.codegen import sharing
from dnnl.codegen.isa import caches
from dnnl.codegen.isa.caches import Caches
from dnnl.kernels import boxes
from dnnl.primitives import primitive
from dnnl.primitives.primitive_desc import select_isa
from dnnl.runtime.engine import Engine

SMALL_ITEM = 256
SMALL_STREAM = 8192
_caches_of = caches.of


def small_caches(cpu: str, sized: Caches) -> Caches:
    """Those of ``cpu``, but so small that tests have sizes on either side of their limits."""
    return replace(
        _caches_of(cpu, sized),
        l2=SMALL_STREAM // 2,
        near=SMALL_STREAM // 2,
        shared=SMALL_STREAM,
        memory=2 * SMALL_STREAM,
        streamed=SMALL_STREAM,
    )


@pytest.fixture(scope="module", autouse=True)
def small_is_large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Kernels of other tests are neither found nor left behind: they have larger items."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharing, "LEAST_WORK", SMALL_ITEM)
        patch.setattr(caches, "of", small_caches)
        patch.setattr(boxes, "_WORK_OF_A_ROW", SMALL_ITEM)
        primitive._cache.clear()
        assert select_isa(Engine("cpu")).caches.streamed == SMALL_STREAM
        with config.override("cache_dir", tmp_path_factory.mktemp("kernels")):
            yield
        primitive._cache.clear()


@pytest.fixture
def processor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Kernels are written as if the machine had the caches of the processor of that name."""
    cpu = str(request.param)
    monkeypatch.setattr(caches, "of", lambda _, sized: small_caches(cpu, sized))
    return cpu
