"""What the tables of compute-bound operations share: rates, and parts of the multiply-add peak."""

from __future__ import annotations

from collections.abc import Sequence

from bench.contest import OURS, Contest
from bench.context import Context
from bench.peers import ONEDNN, PYTORCH
from bench.report import Column, Row, Target
from dnnl.tools.bench.cases import Case
from dnnl.tools.machine import PEAK
from dnnl.tools.measure import Contender, Effort, Measurement

LIMIT = 0.85

COLUMNS = (
    Column("us", "us", ".0f"),
    Column("gflops", "GFLOP/s", ".1f"),
    Column("best", "best", ".1f"),
    Column("peak", "of peak", ".0%"),
    Column(ONEDNN, f"/ {ONEDNN}", ".2f"),
    Column(PYTORCH, f"/ {PYTORCH}", ".2f"),
    Column("impl", "implementation"),
    Column("peer_impl", ONEDNN),
)
NOTE = (
    "Rates at the median time; best is the fastest sample. of peak: of a multiply-add loop on "
    "registers, alternating with the rest. / peer: our rate in units of the peer's."
)


def measured(
    context: Context,
    case: Case,
    num_threads: int,
    peers: Sequence[str],
    ceiling: Contender,
    effort: Effort,
) -> tuple[Row, Measurement]:
    """What a row says of a case measured alternately with ``peers`` and the peak."""
    contest = Contest(context, case, num_threads, peers)
    result = contest.measure(effort, ceiling)
    return {**contest.described(), **cells(result)}, result


def cells(result: Measurement) -> Row:
    """The columns that a measurement of ours, the peak and peers fills."""
    return {
        "us": result.median(OURS) * 1e6,
        "gflops": result.rate(OURS) / 1e9,
        "best": result.best_rate(OURS) / 1e9,
        "peak": result.relative(OURS, PEAK),
        **{name: result.relative(OURS, name) for name in peer_names(result)},
    }


def peer_names(*results: Measurement) -> list[str]:
    """The peers among the contenders of every measurement."""
    return [n for n in (ONEDNN, PYTORCH) if all(n in result.samples for result in results)]


def target(name: str, parts: Sequence[tuple[str, float]], limit: float = LIMIT) -> Target:
    """The target for the slowest of several parts of the peak; the detail counts who reach it."""
    slowest, lowest = min(parts, key=lambda part: part[1])
    reached = sum(part >= limit for _, part in parts)
    detail = f"{reached} of {len(parts)} reach it; lowest: {slowest}"
    return Target(f"{name}: part of the peak", lowest, limit, detail=detail)
