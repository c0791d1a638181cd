"""The drivers of cases: those of the library's operations, and of those that it does not have."""

from __future__ import annotations

from dnnl.language.options import Driver
from dnnl.language.planned import PLANNED
from dnnl.primitives.desc import Desc
from dnnl.primitives.registry import OPERATIONS

_ROWS = [
    *((kind, desc.operation.driver, desc.operation.summary) for kind, desc in OPERATIONS.items()),
    *((row.kind, row.driver, row.summary) for row in PLANNED),
]
DRIVERS: dict[str, Driver] = {driver.name: driver for _, driver, _ in _ROWS}
"""Every driver by its name."""
KINDS: dict[str, Driver] = {kind: driver for kind, driver, _ in _ROWS}
"""The driver of each kind of operation in verbose lines."""
SUMMARIES: dict[str, str] = {kind: summary for kind, _, summary in _ROWS}
"""A short summary of each kind of operation."""
_DESCRIPTIONS = {desc.operation.driver.name: desc for desc in OPERATIONS.values()}


def description(driver: Driver) -> type[Desc] | None:
    """The description of a driver's operation; None if the library does not have it."""
    return _DESCRIPTIONS.get(driver.name)


def kind_of(driver: Driver) -> str:
    """The kind of a driver's operation."""
    return next(kind for kind, own in KINDS.items() if own.name == driver.name)
