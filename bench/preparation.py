"""How long a model takes to be ready, in a first process and in one that finds its kernels on disk.

``python -m bench.preparation MODEL ENGINE`` prepares a model once and prints the seconds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

from bench.contest import WrongResult
from bench.context import Context
from bench.models import JUDGED, light_model
from bench.report import Column, Report, Row, Target
from dnnl import Engine

LIMIT = 5.0
ROUNDS = 3

COLUMNS = (
    Column("round", "round"),
    Column("first", "first process s", ".3f"),
    Column("second", "second process s", ".3f"),
    Column("ratio", "first / second", ".1f"),
    Column("kernels", "kernels on disk", "d"),
    Column("kib", "KiB", ".0f"),
)
NOTE = (
    "Preparation: passes, lowering, kernels, constants into their layouts; reading the file and "
    "starting Python are not in it. Each round begins with an empty folder for kernels."
)


def run(context: Context, report: Report) -> None:
    """One table, a row for each pair of processes."""
    rows = [_round(str(number + 1)) for number in range(1 if context.quick else ROUNDS)]
    ratio = median(value for row in rows if isinstance(value := row["ratio"], float))
    target = Target(f"preparation of {JUDGED}: first process / second", ratio, LIMIT)
    report.add(f"Preparation of {JUDGED}", NOTE, COLUMNS, rows, [target])


def _round(name: str) -> Row:
    with tempfile.TemporaryDirectory(prefix="dnnl-bench-") as folder:
        first, second = seconds_in_process(folder), seconds_in_process(folder)
        sizes = [entry.stat().st_size for entry in Path(folder).iterdir()]
    return {
        "round": name,
        "first": first,
        "second": second,
        "ratio": first / second,
        "kernels": len(sizes),
        "kib": sum(sizes) / 1024,
    }


def seconds_in_process(folder: str, engine: str = "cpu") -> float:
    """The seconds that a process of its own takes with kernels in ``folder``."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.preparation", JUDGED, engine],
        env={**os.environ, "DNNL_CACHE_DIR": folder},
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise WrongResult(f"preparation failed in a process of its own:\n{done.stderr}")
    return float(done.stdout)


def _prepare(name: str, kind: str) -> float:
    """The seconds that compiling a model takes in this process."""
    model = light_model(name).with_batch(1)
    engine = Engine(kind)
    started = perf_counter()
    model.compile(engine)
    return perf_counter() - started


if __name__ == "__main__":
    print(_prepare(*sys.argv[1:]))
