"""One subject on so many threads, in a process of its own: a peer counts its threads once.

``python -m bench`` starts it; its instruction sets are limited by the environment.
"""

from __future__ import annotations

import json
import platform
import re
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

from rich.console import Console
from rich.text import Text

from bench import (
    conversions,
    convolutions,
    devices,
    gradients,
    layouts,
    load,
    matmuls,
    memory,
    models,
    narrow,
    normalizations,
    odd,
    overhead,
    peers,
    preparation,
    sizes,
    small,
)
from bench.contest import WrongResult
from bench.context import Context
from bench.report import Report
from dnnl import Engine, __version__
from dnnl.errors import Error
from dnnl.primitives.primitive_desc import select_isa
from dnnl.runtime.threads import available_cpus
from dnnl.tools.machine import peaks
from dnnl.tools.measure import Effort, measure

SUBJECTS: dict[str, Callable[[Context, Report], None]] = {
    "convolutions": convolutions.run,
    "gradients": gradients.run,
    "matmuls": matmuls.run,
    "narrow": narrow.run,
    "memory": memory.run,
    "normalizations": normalizations.run,
    "layouts": layouts.run,
    "conversions": conversions.run,
    "odd": odd.run,
    "small": small.run,
    "sizes": sizes.run,
    "models": models.run,
    "overhead": overhead.run,
    "preparation": preparation.run,
    "devices": devices.run,
}
THREADLESS = frozenset(("overhead", "preparation"))
"""What is measured once, whatever the number of threads."""
NOISE = 0.1
"""From so many cpus of others on, figures are not to be trusted."""
PIPE_WIDTH = 200


@dataclass(frozen=True)
class Unit:
    """What is measured: a subject on so many threads, at an instruction set or the best one."""

    subject: str
    threads: int
    isa: str
    peers: tuple[str, ...]
    quick: bool
    only: str
    full: bool

    @property
    def name(self) -> str:
        """``odd, 2 threads, avx2``."""
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        return ", ".join(filter(None, (self.subject, threads, self.isa)))

    def document(self) -> dict[str, object]:
        """What a file of figures says of it; figures of another version are other figures."""
        return {**asdict(self), "peers": list(self.peers), "version": __version__}


def console_for_output() -> Console:
    """One that breaks no lines of a file."""
    console = Console(highlight=False)
    if console.is_terminal:
        return console
    return Console(highlight=False, width=PIPE_WIDTH, no_color=True)


def run(unit: Unit, path: Path) -> None:
    """Print what is measured, and write all of it to a file."""
    found = peers.find(unit.threads, unit.peers)
    only = re.compile(unit.only)
    context = Context(Engine("cpu"), found, (unit.threads,), unit.quick, only, unit.full)
    console = console_for_output()
    report = Report(console, context.peers.versions, f", {unit.isa}" if unit.isa else "")
    facts = _facts(context)
    console.print(Text(f"\n== {unit.name}", style="bold"))
    for name, value in facts.items():
        console.print(Text(f"{name:<15} {value}"))
    started, before, failure = perf_counter(), load.snapshot(), ""
    try:
        SUBJECTS[unit.subject](context, report)
    except (WrongResult, Error) as error:
        failure = str(error)
        console.print(Text(f"\n{unit.subject} failed: {error}", style="bold red"))
    after = load.snapshot()
    others = load.cpus_of_others(before, after) if before and after else None
    seconds = perf_counter() - started
    console.print(_closing(seconds, others))
    document = {
        "unit": unit.document(),
        "machine": facts,
        "seconds": seconds,
        "cpus_of_others": others,
        "failure": failure,
        **report.as_json(),
    }
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _facts(context: Context) -> dict[str, str]:
    """What figures depend on: versions, machine, its peak now."""
    isa = select_isa(context.engine)
    cpu = context.engine.features.cpu
    facts = {
        "dnnl": f"{__version__}, {isa.name}",
        "machine": f"{platform.machine()} {cpu}, {available_cpus()} cpus, {platform.system()}",
        "python": platform.python_version(),
        **context.peers.versions,
        **{name: f"missing ({why})" for name, why in context.peers.missing.items()},
    }
    for num_threads in context.threads:
        products = peaks(context.engine, num_threads)
        found = measure(list(products.values()), Effort(3, 0.05))
        rates = ", ".join(f"{found.best_rate(name) / 1e9:.1f} of {name}" for name in products)
        facts[f"peak, {num_threads} thr"] = f"GFLOP/s: {rates}"
    return facts


def _closing(seconds: float, others: float | None) -> Text:
    """How long it took, and whether the machine was quiet."""
    text = Text(f"{seconds:.0f} s")
    if others is None:
        return text
    text.append(f"; other processes used {others:.2f} cpus meanwhile")
    if others > NOISE:
        text.append(": repeat this on a quiet machine before you trust it", style="yellow")
    return text


if __name__ == "__main__":
    values = json.loads(sys.argv[1])
    run(Unit(**{**values, "peers": tuple(values["peers"])}), Path(sys.argv[2]))
