"""Normalizations and pooling, forward and backward: memory passes, compared with oneDNN."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bench import summary
from bench.contest import OURS, Contest, read
from bench.context import Context, threads_text
from bench.peers import ONEDNN
from bench.report import Column, Report, Row
from bench.summary import Limit
from dnnl import Unimplemented
from dnnl.tools.bench.cases import Case
from dnnl.tools.measure import Effort

UNIMPLEMENTED = "unimplemented"
BEST = "best "


@dataclass(frozen=True, slots=True)
class Group:
    """An operation: its driver, the direction of its backward pass, and what both measure."""

    title: str
    driver: str
    backward: str
    tokens: tuple[str, ...]

    def cases(self, direction: str) -> list[Case]:
        """The cases of one direction."""
        return read(self.driver, f"--dir={direction}", *self.tokens)


FORWARD = "FWD_D"
GROUPS = (
    Group(
        "Layer normalization", "lnorm", "BWD_DW",
        ("--flags=CH", "--batch=shapes_ci", "8x128x768", "32x512x1024", "512x4096"),
    ),
    Group(
        "Batch normalization, training", "bnorm", "BWD_DW",
        ("--flags=CH", "--tag=abx,axb", "--batch=shapes_ci", "mb16ic64ih112", "mb16ic256ih56",
         "mb16ic512ih28", "mb16ic2048ih7"),
    ),
    Group(
        "LRN", "lrn", "BWD_D",
        ("--tag=abx,axb", "--batch=shapes_ci", "mb16ic96ih55", "mb16ic256ih27"),
    ),
    Group(
        "Softmax", "softmax", "BWD_D",
        ("--axis=1", "--batch=shapes_ci", "--batch=shapes_2d", "64x32000",
         "--axis=3", "16x12x128x128"),
    ),
    Group(
        "Pooling", "pool", "BWD_D",
        ("--tag=abx,axb", "--alg=max", "--batch=shapes_2d", "--batch=shapes_nets",
         "--alg=avg_np", "--batch=shapes_2d"),
    ),
)  # fmt: skip
"""The lists of ``dnnl bench``, and shapes of BERT, GPT, ResNet-50 and AlexNet."""
LIMITS = (Limit(ONEDNN, f"rate / {ONEDNN}", mean=1.3),)

COLUMNS = (
    Column("case", "case"),
    Column("us", "us", ".2f"),
    Column("gbs", "GB/s", ".1f"),
    Column("peer_gbs", ONEDNN, ".1f"),
    Column(ONEDNN, f"/ {ONEDNN}", ".2f"),
    Column(BEST + ONEDNN, "best", ".2f"),
    Column("impl", "implementation"),
    Column("peer_impl", "its implementation"),
)
NOTE = (
    f"GB/s counts the bytes of all tensors once. / {ONEDNN}: our rate in units of its own, the "
    "median of all rounds; best: of the fastest samples."
)


def run(context: Context, report: Report) -> None:
    """A table for each operation, direction and thread count."""
    effort = context.effort(rounds=5, turn=0.02)
    for group in GROUPS:
        for name, direction in (("forward", FORWARD), ("backward", group.backward)):
            cases = [case for case in group.cases(direction) if context.only.search(case.line)]
            for num_threads in context.threads if cases else ():
                rows = [_row(context, case, num_threads, effort) for case in cases]
                title = f"{group.title}, {name}, {threads_text(num_threads)}"
                note = NOTE + _missing(rows)
                summary.add(context, report, title, note, COLUMNS, rows, LIMITS)


def _row(context: Context, case: Case, num_threads: int, effort: Effort) -> Row:
    row = {"case": re.sub(r"--dir=\S+ ", "", case.line)}
    try:
        contest = Contest(context, case, num_threads, (ONEDNN,))
    except Unimplemented as error:
        return {**row, "impl": UNIMPLEMENTED, "refusal": str(error)}
    result = contest.measure(effort)
    figures: dict[str, str | float | None] = {
        "us": result.median(OURS) * 1e6,
        "gbs": contest.bytes / result.median(OURS) / 1e9,
    }
    if ONEDNN in result.samples:
        figures["peer_gbs"] = contest.bytes / result.median(ONEDNN) / 1e9
        figures[ONEDNN] = result.relative(OURS, ONEDNN)
        figures[BEST + ONEDNN] = result.best_rate(OURS) / result.best_rate(ONEDNN)
    return {**row, **contest.described(), **figures}


def _missing(rows: Sequence[Row]) -> str:
    count = sum(row["impl"] == UNIMPLEMENTED for row in rows)
    return f" {count} of {len(rows)} cases are not implemented." if count else ""
