"""Reorders of tensors so small that the call counts: our call compared with oneDNN's C function.

The peer is the build for OpenMP: a call of the newest one queues, which takes longer than this.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from bench import summary
from bench.contest import Contest
from bench.context import Context, threads_text
from bench.moves import Cells, Move
from bench.overhead import BOUND, EXECUTE
from bench.peers import ONEDNN_OPENMP
from bench.report import Column, Report, Target
from dnnl import Arg
from dnnl.tools.measure import Contender

SIZES = (
    (1, 16, 4, 4),
    (2, 17, 5, 3),
    (1, 16, 8, 8),
    (1, 64, 8, 8),
    (3, 30, 13, 11),
    (1, 64, 16, 16),
)
"""From 1 to 64 KiB of f32, some that no block divides."""
PAIRS = (
    ("f32", "nchw", "f32", "nchw"),
    ("f32", "nchw", "f32", "nhwc"),
    ("f32", "nhwc", "f32", "nchw"),
    ("f32", "nchw", "f32", "nChw16c"),
    ("f32", "nChw16c", "f32", "nhwc"),
    ("f32", "nchw", "s8", "nhwc"),
)
LIMIT = 3.0

ABOVE = " above"
COLUMNS = (
    Column("case", "case"),
    Column("kib", "KiB", ".1f"),
    Column(ONEDNN_OPENMP, f"{ONEDNN_OPENMP} us", ".2f"),
    Column(f"best {ONEDNN_OPENMP}", "best", ".2f"),
    Column(EXECUTE, "execute us", ".2f"),
    Column(f"best {EXECUTE}", "best", ".2f"),
    Column(EXECUTE + ABOVE, "above it", ".2f"),
    Column(BOUND, "bound us", ".2f"),
    Column(f"best {BOUND}", "best", ".2f"),
    Column(BOUND + ABOVE, "above it", ".2f"),
    Column("peer_impl", "its implementation"),
)
NOTE = (
    f"Microseconds of one execution. {ONEDNN_OPENMP}: dnnl_primitive_execute through ctypes with "
    "its arguments ready; execute: Primitive.execute; bound: a call of what Primitive.bind "
    "returned. KiB counts the source. Above: the median difference over all rounds."
)


def run(context: Context, report: Report) -> None:
    """A table for each thread count."""
    chosen = [move for move in cases() if context.only.search(move.name)]
    for num_threads in context.threads if chosen else ():
        title = f"Small reorders, {threads_text(num_threads)}"
        rows = sorted((_row(context, move, num_threads) for move in chosen), key=_lag)
        targets = [_target(title, rows, name) for name in (EXECUTE, BOUND)]
        shown, note = summary.worst(context, rows, NOTE)
        report.add(title, note, COLUMNS, rows, targets, shown)


def cases() -> Iterator[Move]:
    """Every pair in every size; s8 with a scale."""
    for dims in SIZES:
        for src_type, src_tag, dst_type, dst_tag in PAIRS:
            types = src_type if src_type == dst_type else f"{src_type} -> {dst_type}"
            name = f"{types} {src_tag} -> {dst_tag} {'x'.join(map(str, dims))}"
            scales = ("--attr-scales=dst:common:0.5",) if dst_type == "s8" else ()
            yield Move(name, dims, (src_type, src_tag), (dst_type, dst_tag), scales)


def _row(context: Context, move: Move, num_threads: int) -> Cells:
    contest = Contest(context, move.case, num_threads, (ONEDNN_OPENMP,))
    execute = partial(contest.primitive.execute, contest.stream, contest.memories)
    contenders = [Contender(EXECUTE, execute), Contender(BOUND, contest.bind())]
    result = contest.compare(contenders, context.effort(rounds=7, turn=0.01))
    kib = contest.memories[Arg.SRC].desc.size / 1024
    row: Cells = {"case": move.name, "kib": kib, **contest.described(ONEDNN_OPENMP)}
    for name in result.samples:
        row[name], row[f"best {name}"] = result.median(name) * 1e6, result.best(name) * 1e6
        if ONEDNN_OPENMP in result.samples and name != ONEDNN_OPENMP:
            row[name + ABOVE] = result.difference(name, ONEDNN_OPENMP) * 1e6
    return row


def _lag(row: Cells) -> float:
    """How much longer the slower of our calls takes than the peer's."""
    return max(
        (value for name in (EXECUTE, BOUND) if isinstance(value := row.get(name + ABOVE), float)),
        default=float("-inf"),
    )


def _target(title: str, rows: Sequence[Cells], name: str) -> Target:
    lags = [
        (value, str(row["case"]))
        for row in rows
        if isinstance(value := row.get(name + ABOVE), float)
    ]
    slowest, case = max(lags, default=(None, ""))
    reached = sum(lag <= LIMIT for lag, _ in lags)
    detail = f"{reached} of {len(lags)} reach it; slowest: {case}" if lags else ""
    text = f"{title}: {name}, time above {ONEDNN_OPENMP}'s C call"
    return Target(text, slowest, LIMIT, at_least=False, unit=" us", detail=detail)
