"""From LLVM IR to machine code: optimisation, emission, inspection and the cached way to both."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any

import llvmlite
from llvmlite import binding as llvm

from dnnl import config, forks, log
from dnnl.codegen.compile import emit_apart, spirv_text
from dnnl.codegen.compile.disk_cache import DiskCache
from dnnl.codegen.ir.builder import OPAQUE, Module
from dnnl.codegen.ir.kernel import Recipe
from dnnl.codegen.isa import Isa
from dnnl.garbage import Pause
from dnnl.interrupts import Deferred
from dnnl.runtime.image import Image, Phase, Repeat, Unknowns
from dnnl.types.size import text, typical

# Over all that happens within LLVM: a fork waits for it.
_lock = threading.RLock()
forks.hold(_lock)

_dumped = count()
_PACKAGE = Path(__file__).resolve().parents[2]


@cache
def _initialize() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


@cache
def _triple(isa: Isa) -> str:
    """This process's triple where it can run the row, so that objects have the system's format;
    the row's own for other architectures."""
    with Deferred(), _lock:
        host = llvm.get_process_triple()
    arch = host.partition("-")[0].replace("arm64", "aarch64")
    return host if isa.arch in (arch, "any") else isa.triple


@lru_cache(maxsize=64)
def _target_machine(isa: Isa) -> llvm.TargetMachine:
    _initialize()
    target = llvm.Target.from_triple(_triple(isa))
    options: dict[str, Any] = {"cpu": isa.cpu, "features": isa.feature_string, "opt": 3}
    if isa.device is None:
        # Constants are next to the code. The C library may be further away than the small code
        # model reaches: whoever loads an object has stubs for that.
        options.update(reloc="pic", codemodel="small", jit=True)
    return target.create_target_machine(**options)


# LLVM does not give back all memory of a pass when it is disposed of: each is made once.
@lru_cache(maxsize=64)
def _builder(isa: Isa) -> llvm.PassBuilder:
    return llvm.create_pass_builder(_target_machine(isa), llvm.create_pipeline_tuning_options(3))


@cache
def _passes(device: bool) -> llvm.ModulePassManager:
    # Kernels come as vectors in tight loops without memory variables or repeated addresses: on
    # processors these three passes do all of LLVM's full pipeline that makes code faster.
    passes = llvm.create_new_module_pass_manager()
    if device:
        passes.add_new_gvn_pass()
    passes.add_instruction_combine_pass()
    passes.add_loop_unroll_pass()
    passes.add_simplify_cfg_pass()
    if device:
        passes.add_instruction_combine_pass()
        passes.add_lower_switch_pass()  # LLVM switches by single bits, SPIR-V does not
    return passes


@contextmanager
def _strength_reduction(enabled: bool) -> Iterator[None]:
    """Enable or disable LLVM's loop strength reduction, which is enabled elsewhere.

    Loops with opaque pointers have cheap addresses already, and the pass would be a third of their
    compile time. The option belongs to the process: code that another library emits at the same
    time misses the pass, too, and is right without it.
    """
    if enabled:
        yield
        return
    llvm.set_option("", "-disable-lsr=true")
    try:
        yield
    finally:
        llvm.set_option("", "-disable-lsr=false")


def assembly(module: Module) -> str:
    """The optimised machine code as text."""
    return _emit(module.isa, str(module), as_text=True).decode()


def _code(isa: Isa, ir: str) -> bytes:
    """What an image holds: an object, or the text of a device's assembler."""
    return _emit(isa, ir, as_text=isa.device is not None and isa.device.text)


def _emit(isa: Isa, ir: str, *, as_text: bool) -> bytes:
    # A context of its own is freed with all that LLVM remembers of the module. Everything is
    # closed here and not by the garbage collector, which would do it without the lock.
    with (
        Deferred(),
        _lock,
        llvm.create_context() as context,
        llvm.parse_assembly(ir, context) as parsed,
    ):
        machine = _target_machine(isa)
        parsed.triple = _triple(isa)
        parsed.data_layout = str(machine.target_data)
        parsed.verify()
        _passes(isa.device is not None).run(parsed, _builder(isa))
        if isa.device is None or not isa.device.own_process:
            with _strength_reduction(isa.device is not None or OPAQUE not in ir):
                if as_text:
                    return str(machine.emit_assembly(parsed)).encode()
                return bytes(machine.emit_object(parsed))
        ir = spirv_text.writable(str(parsed))
    return emit_apart.run(ir, _triple(isa), isa.cpu, isa.feature_string, text=as_text)


@cache
def _generator_version() -> str:
    """A hash of everything that generated code depends on besides its configuration."""
    digest = hashlib.sha256(f"{llvmlite.__version__} {llvm.llvm_version_info}".encode())
    for layer in ("types", "codegen", "kernels"):
        for file in sorted((_PACKAGE / layer).rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()


def key(recipe: Recipe) -> str:
    """The name under which a recipe's image is kept on disk."""
    parts = _generator_version(), recipe.spelled, _triple(recipe.isa)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def image(recipe: Recipe) -> tuple[Image, bool]:
    """The recipe's machine code, and whether it came from the disk cache."""
    found = stored(recipe)
    if found is not None:
        return found, True
    made = built(recipe)
    store(recipe, made)
    return made, False


def stored(recipe: Recipe) -> Image | None:
    """What the disk cache has for a recipe: nothing while kernels are dumped."""
    disk = _disk_cache()
    found = None if disk is None or config.get("jit_dump") else disk.load(key(recipe))
    if found is not None:
        _report(recipe, found, "disk")
    return found


def store(recipe: Recipe, image: Image) -> None:
    """Keep the image of a recipe in the disk cache, if there is one."""
    disk = _disk_cache()
    if disk is not None:
        disk.store(key(recipe), image)


@dataclass(frozen=True)
class Written:
    """A kernel as text, without the objects that it was written from."""

    phases: tuple[Phase, ...]
    arguments: tuple[int, ...]
    repeats: tuple[Repeat, ...]
    ir: str


def built(recipe: Recipe) -> Image:
    """The recipe's machine code, made anew."""
    return compiled(recipe, written(recipe))


def written(recipe: Recipe) -> Written:
    """The recipe's kernel in LLVM's IR, which is the part of Python."""
    with Deferred(), Pause():
        kernel = recipe.kernel()
        made = Written(kernel.phases, kernel.arguments, kernel.repeats, str(kernel.module))
        kernel.module.discard()
        return made


def compiled(recipe: Recipe, kernel: Written) -> Image:
    """The machine code of what was written, which is the part of LLVM."""
    started = perf_counter()
    code = _code(recipe.isa, kernel.ir)
    phases, repeats, unknowns = kernel.phases, kernel.repeats, None
    if recipe.symbols is not None:
        counts = tuple(text(own.count) for own in phases) + tuple(text(r.count) for r in repeats)
        phases = tuple(replace(phase, count=typical(phase.count)) for phase in phases)
        repeats = tuple(replace(repeat, count=typical(repeat.count)) for repeat in repeats)
        unknowns = Unknowns(tuple(map(str, recipe.symbols.guards)), counts)
    made = Image(recipe.isa.target, code, phases, kernel.arguments, unknowns, repeats)
    if log.enabled("profile_externals"):
        ms = (perf_counter() - started) * 1e3
        log.line("common", "profile_externals", "llvm", kernel.phases[-1].symbol, ms=ms)
    _report(recipe, made, "generated")
    if config.get("jit_dump"):
        _dump(recipe.isa, kernel, made.code)
    return made


def watched() -> bool:
    """Whether somebody wants to see how each kernel is made, in files or verbose lines."""
    return config.get("jit_dump") or any(map(log.enabled, ("profile_externals", "debuginfo=1")))


def _report(recipe: Recipe, found: Image, origin: str) -> None:
    """Lines about a kernel for those who work on the library: what it is and what it is made of."""
    if log.enabled("debuginfo=1"):
        phases = " ".join(f"{phase.symbol}:{phase.count}" for phase in found.phases)
        size = f"{len(found.code)} bytes"
        log.line(
            "common", "debuginfo", "kernel", key(recipe), origin, recipe.isa.name, phases, size
        )
    if log.enabled("debuginfo=2"):
        log.line("common", "debuginfo", "recipe", key(recipe), recipe.conf)


def _disk_cache() -> DiskCache | None:
    folder, limit = config.get("cache_dir"), config.get("cache_limit")
    return DiskCache(folder, limit * 2**20) if folder is not None and limit else None


def _dump(isa: Isa, kernel: Written, code: bytes) -> None:
    """Write IR, assembly and object of a kernel to the current folder, if it can be written."""
    name = kernel.phases[-1].symbol
    number = next(_dumped)
    stem = f"dnnl_dump_{isa.target}_{name}.{number}"
    try:
        Path(f"{stem}.ll").write_text(kernel.ir)
        Path(f"{stem}.s").write_bytes(_emit(isa, kernel.ir, as_text=True))
        Path(f"{stem}.o").write_bytes(code)
    except OSError as error:
        log.warn(f"kernel dump {stem}: {error}")
