"""The order of the loops of a nest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from dnnl.codegen.isa.caches import LINE, Caches
from dnnl.codegen.memory.access import Access
from dnnl.codegen.memory.address import Axis
from dnnl.types.size import typical

# Bytes written to one row before the next: 8 lines, since a row in a page maps to as many sets as
# it has lines.
_RUN = 512
# The same for operands that exceed the second-level cache, in bytes.
_LONG_RUN = 1024
# If rows are not aligned to lines, so many are written before the next parts of the first.
_SPLIT_ROWS = 128
# The lines of this many rows stay in a cache until the next part of each is read.
_ROWS_AT_ONCE = 512
# The fewest vectors that are worth a loop of their own.
_LEAST_BLOCK = 4


@dataclass(frozen=True, eq=False)
class Loop:
    """A loop over ``axis`` in steps of ``step`` iterations. If ``within`` is not zero, a loop over
    the iterations of one block of that size; an outer loop over the same axis walks the blocks."""

    axis: Axis
    step: int = 1
    within: int = 0

    @property
    def count(self) -> int:
        """The maximum trip count."""
        return self.within or -(-self.axis.extent // self.step)

    @property
    def typical(self) -> int:
        """The trip count that heuristics decide by."""
        return typical(self.count)


@dataclass(frozen=True)
class Square:
    """A square of elements that is transposed in registers. ``read_apart`` and ``written_apart``
    are the distances in bytes of the rows that it reads and writes. Written rows have ``lanes``
    elements; read rows are loaded in up to ``most_pieces`` pieces."""

    read_apart: int
    written_apart: int
    lanes: int
    most_pieces: int
    fills_lines: bool
    caches: Caches

    @property
    def conflicts_in_dst(self) -> bool:
        """Whether the lines that squares write have conflict misses, and those that they read
        fewer."""
        lines, enough = self.caches.resident_lines(self.written_apart), self.lanes * (_RUN // LINE)
        return lines < 16 or (lines == 16 and self.caches.resident_lines(self.read_apart) >= enough)

    def writes_runs(self, memory: bool) -> bool:
        """Whether to write long runs of dst instead of reading rows of the source in parallel, for
        operands in ``memory`` or in the third-level cache: single lines of dst would have conflict
        misses, or more rows would be read than the hardware prefetcher follows."""
        if self.caches.resident_lines(self.written_apart) <= 16:
            return True
        short_rows = _LONG_RUN <= self.written_apart <= 4 * _LONG_RUN
        many = self.lanes > self.caches.prefetch_streams or short_rows
        return memory and many and self.read_apart >= self.written_apart

    @property
    def pieces(self) -> int:
        """How many pieces of a row are loaded side by side: one, or a whole line if lines would be
        evicted before their next part is read."""
        rows = self.lanes * (_RUN // LINE if self.conflicts_in_dst else 1)
        return 1 if self.caches.resident_lines(self.read_apart) > rows else self.most_pieces


def arrange(
    axes: Sequence[Axis],
    reads: Sequence[Access],
    dst: Access,
    square: Square | None,
    far: Callable[[Access, Axis], int],
    caches: Caches,
) -> tuple[list[Loop], Axis | None]:
    """The loops, and the axis along which squares prefetch a source that is not in the cache, or
    None. It is the axis of the second innermost loop.

    ``far(access, axis)`` is the absolute stride in bytes.
    """

    def nearest(access: Access) -> Axis | None:
        """The axis with the shortest stride."""
        moving = [axis for axis in axes if far(access, axis)]
        return min(moving, key=lambda axis: far(access, axis), default=None)

    source = _main_source(reads)
    written = nearest(dst)
    read = None if source is None else nearest(source)
    if source is not None and written is not None and square is None and not far(source, written):
        read = written  # a row of dst reads few elements
    if source is None or written is None or read is None or read is written:
        alone = [Loop(axis) for axis in sorted(axes, key=lambda axis: -far(dst, axis))]
        # Reading rows that share lines outpaces the hardware prefetcher; reading a few distant rows
        # does not.
        return alone, read if square is not None and square.read_apart < LINE else None
    crossing = _Crossing(
        ordered=sorted(axes, key=lambda axis: -far(source, axis)),
        read=read,
        written=written,
        read_step=far(source, read),
        written_step=far(dst, written),
        size=max(typical(dst.operand.desc.size), typical(source.operand.desc.size)),
        src_bits=source.operand.desc.data_type.bits,
        caches=caches,
    )
    if square is None:
        return crossing.moved(far(dst, read)), None
    return crossing.squares(square)


@dataclass(frozen=True)
class _Crossing:
    """A source and a destination that are contiguous along different axes. ``ordered`` are all axes
    in source order; ``read`` and ``written`` the axes along which source and destination are
    contiguous, with their strides there in bytes; ``size`` the bytes of the larger operand."""

    ordered: Sequence[Axis]
    read: Axis
    written: Axis
    read_step: int
    written_step: int
    size: int
    src_bits: int
    caches: Caches

    @property
    def read_across_lines(self) -> bool:
        """Whether a row of the source is longer than a cache line."""
        return self.read.typical * self.read_step > LINE

    @property
    def row(self) -> int:
        """The bytes of a row of dst."""
        return self.written.typical * self.written_step

    def in_source_order(self) -> list[Loop]:
        """The loops in source order: consecutive reads."""
        return [Loop(axis) for axis in self.ordered]

    def runs_of_dst(self, nbytes: int) -> list[Loop]:
        """Loops that write ``nbytes`` consecutive bytes of each row of dst."""
        return _in_blocks(self.ordered, self.read, self.written, nbytes // self.written_step)

    def runs_of_src(self, nbytes: int) -> list[Loop]:
        """Loops that read ``nbytes`` consecutive bytes of each row of the source."""
        return _in_blocks(self.ordered, self.written, self.read, nbytes // self.read_step)

    def moved(self, written_apart: int) -> list[Loop]:
        """The loops over vectors that are copied without transposition; rows of dst are
        ``written_apart`` bytes apart."""
        resident, ways = self.caches.resident_lines(written_apart), self.caches.l1_ways
        near = list(self.ordered[-2:]) == [self.written, self.read]
        cached = self.size < self.caches.memory and 2 * self.read.typical <= resident
        if near and cached and not self.caches.prefetches_all_rows:
            return self.in_source_order()
        # Few rows of the source at a time, unless short runs would then map to a single set.
        return self.runs_of_dst(_RUN if resident <= ways else min(_RUN, ways * self.written_step))

    def squares(self, square: Square) -> tuple[list[Loop], Axis | None]:
        """The loops over squares, and the prefetch axis."""
        in_memory = self.size >= self.caches.memory
        follows = in_memory and self.caches.prefetches_all_rows
        far_away = self.size >= self.caches.near and self.read_across_lines
        if far_away and not follows and square.writes_runs(in_memory):
            return self.runs_of_dst(_LONG_RUN), self.read
        if not in_memory:
            return self.from_cache(square)
        if self.joins_lines(square):
            return self.runs_of_dst(self.row), self.read
        return self.in_source_order(), self.read if follows else self.ordered[-2]

    def joins_lines(self, square: Square) -> bool:
        """Whether the parts of a line of dst should be written one after the other: rows are
        contiguous, and each is a few vectors that are not whole lines."""
        few = self.written.typical * square.lanes <= _ROWS_AT_ONCE
        return few and not square.fills_lines and self.row >= square.written_apart

    def from_cache(self, square: Square) -> tuple[list[Loop], Axis | None]:
        """The loops over squares of operands in a cache, and the prefetch axis if others may have
        evicted them."""
        uncertain = self.size >= self.caches.shared
        if square.conflicts_in_dst:
            run = _RUN if square.pieces == 1 else _RUN // 2
            return self.runs_of_dst(run), self.read if uncertain else None
        if 2 * self.written.typical * square.lanes <= self.caches.resident_lines(square.read_apart):
            return self.runs_of_dst(self.row), self.read if uncertain else None
        run = min(_RUN, self.caches.resident_lines(square.written_apart) * 4) * square.pieces
        if square.written_apart % LINE:
            # Rows share lines: a line is written again with the next row.
            run = min(run, _SPLIT_ROWS * self.src_bits // 8 * square.pieces)
        return self.runs_of_src(run), self.written if uncertain else None


def block_for_l1(
    loops: list[Loop], reads: Sequence[Access], reduced: Sequence[Axis], lanes: int, caches: Caches
) -> list[Loop]:
    """The loops over vectors, with the innermost one blocked if the first-level cache cannot hold
    what it reads. The blocks are outside the loops in which windows reuse the same weights."""
    if len(loops) < 2 or loops[-1].within or loops[-1].step > 1:
        return loops
    *outer, inner = loops
    forms = [access.offset for access in reads if access.offset is not None]
    windows = [
        form
        for form in forms
        if form.stride(inner.axis) and any(form.stride(axis) for axis in reduced)
    ]
    weights = [form for form in windows if not form.stride(outer[-1].axis)]
    if not 0 < len(weights) < len(windows):
        return loops
    taps = prod(axis.typical for axis in reduced)
    bits = max(access.operand.desc.data_type.bits for access in reads)
    point = len(windows) * taps * lanes * bits // 8
    block = caches.l1 // 2 // point
    if inner.typical * point <= caches.l1 * 3 // 4 or block < _LEAST_BLOCK:
        return loops
    place = len(outer)
    while place and not any(form.stride(outer[place - 1].axis) for form in weights):
        place -= 1
    parts = Loop(inner.axis, block), Loop(inner.axis, within=block)
    return [*outer[:place], parts[0], *outer[place:], parts[1]]


def _main_source(reads: Sequence[Access]) -> Access | None:
    """The largest operand that is read, if its offset is affine."""
    largest = max(reads, key=lambda access: typical(access.operand.desc.size), default=None)
    return None if largest is None or largest.offset is None else largest


def _in_blocks(ordered: Sequence[Axis], middle: Axis, inner: Axis, block: int) -> list[Loop]:
    """Loops with ``inner`` in blocks of ``block`` iterations, and all of ``middle`` for each
    block."""
    loops = [Loop(axis) for axis in ordered if axis not in (middle, inner)]
    if not 1 < block < inner.typical:
        return [*loops, Loop(middle), Loop(inner)]
    return [*loops, Loop(inner, block), Loop(middle), Loop(inner, within=block)]
