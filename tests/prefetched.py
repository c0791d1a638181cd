"""Counting what kernels prefetch."""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from dnnl.codegen.ir.builder import I64, PTR, Emitter, i64
from dnnl.codegen.isa.caches import LINE


class Counters:
    """How often each line of some memory is prefetched."""

    def __init__(self, begin: int, nbytes: int) -> None:
        self._begin, self._nbytes = begin, nbytes
        self.lines = np.zeros(nbytes // LINE + 1, np.int64)

    def count(self, e: Emitter, pointer: ir.Value, *, second_level: bool = False) -> None:
        """Count instead of prefetching; the last counter is that of all other memory."""
        place = e.b.sub(e.b.ptrtoint(pointer, I64), i64(self._begin))
        inside = e.b.icmp_unsigned("<", place, i64(self._nbytes))
        line = e.b.select(inside, e.b.lshr(place, i64(6)), i64(self.lines.size - 1))
        counters = e.b.inttoptr(i64(self.lines.ctypes.data), PTR)
        counter = e.element(counters, line, I64)
        e.b.store(e.b.add(e.b.load(counter, typ=I64), i64(1)), counter)


_MARGIN = 2**16
"""Bytes on either side of an operand: some lines behind another one are prefetched."""


def in_lines(nbytes: int) -> NDArray[np.uint8]:
    """Zeros that begin at a line, far from those of another call."""
    memory = np.zeros(nbytes + LINE + 2 * _MARGIN, np.uint8)
    return memory[_MARGIN + -memory.ctypes.data % LINE :][:nbytes]
