"""The pool without threads, for systems where the native one does not work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dnnl import lazy
from dnnl.runtime.engines.cpu_launch import RUN_IR, SERIAL_IR
from dnnl.runtime.threads import ThreadPool

if TYPE_CHECKING:
    from dnnl.runtime.engines import cpu_jit
else:
    cpu_jit = lazy.Module("dnnl.runtime.engines.cpu_jit")

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
        code = cpu_jit.assemble(RUN_IR + _PARALLEL_IR + SERIAL_IR)
        (address,) = cpu_jit.link_forever(code, ("run",))
        return address
