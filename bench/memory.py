"""Lists of operations that are bound by memory, at sizes of BERT and ResNet-50."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import geometric_mean

from bench.contest import OURS, Contest, read
from bench.context import Context, threads_text
from bench.peers import ONEDNN, PYTORCH
from bench.report import Column, Report, Row
from dnnl import Unimplemented
from dnnl.tools.bench.cases import Case
from dnnl.tools.measure import Effort

LISTS = Path(__file__).parent / "lists"
PEERS = (ONEDNN, PYTORCH)
LEAST = "least "

COLUMNS = (
    Column("list", "list"),
    Column("cases", "cases", "d"),
    *(
        column
        for peer in PEERS
        for column in (
            Column(peer, f"/ {peer}", ".2f"),
            Column(LEAST + peer, "least", ".2f"),
            Column(f"cases {peer}", "of", "d"),
        )
    ),
)
NOTE = (
    "/ peer: our rate in units of the peer's by the least times, the geometric mean and the least "
    "of so many cases; the others it does not have, or it starts them for longer than they take."
)


def run(context: Context, report: Report) -> None:
    """A table for each thread count, a row for each list."""
    effort = context.effort(rounds=5, turn=0.02)
    paths = [path for path in sorted(LISTS.iterdir()) if context.only.search(path.name)]
    for num_threads in context.threads if paths else ():
        found = {path.name: _cases(context, path, num_threads, effort) for path in paths}
        shown = [_summary(name, rows) for name, rows in found.items()]
        rows = [row for several in found.values() for row in several]
        title = f"Operations bound by memory, {threads_text(num_threads)}"
        report.add(title, NOTE, COLUMNS, rows, shown=shown)


def _cases(context: Context, path: Path, num_threads: int, effort: Effort) -> list[Row]:
    cases = read(path.name, f"--batch={path}")
    return [_row(context, path.name, case, num_threads, effort) for case in cases]


def _row(context: Context, name: str, case: Case, num_threads: int, effort: Effort) -> Row:
    row = {"list": name, "case": case.line}
    try:
        contest = Contest(context, case, num_threads, PEERS)
    except Unimplemented as error:
        return {**row, "refusal": str(error)}
    result = contest.measure(effort)
    best = {peer: result.best_rate(peer) for peer in PEERS if peer in result.samples}
    ratios = {peer: result.best_rate(OURS) / rate for peer, rate in best.items()}
    return {**row, "us": result.best(OURS) * 1e6, **contest.described(), **ratios}


def _summary(name: str, rows: Sequence[Row]) -> Row:
    summary: dict[str, str | float | None] = {"list": name, "cases": len(rows)}
    for peer in PEERS:
        ratios = [value for row in rows if isinstance(value := row.get(peer), float)]
        summary[f"cases {peer}"] = len(ratios)
        if ratios:
            summary |= {peer: geometric_mean(ratios), LEAST + peer: min(ratios)}
    return summary
