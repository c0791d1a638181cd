"""Which bounds hold where: a loop cut into ranges in which the answer is known to the generator.

A bound such as ``16 * c_o + c_i < 250`` holds for all lanes while ``c_o < 15``, for some of them
where ``c_o == 15``, and would hold for none behind that. Code written for one of these ranges
needs no comparisons: masks are nothing, or constants, or stores that are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from dnnl.codegen.access import Bound
from dnnl.codegen.address import Affine, Axis

# A body is written for each combination of ranges, twice where bounds are tested; the longer it is
# and the more bounds it looks at, the fewer there may be.
_MOST_CODE = 320


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


def cut(axes: Sequence[Axis], bounds: Sequence[Bound], bodies: int = 1) -> Variants:
    """Cut ``axes``, the loops around a point, so that as few ``bounds`` as possible are tested;
    ``bodies`` is how often a point's body is written for one combination of ranges."""
    assigned: dict[Axis, list[Bound]] = {}
    tested = []
    for bound in bounds:
        axis = max(axes, key=bound.form.stride, default=None)
        both = bound.below_zero and bound.above
        if axis is None or both or bound.form.stride(axis) <= 0:
            tested.append(bound)
        else:
            assigned.setdefault(axis, []).append(bound)
    ranges: dict[Axis, tuple[Range, ...]] = {}
    combinations = 1
    for axis, own in assigned.items():
        pieces = tuple(_ranges(axis, own))
        code = combinations * len(pieces) * bodies * len(bounds) * (2 if tested else 1)
        if code > _MOST_CODE:
            tested += own
            continue
        combinations *= len(pieces)
        ranges[axis] = pieces
    return Variants(ranges, tuple(tested))


def _ranges(axis: Axis, bounds: Sequence[Bound]) -> Iterator[Range]:
    holds = {bound: _inside(axis, bound, bound.form.without(axis)) for bound in bounds}
    cuts = {
        0,
        axis.extent,
        *(end for some_all in holds.values() for ends in some_all for end in ends),
    }
    points = sorted(point for point in cuts if 0 <= point <= axis.extent)
    for begin, end in pairwise(points):
        known = {}
        for bound, ((first, last), (all_first, all_last)) in holds.items():
            if all_first <= begin and end <= all_last:
                known[bound] = True
            elif end <= first or last <= begin:
                known[bound] = False
        yield Range(begin, end, known)


def _inside(axis: Axis, bound: Bound, rest: Affine) -> tuple[tuple[int, int], tuple[int, int]]:
    """The iterations of ``axis`` in which some points may be inside the bound, and those in which
    all are: from the first to before the second. ``rest`` is the form without the axis."""
    step = bound.form.stride(axis)

    def first(value: int, limit: int) -> int:
        """The first iteration that makes the value as large as the limit."""
        return -((value - limit) // step)

    some = first(rest.high, 0), first(rest.low, bound.limit)
    return some, (first(rest.low, 0), first(rest.high, bound.limit))
