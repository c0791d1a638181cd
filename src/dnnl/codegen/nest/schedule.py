"""The schedule of a loop nest: split blocked axes, merge contiguous ones, choose a vector axis.

``schedule`` turns the logical axes of a kernel into loops:

1. ``space`` splits axes at block boundaries, which makes every operand's offset affine, and
   merges axes that are contiguous in every operand;
2. ``vectorize`` chooses the vector axis and, for operands that are strided along it, the axis
   along which squares are loaded and transposed in registers;
3. ``loop_order`` orders the remaining loops;
4. tensors that do not fit in the caches are stored non-temporally, if the stores fill whole
   cache lines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import prod

from llvmlite import ir

from dnnl.codegen.conversion import convert
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32
from dnnl.codegen.isa import Isa
from dnnl.codegen.isa.caches import Caches
from dnnl.codegen.memory.access import Access, Bound, Operand
from dnnl.codegen.memory.address import Axis
from dnnl.codegen.nest.groups import in_groups
from dnnl.codegen.nest.loop_order import Loop, arrange, block_for_l1
from dnnl.codegen.nest.shared_squares import SharedSquares, in_shared_squares
from dnnl.codegen.nest.space import Space, stride
from dnnl.codegen.nest.vectorize import (
    Squares,
    Vectors,
    aligned,
    has_whole_lines,
    in_rows,
    interleave_factor,
    vectorize,
)
from dnnl.types.size import is_known, separates, surely_at_most, surely_divides, typical


@dataclass(frozen=True, eq=False)
class Schedule:
    """The loops of a nest.

    ``loops`` are the loops over the parallel axes of ``space``, outermost first; the outer ones
    become work items. A point of the loops is one of ``vectors``, or all vectors of ``squares``.
    Squares prefetch a later iteration of ``prefetch_axis``. ``streamed`` are the outputs that may
    be stored non-temporally. A ``serial`` nest is one work item. ``conversion_group`` consecutive
    vectors of the outputs ``grouped`` are converted at once.
    """

    space: Space
    vectors: Vectors
    squares: Squares | SharedSquares | None
    loops: tuple[Loop, ...]
    prefetch_axis: Axis | None = None
    streamed: tuple[Operand, ...] = ()
    serial: bool = False
    conversion_group: int = 1
    grouped: tuple[Operand, ...] = ()

    @property
    def accesses(self) -> Mapping[Operand, Access]:
        """The access of each operand."""
        return self.space.accesses

    @cached_property
    def tails(self) -> tuple[Bound, ...]:
        """The bounds that only limit the vector axis of a reduction: they are peeled off its
        loop."""
        line = {self.vectors.lane: 1, self.vectors.loop: self.vectors.lanes}
        return tuple(
            bound
            for bound in self.space.bounds
            if self.vectors.reduced and bound.form.const == 0 and bound.form.strides == line
        )

    @cached_property
    def bounds(self) -> tuple[Bound, ...]:
        """The other bounds that some iteration violates."""
        tails = self.tails
        return tuple(bound for bound in self.space.bounds if bound not in tails and bound.needed)

    @cached_property
    def fold_bounds(self) -> tuple[Bound, ...]:
        """The bounds of the iterations of a fold.

        Ends that do not depend on the reduced axes are left out if the stored outputs end there
        too: the lanes past them are never stored, or stored as zero.
        """
        space, vectors = self.space, self.vectors
        stored = (*space.exists, *space.domain)
        limits = {bound.form: bound.limit for bound in stored}

        def beyond(end: Bound) -> bool:
            limit = limits.get(end.form)
            return limit is None or not surely_at_most(limit, end.limit)

        moving = {*space.inner, vectors.lane} if vectors.reduced else {*space.inner}

        def moves(bound: Bound) -> bool:
            return not moving.isdisjoint(bound.form.strides)

        ends = [end for read in space.reads for end in read.ends]
        seen = [end for end in ends if moves(end) or beyond(end)]
        inside = [bound for read in space.reads for bound in read.inside]
        return (*filter(moves, stored), *seen, *inside)

    @property
    def work_per_point(self) -> int:
        """The iterations of one point of the loops."""
        return self.vectors.lanes * self.columns * prod(axis.typical for axis in self.space.inner)

    @property
    def columns(self) -> int:
        """The vectors of one point of the loops."""
        return 1 if self.squares is None else self.squares.columns

    def transposed(self, access: Access) -> bool:
        """Whether the operand is loaded in squares."""
        squares = self.squares
        return squares is not None and in_rows(self.space, self.vectors, squares.tile, access)

    @property
    def group(self) -> int:
        """The items of a work-group that do a point together."""
        if self.vectors.grouped:
            return self.vectors.lanes
        return self.squares.items if isinstance(self.squares, SharedSquares) else 1


@dataclass(frozen=True)
class Style:
    """What a nest asks of its schedule besides the loop order.

    Vectors hold values of ``core`` and span ``registers`` registers, unless a conversion is
    combined with a transposition; None means as many as are best converted at once. Vectors across
    the rows of a reduction, if these are long, span ``reduction_unroll`` registers: each row is
    then read a few lines at a time, since the first-level cache holds few lines of rows that are a
    power of two apart. Vectors span ``unroll`` registers where few lanes of the last one stay
    empty: long dependency chains overlap, which out-of-order execution would not achieve across
    iterations. ``copied``: nothing is converted. ``reads_dst``: dst is read as well, so it should
    stay in the cache.
    """

    core: ir.Type = F32
    registers: int | None = 1
    reduction_unroll: int = 1
    unroll: int = 1
    copied: bool = False
    reads_dst: bool = False


def widths(isa: Isa, core: ir.Type) -> tuple[int, int]:
    """The lanes of a vector register of ``core``, and those of its 128-bit unit."""
    if isa.lanes == 1:
        return 1, 1  # scalars of any type
    lanes, unit = isa.vector_bits // vector.bits(core), 128 // vector.bits(core)
    return min(lanes, isa.most_lanes or lanes), unit


_PLAIN = Style()
_LEAST_VECTORS, _FILLED = 16, 1.1
_FILLED_TYPICALLY = 1.4  # most rows are longer than the typical one
_SHORT_ROW = 48  # elements
REDUCTION_UNROLL = 8
"""The default `reduction_unroll`, in registers."""


UNROLL = 4
"""The default `unroll` of long dependency chains, in registers."""


def schedule(isa: Isa, space: Space, style: Style = _PLAIN) -> Schedule:
    """The schedule of ``space``."""
    space = space.merged()
    _classify(space)
    shared = in_groups(isa, space)
    if shared is not None:
        space, vectors = shared
        loops, _ = arrange(space.axes, space.reads, space.dst, None, space.step_bytes, isa.caches)
        return Schedule(_settled(space), vectors, None, tuple(loops))
    transposed = in_shared_squares(isa, space)
    if transposed is not None:
        space, vectors, shared_squares = transposed
        far = partial(space.step_bytes, space.dst)
        ordered = sorted(space.axes, key=far, reverse=True)
        return Schedule(_settled(space), vectors, shared_squares, tuple(map(Loop, ordered)))
    lanes, _ = widths(isa, style.core)
    nibbles = space.outputs[0].desc.data_type.bits == 4
    if nibbles:
        lanes = max(lanes, 2)  # two elements of a byte are stored at once
    conversion_group = convert.conversion_group(isa, space.dst.operand.data_type, style.core)
    longest, wide = isa.most_registers(lanes), 1
    registers = min(style.registers or conversion_group, longest)
    if longest > 1 and not nibbles:
        registers = _unroll(space, lanes, registers, min(style.unroll, longest), isa.caches)
        wide = _reduction_unroll(space, lanes, min(style.reduction_unroll, longest))
    vectorized = vectorize(space, lanes * max(registers, wide), isa.caches)
    if wide > registers and (vectorized[1].reduced or vectorized[2] is not None):
        vectorized = vectorize(space, lanes * registers, isa.caches)
    if registers > 1 and vectorized[2] is not None and not style.copied:
        # A square of longer vectors does not fit in registers.
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
    if caches.non_temporal and not (nibbles or style.reads_dst):
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


def _classify(space: Space) -> None:
    """Give short rows of a reduction code of their own, where only an execution knows: vectors
    that fill them are others, or do not go along them."""
    for axis in space.inner:
        if any(stride(access, axis) == 1 for access in space.reads):
            separates(axis.extent, _SHORT_ROW)


def _unroll(space: Space, lanes: int, registers: int, count: int, caches: Caches) -> int:
    """The registers that a vector spans to overlap dependency chains, at most ``count``; at least
    ``registers``."""

    def walked(count: int) -> int | None:
        _, vectors, squares = vectorize(space, lanes * count, caches)
        long = squares is None and vectors.loop is not None and vectors.lanes == lanes * count
        return vectors.lanes * vectors.loop.typical if vectors.loop is not None and long else None

    single = walked(1)
    longer = any(axis.typical >= _SHORT_ROW and not is_known(axis.extent) for axis in space.inner)
    filled = _FILLED_TYPICALLY if longer else _FILLED
    while count > registers:
        size = walked(count)
        if size is not None and single is not None and size <= filled * single:
            return count
        count //= 2
    return registers


def _reduction_unroll(space: Space, lanes: int, count: int) -> int:
    """The registers that a vector spans across the rows of a reduction, at most ``count``: as many
    as leave enough work items and few empty lanes."""
    points = prod(axis.typical for axis in space.axes)
    steps = ((axis, stride(space.dst, axis)) for axis in space.axes)
    known = ((axis, step) for axis, step in steps if step is not None and is_known(step))
    line = next((axis.typical for axis, step in known if step == 1), 1)

    def walked(width: int) -> int:
        return -(-line // width) * width

    few = _LEAST_VECTORS * lanes
    while count > 1 and (points < few * count or walked(lanes * count) > _FILLED * walked(lanes)):
        count //= 2
    return count


def _grouped(
    space: Space, vectors: Vectors, conversion_group: int, streamed: tuple[Operand, ...]
) -> tuple[Operand, ...]:
    """The outputs whose consecutive vectors along a reduction are converted at once: those of dst's
    type. If stores are non-temporal, the group must be aligned."""
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
        fits = access.operand not in streamed or all(surely_divides(size, step) for step in apart)
        return fits and offset.within(walked)

    return tuple(output for output in space.outputs if joins(space.accesses[output]))


def _shares_bytes(dst: Access, vectors: Vectors) -> bool:
    """Whether adjacent vectors of 4-bit elements may share a byte."""
    return dst.byte_offset(vectors.lane, vectors.lanes) is None


def _settled(space: Space) -> Space:
    """The space with its reduced axes sorted by stride, and with the operands marked that can be
    loaded without masks everywhere."""
    accesses = {
        # Iterations of a line may be past the end of the axes that it was made of.
        access.operand: replace(access, contained=not space.lines and access.stays_in_buffer)
        for access in space.reads
    }
    inner = tuple(sorted(space.inner, key=lambda axis: -_farthest(space, axis)))
    return replace(space, inner=inner, accesses={**space.accesses, **accesses})


def _farthest(space: Space, axis: Axis) -> int:
    """The longest stride of any operand along ``axis``."""
    offsets = [access.offset for access in space.accesses.values() if access.offset is not None]
    return max((abs(typical(form.stride(axis))) for form in offsets), default=0)


def _streamed(
    space: Space,
    vectors: Vectors,
    squares: Squares | None,
    loops: list[Loop],
    caches: Caches,
) -> tuple[Operand, ...]:
    """The first output and those in the same buffer, if the tensors are large together and each
    whole vector fills cache lines, alone or with the next one."""
    parts, factor = space.parts_of_dst, interleave_factor(space, space.dst, vectors.lane)

    def all_aligned(divides: Callable[[int, int], bool]) -> bool:
        return all(aligned(space.accesses[output], vectors, factor, divides) for output in parts)

    # Only for large tensors it matters what divides their sizes.
    large = all_aligned(_may_divide) and _can_stream(space, vectors, squares, loops, caches)
    return parts if large and all_aligned(_divides) else ()


def _may_divide(divisor: int, value: int) -> bool:
    return not is_known(value) or value % divisor == 0


def _divides(divisor: int, value: int) -> bool:
    """Whether a number is a multiple; if only an execution knows, each case has its kernels."""
    return value % divisor == 0


def _can_stream(
    space: Space,
    vectors: Vectors,
    squares: Squares | None,
    loops: list[Loop],
    caches: Caches,
) -> bool:
    dst = space.dst
    if dst.offset is None:
        return False
    innermost = loops[-1].axis if loops else None
    if vectors.reduced:
        innermost = vectors.loop
    nearest = innermost if squares is None else squares.tile
    neighbours = nearest is not None and dst.offset.stride(nearest) == vectors.lanes
    # If a fold stores to dst, all its rows are between a vector and the next.
    neighbours = neighbours and (vectors.reduced or space.invariant(dst))
    factor = interleave_factor(space, dst, vectors.lane)
    if not neighbours and not has_whole_lines(dst, vectors, factor):
        return False
    few = _rows_written(space, vectors, squares, loops) <= caches.prefetch_streams
    tensors = {operand.slot: operand.desc for operand in space.accesses}
    # Of sub-tensors, only the part that is touched.
    sizes = ((desc.data_type, desc.nelems(padded=True)) for desc in tensors.values())
    nbytes = sum(data_type.nbytes(count) for data_type, count in sizes)
    return not separates(nbytes, caches.streamed_rows if few else caches.streamed)


def _rows_written(
    space: Space, vectors: Vectors, squares: Squares | None, loops: list[Loop]
) -> int:
    """How many rows of dst are written in parallel, before the first of them continues."""
    dst = space.dst
    moving = [loop.axis for loop in loops if space.step_bytes(dst, loop.axis)]
    along = min(moving, key=lambda axis: space.step_bytes(dst, axis), default=None)
    inside = [loop.axis for loop in loops].index(along) + 1 if along is not None else 0
    rows = prod(loop.typical for loop in loops[inside:] if loop.axis is not along)
    if squares is not None and space.step(dst, squares.tile) > vectors.lanes:
        rows *= squares.columns
    return rows
