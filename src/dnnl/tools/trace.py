"""Traces that chrome://tracing and Perfetto open."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from dnnl.framework.plan import Layer
from dnnl.framework.session import Span


def write_trace(path: Path, layers: Sequence[Layer], runs: Sequence[Sequence[Span]]) -> None:
    """Write one event for each layer of each run, and one around each run."""
    origin = runs[0][0].start if runs and runs[0] else 0
    events: list[dict[str, object]] = [
        {"name": "thread_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": "layers"}},
        {"name": "thread_name", "ph": "M", "pid": 0, "tid": 1, "args": {"name": "runs"}},
    ]
    for number, spans in enumerate(runs):
        if spans:
            whole = Span(spans[0].start, spans[-1].stop)
            events.append(_event(f"run {number}", "run", whole, origin, 1, {}))
        for layer, span in zip(layers, spans, strict=True):
            details = {"implementation": layer.implementation, **layer.layouts}
            if layer.fused:
                details["fused"] = " ".join(layer.fused)
            if layer.flops:
                details["GFLOP/s"] = f"{layer.flops / max(span.stop - span.start, 1):.1f}"
            events.append(_event(layer.name, layer.primitive, span, origin, 0, details))
    document = {"displayTimeUnit": "ms", "traceEvents": events}
    path.write_text(json.dumps(document), encoding="utf-8")


def _event(
    name: str, category: str, span: Span, origin: int, thread: int, details: dict[str, str]
) -> dict[str, object]:
    """A complete event; times are in microseconds."""
    return {
        "name": name,
        "cat": category,
        "ph": "X",
        "pid": 0,
        "tid": thread,
        "ts": (span.start - origin) / 1e3,
        "dur": (span.stop - span.start) / 1e3,
        "args": details,
    }
