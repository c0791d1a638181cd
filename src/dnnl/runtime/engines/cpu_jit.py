"""What LLVM does for the cpu engine: link an object, assemble IR text, name the machine."""

from __future__ import annotations

import itertools
import weakref
from collections import deque
from functools import cache

import llvmlite.binding as llvm

from dnnl.errors import Error
from dnnl.interrupts import Deferred
from dnnl.runtime.engines.cpu_code import Code, lock

_serial = itertools.count()
_kept: list[Code] = []
_released: deque[llvm.ResourceTracker] = deque()


@cache
def _target_machine() -> llvm.TargetMachine:
    """The host as LLVM sees it. PIC: the addresses of code and libc may be far apart."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), opt=0, reloc="pic", codemodel="small"
    )


@cache
def _linker() -> llvm.LLJIT:
    return llvm.create_lljit_compiler(_target_machine())


def host() -> tuple[str, str, frozenset[str]]:
    """Architecture, processor and features of this machine, by LLVM's names."""
    with Deferred(), lock:
        arch = llvm.get_process_triple().split("-")[0].replace("arm64", "aarch64")
        features = llvm.get_host_cpu_features()
        flags = frozenset(name for name, present in features.items() if present)
        return arch, llvm.get_host_cpu_name(), flags


def assemble(text: str) -> bytes:
    """The object code of a module given as LLVM IR text."""
    with Deferred(), lock:
        machine = _target_machine()
        module = llvm.parse_assembly(text)
        module.verify()
        return bytes(machine.emit_object(module))


class Linked(Code):
    """An object that LLVM links, in mappings of its own: works on all systems.

    What nobody holds any more is freed when the next one is linked.
    """

    @classmethod
    def supported(cls) -> bool:
        return True

    def __init__(self, code: bytes, symbols: tuple[str, ...]) -> None:
        with Deferred(), lock:
            builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
            for symbol in symbols:
                builder.export_symbol(symbol)
            _released.clear()  # here LLVM frees them
            try:
                library = builder.link(_linker(), f"dnnl.{next(_serial)}")
            except RuntimeError as error:
                raise Error(f"cannot load object code ({len(code)} bytes): {error}") from error
        # Whoever runs is interrupted by this, perhaps within LLVM: it only sets a flag.
        weakref.finalize(self, _released.append, library).atexit = False
        self.addresses = tuple(library[symbol] for symbol in symbols)
        self.nbytes = len(code)


def link_forever(code: bytes, symbols: tuple[str, ...]) -> tuple[int, ...]:
    """The addresses of the symbols of an object that stays: threads are in it at any time."""
    library = Linked(code, symbols)
    _kept.append(library)
    return library.addresses
