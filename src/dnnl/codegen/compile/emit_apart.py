"""Machine code from other processes, for targets of which LLVM can write but one module in each.

A process of `emit_program` is started for each thread that asks at the same time, and serves later
ones until it is idle for long.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import threading
from contextlib import suppress

from dnnl import forks
from dnnl.codegen.compile import emit_program
from dnnl.codegen.compile.emit_program import LENGTH


def run(ir: str, triple: str, cpu: str, features: str, *, text: bool) -> bytes:
    """The object code of a module, or its assembly ``text``; RuntimeError if there is none."""
    request = json.dumps([ir, triple, cpu, features, text]).encode()
    failed, reply = _writers.ask(request)
    if failed:
        reason = reply.decode(errors="replace")
        raise RuntimeError(f"LLVM wrote no code for {triple} ({reason})")
    return reply


class _Writer:
    """A process that writes modules one after the other."""

    def __init__(self) -> None:
        path = os.pathsep.join(folder for folder in sys.path if folder)
        self._process = subprocess.Popen(
            [sys.executable, "-P", emit_program.__file__],
            bufsize=-1,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,  # an interrupt is the affair of this process
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._replies = self._process.stdin, self._process.stdout

    def ask(self, request: bytes) -> tuple[bool, bytes] | None:
        """Whether the writer failed, and its reply; None if the process is no more."""
        try:
            self._requests.write(LENGTH.pack(len(request)) + request)
            self._requests.flush()
        except OSError:
            return None
        head = self._replies.read(1 + LENGTH.size)
        if len(head) <= LENGTH.size:
            return None
        (length,) = LENGTH.unpack(head[1:])
        return bool(head[0]), self._replies.read(length)

    def close(self, *, wait: bool = True) -> None:
        """End the process, which belongs to another one without ``wait``."""
        for pipe in (self._requests, self._replies):
            with suppress(OSError):  # of what was not sent yet
                pipe.close()
        if wait:
            self._process.wait()


class _Writers:
    """The processes that are idle."""

    def __init__(self) -> None:
        self._idle: list[_Writer] = []
        self._lock = threading.Lock()
        forks.renew(self)
        atexit.register(self.close)

    def ask(self, request: bytes) -> tuple[bool, bytes]:
        """Whether a writer failed, and its reply."""
        while True:
            with self._lock:
                writer = self._idle.pop() if self._idle else None
            fresh, writer = writer is None, writer or _Writer()
            try:
                reply = writer.ask(request)
            except BaseException:  # an interrupt: the reply to come would be the next request's
                writer.close(wait=False)
                raise
            if reply is not None:
                with self._lock:
                    self._idle.append(writer)
                return reply
            writer.close()
            if fresh:
                return True, b"its process ended"

    def close(self) -> None:
        """End all of them."""
        while self._idle:
            self._idle.pop().close()

    def after_fork(self) -> None:
        """The writers serve the parent."""
        self._lock = threading.Lock()
        while self._idle:
            self._idle.pop().close(wait=False)


_writers = _Writers()
