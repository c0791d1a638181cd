"""Small tensors are treated as large ones here: shared out over threads, stored past the caches."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dnnl import config
from dnnl.codegen.isa import caches
from dnnl.primitives import primitive
from dnnl.primitives.primitive_desc import select_isa
from dnnl.runtime.engine import Engine
from tests.codegen.unit_emulation import emulated_unit
from tests.small_caches import SMALL_STREAM, small_caches, small_is_large


@pytest.fixture(scope="module", autouse=True)
def _small_is_large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Kernels of other tests are neither found nor left behind: they have larger items."""
    with small_is_large():
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


@pytest.fixture(scope="module")
def unit() -> Iterator[None]:
    """A matrix unit: that of the processor, or an emulated one."""
    if select_isa(Engine("cpu")).matrix is None:
        with emulated_unit():
            yield
    else:
        yield
