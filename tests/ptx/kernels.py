"""The kernels of the replayed cases as PTX, and what ``ptxas`` says of each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from dnnl.codegen import isa
from dnnl.codegen.compile import jit
from tests.ptx.assembler import ARCHITECTURES, Rejected, Usage, assembled
from tests.replay.cases import cases
from tests.replay.generate import CHUNK, REFUSALS, REFUSED, digest_of, recipe

(ROW,) = (row for row in isa.DEVICES if row.target == "ptx")


@dataclass(frozen=True)
class Kernel:
    """A kernel: the first case that it is of, its file, and what its entry points use on each
    architecture, or what ``ptxas`` says against it."""

    line: str
    file: Path
    usages: tuple[Usage, ...] = ()
    rejection: str = ""

    @property
    def operation(self) -> str:
        """The driver of the case."""
        return operation(self.line)


def operation(line: str) -> str:
    """The driver of a case."""
    return line.split(maxsplit=1)[0].removeprefix("--")


def lines() -> list[str]:
    """All cases that are replayed, whatever their targets."""
    return list(dict.fromkeys(case.line for case in cases()))


def written(folder: Path, line: str) -> str:
    """The name of the kernel of a case, whose PTX is written; ``refused: ...`` if it has none."""
    try:
        image, _ = jit.image(recipe(ROW.name, line))
    except REFUSALS as error:
        return f"{REFUSED}{error}"
    name = digest_of(image.code.decode())
    (folder / f"{name}.ptx").write_bytes(image.code)
    return name


def judged(folder: Path, line: str, name: str) -> Kernel:
    """What ``ptxas`` says of the kernel of a case."""
    file = folder / f"{name}.ptx"
    try:
        usages = [usage for sm in ARCHITECTURES for usage in assembled(file, sm)]
    except Rejected as rejection:
        return Kernel(line, file, rejection=str(rejection))
    return Kernel(line, file, tuple(usages))


def kernels(folder: Path, asked: Sequence[str]) -> tuple[list[Kernel], list[str]]:
    """The kernels of some cases, each once, and why others have none."""
    folder.mkdir(parents=True, exist_ok=True)
    workers = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        names = list(pool.map(partial(written, folder), asked, chunksize=CHUNK))
    first: dict[str, str] = {}
    for line, name in zip(asked, names, strict=True):
        if not name.startswith(REFUSED):
            first.setdefault(name, line)
    with ThreadPoolExecutor(workers) as threads:
        found = list(threads.map(partial(judged, folder), first.values(), first))
    return found, [name for name in names if name.startswith(REFUSED)]
