"""Machine code in and out of LLVM for the cpu engine: link an object, assemble IR text.

Code that was linked is never unmapped: threads of the pool may be inside it at any time, and a
caller may hold its addresses.
"""

from __future__ import annotations

import itertools
import os
import threading
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from dnnl.errors import Error

#: Held by whatever changes the state of this engine; safe to take in the child of a fork.
lock = threading.RLock()
_kept: list[Any] = []
_serial = itertools.count()


@cache
def _target_machine() -> Any:
    """The host as LLVM sees it. PIC: the addresses of code and libc may be far apart."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), opt=0, reloc="pic", codemodel="small"
    )


@cache
def _linker() -> Any:
    return llvm.create_lljit_compiler(_target_machine())


def host() -> tuple[str, str, frozenset[str]]:
    """Architecture, processor and features of this machine, by LLVM's names."""
    with lock:
        arch = llvm.get_process_triple().split("-")[0].replace("arm64", "aarch64")
        features = llvm.get_host_cpu_features()
        flags = frozenset(name for name, present in features.items() if present)
        return arch, llvm.get_host_cpu_name(), flags


def assemble(text: str) -> bytes:
    """The object code of a module given as LLVM IR text."""
    with lock:
        machine = _target_machine()
        module = llvm.parse_assembly(text)
        module.verify()
        return bytes(machine.emit_object(module))


def link(code: bytes, symbols: tuple[str, ...]) -> tuple[int, ...]:
    """Load an object and return the addresses of its ``symbols``.

    Every object is a library of its own, so that two may define the same names. Raises
    `Error` for bytes that are no object of this machine and for symbols that are missing.
    """
    with lock:
        builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
        for symbol in symbols:
            builder.export_symbol(symbol)
        try:
            library = builder.link(_linker(), f"dnnl.{next(_serial)}")
        except RuntimeError as error:
            raise Error(f"cannot load object code ({len(code)} bytes): {error}") from error
        _kept.append(library)
        return tuple(library[symbol] for symbol in symbols)


if hasattr(os, "register_at_fork"):
    # Else a fork while another thread loads would leave the lock taken for ever in the child.
    os.register_at_fork(
        before=lock.acquire, after_in_child=lock.release, after_in_parent=lock.release
    )
