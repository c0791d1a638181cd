"""The kernels of one revision: a program that is started in a checkout of it.

It reads cases as JSON from the standard input, ``[[target, line], ...]``, and writes to the folder
in its argument each kernel as ``HASH.ll`` and, in ``index.json``, the hash of each case, or why
there is none.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path

from dnnl import Engine, config
from dnnl.codegen import isa
from dnnl.codegen.ir.kernel import Recipe
from dnnl.errors import Error
from dnnl.language.errors import BadValue, UnknownOption
from dnnl.runtime.backend import Features
from dnnl.tools.bench.cases import Interpreter
from dnnl.tools.bench.creation import create
from dnnl.tools.bench.drivers import description

CHUNK = 8
REFUSED = "refused: "
REFUSALS = (Error, BadValue, UnknownOption)


def written(folder: Path, case: Sequence[str]) -> str:
    """The hash of the kernel of a case, whose text is written; ``refused: ...`` if it has none."""
    try:
        text = str(recipe(*case).kernel().module)
    except REFUSALS as error:
        return f"{REFUSED}{error}"
    digest = digest_of(text)
    (folder / f"{digest}.ll").write_text(text, encoding="utf-8")
    return digest


def recipe(target: str, line: str) -> Recipe:
    """The kernel that a case has for a target. Raises one of ``REFUSALS`` if it has none."""
    limit = "default" if target in _devices() else target
    (parsed,) = Interpreter().cases(line.split())
    kind = description(parsed.driver)
    assert kind is not None
    with config.override("max_cpu_isa", limit):
        return create(parsed, kind, _engine(target)).pd.plan.recipe


def digest_of(text: str) -> str:
    """The name of a kernel: a hash of its text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def _devices() -> dict[str, isa.Isa]:
    return {row.name: row for row in isa.DEVICES}


@cache
def _engine(target: str) -> Engine:
    """An engine that takes the code of a target; caches are the same on every machine."""
    row = _devices().get(target)
    if row is None:
        return Engine("null")
    return Engine("null", features=Features(row.arch, row.cpu, frozenset(row.features)))


def main() -> None:
    """Write all cases, by as many processes as there are processors."""
    folder = Path(sys.argv[1])
    cases = json.load(sys.stdin)
    processes = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        hashes = list(pool.map(partial(written, folder), cases, chunksize=CHUNK))
    (folder / "index.json").write_text(json.dumps(hashes), encoding="utf-8")


if __name__ == "__main__":
    main()
