"""``python -m bench``: every subject in turn, then which targets were reached."""

from __future__ import annotations

import json
import platform
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter

import click
from rich.console import Console
from rich.text import Text

from bench import (
    conversions,
    convolutions,
    layouts,
    load,
    matmuls,
    models,
    narrow,
    normalizations,
    odd,
    overhead,
    peers,
    preparation,
    small,
)
from bench.contest import WrongResult
from bench.context import Context
from bench.report import Report
from dnnl import Engine, __version__
from dnnl.errors import Error
from dnnl.primitives.primitive_desc import select_isa
from dnnl.runtime.threads import available_cpus
from dnnl.tools.bench.machine import peaks
from dnnl.tools.measure import Effort, measure

SUBJECTS: dict[str, Callable[[Context, Report], None]] = {
    "convolutions": convolutions.run,
    "matmuls": matmuls.run,
    "narrow": narrow.run,
    "normalizations": normalizations.run,
    "layouts": layouts.run,
    "conversions": conversions.run,
    "odd": odd.run,
    "small": small.run,
    "models": models.run,
    "overhead": overhead.run,
    "preparation": preparation.run,
}
FAILED = 1
PIPE_WIDTH = 160
NOISE = 0.1
"""From so many cpus of others on, figures are not to be trusted."""


class _ThreadCounts(click.ParamType[tuple[int, ...]]):
    name = "1,2"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        try:
            counts = tuple(int(text) for text in str(value).replace(",", " ").split())
        except ValueError:
            counts = ()
        if not counts or min(counts) < 1:
            self.fail(f"{value!r} is no list of numbers of threads, such as 1,2", param, ctx)
        return counts


class _Pattern(click.ParamType[re.Pattern[str]]):
    name = "regex"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> re.Pattern[str]:
        try:
            return re.compile(str(value))
        except re.error as error:
            self.fail(f"{value!r} is no regular expression: {error}", param, ctx)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("subjects", nargs=-1, type=click.Choice(list(SUBJECTS)))
@click.option("--quick", is_flag=True, help="Little time for each figure: to see that all works.")
@click.option(
    "--only",
    type=_Pattern(),
    default="",
    help="Reorders and normalizations whose names contain this.",
)
@click.option("--full", is_flag=True, help="Print all cases, not only the worst of many.")
@click.option("--threads", type=_ThreadCounts(), help="Thread counts; by default 1 and 2.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write all figures.")
def main(
    subjects: Sequence[str],
    quick: bool,
    only: re.Pattern[str],
    full: bool,
    threads: tuple[int, ...] | None,
    json_file: Path | None,
) -> None:
    """Measure speed beside the machine's limits, oneDNN, PyTorch and ONNX Runtime.

    All SUBJECTS are measured unless some are named.

    Exits with 1 where a result is wrong or a subject fails; a missed target is no failure.
    """
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=PIPE_WIDTH, no_color=True)
    counts = threads or tuple(n for n in (1, 2) if n <= available_cpus())
    context = Context(Engine("cpu"), peers.find(), counts, quick, only, full)
    report = Report(console)
    started, before = perf_counter(), load.snapshot()
    facts = _facts(context)
    for name, value in facts.items():
        console.print(Text(f"{name:<13} {value}"))
    failures = _run(
        context, report, [name for name in SUBJECTS if not subjects or name in subjects]
    )
    if only.pattern and not report.tables:
        console.print(Text(f"\nno case of these subjects has {only.pattern!r} in its name"))
    report.print_targets()
    others = _others(before)
    console.print()
    console.print(_closing(perf_counter() - started, others))
    if json_file is not None:
        document = {
            "machine": facts,
            "quick": quick,
            "threads": counts,
            "cpus_of_others": others,
            "failures": failures,
            **report.as_json(),
        }
        json_file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    sys.exit(FAILED if failures else 0)


def _facts(context: Context) -> dict[str, str]:
    """What figures depend on: versions, machine, its peak now."""
    isa = select_isa(context.engine)
    cpu = context.engine.features.cpu
    facts = {
        "dnnl": f"{__version__}, {isa.name}",
        "machine": f"{platform.machine()} {cpu}, {available_cpus()} cpus, {platform.system()}",
        "python": platform.python_version(),
    }
    facts.update(context.peers.versions)
    facts.update({name: f"missing ({why})" for name, why in context.peers.missing.items()})
    for num_threads in context.threads:
        products = peaks(context.engine, num_threads)
        found = measure(list(products.values()), Effort(3, 0.05))
        rates = ", ".join(f"{found.best_rate(name) / 1e9:.1f} of {name}" for name in products)
        facts[f"peak, {num_threads} thr"] = f"GFLOP/s: {rates}"
    return facts


def _run(context: Context, report: Report, names: Sequence[str]) -> dict[str, str]:
    """Run subjects; those that fail, with the reason."""
    failures = {}
    progress = Console(stderr=True)
    for name in names:
        try:
            if progress.is_terminal:
                with progress.status(name):
                    SUBJECTS[name](context, report)
            else:
                SUBJECTS[name](context, report)
        except (WrongResult, Error) as error:
            failures[name] = str(error)
            report.console.print(Text(f"\n{name} failed: {error}", style="bold red"))
    return failures


def _others(before: load.Snapshot | None) -> float | None:
    after = load.snapshot()
    return load.cpus_of_others(before, after) if before and after else None


def _closing(seconds: float, others: float | None) -> Text:
    """How long it took, and whether the machine was quiet."""
    text = Text(f"{seconds:.0f} s")
    if others is None:
        return text
    text.append(f"; other processes kept {others:.2f} cpus busy meanwhile")
    if others > NOISE:
        text.append(": repeat this on a quiet machine before you trust it", style="yellow")
    return text


if __name__ == "__main__":
    main()
