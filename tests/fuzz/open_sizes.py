"""Sizes that only executions know, in all cases; others have them seldom."""

from __future__ import annotations

from functools import partial

from tests.fuzz.kind import Kind
from tests.fuzz.primitives import lines, run

KIND = Kind(
    "open",
    "primitives on ten sizes",
    partial(lines, opened=True),
    run,
    __name__,
    weight=4,
    timeout=180,
)
