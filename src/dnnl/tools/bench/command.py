"""``dnnl bench``: the benchdnn language."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dnnl.language.errors import BadValue
from dnnl.tools.bench.cases import Case, Interpreter
from dnnl.tools.bench.execute import Executor
from dnnl.tools.bench.page import write_page
from dnnl.tools.bench.report import Report
from dnnl.tools.bench.result import Result, State
from dnnl.tools.bench.verbose_line import case_tokens
from dnnl.tools.page import check_packages

FAILED = 1
SKIPPED_START = "Skip-start option hit"


@click.command(
    context_settings={"ignore_unknown_options": True},
    options_metavar="[--json FILE] [--report FILE] [GLOBAL]...",
)
@click.option(
    "--json", type=click.Path(path_type=Path), metavar="FILE", help="Write all results as JSON."
)
@click.option(
    "--report",
    "page",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write a page with a table of all results and plots of what was measured.",
)
@click.option(
    "--verbose-line", metavar="LINE", help="Run the primitive of a verbose line, ours or oneDNN's."
)
@click.argument("tokens", nargs=-1, type=click.UNPROCESSED, metavar="--DRIVER [OPTION|PROBLEM]...")
def bench(
    json: Path | None, page: Path | None, verbose_line: str | None, tokens: tuple[str, ...]
) -> int:
    """Run cases of a primitive, written as for oneDNN's benchdnn.

    \b
    dnnl bench --softmax --stag=abx,axb --axis=1 8x1000 2x19x17x13
    dnnl bench --mode=P --conv --dir=FWD_I mb1ic64ih56oc64oh56kh3ph1
    dnnl bench --mode=L --reorder --batch=test_reorder_ci
    dnnl bench --engine=sycl --conv ic16ih7oc32kh3ph1

    Options stay until they change; a problem runs at once for every combination of them. Modes
    are C (check against the reference), L (list), I (create), R (execute), P and F (measure), S
    (execute once) and B (compare two executions bit by bit). Engines are those of dnnl info, and
    gpu is the first GPU of any kind. Exit status 1 says that a case failed, is not implemented or
    has a bad value, 2 that an option does not exist.
    """
    return run(tokens, json, page, verbose_line)


def run(
    tokens: Sequence[str],
    json: Path | None = None,
    page: Path | None = None,
    verbose_line: str | None = None,
) -> int:
    """Run the cases of a command line, print what came of them, return the exit status.

    ``verbose_line`` replaces a driver with its options and a problem.
    """
    executor, started = Executor(), perf_counter()
    report = Report(keep=json is not None or page is not None)
    try:
        for option, path in (("json", json), ("report", page)):
            if path is not None and not path.parent.is_dir():
                raise BadValue(f"--{option}={path}: there is no folder {path.parent}")
            if path is not None and path.is_dir():
                raise BadValue(f"--{option}={path}: this is a folder; give the name of a file")
        if page is not None:
            check_packages("--report")
        if verbose_line is not None:
            tokens = [*tokens, *case_tokens(verbose_line)]
        with _progress(tokens) as (echo, advance):
            for case in Interpreter().cases(tokens):
                for line in report.add(case, _outcome(executor, case, report.tests)):
                    echo(line)
                advance()
    except BadValue as error:
        print(f"dnnl bench: error: {error}", file=sys.stderr)
        return error.status
    seconds = perf_counter() - started
    print("\n".join(report.summary(seconds, executor.phases)))
    if json is not None:
        report.write(json, seconds)
    if page is not None:
        write_page(page, report, tokens, seconds)
    return FAILED if report.failed else 0


def _outcome(executor: Executor, case: Case, number: int) -> Result:
    if number < case.settings.start:
        return Result(State.SKIPPED, SKIPPED_START)
    return executor.run(case)


@contextmanager
def _progress(
    tokens: Sequence[str],
) -> Iterator[tuple[Callable[[str], None], Callable[[], None]]]:
    """A bar on a terminal. Yields what prints a line above it, and what moves it on by one case."""
    piped = not sys.stdout.isatty()
    console = Console(stderr=piped, highlight=False)
    if not console.is_terminal:
        yield print, lambda: None
        return
    columns = (TextColumn("bench"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True, redirect_stdout=not piped)
    with bar:
        task = bar.add_task("cases", total=_count(tokens))
        yield print if piped else partial(_above, console), lambda: bar.advance(task)


def _above(console: Console, line: str) -> None:
    """Print a line as it is: one that is broken cannot be pasted."""
    console.print(line, markup=False, soft_wrap=True)


def _count(tokens: Sequence[str]) -> int:
    """The number of cases, up to an error if there is one."""
    count = 0
    try:
        for _ in Interpreter().cases(tokens):
            count += 1
    except BadValue:
        pass
    return count
