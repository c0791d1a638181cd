"""Products of square matrices, row-major and in the layouts that the library wants."""

from __future__ import annotations

import numpy as np

import dnnl
from bench import products
from bench.agreement import check
from bench.context import SEED, Context, threads_text
from bench.operation import enter
from bench.ours import OURS, OurOperation
from bench.peers import ONEDNN, PYTORCH
from bench.report import Column, Report, Row, Table
from dnnl import Arg
from dnnl.tools.bench.machine import PEAK, peak
from dnnl.tools.bench.measure import Contender, Effort, Measurement, measure

SIZES = (512, 1024)
LAYOUTS = {"plain": "ab", "any": "any"}

COLUMNS = (Column("size", "M = K = N", "d"), Column("layout", "layout"), *products.COLUMNS)
NOTE = (
    f"{products.NOTE} plain: all three matrices row-major, packing included; any: layouts of each "
    "library's own choice, and PyTorch has none."
)


def run(context: Context, report: Report) -> None:
    """A table for each thread count."""
    effort = context.effort(rounds=7, turn=0.08)
    for num_threads in context.each_thread_count():
        ceiling = peak(context.engine, num_threads)
        rows, parts = [], []
        for size in SIZES:
            for layout in LAYOUTS:
                row, result = _measured(context, size, layout, num_threads, ceiling, effort)
                rows.append(row)
                parts.append((f"{size} {layout}", result.relative(OURS, PEAK)))
        title = f"Matrix products, f32, {threads_text(num_threads)}"
        name = f"matmul 512^3 and 1024^3, {threads_text(num_threads)}"
        report.add(Table(title, NOTE, COLUMNS, rows), [products.target(name, parts)])


def _measured(
    context: Context, size: int, layout: str, num_threads: int, ceiling: Contender, effort: Effort
) -> tuple[Row, Measurement]:
    """The row of a product, once its result has been compared with the peers'."""
    rng = np.random.default_rng(SEED)
    tensors = {
        argument: rng.standard_normal((size, size), np.float32)
        for argument in (Arg.SRC, Arg.WEIGHTS)
    }
    flops = 2.0 * size**3
    matrix = dnnl.MemoryDesc((size, size), "f32", LAYOUTS[layout])
    desc = dnnl.MatmulDesc(matrix, matrix, matrix)
    operation = OurOperation(desc, context.engine, num_threads)
    ours, dst = enter(OURS, operation, tensors, flops)
    contenders = [ours, ceiling]
    what = f"matmul {size} {layout}"
    row: dict[str, str | float | None] = {"size": size, "layout": layout}
    row["impl"] = operation.impl_info
    peers = context.peers
    if peers.onednn is not None:
        peer = peers.onednn.operation(desc)
        theirs, expected = enter(ONEDNN, peer, tensors, flops)
        check(what, dst, expected, ONEDNN)
        contenders.append(theirs)
        row["peer_impl"] = peer.impl_info
    if peers.pytorch is not None and layout == "plain":
        call = peers.pytorch.matmul(*tensors.values())
        check(what, dst, call().numpy(), PYTORCH)
        contenders.append(Contender(PYTORCH, call, flops))
    result = measure(contenders, effort)
    row |= products.cells(result)
    return row, result
