"""Skips these tests where there is no SYCL device, and says why."""

from __future__ import annotations

import pytest

from dnnl.runtime.engine import Engine
from dnnl.runtime.engines import sycl_devices


def _missing() -> str:
    try:
        sycl_devices.dpctl()
    except ValueError as error:
        return str(error)
    return "" if Engine.count("sycl") else "dpctl finds no device that takes SPIR-V and has USM"


MISSING = _missing()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder."""
    if MISSING:
        for item in items:
            if "tests/sycl/" in item.nodeid:
                item.add_marker(pytest.mark.skip(reason=MISSING))
