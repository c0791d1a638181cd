"""The launch block: what one native call gets to execute an image, and the code that reads it.

A *program* is made once per loaded image, a *block* once per execution (or per binding)::

    program   int64 entries | (void *function, int64 count) x entries
    block     program *     | int64 threads | void *scratch | void *args[]

``run(block)`` goes through the entries in order. An entry ``0, count`` repeats so many times as
many entries as the one behind it says, ``entries, 0``. An entry ``0, -words`` moves ``args`` for
all behind it, which are another program's. Any other is a phase, which is handed to ``parallel``: a
pool defines it, and it returns when all items are done::

    void parallel(void (*function)(void **, int64_t, int64_t, int64_t), void **args,
                  int64_t count, int64_t threads)

A function finds ``scratch``, the memory of all threads, as ``args[-1]``.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from dnnl.runtime.backend import Executable, Queue
from dnnl.runtime.engines.cpu_code import Code
from dnnl.runtime.event import COMPLETE, NOTHING, Event, wait_for
from dnnl.runtime.image import Repeat
from dnnl.runtime.storage import address_of, allocate

RUN_IR = """
define void @run(ptr %block) {
  %program = load ptr, ptr %block
  %threads.at = getelementptr i64, ptr %block, i64 1
  %threads = load i64, ptr %threads.at
  %args = getelementptr i64, ptr %block, i64 3
  %entries = load i64, ptr %program
  %first = getelementptr i64, ptr %program, i64 1
  call void @entries(ptr %first, i64 %entries, ptr %args, i64 %threads)
  ret void
}

define internal void @entries(ptr %first, i64 %entries, ptr %args, i64 %threads) {
entry:
  %none = icmp sle i64 %entries, 0
  br i1 %none, label %done, label %look

look:
  %i = phi i64 [ 0, %entry ], [ %i.next, %phase ], [ %i.next, %move ], [ %i.behind, %repeated ]
  %own = phi ptr [ %args, %entry ], [ %own, %phase ], [ %moved, %move ], [ %own, %repeated ]
  %function.at = getelementptr { ptr, i64 }, ptr %first, i64 %i, i32 0
  %count.at = getelementptr { ptr, i64 }, ptr %first, i64 %i, i32 1
  %function = load ptr, ptr %function.at
  %count = load i64, ptr %count.at
  %i.next = add i64 %i, 1
  %none.here = icmp eq ptr %function, null
  br i1 %none.here, label %other, label %phase

phase:
  call void @parallel(ptr %function, ptr %own, i64 %count, i64 %threads)
  %last = icmp sge i64 %i.next, %entries
  br i1 %last, label %done, label %look

other:
  %moves = icmp slt i64 %count, 0
  br i1 %moves, label %move, label %repeat

move:
  %words = sub i64 0, %count
  %moved = getelementptr ptr, ptr %own, i64 %words
  %nothing = icmp sge i64 %i.next, %entries
  br i1 %nothing, label %done, label %look

repeat:
  %inside.at = getelementptr { i64, i64 }, ptr %first, i64 %i.next, i32 0
  %inside = load i64, ptr %inside.at
  %i.body = add i64 %i, 2
  %body = getelementptr { ptr, i64 }, ptr %first, i64 %i.body
  %i.behind = add i64 %i.body, %inside
  %never = icmp sle i64 %count, 0
  br i1 %never, label %repeated, label %again

again:
  %n = phi i64 [ 0, %repeat ], [ %n.next, %again ]
  call void @entries(ptr %body, i64 %inside, ptr %own, i64 %threads)
  %n.next = add i64 %n, 1
  %enough = icmp sge i64 %n.next, %count
  br i1 %enough, label %repeated, label %again

repeated:
  %end = icmp sge i64 %i.behind, %entries
  br i1 %end, label %done, label %look

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
  call void %function(ptr %args, i64 0, i64 %count, i64 0)
  br label %done
done:
  ret void
}
"""


class LoadedProgram(Executable):
    """The phases of a loaded image as native code reads them, run by a pool's ``run``.

    ``functions`` are the address of each phase and the number of its items; ``code`` owns what
    is there. A program has a place for ``num_arguments`` addresses, takes ``scratch`` bytes for
    each thread, and outlives every block of it.
    """

    __slots__ = (
        *("_functions", "_items", "_keep", "_latest", "_repeats", "arguments", "pack", "program"),
        *("run", "scratch"),
    )

    def __init__(
        self,
        functions: Sequence[tuple[int, int]],
        code: Code | None,
        num_arguments: int,
        run: Callable[[bytes], None],
        scratch: int = 0,
        repeats: Sequence[Repeat] = (),
    ) -> None:
        memory = _words(functions, repeats)
        self.program, self.run = ctypes.addressof(memory), run
        self.pack = struct.Struct(f"={3 + num_arguments}Q").pack
        self.arguments, self.scratch = num_arguments, scratch
        self._functions, self._repeats = functions, repeats
        self._items = max((count for _, count in functions), default=0)
        self._keep = memory, code
        self._latest: tuple[Sequence[int], LoadedProgram] | None = None

    def sized(self, counts: Sequence[int]) -> LoadedProgram:
        """The program with so many items of each phase and, behind these, iterations of each
        repeat: the latest one, where sizes in a loop do not change them."""
        latest = self._latest
        if latest is None or latest[0] != counts:
            self._latest = latest = counts, self._with(counts)
        return latest[1]

    def _with(self, counts: Sequence[int]) -> LoadedProgram:
        made = object.__new__(LoadedProgram)
        items, times = counts[: len(self._functions)], counts[len(self._functions) :]
        addresses = [address for address, _ in self._functions]
        made._repeats = [
            Repeat(own.first, own.end, count)
            for own, count in zip(self._repeats, times, strict=True)
        ]
        memory = _words(list(zip(addresses, items, strict=True)), made._repeats)
        made.program, made.run, made.pack = ctypes.addressof(memory), self.run, self.pack
        made.arguments, made.scratch = self.arguments, self.scratch
        made._functions, made._items = self._functions, max(items)
        made._keep, made._latest = (memory, self._keep[1]), None
        return made

    @property
    def nbytes(self) -> int:
        _, code = self._keep
        return 0 if code is None else code.nbytes

    def scratch_of(self, threads: int) -> int:
        """The bytes of scratch of an execution."""
        return self.scratch * min(threads, self._items)

    @property
    def words(self) -> Sequence[int]:
        """The entries as native code reads them."""
        memory, _ = self._keep
        return memory[1:]


class _Joined(LoadedProgram):
    """Programs that run one after the other in one native call. Its arguments are those of each,
    with a 0 between two."""

    __slots__ = ("_programs",)

    def __init__(self, programs: Sequence[LoadedProgram]) -> None:
        words, scratches = list[int](), list[int]()
        count = 0
        for number, own in enumerate(programs):
            if number:
                scratches.append(count)
                count += 1
                words += 0, -(1 + programs[number - 1].arguments)
            words += own.words
            count += own.arguments
        memory = (ctypes.c_uint64 * (1 + len(words)))(len(words) // 2, *words)
        super().__init__((), None, count, programs[0].run, max(own.scratch for own in programs))
        self.program, self._keep = ctypes.addressof(memory), (memory, None)
        self._items = max(own._items for own in programs)
        self._programs = tuple(programs)  # which own the code
        if self.scratch:
            pack = self.pack

            def with_scratch(program: int, threads: int, scratch: int, *arguments: int) -> bytes:
                given = [*arguments]
                for place in scratches:
                    given[place] = scratch
                return pack(program, threads, scratch, *given)

            self.pack = with_scratch


def _words(
    functions: Sequence[tuple[int, int]], repeats: Sequence[Repeat]
) -> ctypes.Array[ctypes.c_uint64]:
    """A program."""
    entries = list[tuple[int, int]]()
    begins = {repeat.first: repeat for repeat in repeats}
    for number, function in enumerate(functions):
        repeat = begins.get(number)
        if repeat is not None:
            entries += (0, repeat.count), (repeat.end - repeat.first, 0)
        entries.append(function)
    words = [len(entries), *(word for entry in entries for word in entry)]
    return (ctypes.c_uint64 * len(words))(*words)


class _Block(bytes):
    """A block that is kept, and what owns the memory that it points to."""

    keep: object


class _Idle(threading.local):
    """Scratch of the calling Python thread that no execution is using, and its address, whose
    reading would take half as long as a small execution."""

    data: tuple[NDArray[np.uint8], int] | None = None


_idle = _Idle()


class CpuQueue(Queue[LoadedProgram]):
    """Runs each launch at once, on the calling thread and those of the pool."""

    __slots__ = ()

    # A block is a fresh immutable object and no buffer that is used again: so no lock is needed,
    # and a signal handler or finalizer that executes in between disturbs nothing.

    def submit(
        self,
        executable: LoadedProgram,
        arguments: Sequence[int],
        threads: int,
        after: Sequence[Event] = NOTHING,
    ) -> Event:
        if after is not NOTHING:
            wait_for(after)
        if executable.scratch:
            return self._with_scratch(executable, arguments, threads)
        executable.run(executable.pack(executable.program, threads, 0, *arguments))
        return COMPLETE

    def _with_scratch(
        self, executable: LoadedProgram, arguments: Sequence[int], threads: int
    ) -> Event:
        nbytes = executable.scratch_of(threads)
        data, _idle.data = _idle.data, None  # so that who executes in between takes another
        if data is None or data[0].size < nbytes:
            scratch = allocate(nbytes)
            data = scratch, address_of(scratch)
        executable.run(executable.pack(executable.program, threads, data[1], *arguments))
        _idle.data = data
        return COMPLETE

    def joined(self, executables: Sequence[LoadedProgram]) -> LoadedProgram:
        return _Joined(executables)

    def bind(
        self, executable: LoadedProgram, arguments: Sequence[int], threads: int, keep: object
    ) -> Callable[..., Event]:
        scratch = allocate(executable.scratch_of(threads))
        address = address_of(scratch) if executable.scratch else 0
        block = _Block(executable.pack(executable.program, threads, address, *arguments))
        block.keep = keep, scratch, executable
        run = executable.run

        # Calls of a function with a default argument are faster than those of such a method.
        def submit(after: Sequence[Event] = NOTHING) -> Event:
            if after is not NOTHING:
                wait_for(after)
            run(block)
            return COMPLETE

        return submit

    def wait(self) -> None:
        """Returns at once."""


def entry_function(address: int) -> Callable[[bytes], None]:
    """``run`` as a Python callable: takes the bytes of a block, releases the GIL meanwhile."""
    return ctypes.CFUNCTYPE(None, ctypes.c_char_p)(address)
