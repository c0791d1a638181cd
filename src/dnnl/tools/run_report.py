"""What ``dnnl run`` found out, as tables and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dnnl.framework.plan import Layer
from dnnl.tools.difference import F32, Difference, Tolerance
from dnnl.tools.quantized_difference import Steps

PIPE_WIDTH = 160
"""Columns of a table that goes into a file: wide enough not to break a line."""
NARROW = 100
"""Terminal columns below which the table omits layouts and implementations."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A peer's times, and the differences of our outputs from its own; ``steps`` are those of the
    bytes of a quantized model, whose outputs follow from the peer's bytes then. ``constant`` names
    the outputs where each has one value on both sides, whatever the inputs."""

    peer: str
    times_ms: Sequence[float]
    differences: Sequence[Difference]
    steps: Steps | None = None
    constant: Sequence[str] = ()

    @property
    def relative_error(self) -> float:
        """The largest one of all outputs."""
        return max((d.relative for d in self.differences), default=0.0)

    @property
    def is_equal(self) -> bool:
        """Whether no difference is too large."""
        steps = self.steps is None or self.steps.is_equal
        return steps and all(d.is_equal for d in self.differences)

    @property
    def agrees(self) -> bool:
        """Whether the outputs are equal, and not merely constant."""
        return self.is_equal and not self.constant

    def as_json(self) -> dict[str, object]:
        """The comparison as values that JSON has."""
        document = {
            "peer": self.peer,
            "inference_ms": median(self.times_ms),
            "times_ms": list(self.times_ms),
            "relative_error": _finite(self.relative_error),
            "equal": self.is_equal,
            "constant": list(self.constant),
        }
        return document if self.steps is None else {**document, "steps": asdict(self.steps)}


@dataclass(frozen=True, slots=True)
class Report:
    """One ``dnnl run``; times are in milliseconds, one for each repetition.

    ``layer_times_ms`` has the median of each layer from runs that time every step;
    ``times_ms`` are those of runs that do not. ``notes`` name the defaults that were used.
    ``nbytes`` is the memory of activations and constants, ``activation_nbytes`` that of the former.
    """

    model: str
    settings: Mapping[str, object]
    layers: Sequence[Layer]
    layer_times_ms: Sequence[float]
    load_ms: float
    prepare_ms: float
    times_ms: Sequence[float]
    comparison: Comparison | None = None
    expected: Sequence[Difference] = ()
    notes: Sequence[str] = ()
    activation_nbytes: int = 0
    nbytes: int = 0
    tolerance: Tolerance = F32

    @property
    def gflop(self) -> float:
        """The arithmetic of all layers, in 10**9 operations."""
        return sum(layer.flops for layer in self.layers) / 1e9

    @property
    def agrees(self) -> bool:
        """Whether every comparison that was made found the results equal, and proves it."""
        compared = self.comparison is None or self.comparison.agrees
        return compared and all(d.is_equal for d in self.expected)

    def as_json(self) -> dict[str, object]:
        """The report as values that JSON has."""
        document: dict[str, object] = {
            "model": self.model,
            **self.settings,
            "notes": list(self.notes),
            "load_ms": self.load_ms,
            "prepare_ms": self.prepare_ms,
            "inference_ms": median(self.times_ms),
            "times_ms": list(self.times_ms),
            "tolerance": str(self.tolerance),
            "activation_bytes": self.activation_nbytes,
            "bytes": self.nbytes,
            "gflop": self.gflop,
            "gflop_per_s": gflop_per_s(self.gflop, median(self.times_ms)),
            "layers": [
                {
                    "name": layer.name,
                    "primitive": layer.primitive,
                    "implementation": layer.implementation,
                    "layouts": dict(layer.layouts),
                    "fused": list(layer.fused),
                    "ms": time,
                    "gflop": layer.flops / 1e9,
                    "gflop_per_s": gflop_per_s(layer.flops / 1e9, time),
                }
                for layer, time in zip(self.layers, self.layer_times_ms, strict=True)
            ],
        }
        if self.comparison:
            document["comparison"] = self.comparison.as_json()
        if self.expected:
            document["expected"] = {
                "relative_error": _finite(max(d.relative for d in self.expected)),
                "equal": all(d.is_equal for d in self.expected),
            }
        return document


def _finite(value: float) -> float | None:
    """``value``, or None where JSON has no number for it."""
    return value if math.isfinite(value) else None


def gflop_per_s(gflop: float, time_ms: float) -> float:
    """A rate, 0 where the work is unknown."""
    return gflop / time_ms * 1e3 if gflop and time_ms else 0.0


def console_for_output() -> Console:
    """Standard output; what is not a terminal gets wide lines and no colours."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=PIPE_WIDTH, no_color=True)
    return console


def print_report(console: Console, report: Report) -> None:
    """Print the table of layers, the totals and the comparisons."""
    console.print(_layer_table(report, narrow=console.width < NARROW))
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, min_width=len("preparation"))
    table.add_column(overflow="fold")
    for name, text in totals(report).items():
        table.add_row(name, Text(text))
    console.print(table)
    for remark in remarks(report):
        console.print(remark, markup=False)


def _layer_table(report: Report, *, narrow: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    layouts = () if narrow else ("src", "weights", "dst")
    described = ("primitive",) if narrow else ("primitive", "implementation", *layouts)
    for title in ("layer", *described):
        table.add_column(title, no_wrap=True, overflow="ellipsis")
    rates = [gflop_per_s(layer.flops / 1e9, time) for layer, time in _timed(report)]
    numbers = {
        "ms": [f"{time:.3f}" for _, time in _timed(report)],
        "GFLOP/s": [f"{rate:.1f}" if rate else "" for rate in rates],
    }
    for title, texts in numbers.items():
        width = max(map(len, (title, *texts)))
        table.add_column(title, justify="right", no_wrap=True, min_width=width)
    for (layer, _), *texts in zip(_timed(report), *numbers.values(), strict=True):
        fused = f" +{len(layer.fused)}" if layer.fused else ""
        what = (layer.primitive,) if narrow else (layer.primitive, layer.implementation)
        table.add_row(
            Text(f"{layer.name}{fused}"),  # as the file has it: brackets are no markup
            *what,
            *(layer.layouts.get(name, "") for name in layouts),
            *texts,
        )
    return table


def _timed(report: Report) -> list[tuple[Layer, float]]:
    return list(zip(report.layers, report.layer_times_ms, strict=True))


def totals(report: Report) -> dict[str, str]:
    """The totals of a run, by name."""
    time = median(report.times_ms)
    runs = f"median of {len(report.times_ms)}, best {min(report.times_ms):.3f} ms"
    memory = f"{report.activation_nbytes / 1e6:.1f} MB of activations"
    return {
        "model": report.model,
        "settings": ", ".join(f"{name} {value}" for name, value in report.settings.items()),
        "load": f"{report.load_ms:.1f} ms",
        "preparation": f"{report.prepare_ms:.1f} ms",
        "memory": f"{memory}, {report.nbytes / 1e6:.1f} MB with constants",
        "tolerance": str(report.tolerance),
        "inference": f"{time:.3f} ms ({runs}), {gflop_per_s(report.gflop, time):.1f} GFLOP/s",
    }


def remarks(report: Report) -> list[str]:
    """The notes, and the results of ``--expect`` and ``--compare``."""
    lines = list(report.notes)
    for difference in report.expected:
        lines.append(
            f"output as expected: largest relative error {_errors(difference)}"
            if difference.is_equal
            else f"output differs from what is expected: {difference}"
        )
    if report.comparison:
        lines += _compared(report, report.comparison)
    return lines


def _errors(difference: Difference) -> str:
    """The error of the worst element, and of the whole where that is judged as well."""
    found = f"{difference.relative:.3g}"
    if math.isfinite(difference.tolerance.norm):
        found += f", of the norm {difference.norm:.3g}"
    return found


def _compared(report: Report, comparison: Comparison) -> Iterator[str]:
    ours, theirs = median(report.times_ms), median(comparison.times_ms)
    worst = max(comparison.differences, key=lambda difference: difference.relative)
    yield (
        f"{comparison.peer}: {theirs:.3f} ms, {theirs / ours:.2f} times our time; "
        f"largest relative error {_errors(worst)}"
    )
    if comparison.steps is not None:
        differs = "" if comparison.steps.is_equal else f"differs from {comparison.peer}: "
        yield f"{differs}{comparison.steps}"
    for difference in comparison.differences:
        if not difference.is_equal:
            yield f"differs from {comparison.peer}: {difference}"
    if comparison.constant:
        names = ", ".join(comparison.constant)
        what = f"{names} has one value everywhere on both sides, whatever the inputs"
        yield f"the comparison proves nothing: {what}"
