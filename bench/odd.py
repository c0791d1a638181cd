"""Reorders that libraries leave to their slowest code: permutations of any rank, sizes that no
block divides, sums, narrow types.
"""

from __future__ import annotations

from itertools import permutations
from random import Random
from string import ascii_lowercase

from bench import moves
from bench.context import SEED, Context
from bench.moves import Move
from bench.peers import ONEDNN
from bench.report import Report, Target
from bench.summary import Limit
from dnnl.tools.machine import COPY

ODD = (16, 250, 56, 55)
PERMUTED = {4: ODD, 5: (4, 63, 18, 28, 37), 6: (5, 12, 9, 14, 17, 31)}
SAMPLE = 8
"""So many of the permutations of each rank."""

CLIFF = ("abcd", "dbca")
CLIFF_RATE = 0.44e9
"""Bytes a second that oneDNN 3.14 reached where the target was set."""
CLIFF_FACTOR = 40

BLOCKED = (
    (ODD, ("nchw", "nhwc", "nChw8c", "nChw16c")),
    ((2, 35, 9, 28, 37), ("ncdhw", "ndhwc", "nCdhw16c")),
    ((250, 123, 3, 3), ("oihw", "hwio", "OIhw16i16o")),
)
SUMS = (CLIFF, ("abcd", "abcd"), ("abcd", "acdb"), ("acdb", "abcd"), ("abcd", "aBcd16b"))

NARROW = ("s4", "u4", "f4_e2m1", "f8_e4m3", "f8_e5m2")
SMALLER = (16, 250, 28, 27)
WEIGHTS = ((1024, 1024), (1023, 1025))
HALVES_AND_BYTES = ("bf16", "f16", "s8", "u8")
LIMITS = (Limit(COPY, "part of a copy", each=0.4),)


def run(context: Context, report: Report) -> None:
    """A table for each thread count."""
    effort = context.effort(rounds=5, turn=0.03)
    for title, rows in moves.add_tables(context, report, "Odd reorders", cases(), LIMITS, effort):
        for row in rows:
            if row["case"] == _cliff().name:
                report.add_targets(_cliff_targets(title, row))


def cases() -> list[Move]:
    """All of them, the same ones each time."""
    return [*_permuted(), *_blocked(), *_sums(), *_conversions(), *_transposed()]


def _move(
    dims: tuple[int, ...], src: tuple[str, str], dst: tuple[str, str], sum_scale: float = 0.0
) -> Move:
    """A case between two types and tags."""
    types = src[0] if src[0] == dst[0] else f"{src[0]} -> {dst[0]}"
    ending = f", sum {sum_scale:g}" if sum_scale else ""
    name = f"{types} {src[1]} -> {dst[1]} {'x'.join(map(str, dims))}{ending}"
    attributes = (f"--attr-post-ops=sum:{sum_scale:g}",) if sum_scale else ()
    return Move(name, dims, src, dst, attributes)


def _permuted() -> list[Move]:
    """Pairs of axis orders, drawn without repetition."""
    rng = Random(SEED)
    made = []
    for rank, dims in PERMUTED.items():
        orders = ["".join(order) for order in permutations(ascii_lowercase[:rank])]
        for dst in rng.sample(orders[1:], SAMPLE):
            src = rng.choice([order for order in orders if order != dst])
            made.append(_move(dims, ("f32", src), ("f32", dst)))
    return made


def _blocked() -> list[Move]:
    """Sizes that the blocks do not divide."""
    return [
        _move(dims, ("f32", src), ("f32", dst))
        for dims, tags in BLOCKED
        for src, dst in permutations(tags, 2)
    ]


def _sums() -> list[Move]:
    return [_move(ODD, ("f32", src), ("f32", dst), 0.5) for src, dst in SUMS]


def _cliff() -> Move:
    return _sums()[0]


def _conversions() -> list[Move]:
    """Narrow types from and to wider ones, in the same layout and across."""
    made = []
    for narrow in NARROW:
        for wide in ("f32", "bf16"):
            for src, dst in ((wide, narrow), (narrow, wide)):
                made.append(_move(SMALLER, (src, "nchw"), (dst, "nchw")))
                made.append(_move(SMALLER, (src, "nchw"), (dst, "nhwc")))
    return made


def _transposed() -> list[Move]:
    """Transpositions of elements of 4, 8 and 16 bits."""
    made = [_move(dims, (kind, "ab"), (kind, "ba")) for kind in NARROW for dims in WEIGHTS]
    for kind in (*HALVES_AND_BYTES, *NARROW):
        for dims in ((16, 256, 56, 56), ODD):
            made.append(_move(dims, (kind, "nchw"), (kind, "nhwc")))
            made.append(_move(dims, (kind, "nhwc"), (kind, "nchw")))
    return made


def _cliff_targets(title: str, row: moves.Cells) -> list[Target]:
    """Against the rate that oneDNN had, and against what it has in the same run."""
    rate, ratio = row.get("gbs"), row.get(ONEDNN)
    absolute = rate * 1e9 / CLIFF_RATE if isinstance(rate, float) else None
    relative = ratio if isinstance(ratio, float) else None
    return [
        Target(f"{title}: the cliff / {CLIFF_RATE / 1e9:g} GB/s", absolute, CLIFF_FACTOR),
        Target(f"{title}: the cliff / {ONEDNN}", relative, CLIFF_FACTOR),
    ]
