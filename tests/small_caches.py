"""Small tensors treated as large ones: shared out over threads, stored past the caches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

from dnnl.codegen.isa import caches
from dnnl.codegen.isa.caches import Caches
from dnnl.codegen.nest import work_items

SMALL_ITEM = 256
SMALL_STREAM = 8192
_caches_of = caches.of


def small_caches(cpu: str, sized: Caches) -> Caches:
    """Those of ``cpu``, but so small that tests have sizes on either side of their limits."""
    own = _caches_of(cpu, sized)
    return replace(
        own,
        l2=SMALL_STREAM // 2,
        near=SMALL_STREAM // 2,
        shared=SMALL_STREAM,
        memory=2 * SMALL_STREAM,
        streamed=SMALL_STREAM,
        streamed_rows=SMALL_STREAM if own.streamed_rows < caches.NEVER else caches.NEVER,
    )


@contextmanager
def small_is_large() -> Iterator[None]:
    """Kernels are written for caches that small tensors fill. They have smaller items, which their
    names do not tell: the caller keeps them apart from those of others."""
    with (
        patch.object(work_items, "LEAST_WORK", SMALL_ITEM),
        patch.object(caches, "of", small_caches),
    ):
        yield
