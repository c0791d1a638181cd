"""How a loop nest is walked: blocked axes split, contiguous ones merged, a vector axis chosen.

``schedule`` turns the logical axes of a kernel into the loops that the generated code runs:

1. an axis that an operand blocks is split at the block boundaries, so that every operand's offset
   becomes affine: ``c -> 16 * c_o + c_i``;
2. neighbouring axes that are contiguous in every operand are merged, so that a dense tensor is
   walked as one line whatever its shape;
3. the axis along which the destination is contiguous becomes the vector axis and is split by the
   number of lanes;
4. an operand that is contiguous along another axis gets that axis as its tile axis: squares of
   lanes x lanes elements are loaded along it and transposed in registers;
5. what remains is ordered by the strides of the destination, so that it is written as a stream;
   where a source wants its last two loops the other way round, the shorter one goes inside, so
   that both sides stay within few pages;
6. a destination that no cache would keep is written past the caches if whole lines allow it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log2, prod

from dnnl.codegen.access import NEAR, Access, Bound, Operand
from dnnl.codegen.address import ZERO, Affine, Axis

# A work item should outlast its own start by far, and there should be enough of them to share out.
_WORK_PER_ITEM = 8192
_MAX_ITEMS = 256
# What a gather and a scatter cost for each lane, and a step of a reduction across lanes, in loads.
_GATHER, _SCATTER, _ACROSS = 1.5, 2.0, 3.0
# More than the share of the last-level cache that the destination of one operation keeps.
_STREAMED_BYTES = 32 * 2**20
_LINE = 64


@dataclass(eq=False)
class Schedule:
    """The loops of a nest.

    ``loops`` are walked in order, the outer ones shared out as work items. ``inner`` are the
    loops of a reduction. ``lane`` is the vector axis, inside the loops of a reduction if
    ``lane_inside``; ``vector`` is the loop over whole vectors. ``tile`` is the axis of in-register
    transposition; while a square is worked on, that of the next iteration of ``ahead`` is fetched.
    ``streamed`` allows stores past the caches; ``serial`` forbids sharing out any loop.

    Inside the bounds ``domain`` an iteration has a value; outside them, but inside ``exists``, it
    only writes the zeros of padding.
    """

    lanes: int
    loops: list[Axis]
    inner: list[Axis]
    lane: Axis | None
    vector: Axis | None
    lane_inside: bool
    tile: Axis | None
    accesses: dict[Operand, Access]
    domain: list[Bound]
    exists: list[Bound]
    ahead: Axis | None = None
    streamed: bool = False
    serial: bool = False

    @property
    def work_per_point(self) -> int:
        """How many iterations one point of the loops stands for."""
        at_once = self.lanes * (self.tile.extent if self.tile else 1)
        return at_once * prod(axis.extent for axis in self.inner)

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
        return still and access.offset.stride(self.lane) not in (0, 1)


def schedule(
    lanes: int,
    parallel: Sequence[Axis],
    reduced: Sequence[Axis],
    operands: Sequence[Operand],
    dst: Operand,
    where: Sequence[Bound] = (),
) -> Schedule:
    """Plan the walk over ``parallel`` x ``reduced``; ``dst`` decides order and vector axis,
    of which a vector takes at most ``lanes`` iterations.

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
    loops = [piece for axis in parallel for piece in splitting[axis].strides]
    inner = [piece for axis in reduced for piece in splitting[axis].strides]
    exists = [Bound(_substitute(bound.form, splitting), bound.limit) for bound in where]
    exists = [bound for bound in exists if bound.needed]
    plan = Schedule(lanes, loops, inner, None, None, False, None, accesses, domain, exists)
    _merge_all(plan, plan.loops)
    _merge_all(plan, plan.inner)
    _vectorize(plan, accesses[dst])
    _order(plan, accesses[dst])
    plan.streamed = _can_stream(plan, accesses[dst])
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
    for number, size in enumerate(sorted(boundaries - {1})):
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
    if outer is inner:
        return False
    bounds = [*plan.domain, *plan.exists]
    bounds += [bound for access in plan.accesses.values() for bound in access.window]
    if any(bound.form.stride(outer) or bound.form.stride(inner) for bound in bounds):
        return False
    offsets = [access.offset for access in plan.accesses.values()]
    return all(
        form is not None and form.stride(outer) == form.stride(inner) * inner.extent
        for form in offsets
    )


def _merge(plan: Schedule, axes: list[Axis], outer: Axis, inner: Axis) -> None:
    line = Axis(outer.extent * inner.extent, f"{outer.name}{inner.name}")
    for access in plan.accesses.values():
        assert access.offset is not None
        stride = access.offset.stride(inner)
        access.offset = access.offset.without(outer, inner) + Affine.of(line, stride)
        access.index = ()
    axes[axes.index(outer)] = line
    axes.remove(inner)


def _replace(plan: Schedule, axes: list[Axis], old: Axis, loop: Axis, lane: Axis) -> None:
    """Split ``old`` into whole vectors (``loop``) and lanes."""
    form = Affine.of(loop, lane.extent) + Affine.of(lane)
    for access in plan.accesses.values():
        if access.offset is not None:
            access.offset = access.offset.substitute(old, form)
        access.index = tuple(index.substitute(old, form) for index in access.index)
        access.window = [Bound(b.form.substitute(old, form), b.limit) for b in access.window]
    plan.domain = [Bound(b.form.substitute(old, form), b.limit) for b in plan.domain]
    plan.exists = [Bound(b.form.substitute(old, form), b.limit) for b in plan.exists]
    if old.extent % lane.extent:
        plan.exists.append(Bound(form, old.extent))
    place = axes.index(old)
    axes[place : place + 1] = [loop] if loop.extent > 1 else []


def _vectorize(plan: Schedule, dst: Access) -> None:
    """Choose the vector axis and, for operands that run across it, the tile axis."""
    axes = [*plan.loops, *plan.inner]
    vector = min(axes, key=lambda axis: _cost(plan, dst, axis), default=None)
    if vector is None:
        plan.lanes = 1
        return
    plan.lane_inside = vector in plan.inner
    axes = plan.inner if plan.lane_inside else plan.loops
    plan.lanes = min(plan.lanes, _round_up_power(vector.extent))
    plan.lane = Axis(plan.lanes, "lane")
    plan.vector = Axis(-(-vector.extent // plan.lanes), vector.name)
    _replace(plan, axes, vector, plan.vector, plan.lane)
    if plan.lane_inside or plan.lanes == 1:
        return
    for access in plan.accesses.values():
        tile = _tile_axis(plan, access)
        if tile is not None:
            plan.tile = Axis(plan.lanes, "tile")
            loop = Axis(-(-tile.extent // plan.lanes), tile.name)
            _replace(plan, plan.loops, tile, loop, plan.tile)
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
    tiled = not moves and any(
        other is not axis and _stride(access, other) == 1 and 2 * other.extent >= lanes
        for other in plan.loops
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
    for axis in plan.loops:
        if axis is not plan.vector and access.offset.stride(axis) == 1:
            return axis if 2 * axis.extent >= plan.lanes else None
    return None


def _order(plan: Schedule, dst: Access) -> None:
    """Put the loops in the order in which the destination lies in memory."""
    offset = dst.offset if dst.offset is not None else ZERO

    def distance(axis: Axis) -> int:
        return -abs(offset.stride(axis))

    plan.loops.sort(key=distance)
    sources = [a.offset for a in plan.accesses.values() if a.offset is not None]
    if len(plan.loops) > 1:
        outer, inner = plan.loops[-2:]
        if any(0 < abs(form.stride(outer)) < abs(form.stride(inner)) for form in sources):
            plan.loops[-2:] = sorted((outer, inner), key=lambda axis: -axis.extent)
            plan.ahead = plan.loops[-2]
    plan.inner.sort(key=lambda axis: -max(abs(form.stride(axis)) for form in sources))


def _can_stream(plan: Schedule, dst: Access) -> bool:
    """Whether dst is large and every whole vector fills cache lines, alone or with the next."""
    offset, desc = dst.offset, dst.operand.desc
    nbytes = desc.data_type.nbytes(desc.nelems(padded=True))  # its part of the buffer alone
    if nbytes < _STREAMED_BYTES or offset is None or plan.lane is None or plan.lane_inside:
        return False
    bytes_at_once = plan.lanes * desc.data_type.size
    neighbours = bool(plan.loops) and offset.stride(plan.loops[-1]) == plan.lanes
    if offset.stride(plan.lane) != 1 or not (bytes_at_once % _LINE == 0 or neighbours):
        return False
    apart = [offset.const, *offset.without(plan.lane).strides.values()]
    return all(stride % plan.lanes == 0 for stride in apart)


def _round_up_power(value: int) -> int:
    return 1 << (value - 1).bit_length()


@dataclass(frozen=True)
class Items:
    """The outer loops shared out as work items: the first ``whole`` loops one iteration an item,
    and ``step`` iterations of the next loop, if that is not zero."""

    whole: int
    step: int
    count: int


def share_out(loops: Sequence[Axis], work_per_point: int) -> Items:
    """Cut the loops into work items of a sensible size."""
    work = prod(axis.extent for axis in loops) * work_per_point
    target = max(1, min(_MAX_ITEMS, work // _WORK_PER_ITEM))
    count = 1
    for whole, axis in enumerate(loops):
        if count >= target:
            return Items(whole, 0, count)
        wanted = -(-target // count)
        if axis.extent > 2 * wanted:
            step = -(-axis.extent // wanted)
            return Items(whole, step, count * -(-axis.extent // step))
        count *= axis.extent
    return Items(len(loops), 0, count)
