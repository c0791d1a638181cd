"""The doctor's report: a table, the worst layers first, and advice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dnnl.tools.quantcheck.errors import Error
from dnnl.tools.quantcheck.layer import LayerReport
from dnnl.tools.quantcheck.sums import PAIRS

_ROLES = ("src", "weights", "dst")


@dataclass(frozen=True, eq=False)
class Report:
    """All layers, those with the largest errors of their own first; of a model the errors of its
    outputs as well, by name."""

    subject: str
    layers: tuple[LayerReport, ...]
    outputs: tuple[tuple[str, Error], ...] = ()
    notes: tuple[str, ...] = ()

    @staticmethod
    def of(
        subject: str,
        layers: Sequence[LayerReport],
        outputs: Sequence[tuple[str, Error]] = (),
        notes: Sequence[str] = (),
    ) -> Report:
        """With the layers in order."""
        ordered = sorted(layers, key=lambda layer: -layer.own.relative)
        return Report(subject, tuple(ordered), tuple(outputs), tuple(notes))

    @property
    def is_healthy(self) -> bool:
        """Whether no scale should change."""
        return not any(layer.changes for layer in self.layers)

    def as_json(self) -> dict[str, object]:
        """The report as values that JSON has."""
        return {
            "subject": self.subject,
            "healthy": self.is_healthy,
            "outputs": {
                name: {"relative": error.relative, "largest": error.largest, "snr_db": error.snr}
                for name, error in self.outputs
            },
            "layers": [layer.as_json() for layer in self.layers],
            "notes": list(self.notes),
        }


def print_report(console: Console, report: Report) -> None:
    """Print the table and, below it, what to do about each layer that needs it."""
    console.print(_table(report))
    for name, error in report.outputs:
        console.print(f"output {name!r}: error {error} against f32", markup=False)
    for note in report.notes:
        console.print(note, markup=False)
    for layer in report.layers:
        sentences = list(layer.advice())
        if sentences:
            console.print(f"\n{layer.name} ({layer.operator})", markup=False)
        for sentence in sentences:
            console.print(Text(f"  {sentence}"), soft_wrap=True)
    worst = max(report.layers, key=_pairs, default=None)
    if worst is not None and worst.sums is not None and worst.sums.pair_overflow:
        count = sum(1 for layer in report.layers if _pairs(layer))
        console.print(
            f"\npairs of products leave s16 in {count} layers, most in {worst.name}: "
            f"{worst.sums.pair_overflow:.2%} of them, up to {worst.sums.pair_largest}, and up to "
            f"{worst.sums.pair_bound} with any src; {PAIRS}",
            markup=False,
            soft_wrap=True,
        )
    if report.is_healthy:
        console.print("no scale should change: none halves the noise of what it stores")


def _pairs(layer: LayerReport) -> float:
    return layer.sums.pair_overflow if layer.sums is not None else 0.0


def _table(report: Report) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("layer", "operator"):
        table.add_column(title, no_wrap=True, overflow="ellipsis")
    saturated = [f"{role} saturated" for role in _ROLES]
    for title in (
        *saturated,
        "pairs beyond s16",
        "largest sum of s32",
        "error",
        "dB",
        "so far, dB",
    ):
        table.add_column(title, justify="right")
    for layer in report.layers:
        sums = layer.sums
        table.add_row(
            Text(layer.name),
            layer.operator,
            *(_share(layer, role) for role in _ROLES),
            f"{sums.pair_overflow:.2%}" if sums and sums.pair_bound else "",
            f"{sums.largest / 2**31:.2%}" if sums else "",
            f"{layer.own.relative:.2%}",
            f"{layer.own.snr:.1f}",
            f"{layer.reached.snr:.1f}" if layer.reached else "",
        )
    return table


def _share(layer: LayerReport, role: str) -> str:
    found = layer.tensor(role)
    return "" if found is None else f"{found.saturated:.2%}"
