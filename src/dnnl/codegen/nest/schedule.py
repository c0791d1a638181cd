"""How a loop nest is walked: blocked axes split, contiguous ones merged, a vector axis chosen.

``schedule`` turns the logical axes of a kernel into the loops that the generated code runs:

1. ``space`` splits axes at block boundaries, so that every operand's offset is affine, and merges
   neighbours that are contiguous in every operand;
2. ``vectorize`` chooses the axis along which vectors lie and, for operands that run wide it, the
   axis along which squares are loaded and transposed in registers;
3. ``walk`` orders the loops that remain;
4. what no cache would keep until it is read is written by non-temporal stores if whole lines allow
   it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, prod

from llvmlite import ir

from dnnl.codegen.conversion import convert
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32
from dnnl.codegen.isa import Isa
from dnnl.codegen.isa.caches import Caches
from dnnl.codegen.memory.access import Access, Bound, Operand
from dnnl.codegen.memory.address import Axis
from dnnl.codegen.nest.loop_order import Loop, arrange, block_for_l1
from dnnl.codegen.nest.space import Space, stride
from dnnl.codegen.nest.vectorize import (
    Squares,
    Vectors,
    aligned,
    crosses_lanes,
    fills_lines,
    interleave_factor,
    vectorize,
)


@dataclass(frozen=True, eq=False)
class Schedule:
    """The loops of a nest.

    ``space`` has the axes that remain, ``loops`` say how the parallel ones are walked: in this
    order, the outer ones shared out as work items. A point of them is one of ``vectors``, or all
    that is loaded of ``squares`` at a time; meanwhile that of a later iteration of ``ahead`` is
    fetched. ``streamed`` are the outputs to which non-temporal stores are allowed; ``serial``
    forbids sharing out any loop. Vectors of the outputs ``joined`` that follow along a reduction
    are best converted ``together``, so many at a time.
    """

    space: Space
    vectors: Vectors
    squares: Squares | None
    loops: tuple[Loop, ...]
    prefetch_axis: Axis | None = None
    streamed: tuple[Operand, ...] = ()
    serial: bool = False
    conversion_group: int = 1
    grouped: tuple[Operand, ...] = ()

    @property
    def accesses(self) -> Mapping[Operand, Access]:
        """How each operand is touched."""
        return self.space.accesses

    @cached_property
    def tails(self) -> tuple[Bound, ...]:
        """The bounds that are the end of the vector axis of a reduction and of nothing else: they
        are peeled off its loop."""
        line = {self.vectors.lane: 1, self.vectors.loop: self.vectors.lanes}
        return tuple(
            bound
            for bound in self.space.bounds
            if self.vectors.reduced and bound.form.const == 0 and bound.form.strides == line
        )

    @cached_property
    def bounds(self) -> tuple[Bound, ...]:
        """All other bounds that some iteration breaks."""
        tails = self.tails
        return tuple(bound for bound in self.space.bounds if bound not in tails and bound.needed)

    @cached_property
    def fold_bounds(self) -> tuple[Bound, ...]:
        """The bounds within which an iteration of a fold counts.

        Ends that do not move with the reduction are left out where what is stored ends there too:
        lanes behind them are never stored, or stored as zero.
        """
        space, vectors = self.space, self.vectors
        stored = (*space.exists, *space.domain)
        limits = {bound.form: bound.limit for bound in stored}
        moving = {*space.inner, vectors.lane} if vectors.reduced else {*space.inner}

        def moves(bound: Bound) -> bool:
            return not moving.isdisjoint(bound.form.strides)

        ends = [end for read in space.reads for end in read.ends]
        seen = [end for end in ends if moves(end) or limits.get(end.form, inf) > end.limit]
        inside = [bound for read in space.reads for bound in read.inside]
        return (*filter(moves, stored), *seen, *inside)

    @property
    def work_per_point(self) -> int:
        """How many iterations one point of the loops stands for."""
        return self.vectors.lanes * self.columns * prod(axis.extent for axis in self.space.inner)

    @property
    def columns(self) -> int:
        """How many vectors one point of the loops stands for."""
        return 1 if self.squares is None else self.squares.columns

    def transposed(self, access: Access) -> bool:
        """Whether the operand is read in squares along the tile axis."""
        if self.squares is None or access.offset is None:
            return False
        row = access.offset.stride(self.squares.tile)
        return crosses_lanes(self.space, self.vectors, access) and row == 1


@dataclass(frozen=True)
class Style:
    """What a nest asks of its schedule besides the order.

    Vectors hold values of ``core`` and fill as many ``registers`` each, where what is converted is
    not transposed: those that are best converted together if None. Where they lie along neighbours
    of a reduction, and these are many, they fill ``beside``: each row is then read some lines at a
    time, though a first-level cache keeps few lines of rows that are a power of two apart.
    Wherever few lanes of the last one are left empty, they fill as many as are ``abreast``: where
    each is a long chain of arithmetic, processors look too few single ones ahead to keep busy.
    ``moved`` says that nothing is converted. ``reads_dst`` says that dst is read as well, which
    then had better be in a cache.
    """

    core: ir.Type = F32
    registers: int | None = 1
    reduction_unroll: int = 1
    unroll: int = 1
    copied: bool = False
    reads_dst: bool = False


def widths(isa: Isa, core: ir.Type) -> tuple[int, int]:
    """The lanes of a vector of ``core``, and of a 128-bit unit of its register."""
    if isa.lanes == 1:
        return 1, 1  # scalars, whatever their type
    return isa.vector_bits // vector.bits(core), 128 // vector.bits(core)


_PLAIN = Style()
_LEAST_VECTORS, _FILLED = 16, 1.1
REDUCTION_UNROLL = 8
"""The registers that rows some lines long fill beside a reduction."""


UNROLL = 4
"""The registers that fill long chains of arithmetic side by side."""


def schedule(isa: Isa, space: Space, style: Style = _PLAIN) -> Schedule:
    """Plan the walk over ``space``."""
    space = space.merged()
    lanes, _ = widths(isa, style.core)
    nibbles = space.outputs[0].desc.data_type.bits == 4
    if nibbles:
        lanes = max(lanes, 2)  # elements of one byte are stored together
    conversion_group = convert.conversion_group(isa, space.dst.operand.data_type, style.core)
    registers = (style.registers or conversion_group) if isa.lanes > 1 else 1
    if isa.lanes > 1 and not nibbles:
        registers = _unroll(space, lanes, registers, style, isa.caches)
    wide = _reduction_unroll(space, lanes, style) if isa.lanes > 1 and not nibbles else 1
    vectorized = vectorize(space, lanes * max(registers, wide), isa.caches)
    if wide > registers and (vectorized[1].reduced or vectorized[2] is not None):
        vectorized = vectorize(space, lanes * registers, isa.caches)
    if registers > 1 and vectorized[2] is not None and not style.copied:
        # A square of longer vectors would not stay in registers.
        vectorized = vectorize(space, lanes, isa.caches)
    serial = nibbles and _shares_bytes(vectorized[0].dst, vectorized[1])
    if serial:
        vectorized = vectorize(space, 1, isa.caches)
    space, vectors, squares = vectorized
    caches = isa.caches
    shape = None if squares is None else squares.shape
    loops, prefetch_axis = arrange(
        space.axes, space.reads, space.dst, shape, space.step_bytes, caches
    )
    if squares is None:
        loops = block_for_l1(loops, space.reads, space.inner, vectors.lanes, caches)
    streamed: tuple[Operand, ...] = ()
    if caches.cache_hints and not (nibbles or style.reads_dst):
        streamed = _streamed(space, vectors, squares, loops, caches)
    conversion_group = max(1, conversion_group * widths(isa, style.core)[0] // vectors.lanes)
    grouped = _grouped(space, vectors, conversion_group, streamed)
    return Schedule(
        _settled(space),
        vectors,
        squares,
        tuple(loops),
        prefetch_axis,
        streamed,
        serial,
        conversion_group if grouped else 1,
        grouped,
    )


def _unroll(space: Space, lanes: int, registers: int, style: Style, caches: Caches) -> int:
    """How many registers vectors fill for the sake of arithmetic, ``registers`` at least."""

    def walked(count: int) -> int | None:
        _, vectors, squares = vectorize(space, lanes * count, caches)
        long = squares is None and vectors.loop is not None and vectors.lanes == lanes * count
        return vectors.lanes * vectors.loop.extent if vectors.loop is not None and long else None

    count, single = style.unroll, walked(1)
    while count > registers:
        size = walked(count)
        if size is not None and single is not None and size <= _FILLED * single:
            return count
        count //= 2
    return registers


def _reduction_unroll(space: Space, lanes: int, style: Style) -> int:
    """How many registers vectors fill beside a reduction: as many as leave enough of them to be
    shared out, and few lanes of the last one empty."""
    kept, count = prod(axis.extent for axis in space.axes), style.reduction_unroll
    line = next((axis.extent for axis in space.axes if stride(space.dst, axis) == 1), 1)

    def walked(width: int) -> int:
        return -(-line // width) * width

    few = _LEAST_VECTORS * lanes
    while count > 1 and (kept < few * count or walked(lanes * count) > _FILLED * walked(lanes)):
        count //= 2
    return count


def _grouped(
    space: Space, vectors: Vectors, conversion_group: int, streamed: tuple[Operand, ...]
) -> tuple[Operand, ...]:
    """The outputs of the type of dst whose vectors follow each other along a reduction; so many
    ``together`` are stored to a multiple of their size where stores are non-temporal."""
    lane, loop, size = vectors.lane, vectors.loop, vectors.lanes * conversion_group
    if conversion_group == 1 or not vectors.reduced or lane is None or loop is None:
        return ()
    walked = {lane, *space.axes, *space.inner}

    def joins(access: Access) -> bool:
        if access.operand.data_type is not space.dst.operand.data_type or access.offset is None:
            return False
        offset = access.offset
        if (offset.stride(lane), offset.stride(loop)) != (1, vectors.lanes):
            return False
        apart = [offset.const, *offset.without(lane, loop).strides.values()]
        fits = access.operand not in streamed or all(step % size == 0 for step in apart)
        return fits and offset.within(walked)

    return tuple(output for output in space.outputs if joins(space.accesses[output]))


def _shares_bytes(dst: Access, vectors: Vectors) -> bool:
    """Whether neighbouring vectors of 4-bit elements may begin or end in the middle of a byte."""
    return dst.byte_offset(vectors.lane, vectors.lanes) is None


def _settled(space: Space) -> Space:
    """The space with the reduced axes ordered, those with long steps outside, and with the
    operands known of which whole vectors may be read everywhere."""
    accesses = {
        # Iterations of a line may lie behind the axes that it has been made of.
        access.operand: replace(access, contained=not space.lines and access.stays_in_buffer)
        for access in space.reads
    }
    inner = tuple(sorted(space.inner, key=lambda axis: -_farthest(space, axis)))
    return replace(space, inner=inner, accesses={**space.accesses, **accesses})


def _farthest(space: Space, axis: Axis) -> int:
    """The longest step that any operand makes along ``axis``."""
    offsets = [access.offset for access in space.accesses.values() if access.offset is not None]
    return max((abs(form.stride(axis)) for form in offsets), default=0)


def _streamed(
    space: Space,
    vectors: Vectors,
    squares: Squares | None,
    loops: list[Loop],
    caches: Caches,
) -> tuple[Operand, ...]:
    """The first output, and those in the same buffer: if the tensors are large together and every
    whole vector fills cache lines, alone or with the next."""
    parts, factor = space.parts_of_dst, interleave_factor(space, space.dst, vectors.lane)
    every = all(aligned(space.accesses[output], vectors, factor) for output in parts)
    return parts if every and _can_stream(space, vectors, squares, loops, caches) else ()


def _can_stream(
    space: Space,
    vectors: Vectors,
    squares: Squares | None,
    loops: list[Loop],
    caches: Caches,
) -> bool:
    tensors, dst = {operand.slot: operand.desc for operand in space.accesses}, space.dst
    # Of tensors that are parts of larger ones, their part alone.
    sizes = ((desc.data_type, desc.nelems(padded=True)) for desc in tensors.values())
    nbytes = sum(data_type.nbytes(count) for data_type, count in sizes)
    if nbytes < min(caches.streamed, caches.streamed_rows) or dst.offset is None:
        return False
    few = _rows_written(space, vectors, squares, loops) <= caches.prefetch_streams
    if nbytes < (caches.streamed_rows if few else caches.streamed):
        return False
    innermost = loops[-1].axis if loops else None
    if vectors.reduced:
        innermost = vectors.loop
    nearest = innermost if squares is None else squares.tile
    neighbours = nearest is not None and dst.offset.stride(nearest) == vectors.lanes
    # Where a fold stores to dst, all its rows come between a vector and the next.
    neighbours = neighbours and (vectors.reduced or space.invariant(dst))
    return neighbours or fills_lines(dst, vectors, interleave_factor(space, dst, vectors.lane))


def _rows_written(
    space: Space, vectors: Vectors, squares: Squares | None, loops: list[Loop]
) -> int:
    """How many rows of dst are written side by side: before the first of them goes on."""
    dst = space.dst
    moving = [loop.axis for loop in loops if space.step_bytes(dst, loop.axis)]
    along = min(moving, key=lambda axis: space.step_bytes(dst, axis), default=None)
    inside = [loop.axis for loop in loops].index(along) + 1 if along is not None else 0
    rows = prod(loop.count for loop in loops[inside:] if loop.axis is not along)
    if squares is not None and space.step(dst, squares.tile) > vectors.lanes:
        rows *= squares.columns
    return rows
