"""The pool without threads, for systems where the native one does not work."""

from __future__ import annotations

from dnnl.runtime.engines.cpu_jit import assemble, link_forever
from dnnl.runtime.engines.cpu_launch import RUN_IR, SERIAL_IR
from dnnl.runtime.threads import ThreadPool

_PARALLEL_IR = """
define internal void @parallel(ptr %function, ptr %args, i64 %count, i64 %threads) {
  call void @serial(ptr %function, ptr %args, i64 %count)
  ret void
}
"""


class SerialPool(ThreadPool):
    """Runs every phase on the calling thread, whatever the number of threads."""

    name = "seq"

    @classmethod
    def supported(cls) -> bool:
        return True

    def entry(self) -> int:
        (address,) = link_forever(assemble(RUN_IR + _PARALLEL_IR + SERIAL_IR), ("run",))
        return address
