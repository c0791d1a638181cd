"""How a loop nest is walked: blocked axes split, contiguous ones merged, a vector axis chosen.

``schedule`` turns the logical axes of a kernel into the loops that the generated code runs:

1. an axis that an operand blocks is split at the block boundaries, so that every operand's offset
   becomes affine: ``c -> 16 * c_o + c_i``;
2. neighbouring axes that are contiguous in every operand are merged, so that a dense tensor is
   walked as one line whatever its shape;
3. the axis along which the destination is contiguous becomes the vector axis and is split by the
   number of lanes;
4. an operand that is read, and contiguous along another axis, gets that axis as its tile axis: rows
   of 128 bits are loaded along it, one for each lane, and transposed in registers;
5. axes that would fill vectors badly are walked as one line with what lies around them;
6. the loops that remain are ordered by ``walk``;
7. what no cache would keep until it is read is written past the caches if whole lines allow it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import log2, prod

from dnnl.codegen.access import NEAR, Access, Bound, Operand
from dnnl.codegen.address import ZERO, Affine, Axis
from dnnl.codegen.isa.caches import LINE, Caches
from dnnl.codegen.walk import Loop, Square, arrange

# What a gather and a scatter cost for each lane, and a step of a reduction across lanes, in loads.
_GATHER, _SCATTER, _ACROSS = 1.5, 2.0, 3.0
# How much of its last block an axis must fill, on average, not to be made longer.
_WELL_FILLED = 0.8
# The units of which the registers of all machines are made.
_UNIT_BITS = 128


@dataclass(eq=False)
class Line:
    """Two axes that one operand has behind each other in memory, walked by it as one: ``form`` is
    ``inner.extent * outer + inner``. Other operands need the values of both axes."""

    form: Affine
    outer: Axis
    inner: Axis


@dataclass(eq=False)
class Schedule:
    """The loops of a nest, through ``caches``.

    ``axes`` are what remains to be walked of the parallel axes, and ``loops`` how that is done: in
    this order, the outer ones shared out as work items. ``inner`` are the loops of a reduction.
    ``lane`` is the vector axis, inside the loops of a reduction if ``lane_inside``; ``vector`` is
    the loop over whole vectors. ``tile`` is the axis of in-register transposition, ``pieces`` how
    many tiles make a row of the ``square`` that is loaded at a time, and ``along`` the loop over
    squares in the direction of their rows; meanwhile that of a later iteration of ``ahead`` is
    fetched. ``lines`` are the axes that have been made of two, the inner ones first. ``streamed``
    allows stores past the caches; ``serial`` forbids sharing out any loop.

    Inside the bounds ``domain`` an iteration has a value; outside them, but inside ``exists``, it
    only writes the zeros of padding.
    """

    lanes: int
    caches: Caches
    axes: list[Axis]
    inner: list[Axis]
    lane: Axis | None
    vector: Axis | None
    lane_inside: bool
    tile: Axis | None
    accesses: dict[Operand, Access]
    domain: list[Bound]
    exists: list[Bound]
    pieces: Axis | None = None
    square: Square | None = None
    along: Axis | None = None
    lines: list[Line] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    ahead: Axis | None = None
    streamed: bool = False
    serial: bool = False

    @property
    def work_per_point(self) -> int:
        """How many iterations one point of the loops stands for."""
        return self.lanes * self.columns * prod(axis.extent for axis in self.inner)

    @property
    def columns(self) -> int:
        """How many vectors one point of the loops stands for."""
        if self.tile is None or self.pieces is None:
            return 1
        return self.tile.extent * self.pieces.extent

    def transposed(self, access: Access) -> bool:
        """Whether the operand is read in squares along the tile axis."""
        if self.tile is None or access.offset is None:
            return False
        return self.across(access) and access.offset.stride(self.tile) == 1

    def across(self, access: Access) -> bool:
        """Whether the operand lies across the lanes, and does not move with a reduction."""
        if access.offset is None or self.lane is None:
            return False
        still = not any(access.offset.stride(axis) for axis in self.inner)
        return still and self.step(access, self.lane) not in (0, 1)

    def step(self, access: Access, axis: Axis) -> int:
        """How far a step along an axis goes in an operand whose offset is affine, in elements;
        about how far where a line is walked whose axes lie apart in this operand."""
        assert access.offset is not None
        stride = access.offset.stride(axis)
        for line in self.lines:
            count = line.form.stride(axis)
            if count == 1:
                stride = stride or self.step(access, line.inner)
            elif count:
                stride = stride or self.step(access, line.outer) * count // line.inner.extent
        return stride

    def far(self, access: Access, axis: Axis) -> int:
        """The length of a step along an axis in bytes; 0 where it differs from place to place."""
        if access.offset is None:
            return 0
        return abs(self.step(access, axis)) * access.operand.desc.data_type.bits // 8


def schedule(
    lanes: int,
    caches: Caches,
    parallel: Sequence[Axis],
    reduced: Sequence[Axis],
    operands: Sequence[Operand],
    dst: Operand,
    where: Sequence[Bound] = (),
) -> Schedule:
    """Plan the walk over ``parallel`` x ``reduced``, through ``caches``; ``dst`` decides order and
    vector axis, of which a vector takes at most ``lanes`` iterations.

    Only iterations inside the bounds ``where`` exist.
    """
    splitting = {axis: _split(axis, operands, dst) for axis in (*parallel, *reduced)}
    domain = [
        Bound(form, axis.extent) for axis, form in splitting.items() if form.high >= axis.extent
    ]
    accesses = {}
    for operand in operands:
        index = tuple(_substitute(form, splitting) for form in operand.index)
        accesses[operand] = Access.of(operand, index)
    axes = [piece for axis in parallel for piece in splitting[axis].strides]
    inner = [piece for axis in reduced for piece in splitting[axis].strides]
    exists = [Bound(_substitute(bound.form, splitting), bound.limit) for bound in where]
    exists = [bound for bound in exists if bound.needed]
    plan = Schedule(lanes, caches, axes, inner, None, None, False, None, accesses, domain, exists)
    _merge_all(plan, plan.axes)
    _merge_all(plan, plan.inner)
    _vectorize(plan, accesses[dst])
    reads = [access for operand, access in accesses.items() if operand is not dst]
    plan.loops, plan.ahead = arrange(plan.axes, reads, accesses[dst], plan.square, plan.far, caches)
    plan.inner.sort(key=lambda axis: -_farthest(plan, axis))
    plan.streamed = _can_stream(plan, accesses[dst])
    for access in reads:
        # Iterations of a line may lie behind the axes that it has been made of.
        access.contained = not plan.lines and access.stays_in_buffer
    return plan


def _split(axis: Axis, operands: Sequence[Operand], dst: Operand) -> Affine:
    """Cut an axis at the block boundaries of the operands that it walks one by one."""
    extent = axis.extent
    boundaries: set[int] = set()
    for operand in (dst, *operands):
        for dim, form in enumerate(operand.index):
            if form.strides != {axis: 1}:
                continue
            if operand is dst and form.const == 0:
                extent = max(extent, operand.desc.padded_dims[dim])
            sizes = operand.boundaries(dim)
            if sizes and form.const % sizes[-1] == 0 and _chain(boundaries | set(sizes)):
                boundaries |= set(sizes)
    pieces = ZERO
    step = 1
    for number, size in enumerate(sorted(size for size in boundaries if 1 < size < extent)):
        pieces = pieces + Affine.of(Axis(size // step, f"{axis.name}{number}"), step)
        step = size
    outer = -(-extent // step)
    return pieces + Affine.of(Axis(outer, axis.name), step) if outer > 1 else pieces


def _chain(sizes: set[int]) -> bool:
    ordered = sorted(sizes)
    return all(b % a == 0 for a, b in pairwise(ordered))


def _substitute(form: Affine, splitting: dict[Axis, Affine]) -> Affine:
    result = Affine({}, form.const)
    for axis, stride in form.strides.items():
        result = result + splitting[axis] * stride
    return result


def _merge_all(plan: Schedule, axes: list[Axis]) -> None:
    """Merge pairs of axes until none is contiguous in every operand any more."""
    merged = True
    while merged:
        merged = False
        for outer in axes:
            inner = next((axis for axis in axes if _mergeable(plan, outer, axis)), None)
            if inner is not None:
                _merge(plan, axes, outer, inner)
                merged = True
                break


def _mergeable(plan: Schedule, outer: Axis, inner: Axis) -> bool:
    if outer is inner or _bounded(plan, outer, inner):
        return False
    offsets = [access.offset for access in plan.accesses.values()]
    return all(
        form is not None and form.stride(outer) == form.stride(inner) * inner.extent
        for form in offsets
    )


def _bounded(plan: Schedule, *axes: Axis) -> bool:
    """Whether any bound depends on one of the axes."""
    bounds = [*plan.domain, *plan.exists]
    bounds += [bound for access in plan.accesses.values() for bound in access.window]
    return any(bound.form.stride(axis) for bound in bounds for axis in axes)


def _merge(plan: Schedule, axes: list[Axis], outer: Axis, inner: Axis) -> None:
    line = Axis(outer.extent * inner.extent, f"{outer.name}{inner.name}")
    for access in plan.accesses.values():
        assert access.offset is not None
        stride = access.offset.stride(inner)
        access.offset = access.offset.without(outer, inner) + Affine.of(line, stride)
        access.index = ()
    axes[axes.index(outer)] = line
    axes.remove(inner)


def _replace(
    plan: Schedule, axes: list[Axis], old: Axis, loop: Axis, inside: Affine, size: int
) -> None:
    """Split ``old`` into a loop over blocks of ``size`` iterations, and what lies inside one."""
    form = Affine.of(loop, size) + inside
    for access in plan.accesses.values():
        if access.offset is not None:
            access.offset = access.offset.substitute(old, form)
        access.index = tuple(index.substitute(old, form) for index in access.index)
        access.window = [Bound(b.form.substitute(old, form), b.limit) for b in access.window]
    plan.domain = [Bound(b.form.substitute(old, form), b.limit) for b in plan.domain]
    plan.exists = [Bound(b.form.substitute(old, form), b.limit) for b in plan.exists]
    for line in plan.lines:
        line.form = line.form.substitute(old, form)
    if old.extent % size:
        plan.exists.append(Bound(form, old.extent))
    place = axes.index(old)
    axes[place : place + 1] = [loop] if loop.extent > 1 else []


def _vectorize(plan: Schedule, dst: Access) -> None:
    """Choose the vector axis and, for operands that run across it, the tile axis."""
    axes = [*plan.axes, *plan.inner]
    vector = min(axes, key=lambda axis: _cost(plan, dst, axis), default=None)
    if vector is None:
        plan.lanes = 1
        return
    plan.lane_inside = vector in plan.inner
    axes = plan.inner if plan.lane_inside else plan.axes
    if not plan.lane_inside:
        vector = _lengthen(plan, dst, vector, plan.lanes)
    plan.lanes = min(plan.lanes, _round_up_power(vector.extent))
    plan.lane = Axis(plan.lanes, "lane")
    plan.vector = Axis(-(-vector.extent // plan.lanes), vector.name)
    _replace(plan, axes, vector, plan.vector, Affine.of(plan.lane), plan.lanes)
    if plan.lane_inside or plan.lanes == 1:
        return
    for access in plan.accesses.values():
        tile = None if access is dst else _tile_axis(plan, access)
        if tile is not None:
            plan.tile = Axis(_row_length(plan, access, tile), "tile")
            plan.square = _square(plan, tile, access, dst)
            line = _lengthen(plan, access, tile, plan.tile.extent)
            # Where rows lie along a line, their addresses cost more than the sets they share.
            divided = line is tile and plan.lines
            pieces = plan.square.most_pieces if divided else plan.square.pieces
            plan.pieces = Axis(pieces, "piece")
            at_once = plan.tile.extent * plan.pieces.extent
            loop = Axis(-(-line.extent // at_once), line.name)
            inside = Affine.of(plan.pieces, plan.tile.extent) + Affine.of(plan.tile)
            _replace(plan, plan.axes, line, loop, inside, at_once)
            plan.along = loop
            return


def _cost(plan: Schedule, dst: Access, axis: Axis) -> tuple[float, int]:
    """What memory access costs for each point, in loads of a vector, if vectors lie along ``axis``;
    of equal ones the longest axis is the best."""
    lanes = min(plan.lanes, _round_up_power(axis.extent))
    share = -(-axis.extent // lanes) / axis.extent
    inside = axis in plan.inner
    repeats = prod(inner.extent for inner in plan.inner)
    total = _ACROSS * log2(lanes) if inside else 0.0
    for access in plan.accesses.values():
        repeated = any(_stride(access, inner) != 0 for inner in plan.inner)
        if inside and not repeated:
            total += 1.0
        else:
            count = repeats if repeated else 1
            total += count * share * _vector_cost(plan, access, axis, lanes, access is dst)
    return total, -axis.extent


def _vector_cost(plan: Schedule, access: Access, axis: Axis, lanes: int, written: bool) -> float:
    stride = _stride(access, axis)
    if stride in (0, 1):
        return 1.0
    if written:
        return _SCATTER * lanes
    if stride is not None and 1 < stride <= NEAR:
        return stride + 1.0
    moves = any(_stride(access, inner) != 0 for inner in plan.inner)
    rows = min(lanes, _UNIT_BITS // max(8, access.operand.desc.data_type.bits))
    tiled = not moves and any(
        other is not axis and _stride(access, other) == 1 and 2 * other.extent >= rows
        for other in plan.axes
    )
    return 2.0 if tiled else _GATHER * lanes


def _stride(access: Access, axis: Axis) -> int | None:
    """How far a step along ``axis`` goes; None if that differs from place to place."""
    if access.offset is not None:
        return access.offset.stride(axis)
    return None if any(form.stride(axis) for form in access.index) else 0


def _tile_axis(plan: Schedule, access: Access) -> Axis | None:
    """The loop along which ``access`` is contiguous, if it runs across the vector axis."""
    if access.offset is None or not plan.across(access):
        return None
    across = (axis for axis in plan.axes if axis is not plan.vector)
    return next((axis for axis in across if _row_axis(plan, access, axis)), None)


def _square(plan: Schedule, tile: Axis, src: Access, dst: Access) -> Square:
    """Squares with rows along ``tile``, one for each lane, of which registers hold 16 columns."""
    assert plan.lane is not None
    rows = _row_length(plan, src, tile)
    pieces = max(1, min(4, min(plan.lanes, 16) // rows, -(-tile.extent // rows)))
    apart = plan.far(src, plan.lane), plan.far(dst, tile)
    return Square(*apart, plan.lanes, pieces, _fills_lines(plan, dst), plan.caches)


def _lengthen(plan: Schedule, access: Access, axis: Axis, size: int) -> Axis:
    """The axis, or where blocks of ``size`` would be badly filled, the line that it makes with the
    axis that lies around it in the operand, if that is only read across it."""
    while axis.extent < _WELL_FILLED * size * -(-axis.extent // size):
        around = (other for other in plan.axes if _lies_around(plan, access, other, axis))
        outer = next(around, None)
        if outer is None or not _only_across(plan, access, outer, axis):
            break
        assert access.offset is not None
        line = Axis(outer.extent * axis.extent, f"{outer.name}{axis.name}")
        stride = access.offset.stride(axis)
        access.offset = access.offset.without(outer, axis) + Affine.of(line, stride)
        access.index = ()
        plan.lines.append(Line(Affine.of(line), outer, axis))
        plan.axes[plan.axes.index(outer)] = line
        plan.axes.remove(axis)
        axis = line
    return axis


def _lies_around(plan: Schedule, access: Access, outer: Axis, inner: Axis) -> bool:
    """Whether a step along ``outer`` goes as far as all of ``inner``; neither has bounds."""
    if access.offset is None or outer in (inner, plan.vector):
        return False
    far = access.offset.stride(inner) * inner.extent
    return access.offset.stride(outer) == far and not _bounded(plan, outer, inner)


def _only_across(plan: Schedule, access: Access, outer: Axis, inner: Axis) -> bool:
    """Whether no other operand needs vectors along the two axes: before there are lanes, each must
    stay where it is along both or be read in rows along one other axis, the same for all; when
    there are, none may be read in rows along these."""
    row_axes = set()
    for other in plan.accesses.values():
        if other is access:
            continue
        if other.offset is None:
            return False
        steps = {other.offset.stride(axis) for axis in (outer, inner)}
        if 1 in steps:
            return False
        if plan.lane is None and steps != {0}:
            rows = [axis for axis in plan.axes if _row_axis(plan, other, axis)]
            if 0 in steps or len(rows) != 1:
                return False
            row_axes.add(rows[0])
    return len(row_axes) <= 1


def _row_axis(plan: Schedule, access: Access, axis: Axis) -> bool:
    """Whether an operand can be read in rows along an axis."""
    assert access.offset is not None
    still = not any(access.offset.stride(inner) for inner in plan.inner)
    return still and access.offset.stride(axis) == 1 and 2 * axis.extent >= _rows(plan, access)


def _row_length(plan: Schedule, access: Access, axis: Axis) -> int:
    """The length of the rows along an axis in which squares of an operand are loaded: 128 bits, if
    not more than there are lanes; half of that where a short axis has no more of 4 bits."""
    rows = _rows(plan, access)
    longer = _UNIT_BITS // access.operand.desc.data_type.bits
    return min(plan.lanes, longer) if axis.extent > rows else rows


def _rows(plan: Schedule, access: Access) -> int:
    """The length of the shortest rows in which squares of an operand are loaded: 128 bits in
    registers, where elements of 4 bits may have bytes, if not more than there are lanes."""
    return min(plan.lanes, _UNIT_BITS // max(8, access.operand.desc.data_type.bits))


def _can_stream(plan: Schedule, dst: Access) -> bool:
    """Whether the tensors are large together and every whole vector fills cache lines, alone or
    with the next."""
    descs = [operand.desc for operand in plan.accesses]
    # Of tensors that are parts of larger ones, their part alone.
    nbytes = sum(desc.data_type.nbytes(desc.nelems(padded=True)) for desc in descs)
    if nbytes < plan.caches.streamed or dst.offset is None or plan.lane_inside:
        return False
    few = _rows_written(plan, dst) <= plan.caches.rows_foreseen
    if few and not plan.caches.streams_few_rows:
        return False
    nearest = plan.tile or (plan.loops[-1].axis if plan.loops else None)
    neighbours = nearest is not None and dst.offset.stride(nearest) == plan.lanes
    return _aligned(plan, dst) and (neighbours or _fills_lines(plan, dst))


def _rows_written(plan: Schedule, dst: Access) -> int:
    """How many rows of dst are written side by side: before the first of them goes on."""
    moving = [loop.axis for loop in plan.loops if plan.far(dst, loop.axis)]
    along = min(moving, key=lambda axis: plan.far(dst, axis), default=None)
    inside = [loop.axis for loop in plan.loops].index(along) + 1 if along is not None else 0
    rows = prod(loop.count for loop in plan.loops[inside:] if loop.axis is not along)
    if plan.tile is not None and plan.step(dst, plan.tile) > plan.lanes:
        rows *= plan.columns
    return rows


def _fills_lines(plan: Schedule, dst: Access) -> bool:
    """Whether every whole vector is stored to whole cache lines."""
    return _aligned(plan, dst) and plan.lanes * dst.operand.desc.data_type.bits % (8 * LINE) == 0


def _aligned(plan: Schedule, dst: Access) -> bool:
    """Whether every whole vector is stored to a multiple of its size."""
    if dst.offset is None or plan.lane is None or dst.offset.stride(plan.lane) != 1:
        return False
    apart = [dst.offset.const, *dst.offset.without(plan.lane).strides.values()]
    return all(stride % plan.lanes == 0 for stride in apart)


def _farthest(plan: Schedule, axis: Axis) -> int:
    """The longest step that any operand makes along ``axis``."""
    offsets = [access.offset for access in plan.accesses.values() if access.offset is not None]
    return max((abs(form.stride(axis)) for form in offsets), default=0)


def _round_up_power(value: int) -> int:
    return 1 << (value - 1).bit_length()
