"""Open sizes: the kernel of a description that leaves sizes to executions, beside that of one
size."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import geometric_mean
from tempfile import TemporaryDirectory
from time import process_time

from bench.contest import OURS, Contest, read
from bench.context import Context, threads_text
from bench.memory import LISTS
from bench.report import Column, Report, Row, Target
from dnnl import InvalidArguments, Primitive, Unimplemented, config
from dnnl.primitives import primitive
from dnnl.primitives.choice import CHOICES
from dnnl.tools.bench.cases import Case
from dnnl.tools.bench.creation import create
from dnnl.tools.bench.drivers import description
from dnnl.tools.measure import Contender, Effort

OPEN = "open"
GOAL = 0.85
_PRODUCTS = ("1x768:768x3072", "37x768:768x768", "128x768:768x3072", "512x3072:3072x768")
_IMAGES = ("8x64x56x56", "4x60x33x35", "16x3x112x112")
_NHWC = ("--dir=FWD_I", "--stag=axb", "--dtag=axb", "--mb=1")
_UPSAMPLED = (
    "ic512ih8oc256oh16kh4sh2ph1", "ic256ih16oc128oh32kh4sh2ph1", "ic128ih32oc64oh64kh4sh2ph1",
    "ic128ih28oc64oh56kh2sh2ph0", "ic64ih56oc32oh112kh2sh2ph0", "ic96ih40oc24oh80kh3sh2ph1",
)  # fmt: skip
_QUANTIZED = ("--dt=u8:s8:u8", "--attr-zero-points=src:common:3")
SUBJECTS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "ResNet-50, batch, height, width": (
        "conv", (*_NHWC, "--batch=shapes_resnet_50"), "batch+spatial",
    ),
    "MobileNetV2, batch, height, width": (
        "conv", (*_NHWC, "--batch=shapes_mobilenet_v2"), "batch+spatial",
    ),
    "ResNet-50 u8 s8 with zero points, batch, height, width": (
        "conv", (*_NHWC, *_QUANTIZED, "--batch=shapes_resnet_50"), "batch+spatial",
    ),
    "MobileNetV2 u8 s8, batch, height, width": (
        "conv", (*_NHWC, "--dt=u8:s8:u8", "--batch=shapes_mobilenet_v2"), "batch+spatial",
    ),
    "deconv f32 with ReLU, batch, height, width": (
        "deconv", (*_NHWC, "--attr-post-ops=relu", *_UPSAMPLED), "batch+spatial",
    ),
    "deconv u8 s8 with ReLU, batch, height, width": (
        "deconv", (*_NHWC, *_QUANTIZED, "--attr-post-ops=relu", *_UPSAMPLED), "batch+spatial",
    ),
    "matmul f32, rows": ("matmul", ("--wtag=any", *_PRODUCTS), "batch"),
    "matmul bf16, rows": ("matmul", ("--dt=bf16", "--wtag=any", *_PRODUCTS), "batch"),
    "matmul u8 s8, rows": ("matmul", ("--dt=u8:s8:f32", "--wtag=any", *_PRODUCTS), "batch"),
    "matmul f32, all sizes": ("matmul", ("--wtag=ab", *_PRODUCTS), "all"),
    "matmul bf16, all sizes": ("matmul", ("--dt=bf16", "--wtag=ab", *_PRODUCTS), "all"),
    "matmul u8 s8, all sizes": ("matmul", ("--dt=u8:s8:f32", "--wtag=ab", *_PRODUCTS), "all"),
    "reorder": ("reorder", ("--stag=abx,axb,aBx16b", "--dtag=abx,axb,aBx16b", *_IMAGES), "all"),
    **{
        path.name: (path.name, (f"--batch={path}",), "all")
        for path in sorted(LISTS.iterdir())
    },
}  # fmt: skip
"""What is open in which cases: the driver, its arguments, and the value of ``--open``."""

COLUMNS = (
    Column("subject", "cases"),
    Column("cases", "cases", "d"),
    Column("share", "share", ".2f"),
    Column("least", "least", ".2f"),
    Column("worst", "of"),
    Column("building", "building", ".2f"),
)
NOTE = (
    "share: the speed of the kernel for open sizes in units of the one for the size, by the least "
    "times, the geometric mean and the least. building: processor time to describe and generate "
    "it, in the same units."
)


def run(context: Context, report: Report) -> None:
    """A table for each thread count, a row for each list of cases."""
    for num_threads in context.threads:
        rows = [
            row
            for name in SUBJECTS
            if context.only.search(name)
            for row in _rows(context, name, num_threads)
        ]
        names = [name for name in SUBJECTS if any(row["subject"] == name for row in rows)]
        shown = [_summary(name, [row for row in rows if row["subject"] == name]) for name in names]
        title = f"Open sizes, {threads_text(num_threads)}"
        targets = [
            Target(f"{title}: {row['subject']}", share, GOAL)
            for row in shown
            if isinstance(share := row["share"], float)
        ]
        report.add(title, NOTE, COLUMNS, rows, targets, shown=shown)


def _rows(context: Context, name: str, num_threads: int) -> list[Row]:
    driver, arguments, opened = SUBJECTS[name]
    known = read(driver, *arguments)
    pairs = zip(known, read(driver, f"--open={opened}", *arguments), strict=True)
    effort = context.effort(rounds=5, turn=0.02)
    return [{"subject": name, **_row(context, pair, num_threads, effort)} for pair in pairs]


def _row(context: Context, pair: Sequence[Case], num_threads: int, effort: Effort) -> Row:
    row: Row = {"case": pair[0].line}
    try:
        (known, built), (opened, built_open) = (_built(context, case, num_threads) for case in pair)
    except (InvalidArguments, Unimplemented) as error:
        return {**row, "refusal": str(error)}
    # On the same memory: where a cache holds tensors, their places in pages decide more than code.
    bound = opened.primitive.bind(known.stream, known.memories)
    result = known.measure(effort, Contender(OPEN, bound, known.work))
    share = result.best(OURS) / result.best(OPEN)
    return {**row, "us": result.best(OURS) * 1e6, "share": share, "building": built_open / built}


def _built(context: Context, case: Case, num_threads: int) -> tuple[Contest, float]:
    """A case, and the processor time that its kernel took, which nobody had before."""
    CHOICES.clear()
    primitive._cache.clear()
    kind = description(case.driver)
    assert kind is not None
    with TemporaryDirectory() as folder, config.override("cache_dir", folder):
        started = process_time()
        Primitive(create(case, kind).pd)
        seconds = process_time() - started
        return Contest(context, case, num_threads), seconds


def _summary(name: str, rows: Sequence[Row]) -> Row:
    shares = {row["case"]: own for row in rows if isinstance(own := row.get("share"), float)}
    ratios = [own for row in rows if isinstance(own := row.get("building"), float)]
    made: Row = {"subject": name, "cases": len(shares), "share": None}
    if shares:
        worst = min(shares, key=lambda case: shares[case])
        mean, building = geometric_mean(shares.values()), geometric_mean(ratios)
        found = {"share": mean, "least": shares[worst], "worst": worst, "building": building}
        return {**made, **found}
    return made
