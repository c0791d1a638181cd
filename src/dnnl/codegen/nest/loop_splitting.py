"""Index-set splitting: cuts loops into ranges in which the outcome of bounds is known.

A bound such as ``16 * c_o + c_i < 250`` holds for all lanes while ``c_o < 15``, for some lanes at
``c_o == 15``, and for none past that. Code emitted for one range needs no comparisons: masks are
absent or constant, or stores are omitted. A window that overlaps both edges of an image has three
such ranges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from dnnl.codegen.memory.access import Bound, Half
from dnnl.codegen.memory.address import Axis
from dnnl.types.size import Size, larger, smaller, surely_equal, typical

# Limit of the code size. The body is emitted for each combination of ranges, twice if bounds are
# tested; masks and bounds make it longer.
_MOST_CODE = 320
# The iterations of a fold that are unrolled where lanes differ, at most.
MOST_WRITTEN = 16


@dataclass(frozen=True)
class Range:
    """The iterations ``begin <= axis < end``, and the bounds whose outcome is the same in all of
    them."""

    begin: int
    end: int
    known: Mapping[Bound, bool]


@dataclass(frozen=True)
class Variants:
    """Axes cut into ranges, and the bounds that are tested at run time."""

    ranges: Mapping[Axis, tuple[Range, ...]]
    tested: tuple[Bound, ...]


def cut(
    axes: Sequence[Axis],
    bounds: Sequence[Bound],
    bodies: int = 1,
    taps: int = 1,
    lane: Axis | None = None,
    *,
    any_length: bool = False,
) -> Variants:
    """Cut ``axes``, the loops around a point, so that few ``bounds`` are tested at run time.

    ``bodies`` is how often the body is emitted for a point, ``taps`` the iterations of its folds,
    which are unrolled at the edges of a window. Bounds that differ between lanes come first: as
    ranges they become constant masks, while bounds of whole vectors limit the loops of a fold
    anyway. Bounds that no loop controls stay masked. With ``any_length`` axes whose length only an
    execution knows have one form, at the cost of more tests outside of their interiors.
    """
    assigned: dict[Axis, list[Bound]] = {}
    tested, masked = [], False
    for bound in sorted(bounds, key=lambda bound: not _differs(bound, lane)):
        axis = max(axes, key=lambda axis: typical(bound.form.stride(axis)), default=None)
        if axis is not None and bound.form.stride(axis) > 0:
            assigned.setdefault(axis, []).append(bound)
        elif any(bound.form.stride(axis) for axis in axes):
            tested.append(bound)
        else:
            masked = True
    ranges: dict[Axis, tuple[Range, ...]] = {}
    combinations = 1
    for axis, own in assigned.items():
        known = _are_known(axis, own)
        pieces = tuple(_ranges(axis, own) if known else _interior(axis, own, any_length))
        code = combinations * len(pieces) * bodies * len(bounds) * (2 if tested or masked else 1)
        if any(bound.below_zero for bound in own):
            code *= min(taps, MOST_WRITTEN) if any(_differs(bound, lane) for bound in own) else taps
        if code > _MOST_CODE:
            tested += own
            continue
        combinations *= len(pieces)
        ranges[axis] = pieces
    return Variants(ranges, tuple(tested))


def _differs(bound: Bound, lane: Axis | None) -> bool:
    """Whether a bound may hold for only some lanes of a vector."""
    return lane is not None and bound.form.stride(lane) != 0


def _are_known(axis: Axis, bounds: Sequence[Bound]) -> bool:
    """Whether the ends of all ranges are constants."""
    ends = (end for bound in bounds for end in (*_whole(axis, bound), *_some(axis, bound)))
    return not any(isinstance(end, Size) for end in (axis.extent, *ends))


def _interior(axis: Axis, bounds: Sequence[Bound], any_length: bool) -> Iterator[Range]:
    """The range in which all bounds hold, and those around it. Only the execution knows the ends.
    Where there is an interior, the range in front of it violates only lower halves of bounds, and
    the one behind it upper ones. Unless they may have ``any_length``, axes that are too short for
    one have other kernels."""
    begin, end = 0, axis.extent
    for bound in bounds:
        first, last = _whole(axis, bound)
        begin, end = larger(begin, first), smaller(end, last)
    begin = smaller(begin, axis.extent)
    starts = surely_equal(begin, 0)
    long = starts or (not any_length and begin <= end)
    end = end if long and not starts else larger(begin, end)
    if not starts:
        yield Range(0, begin, _halves(bounds, upper=True) if long else {})
    yield Range(begin, end, dict.fromkeys(bounds, True))
    if not surely_equal(end, axis.extent):
        yield Range(end, axis.extent, _halves(bounds, upper=False) if long else {})


def _halves(bounds: Sequence[Bound], *, upper: bool) -> dict[Bound, bool]:
    return {Half.of(bound, upper): True for bound in bounds}


def _ranges(axis: Axis, bounds: Sequence[Bound]) -> Iterator[Range]:
    cuts = {0, axis.extent}
    for bound in bounds:
        cuts |= {*_whole(axis, bound), *_some(axis, bound)}
    points = sorted(point for point in cuts if 0 <= point <= axis.extent)
    for begin, end in pairwise(points):
        known = {}
        for bound in bounds:
            first, last = _whole(axis, bound)
            begins, ends = _some(axis, bound)
            if first <= begin and end <= last:
                known[bound] = True
            elif end <= begins or ends <= begin:
                known[bound] = False
        yield Range(begin, end, known)


def _whole(axis: Axis, bound: Bound) -> tuple[int, int]:
    """The range of ``axis`` in which no point violates the bound."""
    return _between(axis, bound, bound.form.without(axis).low, bound.form.without(axis).high)


def _some(axis: Axis, bound: Bound) -> tuple[int, int]:
    """The range of ``axis`` in which some point may satisfy the bound."""
    return _between(axis, bound, bound.form.without(axis).high, bound.form.without(axis).low)


def _between(axis: Axis, bound: Bound, low: int, high: int) -> tuple[int, int]:
    """The range of ``axis`` in which a point ``low`` above the axis' value is not negative, and one
    ``high`` above it is below the limit."""
    stride = bound.form.stride(axis)
    return -(low // stride), -((high - bound.limit) // stride)
