"""The windows that contain the elements of a block, if they are few enough to be unrolled.

With stride ``s`` the windows around elements ``s * block + 0``, ``s * block + 1``, ... are at the
same distance in every block; each window is loaded once for all elements of a block::

    stride 2, kernel 3, padding 1     2 * block      tap 1 of window block
                                      2 * block + 1  tap 2 of it, tap 0 of the next

If there are fewer windows than taps, as in a pooling of the whole image, an element is combined
with every window, as the tap that follows from its position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from dnnl.codegen.memory.access import Bound
from dnnl.codegen.memory.address import Affine, Axis
from dnnl.codegen.nest.windows import Window, tap_number

_MOST_TERMS, _MOST_ELEMENTS = 64, 16
"""The limits of unrolling for one block; larger sums are loops."""


@dataclass(frozen=True, eq=False)
class Meeting:
    """An element as tap number ``tap`` of the ``window``, if ``inside`` holds. Meetings of one
    block with the same window have the same ``key``."""

    key: int
    window: Affine
    tap: Affine
    inside: tuple[Bound, ...] = ()


@dataclass(frozen=True, eq=False)
class Blocks:
    """One dimension: the blocks along ``axis``, the index of each element of a block, and the
    windows that contain each of them."""

    axis: Axis
    elements: tuple[Affine, ...]
    meetings: tuple[tuple[Meeting, ...], ...]


def blocks(dims: Sequence[Window]) -> list[Blocks] | None:
    """The blocks of each dimension; None if unrolling would be too long."""
    if any(dim.stride > _MOST_ELEMENTS for dim in dims):
        return None
    if prod(map(_terms, dims)) > _MOST_TERMS:
        return None
    found = [
        (_every_window if _meets_all(dim) else _in_steps)(dim, f"d{number}")
        for number, dim in enumerate(dims)
    ]
    return found if prod(len(each.elements) for each in found) <= _MOST_ELEMENTS else None


def _terms(dim: Window) -> int:
    """The number of windows that the elements of a block share."""
    return dim.windows if _meets_all(dim) else len(dim.reached)


def _meets_all(dim: Window) -> bool:
    """Whether there are so few windows that each element is combined with all of them."""
    return dim.dilation == 1 and dim.windows * dim.stride < len(dim.reached)


def _in_steps(dim: Window, name: str) -> Blocks:
    """Blocks of as many elements as the stride."""
    axis = Axis(-(-dim.elements // dim.stride), name)
    block = Affine.of(axis)
    places = range(dim.stride)

    def met(place: int) -> list[Meeting]:
        taps = ((tap, place + dim.padding - tap * dim.dilation) for tap in dim.reached)
        distances = ((tap, far // dim.stride) for tap, far in taps if far % dim.stride == 0)
        return [
            Meeting(far, block + far, Affine({}, tap))
            for tap, far in distances
            if far + axis.extent - 1 >= 0 and far < dim.windows
        ]

    elements = tuple(block * dim.stride + place for place in places)
    return Blocks(axis, elements, tuple(tuple(met(place)) for place in places))


def _every_window(dim: Window, name: str) -> Blocks:
    """Blocks of one element, combined with every window of dense taps."""
    axis = Axis(dim.elements, name)
    element = Affine.of(axis)

    def meeting(number: int) -> Meeting:
        tap = element + (dim.padding - number * dim.stride)
        inside = Bound(tap, dim.kernel)
        return Meeting(number, Affine({}, number), tap, (inside,) if inside.needed else ())

    return Blocks(axis, (element,), (tuple(map(meeting, range(dim.windows))),))


@dataclass(frozen=True, eq=False)
class Term:
    """One window that contains an element: the key of the window, its position in each dimension,
    the number of the tap, and the bounds inside which it contains the element."""

    key: tuple[int, ...]
    window: tuple[Affine, ...]
    number: Affine
    inside: tuple[Bound, ...]


def terms(
    dims: Sequence[Blocks], kernel: Sequence[int]
) -> list[tuple[tuple[Affine, ...], list[Term]]]:
    """The elements of a block of all dimensions, the last one fastest, with their terms."""
    elements = product(*(range(len(dim.elements)) for dim in dims))
    return [
        (
            tuple(dim.elements[at] for dim, at in zip(dims, place, strict=True)),
            [
                _term(met, kernel)
                for met in product(*(dim.meetings[at] for dim, at in zip(dims, place, strict=True)))
            ],
        )
        for place in elements
    ]


def _term(met: Sequence[Meeting], kernel: Sequence[int]) -> Term:
    return Term(
        tuple(each.key for each in met),
        tuple(each.window for each in met),
        tap_number([each.tap for each in met], kernel),
        tuple(bound for each in met for bound in each.inside),
    )
