"""What both passes of a layer normalization share: rows done side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.address import Affine, Axis, letters
from dnnl.codegen.nest.work_items import SHARES, target_items
from dnnl.types.memory_desc import MemoryDesc

Index = tuple[Affine, ...]

ROWS = 2
"""How many rows lie side by side in a block. More have no registers where there are 16."""
_LONG_ROW = 3072  # bytes
_FEW_REGISTERS = 16


@dataclass(frozen=True, eq=False)
class Block:
    """Rows that one point of a nest does side by side: the axes over such blocks, the axis along a
    row, and the index of each row of a block without its last form. If rows lie in one piece,
    neighbours differ in the index of ``dim``."""

    parallel: tuple[Axis, ...]
    along: Axis
    rows: tuple[Index, ...]
    dim: int | None = None

    def next_block(self, desc: MemoryDesc) -> int | None:
        """How many elements behind each row of ``desc`` that of the next block lies; None if rows
        do not lie in one piece."""
        return None if self.dim is None else desc.strides[self.dim] * len(self.rows)

    def fits_twice(self, isa: Isa, descs: Sequence[MemoryDesc]) -> bool:
        """Whether the first-level cache has room for the rows of all of ``descs``, and for those of
        the next block besides."""
        row = sum(desc.data_type.nbytes(self.along.extent) for desc in descs)
        return 2 * len(self.rows) * row <= isa.caches.l1


def blocks(isa: Isa, descs: Sequence[MemoryDesc], *, single: bool = False) -> list[Block]:
    """Blocks of ROWS rows for tensors of equal dims, or ``single`` ones, and what remains.

    Steps of a reduction wait for each other, and so does a row for its statistics: neighbours fill
    the time. Rows that do not lie in one piece are done one by one, as are those too short for it.
    """
    dims = descs[0].dims
    axes = letters(dims)
    along, index = axes[-1], tuple(Affine.of(axis) for axis in axes[:-1])
    extent, dim = max((extent, dim) for dim, extent in enumerate(dims[:-1]))
    pieces = all(not desc.inner_blocks and desc.strides[-1] == 1 for desc in descs)
    if single or not pieces or dims[-1] < isa.lanes or isa.device is not None:
        return [Block(axes[:-1], along, (index,))]
    # Few registers hold few rows; of long ones two at a time took longer there.
    long = descs[0].data_type.nbytes(dims[-1]) >= _LONG_ROW and isa.registers <= _FEW_REGISTERS
    count = 1 if long else ROWS
    if extent < count or count == 1:
        return [Block(axes[:-1], along, (index,), dim)]
    found = []
    whole = extent // count
    for size, number, begin in ((count, whole, 0), (extent % count, 1, whole * count)):
        if size:
            outer = Axis(number, axes[dim].name)
            form = Affine.of(outer, size) + begin
            rows = tuple((*index[:dim], form + row, *index[dim + 1 :]) for row in range(size))
            found.append(Block((*axes[:dim], outer, *axes[dim + 1 : -1]), along, rows, dim))
    return found


def open_blocks(descs: Sequence[MemoryDesc]) -> tuple[Block, Block]:
    """Blocks of ROWS rows and single ones for tensors of equal dims, which may be RUNTIME_DIM; of
    either kind there may be none. Rows that do not lie in one piece are single."""
    *outer, along = letters(descs[0].dims)
    extents = [axis.extent for axis in outer]
    dim = extents.index(max(extents))
    pieces = all(desc.strides[-1] == 1 for desc in descs) and along.extent > 1
    whole = extents[dim] // ROWS if pieces else 0

    def block(count: int, size: int, begin: int) -> Block:
        axis = Axis(count, outer[dim].name)
        index = [Affine.of(own) for own in outer]
        rows = []
        for row in range(size):
            index[dim] = Affine.of(axis, size) + (begin + row)
            rows.append(tuple(index))
        return Block((*outer[:dim], axis, *outer[dim + 1 :]), along, tuple(rows))

    begin = whole * ROWS
    return block(whole, ROWS, 0), block(extents[dim] - begin, 1, begin)


@dataclass(frozen=True)
class Chunks:
    """Rows along one dimension in ``count`` chunks of ``blocks`` blocks of ROWS rows each, and the
    ``rest``. Their number follows from the shape alone."""

    count: int
    blocks: int
    rest: int

    @staticmethod
    def of(isa: Isa, rows: int, length: int) -> Chunks:
        """Chunks enough to be shared out, each of which has sums that are to be added up."""
        every = rows // ROWS
        blocks = max(1, every // target_items(isa, rows * length, SHARES))
        count = every // blocks
        return Chunks(count, blocks, rows - count * blocks * ROWS)

    @property
    def slots(self) -> int:
        """How many partial sums there are."""
        return self.count + bool(self.rest)
