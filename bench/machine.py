"""The machine's two limits as contenders: multiply-adds and bytes copied per second."""

from __future__ import annotations

from bench.alternate import Contender
from dnnl import Engine
from dnnl.tools.bench import machine

PEAK = "peak"
COPY = "copy"


def peak_contender(engine: Engine, num_threads: int) -> Contender:
    """f32 multiply-adds at full speed on every thread; its work is the FLOP of one run."""
    work = machine.multiply_adds(engine, num_threads)
    return Contender(PEAK, work.run, work.amount)


class Copies(machine.Copies):
    """Copies on several threads; close it after use."""

    def contender(self, nbytes: int, engine: Engine) -> Contender:
        """A copy of ``nbytes`` bytes; its work is the bytes read and written."""
        work = self.work(nbytes, engine)
        return Contender(COPY, work.run, work.amount)
