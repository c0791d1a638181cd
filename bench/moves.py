"""Reorders as cases: a tensor into another layout or type, beside a copy and oneDNN."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dnnl
from bench import summary
from bench.agreement import check_rounded
from bench.context import SEED, Context, threads_text
from bench.ours import OURS, OurOperation
from bench.peers import ONEDNN
from bench.peers.errors import PeerError
from bench.report import Column, Report
from bench.summary import Limit
from dnnl import Arg, DataType, Memory, MemoryDesc
from dnnl.reference.arrays import Array, f64
from dnnl.reference.conversions import convert, core_type
from dnnl.reference.reorder import reorder
from dnnl.runtime.gather import gather, scatter
from dnnl.tools.bench.machine import COPY, Copies
from dnnl.tools.bench.measure import Contender, Effort, Measurement, measure
from dnnl.tools.bench.peers.onednn import PeerOperation

Cells = dict[str, str | float | None]
BEST = "best "
"""Before the name of a ratio: that of the fastest samples, not of the rounds."""

COLUMNS = (
    Column("case", "case"),
    Column("ms", "ms", ".3f"),
    Column("gbs", "GB/s", ".1f"),
    Column("best", "best", ".1f"),
    Column("copy_gbs", "copy", ".1f"),
    Column(COPY, "of copy", ".0%"),
    Column(BEST + COPY, "best", ".0%"),
    Column("peer_gbs", ONEDNN, ".1f"),
    Column(ONEDNN, f"/ {ONEDNN}", ".2f"),
    Column(BEST + ONEDNN, "best", ".2f"),
    Column("peer_impl", "its implementation"),
)
NOTE = (
    "GB/s counts the bytes of src and dst. The copy is numpy.copyto of as many, split over the "
    f"threads. of copy, / {ONEDNN}: our rate in units of theirs, the median of all rounds; best: "
    "of the fastest samples."
)


@dataclass(frozen=True, slots=True)
class Move:
    """A reorder; ``scales`` pairs an argument with its mask, ``sum_scale`` 0 is no sum."""

    name: str
    src: MemoryDesc
    dst: MemoryDesc
    scales: tuple[tuple[Arg, int], ...] = ()
    sum_scale: float = 0.0

    @property
    def work(self) -> int:
        """The bytes of both tensors."""
        return self.src.size + self.dst.size

    @property
    def attr(self) -> dnnl.PrimitiveAttr:
        """The attributes that the case asks for."""
        attr = dnnl.PrimitiveAttr()
        for argument, mask in self.scales:
            attr.set_scales(argument, mask)
        if self.sum_scale:
            attr.post_ops.append_sum(self.sum_scale)
        return attr


class Prepared:
    """Ours on filled memories, once its result has been compared with the reference."""

    def __init__(self, move: Move, engine: dnnl.Engine, num_threads: int) -> None:
        self._move = move
        self._peer: PeerOperation | None = None
        self.desc, self.attr = dnnl.ReorderDesc(move.src, move.dst), move.attr
        self.operation = OurOperation(self.desc, engine, num_threads, self.attr)
        memories = self.operation.memories
        self._src = contents(move.src.dims, move.src.data_type)
        self._previous = contents(move.dst.dims, move.dst.data_type) if move.sum_scale else None
        self._scales = {argument: _scales(move, argument) for argument, _ in move.scales}
        scatter(move.src, memories[Arg.SRC].data, self._src)
        self._parameters = {}
        for argument, values in self._scales.items():
            key = Arg.SCALES | argument
            self._parameters[key] = MemoryDesc((values.size,), "f32")
            memories[key] = dnnl.Memory(self._parameters[key], engine)
            memories[key].numpy()[:] = values.reshape(-1)
        self.run = self._checked(self.operation.bind(), memories[Arg.DST].data, OURS)

    def beside(self, context: Context, work: float) -> tuple[list[Contender], Cells]:
        """oneDNN on the same source, if it does this, and what a row says of it.

        The contender can run as long as this object lives.
        """
        if context.peers.onednn is None:
            return [], {}
        buffers = {arg: memory.data for arg, memory in self.operation.memories.items()}
        buffers[Arg.DST] = dst = Memory(self._move.dst, context.engine).data
        try:
            self._peer = context.peers.onednn.on_buffers(
                self.desc, self.attr, buffers, self._parameters
            )
        except PeerError as error:
            return [], {"peer_impl": "refuses", "refusal": str(error)}
        run = self._checked(self._peer.bind(), dst, ONEDNN)
        return [Contender(ONEDNN, run, work)], {"peer_impl": self._peer.impl_info}

    def _checked(
        self, run: Callable[[], object], dst: NDArray[np.uint8], who: str
    ) -> Callable[[], object]:
        """``run``, once what it leaves in ``dst`` is right."""
        desc = self._move.dst
        dst[:] = 0
        if self._previous is not None:
            scatter(desc, dst, self._previous)
        run()
        name = f"{self._move.name}: {who}"
        check_rounded(name, f64(gather(desc, dst)), self._expected(), desc.data_type)
        return run

    def _expected(self) -> Array:
        scale = {argument: f64(values) for argument, values in self._scales.items()}
        move = self._move
        if not (scale or move.sum_scale or move.src.data_type is not move.dst.data_type):
            return f64(self._src)
        values = reorder(
            self._src,
            src_scale=scale.get(Arg.SRC, 1.0),
            dst_scale=scale.get(Arg.DST, 1.0),
            sum_scale=move.sum_scale,
            dst=self._previous,
        )
        kinds = move.src.data_type, move.dst.data_type
        return convert(values, kinds[1], core_type(*kinds))


def add_tables(
    context: Context,
    report: Report,
    what: str,
    moves: Sequence[Move],
    limits: Sequence[Limit],
    effort: Effort,
) -> list[tuple[str, list[Cells]]]:
    """Measure what is asked for of ``moves``, a table for each thread count; titles and rows."""
    added = []
    chosen = [move for move in moves if context.only.search(move.name)]
    for num_threads in context.each_thread_count() if chosen else ():
        title = f"{what}, {threads_text(num_threads)}"
        rows = _rows(context, chosen, num_threads, effort)
        summary.add(context, report, title, NOTE, COLUMNS, rows, limits)
        added.append((title, rows))
    return added


def _rows(context: Context, moves: Sequence[Move], num_threads: int, effort: Effort) -> list[Cells]:
    copies = Copies(num_threads)
    try:
        return [_row(context, move, num_threads, copies, effort) for move in moves]
    finally:
        copies.close()


def _row(context: Context, move: Move, num_threads: int, copies: Copies, effort: Effort) -> Cells:
    prepared = Prepared(move, context.engine, num_threads)
    copy = copies.contender(move.work // 2, context.engine)
    theirs, described = prepared.beside(context, move.work)
    result = measure([Contender(OURS, prepared.run, move.work), copy, *theirs], effort)
    return {"case": move.name, **described, **_cells(result)}


def _cells(result: Measurement) -> Cells:
    cells: Cells = {
        "ms": result.median(OURS) * 1e3,
        "gbs": result.rate(OURS) / 1e9,
        "best": result.best_rate(OURS) / 1e9,
        "copy_gbs": result.rate(COPY) / 1e9,
    }
    for name in (COPY, ONEDNN):
        if name in result.samples:
            cells[name] = result.relative(OURS, name)
            cells[BEST + name] = result.best_rate(OURS) / result.best_rate(name)
    if ONEDNN in result.samples:
        cells["peer_gbs"] = result.rate(ONEDNN) / 1e9
    return cells


@lru_cache(maxsize=2)
def contents(dims: Sequence[int], data_type: DataType) -> NDArray[Any]:
    """Random elements of a type: all values of the integers, small finite ones of the floats."""
    rng = np.random.default_rng(SEED)
    kind = data_type.numpy
    if data_type.is_integer:
        low, high = max(data_type.min, -(2**15)), min(data_type.max, 2**15)
        return rng.integers(int(low), int(high), tuple(dims), np.int32, endpoint=True).astype(kind)
    return (2 * rng.standard_normal(tuple(dims), np.float32)).astype(kind)


def _scales(move: Move, argument: Arg) -> NDArray[np.float32]:
    """Random scales that broadcast against the tensor."""
    mask = dict(move.scales)[argument]
    shape = tuple(n if mask >> d & 1 else 1 for d, n in enumerate(move.src.dims))
    rng = np.random.default_rng(SEED + argument)
    return rng.uniform(0.5, 2.0, shape).astype(np.float32)
