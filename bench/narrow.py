"""Products of bf16 and of bytes, as a part of the peak of the instruction that multiplies them."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import geometric_mean

from bench import products
from bench.contest import OURS, read
from bench.context import Context, threads_text
from bench.peers import ONEDNN, PYTORCH
from bench.report import Column, Report, Row, Target
from dnnl import DataType
from dnnl.tools.machine import PEAK, peak


@dataclass(frozen=True, slots=True)
class Kind:
    """The types of src, weights and dst, and the part of the peak that large squares should
    reach."""

    src: DataType
    weights: DataType
    dst: DataType
    limit: float

    @property
    def name(self) -> str:
        """``bf16``, ``u8 x s8``."""
        pair = (self.src.name, self.weights.name)
        return pair[0] if pair[0] == pair[1] else " x ".join(pair)


KINDS = (
    Kind(DataType.bf16, DataType.bf16, DataType.bf16, 0.85),
    Kind(DataType.u8, DataType.s8, DataType.s32, 0.8),
)
SQUARES = tuple((size, size, size) for size in (512, 1024, 2048))
THIN = ((64, 768, 768), (1, 4096, 4096))
"""M, K, N: what a layer of a transformer multiplies; the second reads each weight for one row."""

COLUMNS = (Column("types", "types"), Column("sizes", "M x K x N"), *products.COLUMNS)
NOTE = (
    f"{products.NOTE} src and dst row-major, weights in a layout of each library's own choice. The "
    "peak is that of the instruction that our kernel takes on this machine."
)


def run(context: Context, report: Report) -> None:
    """A table for each thread count."""
    effort = context.effort(rounds=7, turn=0.08)
    for num_threads in context.threads:
        rows: list[Row] = []
        targets = []
        threads = threads_text(num_threads)
        ratios: list[float] = []
        for kind in KINDS:
            ceiling = peak(context.engine, num_threads, kind.src, kind.weights)
            parts = []
            for sizes in (*SQUARES, *THIN):
                m, k, n = sizes
                types = f"--dt={kind.src}:{kind.weights}:{kind.dst}"
                tags = ("--stag=ab", "--wtag=any", "--dtag=ab")
                (case,) = read("matmul", types, *tags, f"{m}x{k}:{k}x{n}")
                row, result = products.measured(
                    context, case, num_threads, (ONEDNN, PYTORCH), ceiling, effort
                )
                shown = " x ".join(map(str, sizes))
                rows.append({"types": kind.name, "sizes": shown, **row})
                if sizes in SQUARES:
                    parts.append((shown, result.relative(OURS, PEAK)))
                elif ONEDNN in result.samples:
                    ratios.append(result.relative(OURS, ONEDNN))
            name = f"matmul {kind.name}, 512^3 to 2048^3, {threads}"
            targets.append(products.target(name, parts, kind.limit))
        mean = geometric_mean(ratios) if ratios else None
        name = f"matmul bf16 and u8 x s8, few rows, {threads}: rate / {ONEDNN}, geometric mean"
        targets.append(Target(name, mean, 1.0, detail=f"{len(ratios)} cases"))
        report.add(f"Matrix products, narrow types, {threads}", NOTE, COLUMNS, rows, targets)
