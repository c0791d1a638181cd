"""How many cases property tests draw.

DNNL_TEST_EXAMPLES=50 runs 50 times as many, and others each time (--hypothesis-seed=N for the
same ones). Where a guard page ends the process, -s --hypothesis-verbosity=verbose shows at what.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_FACTOR = int(os.environ.get("DNNL_TEST_EXAMPLES", "1"))


def examples(count: int) -> settings:
    """``count`` examples that every run has, or so many times more that are new each time."""
    return settings(
        max_examples=count * _FACTOR,
        derandomize=_FACTOR == 1,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        print_blob=_FACTOR != 1,
    )
