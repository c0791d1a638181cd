"""The configuration of a Winograd convolution."""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.codegen.epilogue.quantization import Quantization
from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.convolution.winograd.tiling import Tiling
from dnnl.kernels.matmul.matmul import MatmulConf
from dnnl.kernels.product.plan.summary import PlanSummary
from dnnl.kernels.reorder.winograd import Filters
from dnnl.kernels.shared.scratchpad import Argument, Relayout
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp


@dataclass(frozen=True)
class Results:
    """What is stored of sums of products of the kind ``multiply``: bias, ``quantization`` of the
    arguments ``factors`` and of dst, post-ops."""

    dst: Argument
    bias: MemoryDesc
    post_ops: tuple[PostOp, ...]
    quantization: Quantization
    factors: tuple[int, int]
    multiply: Multiply


@dataclass(frozen=True)
class WinogradConf:
    """A convolution with every layout decided.

    ``pixels`` (V) and ``sums`` (M) have the dims (products of a tile, tiles, channels). With
    ``in_items`` they hold the tiles of a work item, in memory of the thread, and their arguments
    are those of the product alone; otherwise they hold all tiles, in the scratchpad. ``product``
    multiplies V to M by the transformed weights ``filters``, which a phase makes out of those that
    are ``given``, unless they are the same. Where dst is not stored in place, ``copy_out`` applies
    the post-ops ``behind`` and the quantization of dst.
    """

    tiling: Tiling
    src: Argument
    given: Filters
    filters: Filters
    pixels: Argument
    product: MatmulConf
    sums: Argument
    results: Results
    in_items: bool
    copies_in: tuple[Relayout, ...]
    copy_out: Relayout | None
    behind: tuple[PostOp, ...]
    requantized: Quantization
    scratchpad: int

    @property
    def summary(self) -> PlanSummary:
        """The decisions, for `dnnl explain`."""
        product, copies = self.product, self.copies_in
        if self.given != self.filters:
            made = (self.filters.slot, self.filters.desc)
            copies = (*copies, ((self.given.slot, self.given.desc), made))
        groups, products, rows, columns = self.filters.desc.dims
        terms = self.tiling.count * groups * products * rows * columns
        return PlanSummary(
            product.multiply, product.blocking, copies, self.copy_out, operations=2 * terms
        )
