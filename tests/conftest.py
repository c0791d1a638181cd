"""Set-up for all tests: the `isa` mark, and a kernel cache that ends with the session."""

from __future__ import annotations

import os
import tempfile

import pytest

from dnnl.codegen import isa
from dnnl.runtime.engine import Engine

CACHE_VARIABLE = "DNNL_CACHE_DIR"
_cache = pytest.StashKey[tempfile.TemporaryDirectory[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """A folder for compiled kernels, also for child processes, unless the caller names one."""
    if CACHE_VARIABLE not in os.environ:
        config.stash[_cache] = tempfile.TemporaryDirectory(prefix="dnnl-tests-")
        os.environ[CACHE_VARIABLE] = config.stash[_cache].name


def pytest_unconfigure(config: pytest.Config) -> None:
    """Forget the folder."""
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
