"""``ptxas``: where it is, and what it says of the entry points of a kernel."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from itertools import starmap
from pathlib import Path

PACKAGE = "nvidia-cuda-nvcc"
ARCHITECTURES = ("sm_80", "sm_90")
ABSENT = f"there is no ptxas: install the package {PACKAGE}, or put CUDA's bin on the PATH"

_ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
_LOCAL = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


class Rejected(Exception):
    """ptxas does not assemble a kernel; the message is its own."""


@dataclass(frozen=True)
class Usage:
    """What an entry point uses: registers of a thread, and bytes of its stack, of the loads and
    stores that spill registers there, and of shared memory."""

    architecture: str
    entry: str
    registers: int
    stack: int
    spill_stores: int
    spill_loads: int
    shared: int

    @property
    def spills(self) -> int:
        """The bytes of spilled registers that the code stores and loads."""
        return self.spill_stores + self.spill_loads


@cache
def ptxas() -> Path | None:
    """The program: from the package, else from the PATH, else None."""
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        files = []
    programs = [Path(str(file.locate())) for file in files if file.name == "ptxas"]
    on_path = shutil.which("ptxas")
    return next(iter(programs), Path(on_path) if on_path else None)


def version() -> str:
    """The release of ptxas, such as V13.0.48."""
    found = re.search(r"V\d[\d.]*", _output("--version"))
    return found[0] if found else "unknown"


def assembled(file: Path, architecture: str) -> tuple[Usage, ...]:
    """Assemble the kernel of a file. Raises Rejected."""
    said = _output("--verbose", f"--gpu-name={architecture}", "--output-file=/dev/null", str(file))
    return usages(said)


def usages(said: str) -> tuple[Usage, ...]:
    """What a verbose output says of each entry point."""
    _, *parts = _ENTRY.split(said)
    return tuple(starmap(_usage, zip(*[iter(parts)] * 3, strict=True)))


def _usage(entry: str, architecture: str, text: str) -> Usage:
    local, registers, shared = (one.search(text) for one in (_LOCAL, _REGISTERS, _SHARED))
    assert local is not None, text
    assert registers is not None, text
    smem = int(shared[1]) if shared else 0
    stack, stores, loads = map(int, local.groups())
    return Usage(architecture, entry, int(registers[1]), stack, stores, loads, smem)


def _output(*arguments: str) -> str:
    program = ptxas()
    assert program is not None, ABSENT
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Rejected(done.stderr + done.stdout)
    return done.stdout + done.stderr
