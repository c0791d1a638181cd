"""Products of square matrices, row-major and in the layouts that the library wants."""

from __future__ import annotations

import numpy as np

import dnnl
from bench.agreement import check
from bench.alternate import Contender, Effort, measure
from bench.context import SEED, Context, threads_text
from bench.convolutions import peak_target, peer_names
from bench.machine import PEAK, peak_contender
from bench.ours import OURS, Operation
from bench.peers import ONEDNN, PYTORCH, Peers
from bench.peers import onednn_library as c
from bench.report import Column, Report, Row, Table
from dnnl import Arg

SIZES = (512, 1024)
LAYOUTS = {"plain": "ab", "any": "any"}

COLUMNS = (
    Column("size", "M = K = N", "d"),
    Column("layout", "layout"),
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
    "plain: all three matrices row-major, packing included; any: layouts of each library's own "
    "choice. PyTorch knows plain ones only. Otherwise as for convolutions."
)


def run(context: Context, report: Report) -> None:
    """A table for each thread count."""
    effort = context.effort(rounds=7, turn=0.08)
    for num_threads in context.each_thread_count():
        peak = peak_contender(context.engine, num_threads)
        rows = [
            _row(context, size, layout, num_threads, peak, effort)
            for size in SIZES
            for layout in LAYOUTS
        ]
        name = f"matmul 512^3 and 1024^3, {threads_text(num_threads)}: part of the peak"
        target = peak_target(
            name, [(f"{row['size']} {row['layout']}", row["peak"]) for row in rows]
        )
        title = f"Matrix products, f32, {threads_text(num_threads)}"
        report.add(Table(title, NOTE, COLUMNS, rows), [target])


def _row(
    context: Context, size: int, layout: str, num_threads: int, peak: Contender, effort: Effort
) -> Row:
    rng = np.random.default_rng(SEED)
    src, weights = (rng.standard_normal((size, size), np.float32) for _ in range(2))
    matrix = dnnl.MemoryDesc((size, size), "f32", LAYOUTS[layout])
    operation = Operation(dnnl.MatmulDesc(matrix, matrix, matrix), context.engine, num_threads)
    operation.load(Arg.SRC, src)
    operation.load(Arg.WEIGHTS, weights)
    ours = operation.bind()
    ours()
    dst = operation.read(Arg.DST)
    flops = 2.0 * size**3
    contenders = [Contender(OURS, ours, flops), peak]
    peers: Peers = context.peers
    peer_impl = None
    if peers.onednn is not None:
        peer = peers.onednn.matmul(size, size, size, LAYOUTS[layout])
        peer.load(c.ARG_SRC, src)
        peer.load(c.ARG_WEIGHTS, weights)
        theirs = peer.bind()
        theirs()
        check(f"matmul {size} {layout}", dst, peer.read(c.ARG_DST), ONEDNN)
        contenders.append(Contender(ONEDNN, theirs, flops))
        peer_impl = peer.impl_info
    if peers.pytorch is not None and layout == "plain":
        call = peers.pytorch.matmul(src, weights)
        check(f"matmul {size} {layout}", dst, call().numpy(), PYTORCH)
        contenders.append(Contender(PYTORCH, call, flops))
    result = measure(contenders, effort)
    return {
        "size": size,
        "layout": layout,
        "us": result.median(OURS) * 1e6,
        "gflops": result.rate(OURS) / 1e9,
        "best": result.best_rate(OURS) / 1e9,
        "peak": result.relative(OURS, PEAK),
        "impl": operation.pd.impl_info,
        "peer_impl": peer_impl,
        **{name: result.relative(OURS, name) for name in peer_names(result)},
    }
