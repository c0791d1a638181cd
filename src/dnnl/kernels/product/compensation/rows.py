"""Row compensation: the sums of the rows of src by which zero points of weights are multiplied.
They are computed from src, or from sums of groups that the user gives, or are given."""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.codegen.ir.builder import Module
from dnnl.codegen.ir.kernel import Arguments
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, broadcast
from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.product.compensation.integer_sums import emit_row_sums, emit_segment_sums
from dnnl.kernels.shared.scratchpad import Argument, Scratchpad
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.scales import ScaleSpec


@dataclass(frozen=True)
class RowSums:
    """Where the row ``sums`` are stored. ``source`` is what they are computed from, None if the
    user gives them; ``segment`` is the number of its elements per sum, 0 for whole rows."""

    sums: Argument
    source: Argument | None
    segment: int

    @staticmethod
    def of(
        src: Argument,
        rows: tuple[int, ...],
        terms: int,
        segment: int,
        dot: Multiply,
        given: ScaleSpec | None,
        scratchpad: Scratchpad,
    ) -> RowSums:
        """Row sums of shape ``rows`` over ``terms`` elements each, in segments unless ``segment``
        is 0. ``given`` describes sums that the user provides."""
        dims = (*rows, terms // segment) if segment else rows
        desc = MemoryDesc(dims, "s32" if dot.is_integer else "f32")
        if given is None:
            return RowSums(scratchpad.take(desc), src, segment)
        argument, each = Arg.PRECOMPUTED_REDUCTIONS | Arg.SRC, given.groups[-1:] or (1,)
        if each == (segment or terms,):
            return RowSums((argument, desc), None, 0)
        parts = argument, given.desc(src[1].dims)
        return RowSums(scratchpad.take(desc), parts, segment // each[0])

    def operand(self, arguments: Arguments, index: tuple[Affine, ...]) -> Operand:
        """The sums at an index; dimensions of size 1 are broadcast."""
        argument, desc = self.sums
        return Operand(arguments.slot(argument), desc, broadcast(desc, index, desc.dims))

    def emit(self, module: Module, name: str, arguments: Arguments) -> list[Phase]:
        """Write the phase that computes the sums, if there is anything to compute."""
        if self.source is None:
            return []
        isa = module.isa
        types = f"{self.source[1].data_type}_{self.sums[1].data_type}"
        symbol = f"{name}_sums__{types}__{isa.lanes}x1__{isa.name}"
        given = module, symbol, self.source, self.sums
        if not self.segment:
            return [emit_row_sums(*given, arguments)]
        return [emit_segment_sums(*given, self.segment, arguments)]
