"""From LLVM IR to machine code: optimisation, emission, inspection and the cached way to both."""

from __future__ import annotations

import hashlib
from functools import cache, lru_cache
from itertools import count
from pathlib import Path
from typing import Any

import llvmlite
from llvmlite import binding as llvm

from dnnl import config, log
from dnnl.codegen import emit_apart
from dnnl.codegen.builder import Module
from dnnl.codegen.disk_cache import DiskCache
from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Kernel, Recipe
from dnnl.runtime.image import Image

_dumped = count()
_PACKAGE = Path(__file__).resolve().parent.parent


@cache
def _initialize() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


@cache
def _triple(isa: Isa) -> str:
    """This process's triple where it can run the row, so that objects have the system's format;
    the row's own for other architectures."""
    host = llvm.get_process_triple()
    arch = host.partition("-")[0].replace("arm64", "aarch64")
    return host if isa.arch in (arch, "any") else isa.triple


@lru_cache(maxsize=64)
def _target_machine(isa: Isa) -> llvm.TargetMachine:
    _initialize()
    target = llvm.Target.from_triple(_triple(isa))
    options: dict[str, Any] = {"cpu": isa.cpu, "features": isa.feature_string, "opt": 3}
    if isa.device is None:
        # Code and the C library may be further apart than the small code model reaches.
        options.update(reloc="pic", codemodel="jitdefault", jit=True)
    return target.create_target_machine(**options)


def _optimize(module: Module) -> llvm.ModuleRef:
    machine = _target_machine(module.isa)
    parsed = llvm.parse_assembly(str(module))
    parsed.triple = _triple(module.isa)
    parsed.data_layout = str(machine.target_data)
    parsed.verify()
    # Kernels come as vectors in tight loops without memory variables: these few passes do nearly
    # all that LLVM's full pipeline would, in a quarter of its time.
    passes = llvm.create_new_module_pass_manager()
    passes.add_new_gvn_pass()
    passes.add_instruction_combine_pass()
    passes.add_loop_unroll_pass()
    passes.add_simplify_cfg_pass()
    passes.add_instruction_combine_pass()
    if module.isa.device is not None:
        passes.add_lower_switch_pass()  # LLVM switches by single bits, SPIR-V does not
    passes.run(parsed, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(3)))
    return parsed


def assembly(module: Module) -> str:
    """The optimised machine code as text."""
    return _emit(module, text=True).decode()


def _code(module: Module) -> bytes:
    """What an image holds: an object, or the text of a device's assembler."""
    device = module.isa.device
    return _emit(module, text=device is not None and device.text)


def _emit(module: Module, *, text: bool) -> bytes:
    isa, optimized = module.isa, _optimize(module)
    if isa.device is not None and isa.device.apart:
        return emit_apart.run(str(optimized), _triple(isa), isa.cpu, isa.feature_string, text=text)
    machine = _target_machine(isa)
    if text:
        return str(machine.emit_assembly(optimized)).encode()
    return bytes(machine.emit_object(optimized))


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
    build = f"{recipe.build.__module__}.{recipe.build.__qualname__}"
    target = f"{recipe.isa!r} {_triple(recipe.isa)}"
    text = "\n".join([_generator_version(), build, repr(recipe.conf), target])
    return hashlib.sha256(text.encode()).hexdigest()


def image(recipe: Recipe) -> tuple[Image, bool]:
    """The recipe's machine code, and whether it came from the disk cache."""
    disk, dump = _disk_cache(), config.get("jit_dump")
    name = key(recipe)
    found = None if disk is None or dump else disk.load(name)
    if found is not None:
        return found, True
    kernel = recipe.kernel()
    built = Image(recipe.isa.target, _code(kernel.module), kernel.phases, kernel.arguments)
    if disk is not None:
        disk.store(name, built)
    if dump:
        _dump(kernel, built.code)
    return built, False


def _disk_cache() -> DiskCache | None:
    folder, limit = config.get("cache_dir"), config.get("cache_limit")
    return DiskCache(folder, limit * 2**20) if folder is not None and limit else None


def _dump(kernel: Kernel, code: bytes) -> None:
    """Write IR, assembly and object of a kernel to the current folder, if it can be written."""
    name = kernel.phases[-1].symbol
    number = next(_dumped)
    stem = f"dnnl_dump_{kernel.module.isa.target}_{name}.{number}"
    try:
        Path(f"{stem}.ll").write_text(str(kernel.module))
        Path(f"{stem}.s").write_text(assembly(kernel.module))
        Path(f"{stem}.o").write_bytes(code)
    except OSError as error:
        if log.enabled("warn"):
            log.line("common", "warn", f"kernel dump {stem}: {error}")
