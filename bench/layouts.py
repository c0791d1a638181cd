"""Changes of layout of ResNet-50's activations and weights, f32."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations

from bench import moves
from bench.context import Context
from bench.convolutions import layers
from bench.moves import Move
from bench.peers import ONEDNN
from bench.report import Report
from bench.summary import Limit
from dnnl.tools.machine import COPY

BATCHES = (1, 16)
ACTIVATIONS = ("nchw", "nhwc", "nChw8c", "nChw16c")
WEIGHTS = ("oihw", "OIhw16i16o", "hwio")
LIMITS = (
    Limit(COPY, "part of a copy", each=0.8),
    Limit(ONEDNN, f"rate / {ONEDNN}", each=0.95, mean=1.5),
)


def run(context: Context, report: Report) -> None:
    """A table for each kind of tensor and thread count."""
    effort = context.effort(rounds=5, turn=0.02)
    for what, every in (("activations", activations()), ("weights", weights())):
        moves.add_tables(context, report, f"Layouts of {what}", every, LIMITS, effort)


def activations() -> list[Move]:
    """Every pair of layouts on every activation of the network's convolutions."""
    return [
        move
        for batch in BATCHES
        for dims in _distinct(
            dims for case in layers(batch) for dims in (case.sizes.src_dims, case.sizes.window_dims)
        )
        for move in _pairs(dims, ACTIVATIONS)
    ]


def weights() -> list[Move]:
    """Every pair of layouts on all weights of the network's convolutions."""
    every = (case.sizes for case in layers())
    sizes = _distinct((size["oc"], size["ic"], *size.spatial("k")) for size in every)
    return [move for dims in sizes for move in _pairs(dims, WEIGHTS)]


def _pairs(dims: tuple[int, ...], tags: Sequence[str]) -> Iterator[Move]:
    for src, dst in permutations(tags, 2):
        name = f"{src} -> {dst} {'x'.join(map(str, dims))}"
        yield Move(name, dims, ("f32", src), ("f32", dst))


def _distinct(sizes: Iterator[tuple[int, ...]]) -> list[tuple[int, ...]]:
    return list(dict.fromkeys(sizes))
