"""Quantization of activations and dequantization: f32 and narrower types in the same layout."""

from __future__ import annotations

from collections.abc import Iterator

from bench import moves
from bench.context import Context
from bench.moves import Move
from bench.peers import ONEDNN
from bench.report import Report
from bench.summary import Limit
from dnnl.tools.machine import COPY

SIZES = ((1, 2048, 7, 7), (1, 256, 56, 56), (16, 64, 112, 112))
TAGS = ("nchw", "nhwc", "nChw16c")
TYPES = ("s8", "u8", "bf16", "f16")
MASKS = {"one scale": "common:0.5", "scale per channel": "per_dim_1"}
LIMITS = (
    Limit(COPY, "part of a copy"),
    Limit(ONEDNN, f"rate / {ONEDNN}", mean=2.0),
)


def run(context: Context, report: Report) -> None:
    """A table for each thread count."""
    effort = context.effort(rounds=5, turn=0.02)
    moves.add_tables(context, report, "Conversions", list(cases()), LIMITS, effort)


def cases() -> Iterator[Move]:
    """The scales belong to the narrow type: dst is divided by them, src is multiplied."""
    for dims in SIZES:
        for tag in TAGS:
            for kind in TYPES:
                for scales, mask in MASKS.items():
                    wide, narrow = ("f32", tag), (kind, tag)
                    ending = f"{tag} {'x'.join(map(str, dims))}, {scales}"
                    down, up = f"--attr-scales=dst:{mask}", f"--attr-scales=src:{mask}"
                    yield Move(f"f32 -> {kind} {ending}", dims, wide, narrow, (down,))
                    yield Move(f"{kind} -> f32 {ending}", dims, narrow, wide, (up,))
