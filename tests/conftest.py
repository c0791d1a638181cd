"""Set-up for all tests: the `isa` mark, instruction sets beyond those of the machine, and a kernel
cache that ends with the session."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from dnnl.codegen import isa
from dnnl.ops import problem, quick
from dnnl.primitives import changing, primitive
from dnnl.primitives.primitive_desc import PrimitiveDesc
from dnnl.runtime.engine import Engine
from tests.beyond.levels import beyond
from tests.sample import sampled

CACHE_VARIABLE = "DNNL_CACHE_DIR"
_cache = pytest.StashKey[tempfile.TemporaryDirectory[str]]()
_beyond = pytest.StashKey[ExitStack]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """What the command line takes besides."""
    what = "run every instruction set of x86-64, in generic code those that the processor lacks"
    parser.addoption("--beyond", action="store_true", help=what)
    parser.addoption("--every-case", action="store_true", help="run all cases of all tests")


def pytest_configure(config: pytest.Config) -> None:
    """A folder for compiled kernels, also for child processes, unless the caller names one."""
    config.stash[_beyond] = ExitStack()
    if config.getoption("beyond"):
        config.stash[_beyond].enter_context(beyond())
    if CACHE_VARIABLE not in os.environ:
        config.stash[_cache] = tempfile.TemporaryDirectory(prefix="dnnl-tests-")
        os.environ[CACHE_VARIABLE] = config.stash[_cache].name


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the sample does not need, unless tests are named one by one."""
    named = any("[" in own for own in config.args)
    if not named and not config.getoption("every_case"):
        items[:], deselected = sampled(items)
        config.hook.pytest_deselected(items=deselected)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Forget the folder."""
    config.stash[_beyond].close()
    folder = config.stash.get(_cache, None)
    if folder is not None:
        del os.environ[CACHE_VARIABLE]
        folder.cleanup()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test marked ``isa("avx512_core", ...)`` where the machine has none of these."""
    for mark in item.iter_markers("isa"):
        wanted = [isa.find(name).name for name in mark.args]
        features = Engine("cpu").features
        here = {row.name for row in isa.available(features.arch, features.flags)}
        if here.isdisjoint(wanted):
            pytest.skip(f"needs {' or '.join(wanted)}")


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[PrimitiveDesc]]:
    """Grows with each kernel that is loaded. No sizes have been met before, by functions either."""
    found: list[PrimitiveDesc] = []
    load = primitive._compile

    def counted(pd: PrimitiveDesc, *given: Any) -> Any:
        found.append(pd)
        return load(pd, *given)

    monkeypatch.setattr(primitive, "_compile", counted)
    primitive._cache.clear()
    for cache in (changing._families, changing._primitives):
        cache.clear()
    problem.prepared.cache_clear()
    quick._slot.cache_clear()
    yield found
    changing._families.clear()
    changing._primitives.clear()
