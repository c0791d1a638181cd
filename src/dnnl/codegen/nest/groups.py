"""Reductions that a work-group shares: its items are the lanes of a vector along memory.

Neighbouring items of a device read neighbouring elements at the same time, which one item for each
row of a reduction would not. Each item folds every n-th element of a row; the group then merges
what its n items have.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.address import Axis
from dnnl.codegen.nest.space import Space
from dnnl.codegen.nest.vectorize import Vectors, in_vectors, vector_axis
from dnnl.types.size import larger, smaller

_TERMS = 8
"""The elements of a row that an item of a group should have before a larger group shares it."""
_TERMS_OF_PART = 16
"""The elements that an item should have where a group reduces a part of a row."""
_GROUPS = 1024
"""As many groups occupy any device."""
_ITEMS = 2**14
"""As many items that are no group do."""


def line_of(isa: Isa, space: Space) -> tuple[Axis, int] | None:
    """The reduced axis along which memory is contiguous, and the number of items that should share
    it; None where there is none, or the device has no work-groups."""
    groups = None if isa.device is None else isa.device.groups
    if groups is None or any(output.desc.data_type.bits == 4 for output in space.outputs):
        return None
    line = vector_axis(space, groups.most)
    if line is None or line not in space.inner:
        return None
    if line.typical < groups.least or _read_once(space, groups.most):
        return line, 1
    even = 1 << (line.typical // _TERMS).bit_length() >> 1
    return line, min(groups.most, max(groups.least, even))


def _read_once(space: Space, short: int) -> bool:
    """Whether the rows are short, many and read for a single result each. A group then starts as
    slowly as an item goes over its row, of which the caches have what its neighbours read."""
    rows, length = (prod(axis.typical for axis in axes) for axes in (space.axes, space.inner))
    one = all(space.invariant(space.accesses[output]) for output in space.outputs)
    return one and length < short and rows >= _ITEMS


def in_groups(isa: Isa, space: Space) -> tuple[Space, Vectors] | None:
    """Cut a reduced axis into work-groups; None where items should work alone."""
    found = line_of(isa, space)
    if found is None or found[1] == 1:
        return None
    cut, vectors = in_vectors(space, *found)
    return cut, replace(vectors, grouped=True)


def parts_of_lines(points: int, reduced: int, size: int) -> int:
    """The number of parts of a reduction of ``reduced`` elements along memory for each of
    ``points`` points, where ``size`` items share a part."""
    enough = max(_GROUPS, _ITEMS // size)
    wanted = -(-enough // larger(1, points))
    return larger(1, smaller(wanted, reduced // (size * _TERMS_OF_PART)))
