"""Reorders as cases: a tensor into another layout or type, compared with a copy and oneDNN."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench import summary
from bench.contest import OURS, Contest, read
from bench.context import Context, threads_text
from bench.peers import ONEDNN
from bench.report import Column, Report
from bench.summary import Limit
from dnnl.tools.bench.cases import Case
from dnnl.tools.machine import COPY, Copies
from dnnl.tools.measure import Effort, Measurement

Cells = dict[str, str | float | None]
BEST = "best "
"""Before the name of a ratio: that of the fastest samples, not of the rounds."""

COLUMNS = (
    Column("case", "case"),
    Column("ms", "ms", ".3f"),
    Column("gbs", "GB/s", ".1f"),
    Column("best", "best", ".1f"),
    Column("copy_gbs", "copy", ".1f"),
    Column(COPY, "of copy", ".0%"),
    Column(BEST + COPY, "best", ".0%"),
    Column("peer_gbs", ONEDNN, ".1f"),
    Column(ONEDNN, f"/ {ONEDNN}", ".2f"),
    Column(BEST + ONEDNN, "best", ".2f"),
    Column("peer_impl", "its implementation"),
)
NOTE = (
    "GB/s counts the bytes of src and dst. The copy is numpy.copyto of as many, split over the "
    f"threads. of copy, / {ONEDNN}: our rate in units of theirs, the median of all rounds; best: "
    "of the fastest samples."
)


@dataclass(frozen=True, slots=True)
class Move:
    """A reorder of a tensor between two pairs of a type and a tag; ``attributes`` are options of
    ``dnnl bench``."""

    name: str
    dims: tuple[int, ...]
    src: tuple[str, str]
    dst: tuple[str, str]
    attributes: tuple[str, ...] = ()

    @property
    def case(self) -> Case:
        """The case that it is."""
        (types, tags) = zip(self.src, self.dst, strict=True)
        ends = (f"--sdt={types[0]}", f"--ddt={types[1]}", f"--stag={tags[0]}", f"--dtag={tags[1]}")
        (case,) = read("reorder", *ends, *self.attributes, "x".join(map(str, self.dims)))
        return case


def add_tables(
    context: Context,
    report: Report,
    what: str,
    moves: Sequence[Move],
    limits: Sequence[Limit],
    effort: Effort,
) -> list[tuple[str, list[Cells]]]:
    """Measure what is asked for of ``moves``, a table for each thread count; titles and rows."""
    added = []
    chosen = [move for move in moves if context.only.search(move.name)]
    for num_threads in context.threads if chosen else ():
        title = f"{what}, {threads_text(num_threads)}"
        rows = _rows(context, chosen, num_threads, effort)
        summary.add(context, report, title, NOTE, COLUMNS, rows, limits)
        added.append((title, rows))
    return added


def _rows(context: Context, moves: Sequence[Move], num_threads: int, effort: Effort) -> list[Cells]:
    copies = Copies(num_threads)
    try:
        return [_row(context, move, num_threads, copies, effort) for move in moves]
    finally:
        copies.close()


def _row(context: Context, move: Move, num_threads: int, copies: Copies, effort: Effort) -> Cells:
    contest = Contest(context, move.case, num_threads, (ONEDNN,))
    copy = copies.contender(contest.bytes // 2, context.engine)
    result = contest.measure(effort, copy)
    return {"case": move.name, **contest.described(), **_cells(result)}


def _cells(result: Measurement) -> Cells:
    cells: Cells = {
        "ms": result.median(OURS) * 1e3,
        "gbs": result.rate(OURS) / 1e9,
        "best": result.best_rate(OURS) / 1e9,
        "copy_gbs": result.rate(COPY) / 1e9,
    }
    for name in (COPY, ONEDNN):
        if name in result.samples:
            cells[name] = result.relative(OURS, name)
            cells[BEST + name] = result.best_rate(OURS) / result.best_rate(name)
    if ONEDNN in result.samples:
        cells["peer_gbs"] = result.rate(ONEDNN) / 1e9
    return cells
