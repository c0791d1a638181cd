"""Whole networks with random weights compared with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import onnx

from bench.contest import OURS, WrongResult
from bench.context import SEED, Context, threads_text
from bench.peers import ONNXRUNTIME
from bench.report import Column, Report, Row, Target
from dnnl.framework.model import Model, load
from dnnl.framework.session import Session
from dnnl.graph.graph import Array
from dnnl.tools.difference import compare
from dnnl.tools.measure import Contender, Measurement, measure
from dnnl.tools.peer_onnxruntime import OnnxRuntime

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
"""Models without trained parameters, which come with the ONNX package."""

CASES = (("resnet50", 1), ("resnet50", 16), ("squeezenet", 1), ("vgg19", 1))
QUICK = (("resnet50", 1), ("squeezenet", 1))
JUDGED = "resnet50"

COLUMNS = (
    Column("model", "model"),
    Column("batch", "batch", "d"),
    Column("threads", "threads", "d"),
    Column("ms", "ms", ".2f"),
    Column("best", "best", ".2f"),
    Column("images", "images/s", ".1f"),
    Column("gflops", "GFLOP/s", ".1f"),
    Column("peer_ms", f"{ONNXRUNTIME} ms", ".2f"),
    Column("peer_best", "its best", ".2f"),
    Column(ONNXRUNTIME, f"/ {ONNXRUNTIME}", ".2f"),
    Column("error", "largest error", ".1e"),
)
NOTE = (
    "Random weights, same input, same threads; medians. / ONNX Runtime: our rate in units of its "
    "own. GFLOP/s as dnnl run counts them, padding included. The error is that of our outputs to "
    "its own."
)


def light_model(name: str) -> Model:
    """A model of the ONNX package's test data."""
    return load(LIGHT / f"light_{name}.onnx")


def run(context: Context, report: Report) -> None:
    """One table for all models, batches and thread counts."""
    rows, targets = [], []
    for name, batch in QUICK if context.quick else CASES:
        model = light_model(name).with_batch(batch).with_random_weights(SEED)
        rng = np.random.default_rng(SEED)
        feeds = {
            key: rng.standard_normal(kind.sizes, np.float32) for key, kind in model.inputs.items()
        }
        peer_source = model.to_onnx() if ONNXRUNTIME in context.peers.versions else b""
        for num_threads in context.threads:
            session = model.compile(context.engine, num_threads=num_threads)
            peer = OnnxRuntime(peer_source, num_threads) if peer_source else None
            row = _row(context, session, peer, feeds)
            rows.append({"model": name, "batch": batch, "threads": num_threads, **row})
            if name == JUDGED:
                text = f"{name}, batch {batch}, {threads_text(num_threads)}: rate / {ONNXRUNTIME}"
                ratio = row.get(ONNXRUNTIME)
                targets.append(Target(text, ratio if isinstance(ratio, float) else None, 1.0))
    report.add("Models, f32", NOTE, COLUMNS, rows, targets)


def _row(
    context: Context, session: Session, peer: OnnxRuntime | None, feeds: Mapping[str, Array]
) -> Row:
    contenders = [Contender(OURS, partial(session.run, feeds))]
    error = None
    if peer is not None:
        error = _error(session.run(feeds), peer.run(feeds))
        contenders.append(Contender(ONNXRUNTIME, partial(peer.run, feeds)))
    result = measure(contenders, context.effort(rounds=7, turn=0.25))
    batch = next(iter(feeds.values())).shape[0]
    flops = sum(layer.flops for layer in session.layers)
    return {
        "ms": result.median(OURS) * 1e3,
        "best": result.best(OURS) * 1e3,
        "images": batch / result.median(OURS),
        "gflops": flops / result.median(OURS) / 1e9,
        "error": error,
        **(_peer_cells(result) if peer is not None else {}),
    }


def _peer_cells(result: Measurement) -> Row:
    return {
        "peer_ms": result.median(ONNXRUNTIME) * 1e3,
        "peer_best": result.best(ONNXRUNTIME) * 1e3,
        ONNXRUNTIME: result.relative(OURS, ONNXRUNTIME),
    }


def _error(ours: Mapping[str, Array], theirs: Mapping[str, Array]) -> float:
    """The largest relative error; WrongResult where one is too large."""
    differences = [compare(name, array, theirs[name]) for name, array in ours.items()]
    for difference in differences:
        if not difference.is_equal:
            raise WrongResult(f"differs from {ONNXRUNTIME}: {difference}")
    return max(difference.relative for difference in differences)
