"""The HTML page of ``dnnl run --html``: graph, time of each step, and roofline of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import sqrt
from pathlib import Path

from dnnl import __version__
from dnnl.framework.session import Session
from dnnl.runtime.engine import first_cpu
from dnnl.tools.graph_layout import Box, laid_out
from dnnl.tools.limits_plots import Plot, bandwidth, limits_text, roofline
from dnnl.tools.page import machine, rendered
from dnnl.tools.plots import SERIES, Point
from dnnl.tools.roofs import Roofs, measure_roofs
from dnnl.tools.run_graph import RunGraph, Tensor, Vertex
from dnnl.tools.run_report import Report, gflop_per_s, remarks, totals

_BOX = Box(width=248.0, height=62.0, beside=22.0, below=30.0)
_LETTERS = 34
"""Characters of a line inside a vertex."""


@dataclass(frozen=True)
class Step:
    """A step as the page shows it. ``number`` counts from 1, ``key`` is the number of its vertex,
    and ``series`` of its kind. Rates are 0 if the work is not known."""

    key: int
    number: int
    vertex: Vertex
    kind: str
    series: int
    ms: float
    share: float
    heat: float

    @property
    def gflop(self) -> float:
        """The arithmetic, in GFLOP."""
        return self.vertex.layer.flops / 1e9 if self.vertex.layer else 0.0

    @property
    def gflops(self) -> float:
        """The arithmetic rate, in GFLOP/s."""
        return gflop_per_s(self.gflop, self.ms)

    @property
    def gbytes(self) -> float:
        """The bandwidth, in GB/s."""
        return self.vertex.nbytes / self.ms / 1e6 if self.ms else 0.0

    @property
    def intensity(self) -> float:
        """The arithmetic intensity, in FLOP per byte."""
        return self.gflop * 1e9 / self.vertex.nbytes if self.vertex.nbytes else 0.0

    @property
    def title(self) -> str:
        """The text of the tooltip: number, name, fused nodes, implementation, time."""
        assert self.vertex.layer is not None
        fused = f", with {', '.join(self.vertex.layer.fused)}" if self.vertex.layer.fused else ""
        return (
            f"{self.number} {self.vertex.name}{fused}\n{self.vertex.layer.primitive} "
            f"{self.vertex.layer.implementation}: {self.ms:.4g} ms, {100 * self.share:.1f} %"
        )


def write_page(path: Path, report: Report, session: Session, graph: RunGraph) -> None:
    """Write the page of a run. For runs on the processor the limits are measured first."""
    steps = _steps(report, graph)
    on_processor = session.engine == first_cpu()
    roofs = measure_roofs(session.num_threads) if on_processor else None
    layout = laid_out(
        len(graph.vertices), [(edge.source, edge.target) for edge in graph.edges], _BOX
    )
    by_key = {step.key: step for step in steps}
    reorders = [step for step in steps if step.vertex.is_reorder]
    page = rendered(
        "run_page.html.jinja",
        name=Path(report.model).name,
        version=__version__,
        machine=machine([session.engine], session.num_threads),
        totals=totals(report),
        remarks=remarks(report),
        steps=steps,
        reorders=len(reorders),
        reorder_share=sum(step.share for step in reorders),
        total_ms=sum(step.ms for step in steps),
        most_ms=max((step.ms for step in steps), default=0.0),
        kinds=_kinds(steps),
        limits=limits_text(roofs) if roofs else "",
        plots=_plots(steps, roofs),
        box=_BOX,
        layout=layout,
        nodes=[
            (key, vertex, x, y, by_key.get(key), _lines(vertex, by_key.get(key)))
            for key, (vertex, (x, y)) in enumerate(zip(graph.vertices, layout.corners, strict=True))
        ],
        paths=[
            (edge, _path(points)) for edge, points in zip(graph.edges, layout.paths, strict=True)
        ],
        data=[_facts(vertex, by_key.get(key)) for key, vertex in enumerate(graph.vertices)],
    )
    path.write_text(page, encoding="utf-8")


def _steps(report: Report, graph: RunGraph) -> list[Step]:
    """The steps in execution order. Kinds are numbered by total time, those with products first."""
    times, keys = report.layer_times_ms, graph.steps
    total, most = sum(times), max(times, default=0.0)
    spent: dict[tuple[bool, str], float] = {}
    kinds = []
    for key, ms in zip(keys, times, strict=True):
        layer = graph.vertices[key].layer
        assert layer is not None
        name = f"{layer.primitive} {layer.implementation.partition(':')[0]}"
        kind = not (layer.flops and graph.vertices[key].nbytes), name
        spent[kind] = spent.get(kind, 0.0) + ms
        kinds.append(kind)
    order = sorted(spent, key=lambda kind: (kind[0], -spent[kind]))
    return [
        Step(
            key,
            number,
            graph.vertices[key],
            kind[1],
            order.index(kind),
            ms,
            ms / total if total else 0.0,
            sqrt(ms / most) if most else 0.0,
        )
        for number, (key, ms, kind) in enumerate(zip(keys, times, kinds, strict=True), 1)
    ]


def _kinds(steps: Sequence[Step]) -> list[tuple[str, int, int, float, float]]:
    """For each kind of step: name, colour number, count, total time in ms, share."""
    found: dict[int, list[Step]] = {}
    for step in steps:
        found.setdefault(step.series, []).append(step)
    rows = [
        (
            own[0].kind,
            series % SERIES,
            len(own),
            sum(step.ms for step in own),
            sum(step.share for step in own),
        )
        for series, own in found.items()
    ]
    return sorted(rows, key=lambda row: -row[3])


def _plots(steps: Sequence[Step], roofs: Roofs | None) -> list[Plot]:
    """Roofline and bandwidth, each if there are steps for it."""
    ordered = sorted((step for step in steps if step.ms), key=lambda step: step.series)
    rated = [step for step in ordered if step.intensity]
    moving = [step for step in ordered if not step.intensity and step.vertex.nbytes]
    plots = []
    if rated:
        points = [
            _point(step, step.intensity, step.gflops, f"{step.gflops:.4g} GFLOP/s")
            for step in rated
        ]
        plots.append(roofline(points, roofs, "step"))
    if moving:
        points = [
            _point(step, step.vertex.nbytes, step.gbytes, f"{step.gbytes:.4g} GB/s")
            for step in moving
        ]
        plots.append(bandwidth(points, roofs, moving[0].series))
    return plots


def _point(step: Step, x: float, y: float, rate: str) -> Point:
    return Point(x, y, step.kind, f"{step.title}, {rate}", str(step.key))


def _lines(vertex: Vertex, step: Step | None) -> tuple[str, str, str]:
    """The lines of text inside a vertex."""
    if step is None or vertex.layer is None:
        tensor = vertex.tensors[0] if vertex.tensors else None
        sized = "" if tensor is None else _short(_sized(tensor))
        return _short(vertex.name, _LETTERS - 6), vertex.kind, sized
    fused = f" +{len(vertex.layer.fused)}" if vertex.layer.fused else ""
    name = f"{step.number} {_short(vertex.name, _LETTERS - 10)}{fused}"
    layouts = vertex.layer.layouts
    parts = [layouts[role] for role in ("src", "weights") if role in layouts]
    moves = " · ".join(parts) + (f" → {layouts['dst']}" if "dst" in layouts else "")
    return name, _short(step.kind, _LETTERS - 10), _short(moves)


def _short(text: str, letters: int = _LETTERS) -> str:
    """A text of at most ``letters`` characters; a longer one loses its middle."""
    if len(text) <= letters:
        return text
    return f"{text[: letters // 2 - 1]}…{text[-(letters - letters // 2) :]}"


def _sized(tensor: Tensor) -> str:
    return f"{tensor.data_type} {' x '.join(tensor.sizes)}".strip()


def _path(points: Sequence[tuple[float, float]]) -> str:
    """The SVG path of an edge: vertical at its ends and through the layers between."""
    x, y = points[0]
    parts = [f"M{x:.1f} {y:.1f}"]
    for (left, top), (right, bottom) in pairwise(points):
        middle = (top + bottom) / 2
        parts.append(
            f"L{right:.1f} {bottom:.1f}"
            if left == right
            else f"C{left:.1f} {middle:.1f} {right:.1f} {middle:.1f} {right:.1f} {bottom:.1f}"
        )
    return "".join(parts)


def _facts(vertex: Vertex, step: Step | None) -> Mapping[str, object]:
    """The data of a vertex for the page's script."""
    facts: dict[str, object] = {
        "kind": vertex.kind,
        "name": vertex.name,
        "tensors": [asdict(tensor) for tensor in vertex.tensors],
    }
    if step is None or vertex.layer is None:
        return facts
    return {
        **facts,
        "number": step.number,
        "primitive": vertex.layer.primitive,
        "implementation": vertex.layer.implementation,
        "fused": vertex.layer.fused,
        "ms": step.ms,
        "share": step.share,
        "gflop": step.gflop,
        "gflops": step.gflops,
        "nbytes": vertex.nbytes,
        "gbytes": step.gbytes,
        "intensity": step.intensity,
    }
