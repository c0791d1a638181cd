"""The gradients of ResNet-50's convolutions by data and by weights, as a part of the peak."""

from __future__ import annotations

from statistics import geometric_mean

from bench import convolutions, products
from bench.contest import OURS, read
from bench.context import Context, threads_text
from bench.peers import ONEDNN, PYTORCH
from bench.report import Report, Row, Target
from dnnl import DataType
from dnnl.tools.bench.cases import Case
from dnnl.tools.machine import peak

BATCH = 16
DIRECTIONS = {"by data": "BWD_D", "by weights": "BWD_W"}
_BATCH = ("--batch=shapes_resnet_50",)
_COLORS = 3
TYPES = (DataType.f32, DataType.bf16)
NOTE = (
    f"{products.NOTE} Activations and weights in layouts of each library's own choice. Products "
    "with padding are excluded."
)


def layers(direction: str, kind: DataType) -> list[Case]:
    """The gradients of the network's convolutions; nobody asks for that of its input."""
    cases = read("conv", f"--dir={direction}", f"--dt={kind}", f"--mb={BATCH}", *_BATCH)
    return [case for case in cases if direction == "BWD_W" or case.sizes["ic"] > _COLORS]


def run(context: Context, report: Report) -> None:
    """A table for each type, direction and thread count."""
    for num_threads in context.threads:
        for kind in TYPES:
            for name, direction in DIRECTIONS.items():
                _add_table(context, report, name, layers(direction, kind), num_threads)


def _add_table(
    context: Context, report: Report, name: str, cases: list[Case], num_threads: int
) -> None:
    kind = cases[0].part("dt", 0)
    effort = context.effort(rounds=5, turn=0.05)
    ceiling = peak(context.engine, num_threads, kind, kind)
    rows: list[Row] = []
    ratios: list[float] = []
    for case in cases:
        row, result = products.measured(
            context, case, num_threads, (ONEDNN, PYTORCH), ceiling, effort
        )
        layer, count = convolutions.named(case)
        rows.append({**row, "layer": layer, "count": count, **convolutions.sizes_of(case)})
        if ONEDNN in result.samples:
            ratios.append(result.relative(OURS, ONEDNN))
    threads = threads_text(num_threads)
    title = f"ResNet-50 convolutions {name}, {kind}, batch {BATCH}, {threads}"
    mean = geometric_mean(ratios) if ratios else None
    target = Target(f"{title}: rate / {ONEDNN}, geometric mean", mean, 1.0, detail=f"{len(ratios)}")
    report.add(title, NOTE, convolutions.COLUMNS, rows, [target])
