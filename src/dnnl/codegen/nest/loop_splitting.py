"""Which bounds hold where: a loop cut into ranges in which the answer is known to the generator.

A bound such as ``16 * c_o + c_i < 250`` holds for all lanes while ``c_o < 15``, for some of them
where ``c_o == 15``, and would hold for none behind that. Code written for one of these ranges
needs no comparisons: masks are nothing, or constants, or stores that are left out. A window that
hangs over both edges of an image has three such ranges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from dnnl.codegen.memory.access import Bound
from dnnl.codegen.memory.address import Axis

# A body is written for each combination of ranges, twice where bounds are tested, and masks make it
# longer; the longer it is and the more bounds it looks at, the fewer there may be.
_MOST_CODE = 320
# Of a fold at most so many iterations are code of their own where lanes differ.
MOST_WRITTEN = 16


@dataclass(frozen=True)
class Range:
    """The iterations ``begin <= axis < end``, with the bounds whose outcome is the same in all."""

    begin: int
    end: int
    known: Mapping[Bound, bool]


@dataclass(frozen=True)
class Variants:
    """Each of some axes cut into ranges, and the bounds that must be tested at run time."""

    ranges: Mapping[Axis, tuple[Range, ...]]
    tested: tuple[Bound, ...]


def cut(
    axes: Sequence[Axis],
    bounds: Sequence[Bound],
    bodies: int = 1,
    taps: int = 1,
    lane: Axis | None = None,
) -> Variants:
    """Cut ``axes``, the loops around a point, so that as few ``bounds`` as possible are tested;
    ``bodies`` is how often a point's body is written for one combination of ranges, and ``taps``
    how many iterations a fold has in it, which are unrolled at the edges of a window.

    Bounds that differ from lane to lane come first: as ranges they are constant masks, while those
    of whole vectors are the ends of a fold's loops in any case. No range and no test helps against
    bounds that some iteration of each point breaks.
    """
    assigned: dict[Axis, list[Bound]] = {}
    tested, masked = [], False
    for bound in sorted(bounds, key=lambda bound: not _differs(bound, lane)):
        axis = max(axes, key=bound.form.stride, default=None)
        if axis is not None and bound.form.stride(axis) > 0:
            assigned.setdefault(axis, []).append(bound)
        elif any(bound.form.stride(axis) for axis in axes):
            tested.append(bound)
        else:
            masked = True
    ranges: dict[Axis, tuple[Range, ...]] = {}
    combinations = 1
    for axis, own in assigned.items():
        pieces = tuple(_ranges(axis, own))
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
    """Whether a bound may hold for some lanes of a vector alone."""
    return lane is not None and bound.form.stride(lane) != 0


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
    """Between which iterations of ``axis`` no point breaks the bound."""
    return _between(axis, bound, bound.form.without(axis).low, bound.form.without(axis).high)


def _some(axis: Axis, bound: Bound) -> tuple[int, int]:
    """Between which iterations of ``axis`` some point may be inside the bound."""
    return _between(axis, bound, bound.form.without(axis).high, bound.form.without(axis).low)


def _between(axis: Axis, bound: Bound, low: int, high: int) -> tuple[int, int]:
    """Between which iterations a point ``low`` above where the axis is lies above zero, and one
    ``high`` above it below the limit."""
    stride = bound.form.stride(axis)
    return -(low // stride), -((high - bound.limit) // stride)
