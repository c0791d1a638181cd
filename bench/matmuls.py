"""Products of square matrices, row-major and in the layouts that the library wants."""

from __future__ import annotations

from bench import products
from bench.contest import OURS, read
from bench.context import Context, threads_text
from bench.peers import ONEDNN, PYTORCH
from bench.report import Column, Report, Row
from dnnl.tools.machine import PEAK, peak

SIZES = (512, 1024)
LAYOUTS = {"plain": "ab", "any": "any"}
PEERS = {"plain": (ONEDNN, PYTORCH), "any": (ONEDNN,)}

COLUMNS = (Column("size", "M = K = N", "d"), Column("layout", "layout"), *products.COLUMNS)
NOTE = (
    f"{products.NOTE} plain: all three matrices row-major, packing included; any: layouts of each "
    "library's own choice, and PyTorch has none."
)


def run(context: Context, report: Report) -> None:
    """A table for each thread count."""
    effort = context.effort(rounds=7, turn=0.08)
    for num_threads in context.threads:
        ceiling = peak(context.engine, num_threads)
        rows: list[Row] = []
        parts = []
        for size in SIZES:
            for layout, tag in LAYOUTS.items():
                tags = (f"--stag={tag}", f"--wtag={tag}", f"--dtag={tag}")
                (case,) = read("matmul", *tags, f"{size}x{size}:{size}x{size}")
                peers = PEERS[layout]
                row, result = products.measured(context, case, num_threads, peers, ceiling, effort)
                rows.append({"size": size, "layout": layout, **row})
                parts.append((f"{size} {layout}", result.relative(OURS, PEAK)))
        title = f"Matrix products, f32, {threads_text(num_threads)}"
        name = f"matmul 512^3 and 1024^3, {threads_text(num_threads)}"
        report.add(title, NOTE, COLUMNS, rows, [products.target(name, parts)])
