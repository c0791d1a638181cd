"""ResNet-50's convolutions with bias and relu, as a part of the multiply-add peak."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import fmean

from bench import products
from bench.contest import OURS, read
from bench.context import Context, threads_text
from bench.peers import ONEDNN, PYTORCH
from bench.report import Column, Report, Row, Target
from dnnl.tools.bench.cases import Case
from dnnl.tools.machine import PEAK, peak
from dnnl.tools.measure import Measurement

BATCH = 1
LAYOUTS = {"": "any", ", nchw": "nchw"}
"""The layout of src and dst by what titles say of it: the library's own choice goes without."""
PLAIN_LIMIT = 0.7
OPTIONS = ("--dir=FWD_I", "--bia-dt=f32", "--attr-post-ops=relu")

COLUMNS = (
    Column("layer", "layer"),
    Column("count", "n", "d"),
    Column("sizes", "ic x ih -> oc x oh"),
    Column("kernel", "kernel"),
    *products.COLUMNS,
)
NOTE = (
    f"{products.NOTE} Products with padding are excluded. n: how often the network has the "
    "layer, which weights the last line."
)


def layers(batch: int = BATCH, tag: str = "any") -> list[Case]:
    """The network's convolutions; src and dst have the layout ``tag``, weights any."""
    tags = (f"--stag={tag}", f"--dtag={tag}")
    return read("conv", *OPTIONS, *tags, f"--mb={batch}", "--batch=shapes_resnet_50")


def named(case: Case) -> tuple[str, int]:
    """The layer's name, and how often the network has it."""
    found = re.fullmatch(r'"resnet_50:([^*]*)(?:\*(\d+))?"', case.sizes.name)
    assert found is not None
    return found[1], int(found[2] or 1)


def run(context: Context, report: Report) -> None:
    """A table for each layout of src and dst and each thread count."""
    for layout, tag in LAYOUTS.items():
        for num_threads in context.threads:
            _add_table(context, report, layout, layers(tag=tag), num_threads)


def _add_table(
    context: Context, report: Report, layout: str, cases: Sequence[Case], num_threads: int
) -> None:
    effort = context.effort(rounds=7, turn=0.02)
    ceiling = peak(context.engine, num_threads)
    rows: list[Row] = []
    weighted: list[tuple[int, Measurement]] = []
    parts = []
    for case in cases:
        row, result = products.measured(
            context, case, num_threads, (ONEDNN, PYTORCH), ceiling, effort
        )
        name, count = named(case)
        rows.append({**row, "layer": name, "count": count, **sizes_of(case)})
        weighted.append((count, result))
        parts.append((name, result.relative(OURS, PEAK)))
    rows.append(_total(weighted))
    threads = threads_text(num_threads)
    title = f"ResNet-50 convolutions{layout}, f32, batch {BATCH}, {threads}"
    if layout:
        mean = fmean(part for _, part in parts)
        name = f"ResNet-50 convolutions{layout}, {threads}: part of the peak, mean"
        target = Target(name, mean, PLAIN_LIMIT, detail=f"{len(parts)} layers")
    else:
        target = products.target(f"each ResNet-50 convolution, {threads}", parts)
    report.add(title, NOTE, COLUMNS, rows, [target])


def sizes_of(case: Case) -> Row:
    """What a row says of the sizes of a layer."""
    sizes = case.sizes
    stride = f" / {sizes['sh']}" if sizes["sh"] > 1 else ""
    return {
        "sizes": f"{sizes['ic']} x {sizes['ih']} -> {sizes['oc']} x {sizes['oh']}",
        "kernel": f"{sizes['kh']}x{sizes['kw']}{stride}",
    }


def _total(weighted: list[tuple[int, Measurement]]) -> Row:
    """All layers as often as the network has them."""

    def seconds(name: str) -> float:
        return sum(count * result.median(name) for count, result in weighted)

    flops = sum(count * result.work[OURS] for count, result in weighted)
    at_peak = sum(count * result.work[OURS] / result.rate(PEAK) for count, result in weighted)
    names = products.peer_names(*(result for _, result in weighted))
    return {
        "layer": "all",
        "count": sum(count for count, _ in weighted),
        "us": seconds(OURS) * 1e6,
        "gflops": flops / seconds(OURS) / 1e9,
        "peak": at_peak / seconds(OURS),
        **{name: seconds(name) / seconds(OURS) for name in names},
    }
