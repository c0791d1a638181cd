"""The lines of a run over time, as a picture."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from tests.soak.run import Soak

_FINE, _BAD, _GRID = "#2a6f97", "#c1121f", "#dddddd"


def draw(soak: Soak, path: Path) -> None:
    """One panel a line, those that rise in red; what lies left of the mark only fills caches."""
    figure = Figure(figsize=(9, 2 * len(soak.values)), layout="constrained")
    panels = figure.subplots(len(soak.values), sharex=True)
    minutes = [seconds / 60 for seconds in soak.times]
    for panel, (line, values) in zip(panels, soak.values.items(), strict=True):
        verdict = soak.verdict(line)
        panel.plot(minutes, values, color=_BAD if verdict else _FINE, linewidth=1)
        panel.axvline((minutes[0] + minutes[-1]) / 2, color=_GRID)
        panel.set_title(verdict or line.name, loc="left", fontsize=9)
        panel.set_ylabel(line.unit)
        panel.set_ylim(0, 1.1 * max(values) + 1)
        panel.grid(color=_GRID, linewidth=0.5)
    panels[-1].set_xlabel("minutes")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
