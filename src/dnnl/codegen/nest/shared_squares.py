"""Squares that a work-group transposes in the memory that its items share.

On a device whose items have scalars, neighbouring items should touch neighbouring elements at the
same time. Where src and dst are contiguous along different axes, items alone cannot do so for both.
A group loads a square in rows of src, and computes and stores it in rows of dst.
"""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.codegen.isa import Isa
from dnnl.codegen.isa.row import Groups
from dnnl.codegen.memory.access import Access
from dnnl.codegen.memory.address import Affine, Axis
from dnnl.codegen.nest.space import Space, stride
from dnnl.codegen.nest.vectorize import (
    Vectors,
    crosses_lanes,
    in_rows,
    in_vectors,
    lengthened,
    round_up_power,
    vector_axis,
)

_EACH = 4
"""The elements of a square that an item has at least."""
_WIDEST = 16
"""The bytes of the longest access of an item."""


@dataclass(frozen=True, eq=False)
class SharedSquares:
    """Squares that ``items`` items transpose. ``tile`` is the axis along a row of a square, of
    which there is one for each lane."""

    tile: Axis
    items: int

    @property
    def columns(self) -> int:
        """The vectors of a square."""
        return self.tile.extent

    def pitch(self, groups: Groups, access: Access) -> int:
        """The distance of rows in shared memory, in elements: a bank more than their length, so
        that the elements of a column are in different banks."""
        return self.tile.extent + max(1, groups.bank // access.operand.desc.data_type.size)


def in_shared_squares(isa: Isa, space: Space) -> tuple[Space, Vectors, SharedSquares] | None:
    """Cut the axes along which dst and a strided operand are contiguous into squares; None where
    there are none, or the device has no work-groups."""
    groups, dst = None if isa.device is None else isa.device.groups, space.outputs[0]
    if groups is None or space.inner or any(access.packed for access in space.accesses.values()):
        return None
    longest, segment = _row_length(groups, space.dst), _segment(groups, space.dst)
    line = vector_axis(space, longest)
    if line is None or stride(space.dst, line) != 1:
        return None
    # No longer than it must be: what remains may be part of long rows of src.
    filled = max(segment, min(longest, round_up_power(line.extent)))
    space, line = lengthened(space, dst, line, filled)
    lanes = min(longest, round_up_power(line.extent))
    if 2 * lanes < groups.least:
        return None
    space, vectors = in_vectors(space, line, lanes)
    found = (_squares_of(groups, space, vectors, access) for access in space.reads)
    return next((squares for squares in found if squares is not None), None)


def _squares_of(
    groups: Groups, space: Space, vectors: Vectors, access: Access
) -> tuple[Space, Vectors, SharedSquares] | None:
    """The squares of an operand, if it is strided along the lanes and has long enough rows, and all
    that are loaded in such rows fit in shared memory."""
    if not crosses_lanes(space, vectors, access):
        return None
    others = (axis for axis in space.axes if axis is not vectors.loop)
    line = next((axis for axis in others if stride(access, axis) == 1), None)
    if line is None:
        return None
    longest = _row_length(groups, access)
    space, line = lengthened(space, access.operand, line, longest, vectors)
    length = min(longest, round_up_power(line.extent))
    if 2 * length < groups.least:
        return None
    tile, loop = Axis(length, "tile"), Axis(-(-line.extent // length), line.name)
    space = space.cut(line, loop, Affine.of(tile), length)
    squares = SharedSquares(tile, min(groups.most, vectors.lanes * length // _EACH))
    loaded = (own for own in space.reads if in_rows(space, vectors, tile, own))
    nbytes = sum(
        vectors.lanes * squares.pitch(groups, own) * own.operand.desc.data_type.size
        for own in loaded
    )
    return (space, vectors, squares) if nbytes <= groups.shared else None


def _row_length(groups: Groups, access: Access) -> int:
    """The elements of a row of a square."""
    return max(groups.least, _segment(groups, access))


def _segment(groups: Groups, access: Access) -> int:
    """The elements that neighbouring items should touch at the same time."""
    return max(1, groups.segment // access.operand.desc.data_type.size)


def wide(access: Access, along: Axis | None) -> int:
    """The elements along an axis that an item loads or stores at once: their address is a multiple
    of their size wherever that of the operand is."""
    size = access.operand.desc.data_type.size
    count = min(_EACH, _WIDEST // size)
    if access.offset is None or along is None or access.offset.stride(along) != 1:
        return 1
    apart = access.offset.without(along)
    whole = all(step % count == 0 for step in (apart.const, *apart.strides.values()))
    return count if whole else 1
