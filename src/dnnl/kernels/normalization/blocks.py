"""Rows along channels that are normalized side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.address import Affine, Axis, letters
from dnnl.codegen.nest.work_items import SHARES, target_items
from dnnl.kernels.normalization.axes import Block, Index, NormalizationAxes, Row
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import is_known, larger, surely_equal

ROWS = 2
"""How many rows a block has. More have no registers where there are 16."""
_LONG_ROW = 3072  # bytes
_FEW_REGISTERS = 16


def block_of(
    parallel: Sequence[Axis], along: Axis, rows: Sequence[Index], dim: int | None = None
) -> Block:
    """A block of rows with these indices, without that of the place in a row."""
    channel = (Affine.of(along),)
    own = tuple(Row((*row, *channel), row) for row in rows)
    return Block(tuple(parallel), (along,), (), own, channel, dim)


def blocks(isa: Isa, descs: Sequence[MemoryDesc], *, single: bool = False) -> list[Block]:
    """Blocks of ROWS rows for tensors of equal dims, or ``single`` ones, and what remains.

    Steps of a reduction wait for each other, and so does a row for its statistics: neighbours fill
    the time. Rows that are not dense are done one by one, as are those too short for it.
    """
    dims = descs[0].dims
    axes = letters(dims)
    *outer, along = axes
    index = tuple(map(Affine.of, outer))
    _, dim = max((axis.typical, dim) for dim, axis in enumerate(outer))
    extent = dims[dim]
    dense = all(not desc.inner_blocks and desc.strides[-1] == 1 for desc in descs)
    if single or not dense or not 1 < isa.lanes <= dims[-1]:
        return [NormalizationAxes.of_layer(len(dims)).block(axes)]
    # Few registers hold few rows; of long ones two at a time took longer there.
    long = descs[0].data_type.nbytes(along.typical) >= _LONG_ROW and isa.registers <= _FEW_REGISTERS
    count = 1 if long else ROWS
    if extent < count or count == 1:
        return [block_of(outer, along, [index], dim)]
    found = []
    whole = extent // count
    for size, number, begin in ((count, whole, 0), (1, extent % count, whole * count)):
        if size and not surely_equal(number, 0):
            axis = Axis(number, outer[dim].name)
            found.append(_neighbours(outer, along, dim, axis, size, begin, dense=True))
    return found


def _neighbours(
    outer: Sequence[Axis],
    along: Axis,
    dim: int,
    axis: Axis,
    size: int,
    begin: int,
    *,
    dense: bool = False,
) -> Block:
    """Blocks of ``size`` rows that are neighbours along ``dim``, from row ``begin`` on."""
    index = list(map(Affine.of, outer))
    rows = []
    for row in range(size):
        index[dim] = Affine.of(axis, size) + (begin + row)
        rows.append(tuple(index))
    parallel = (*outer[:dim], axis, *outer[dim + 1 :])
    return block_of(parallel, along, rows, dim if dense else None)


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
        blocks = larger(1, every // target_items(isa, rows * length, SHARES))
        count = every // blocks if is_known(every) else larger(1, every // blocks)
        return Chunks(count, blocks, rows - count * blocks * ROWS)

    @property
    def slots(self) -> int:
        """How many partial sums there are."""
        return self.count + (self.rest > 0 if is_known(self.rest) else 1)
