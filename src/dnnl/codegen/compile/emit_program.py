"""The program of the processes that write machine code: each module in a fork of its own.

Requests come on standard input and replies go to standard output, both behind their length. A
request is a module and its target in JSON; a reply begins with a byte, which is 0 if code follows
and 1 if that is the reason why there is none. The process ends with its input, or when nothing was
requested for a while. This file imports nothing of the library.
"""

from __future__ import annotations

import json
import os
import select
import struct
import sys
import tempfile
from typing import BinaryIO

from llvmlite import binding as llvm

LENGTH = struct.Struct("<Q")
_IDLE = 20.0  # seconds


def code_of(ir: str, triple: str, cpu: str, features: str, text: bool) -> bytes:
    """The object code of a module, or its assembly ``text``."""
    target = llvm.Target.from_triple(triple)
    # Loop strength reduction, which comes with opt, cuts integers down to 3 bits, say, and LLVM 22
    # writes those as 8 bits to SPIR-V. The module is optimised already, and drivers do the rest.
    machine = target.create_target_machine(cpu=cpu, features=features, opt=0)
    module = llvm.parse_assembly(ir)
    return machine.emit_assembly(module).encode() if text else bytes(machine.emit_object(module))


def _in_fork(request: bytes) -> tuple[bytes, bytes]:
    """The status of a request and its reply, from a fork, which LLVM may end."""
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as log:
        child = os.fork()
        if child == 0:
            os.dup2(log.fileno(), 2)
            with os.fdopen(writing, "wb") as answer:
                answer.write(b"".join(_here(request)))
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as answer:
            reply = answer.read()
        _, status = os.waitpid(child, 0)
        if status == 0:
            return reply[:1], reply[1:]
        log.seek(0)
        return b"\1", f"status {os.waitstatus_to_exitcode(status)}: ".encode() + log.read().strip()


def _here(request: bytes) -> tuple[bytes, bytes]:
    """The status of a request and its reply."""
    try:
        return b"\0", code_of(*json.loads(request))
    except RuntimeError as error:
        return b"\1", str(error).encode()


def _main(requests: BinaryIO, replies: BinaryIO) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    forks = hasattr(os, "fork")
    # Nobody sends a request before the reply to the last one, so that none waits in the buffer.
    while not forks or select.select([requests], [], [], _IDLE)[0]:
        length = requests.read(LENGTH.size)
        if not length:
            return
        request = requests.read(*LENGTH.unpack(length))
        status, reply = _in_fork(request) if forks else _here(request)
        replies.write(status + LENGTH.pack(len(reply)) + reply)
        replies.flush()
        if not forks:
            return


if __name__ == "__main__":
    _main(sys.stdin.buffer, sys.stdout.buffer)
