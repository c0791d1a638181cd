"""What an operation tells the planner besides the layouts of its operands: where results go, what
compensates zero points, which blocks suit its loops. By default these are those of matrices."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TypeVar

from dnnl.codegen.epilogue.product_epilogue import needs_row_sums
from dnnl.codegen.isa import Isa
from dnnl.codegen.product.brgemm import TileShape, max_rows
from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.product.base.blocking import Blocking, Size, choose_blocking, even_rows
from dnnl.kernels.product.base.problem import MANY, Panels, ProductProblem, plain
from dnnl.kernels.product.compensation.columns import ColumnSums
from dnnl.kernels.product.compensation.compensation import Compensation
from dnnl.kernels.product.compensation.rows import RowSums
from dnnl.kernels.product.pack.border import Border
from dnnl.kernels.product.pack.on_the_fly import PanelPacking
from dnnl.kernels.product.unit import tiles as product_tiles
from dnnl.kernels.shared.scratchpad import Argument, Relayout, Scratchpad
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import is_known, typical

AnyContraction = TypeVar("AnyContraction", bound="Contraction")


@dataclass(frozen=True)
class Contraction(ProductProblem):
    """A product that `plan` plans."""

    @property
    def uses(self) -> int:
        """How many rows each weight is multiplied with."""
        return typical(self.rows)

    @property
    def varies(self) -> bool:
        """Whether the number of rows is known at execution only. They are then done in tiles of
        several heights, and low ones decompress weights as often as high ones."""
        return False

    @abstractmethod
    def stores(self, width: int) -> bool:
        """Whether the product writes dst in place from panels of ``width`` columns."""

    def writes(self, width: int) -> bool:
        """Whether the product writes dst, in whole bytes and without a pass behind it."""
        passed = self.dropout is not None or self.stochastic
        passed |= self.quantization.computed is not None
        return self.dst.data_type.bits >= 8 and self.stores(width) and not passed

    def result(
        self,
        isa: Isa,
        dot: Multiply,
        src: MemoryDesc,
        panels: Panels,
        core: DataType,
        scratchpad: Scratchpad,
    ) -> tuple[Argument, Relayout | None]:
        """What the product writes, of type ``core``, and the copy behind it if that is not dst. src
        and weights are as they are read."""
        dst: Argument = (self.arguments[2], self.dst)
        if self.writes(panels.vectors * isa.lanes):
            return dst, None
        computed = scratchpad.take(self.computed(core))
        return computed, (computed, dst)

    def computed(self, core: DataType) -> MemoryDesc:
        """The result, of type ``core``, that is copied to dst otherwise."""
        return plain(self.dst.with_data_type(core))

    def copied(self, given: Argument, wanted: MemoryDesc, scratchpad: Scratchpad) -> Argument:
        """A copy of src or weights in the ``wanted`` layout."""
        return scratchpad.copy(given, wanted)

    def border(
        self, isa: Isa, dot: Multiply, src: Argument, scratchpad: Scratchpad
    ) -> Border | None:
        """The padded copy of src that the product reads, or None if it reads no padding."""
        return None

    def takes_unit(self, isa: Isa) -> bool:
        """Whether a matrix unit may multiply: it takes K in blocks that the code knows."""
        return is_known(self.terms)

    @property
    def row_of_ones(self) -> bool:
        """Whether a row of ones in each tile may sum the columns of weights."""
        return self.arguments[0] in dict(self.quantization.zero_points)

    def compensation(
        self,
        src: Argument,
        weights: Argument,
        dot: Multiply,
        segment: int,
        scratchpad: Scratchpad,
        *,
        ones: bool,
    ) -> Compensation:
        """The sums of src as it is read and of ``weights``, as stored or in panels, that compensate
        zero points; those of weights are part of the tiles if these have a row of ``ones``."""
        zero_points = dict(self.quantization.zero_points)
        of_src, of_weights, _ = self.arguments
        rows = columns = None
        if needs_row_sums(dot, zero_points, of_weights):
            dims = src[1].dims[: self.summed[0].start]
            rows = RowSums.of(src, dims, self.terms, segment, dot, self.reductions, scratchpad)
        if of_src in zero_points and not ones:
            columns = ColumnSums.of(weights, self.summed[1], scratchpad)
        return Compensation(rows, columns)

    def tile_rows(self, isa: Isa, dot: Multiply, vectors: int, *, ones: bool) -> int:
        """The rows of a tile: as few tiles as possible, of about the same height."""
        rows = self.planned_rows(isa)
        if dot.tiles is not None:
            return product_tiles.tile_rows(isa, vectors, rows)
        most = max_rows(isa, vectors * dot.span, dot.parts, ones=ones)
        return even_rows(rows, most) if is_known(self.rows) else min(rows, most)

    def blocking(
        self,
        isa: Isa,
        dot: Multiply,
        src: MemoryDesc,
        panels: Panels,
        *,
        ones: bool,
        packing: PanelPacking | None,
    ) -> Blocking:
        """The shape of a tile and the cache blocks, for src and weights as they are read."""
        columns, vectors = self.dst.dims[-1], panels.vectors
        tile = TileShape(self.tile_rows(isa, dot, vectors, ones=ones), vectors)
        # With a row of ones, panels of a few rows of weights were faster one by one on two threads.
        in_rows = not (panels.desc.inner_blocks or ones or self.column_stride(panels.desc))
        width = vectors * isa.lanes
        size = Size(
            self.planned_rows(isa),
            -(-columns // width),
            -(-self.terms // dot.group),
            dot.group_bytes,
            dot.group * width * dot.b.bits // 8,
            fast=dot.tiles is not None,
            in_rows=dot.group if in_rows else 0,
            packed_on_the_fly=packing is not None,
            row_bytes=0 if packing is None else packing.row_bytes,
        )
        few = size.rows <= tile.rows and size.rows < MANY and not is_known(self.rows)
        return replace(choose_blocking(isa, tile, size), few=few)
