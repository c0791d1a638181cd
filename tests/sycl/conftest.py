"""Skips these tests where there is no SYCL device, and says why."""

from __future__ import annotations

import pytest

from dnnl.runtime.engine import Engine
from dnnl.runtime.engines import sycl_devices


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder."""
    if not Engine.count("sycl"):
        for item in items:
            if "tests/sycl/" in item.nodeid:
                reason = f"there is no SYCL device: {sycl_devices.missing()}"
                item.add_marker(pytest.mark.skip(reason=reason))
