"""The launch block: what one native call gets to execute an image, and the code that reads it.

A *program* is made once per image, a *block* once per execution (or per binding)::

    program   int64 phases | (void *function, int64 count) x phases
    block     program *    | int64 threads | void *args[]

``run(block)`` goes through the phases in order. Each is handed to ``parallel``, which a pool
defines and which returns when all items are done::

    void parallel(void (*function)(void **, int64_t, int64_t), void **args,
                  int64_t count, int64_t threads)
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from dnnl.runtime.backend import Executable

RUN_IR = """
define void @run(ptr %block) {
entry:
  %program = load ptr, ptr %block
  %threads.at = getelementptr i64, ptr %block, i64 1
  %threads = load i64, ptr %threads.at
  %args = getelementptr i64, ptr %block, i64 2
  %phases = load i64, ptr %program
  %first = getelementptr i64, ptr %program, i64 1
  %none = icmp sle i64 %phases, 0
  br i1 %none, label %done, label %phase

phase:
  %i = phi i64 [ 0, %entry ], [ %i.next, %phase ]
  %function.at = getelementptr { ptr, i64 }, ptr %first, i64 %i, i32 0
  %count.at = getelementptr { ptr, i64 }, ptr %first, i64 %i, i32 1
  %function = load ptr, ptr %function.at
  %count = load i64, ptr %count.at
  call void @parallel(ptr %function, ptr %args, i64 %count, i64 %threads)
  %i.next = add i64 %i, 1
  %last = icmp eq i64 %i.next, %phases
  br i1 %last, label %done, label %phase

done:
  ret void
}
"""

# Everything on the calling thread. Also what any other pool does when it has nobody to help.
SERIAL_IR = """
define internal void @serial(ptr %function, ptr %args, i64 %count) {
  %none = icmp sle i64 %count, 0
  br i1 %none, label %done, label %work
work:
  call void %function(ptr %args, i64 0, i64 %count)
  br label %done
done:
  ret void
}
"""


class Program:
    """The phases of a loaded image as native code reads them. Must outlive every block of it."""

    def __init__(self, functions: tuple[tuple[int, int], ...]) -> None:
        words = [len(functions), *(word for function in functions for word in function)]
        self._words = (ctypes.c_uint64 * len(words))(*words)
        self.address = ctypes.addressof(self._words)


class LaunchedExecutable(Executable):
    """A program with a place for ``num_arguments`` addresses, run by a pool's ``run``."""

    __slots__ = ("_pack", "_program", "_run")

    def __init__(self, program: int, num_arguments: int, run: Callable[[bytes], None]) -> None:
        self._program = program
        self._pack = struct.Struct(f"={2 + num_arguments}Q").pack
        self._run = run

    # A block is a fresh immutable object and no buffer that is used again: so no lock is needed,
    # and a signal handler or finalizer that executes in between disturbs nothing.

    def launch(self, pointers: Sequence[int], num_threads: int) -> None:
        self._run(self._pack(self._program, num_threads, *pointers))

    def bind(self, pointers: Sequence[int], num_threads: int) -> Callable[[], Any]:
        return partial(self._run, self._pack(self._program, num_threads, *pointers))


def entry_function(address: int) -> Callable[[bytes], None]:
    """``run`` as a Python callable: takes the bytes of a block, releases the GIL meanwhile."""
    return ctypes.CFUNCTYPE(None, ctypes.c_char_p)(address)
