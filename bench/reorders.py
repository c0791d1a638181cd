"""Changes of layout, beside a copy of the same bytes."""

from __future__ import annotations

import numpy as np

import dnnl
from bench.agreement import check
from bench.alternate import Contender, Effort, measure
from bench.context import SEED, Context, threads_text
from bench.machine import COPY, Copies
from bench.operation import Values, enter
from bench.ours import OURS, OurOperation
from bench.peers import ONEDNN
from bench.report import Column, Report, Row, Table, Target
from dnnl import Arg

DIMS = (16, 256, 56, 56)

TAGS = {"nchw": "abcd", "nhwc": "acdb", "nChw16c": "aBcd16b"}
"""The layouts, and how oneDNN's function for tags in letters spells them."""

LIMITS = {
    ("nchw", "nChw16c"): 36.4 / 48,
    ("nchw", "nhwc"): 18.5 / 48,
    ("nhwc", "nchw"): 15.1 / 48,
}
"""What oneDNN 3.14 made of a copy's rate where the targets were set, one thread. Between other
layouts the oneDNN of the same run is the target."""

COLUMNS = (
    Column("src", "src"),
    Column("dst", "dst"),
    Column("ms", "ms", ".2f"),
    Column("gbs", "GB/s", ".1f"),
    Column("best", "best", ".1f"),
    Column("copy_gbs", "copy GB/s", ".1f"),
    Column(COPY, "of copy", ".0%"),
    Column("peer_copy", f"{ONEDNN} of copy", ".0%"),
    Column(ONEDNN, f"/ {ONEDNN}", ".2f"),
    Column("peer_impl", ONEDNN),
)
NOTE = "GB/s counts bytes read and written. The copy is numpy.copyto, split over the threads."


def run(context: Context, report: Report) -> None:
    """A table for each thread count."""
    effort = context.effort(rounds=7, turn=0.06)
    array = np.random.default_rng(SEED).standard_normal(DIMS, np.float32)
    pairs = [(src, dst) for src in TAGS for dst in TAGS if src != dst]
    for num_threads in context.each_thread_count():
        copies = Copies(num_threads)
        copy = copies.contender(array.nbytes, context.engine)
        rows = [_row(context, array, pair, num_threads, copy, effort) for pair in pairs]
        copies.close()
        targets = [_target(row, pair, num_threads) for row, pair in zip(rows, pairs, strict=True)]
        sizes = "x".join(map(str, DIMS))
        title = f"Reorders, f32, {sizes}, {threads_text(num_threads)}"
        report.add(Table(title, NOTE, COLUMNS, rows), targets)


def _row(
    context: Context,
    array: Values,
    pair: tuple[str, str],
    num_threads: int,
    copy: Contender,
    effort: Effort,
) -> Row:
    src, dst = (dnnl.MemoryDesc(DIMS, "f32", tag) for tag in pair)
    operation = OurOperation(dnnl.ReorderDesc(src, dst), context.engine, num_threads)
    ours, moved = enter(OURS, operation, {Arg.SRC: array}, copy.work)
    name = f"reorder {pair[0]} -> {pair[1]}"
    check(name, moved, array, "its source")
    contenders = [ours, copy]
    peer_impl = None
    if context.peers.onednn is not None:
        peer = context.peers.onednn.reorder(DIMS, *(TAGS[tag] for tag in pair))
        theirs, expected = enter(ONEDNN, peer, {Arg.SRC: array}, copy.work)
        check(name, moved, expected, ONEDNN)
        contenders.append(theirs)
        peer_impl = peer.impl_info
    result = measure(contenders, effort)
    compared = context.peers.onednn is not None
    return {
        "src": pair[0],
        "dst": pair[1],
        "ms": result.median(OURS) * 1e3,
        "gbs": result.rate(OURS) / 1e9,
        "best": result.best_rate(OURS) / 1e9,
        "copy_gbs": result.rate(COPY) / 1e9,
        COPY: result.relative(OURS, COPY),
        "peer_copy": result.relative(ONEDNN, COPY) if compared else None,
        ONEDNN: result.relative(OURS, ONEDNN) if compared else None,
        "peer_impl": peer_impl,
    }


def _target(row: Row, pair: tuple[str, str], num_threads: int) -> Target:
    name = f"reorder {pair[0]} -> {pair[1]}, {threads_text(num_threads)}"
    if pair in LIMITS:
        value = row[COPY]
        limit, what = LIMITS[pair], f"{name}: part of a copy"
    else:
        value = row[ONEDNN]
        limit, what = 1.0, f"{name}: rate / {ONEDNN}"
    return Target(what, value if isinstance(value, float) else None, limit)
