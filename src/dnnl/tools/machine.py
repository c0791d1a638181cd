"""The machine's limits as contenders: products per second on registers, and bytes copied."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dnnl.codegen.product.multiply import multiply
from dnnl.errors import Unimplemented
from dnnl.primitives.limits import products
from dnnl.primitives.peak import PeakConf
from dnnl.primitives.primitive_desc import select_isa
from dnnl.runtime.engine import Engine
from dnnl.runtime.memory import Memory
from dnnl.tools.measure import Contender
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc

PEAK = "peak"
COPY = "copy"

_PART = 1 << 20


def peak(
    engine: Engine,
    num_threads: int,
    src: DataType = DataType.f32,
    weights: DataType = DataType.f32,
) -> Contender:
    """Products of two types on every thread, by the instruction that kernels take for them.

    The work is the multiplications and additions of one run.
    """
    isa = select_isa(engine)
    how = multiply(isa, src, weights, tiled=True)
    if how is None:
        raise Unimplemented(f"no kernel multiplies {src} by {weights}")
    run = products(engine, isa, how, num_threads)
    return Contender(PEAK, run, PeakConf.of(how, isa, num_threads).operations(isa))


def peaks(engine: Engine, num_threads: int) -> dict[str, Contender]:
    """f32 multiply-adds, and the products of narrow types that have an instruction, by the types'
    names."""
    pairs = {"f32": (DataType.f32, DataType.f32)}
    for dot in select_isa(engine).dots:
        if dot.instruction and dot.add:
            name = dot.a if dot.a == dot.b else f"{dot.a} x {dot.b}"
            pairs[name] = DataType[dot.a], DataType[dot.b]
    return {
        name: replace(peak(engine, num_threads, *pair), name=name) for name, pair in pairs.items()
    }


def _bytes(count: int, engine: Engine) -> NDArray[np.uint8]:
    return Memory(MemoryDesc((count,), "u8"), engine).data


class Copies:
    """``numpy.copyto`` with each thread taking its part of the bytes; close it after use.

    A part has a MiB at least: handing a smaller one to another thread takes longer than copying it.
    """

    def __init__(self, num_threads: int) -> None:
        self._helpers = ThreadPoolExecutor(num_threads - 1) if num_threads > 1 else None
        self._parts = num_threads

    def contender(self, nbytes: int, engine: Engine) -> Contender:
        """A copy of ``nbytes`` bytes; the work is the bytes read and written."""
        src, dst = _bytes(nbytes, engine), _bytes(nbytes, engine)
        src[:] = 1
        parts = max(1, min(self._parts, nbytes // _PART))
        bounds = [nbytes * part // parts for part in range(parts + 1)]
        calls = [
            partial(np.copyto, dst[begin:end], src[begin:end]) for begin, end in pairwise(bounds)
        ]
        return Contender(COPY, self._in_parallel(calls), 2 * nbytes)

    def _in_parallel(self, calls: list[partial[None]]) -> Callable[[], object]:
        helpers = self._helpers
        if helpers is None or len(calls) == 1:
            return calls[0]

        def run() -> None:
            futures = [helpers.submit(call) for call in calls[1:]]
            calls[0]()
            for future in futures:
                future.result()

        return run

    def close(self) -> None:
        """End the helping threads."""
        if self._helpers is not None:
            self._helpers.shutdown()
