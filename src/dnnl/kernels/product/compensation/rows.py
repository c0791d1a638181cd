"""Row compensation: the sums of the rows of src by which zero points of weights are multiplied.
They are computed from src, or from sums of groups that the user gives, or are given."""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.codegen.ir.builder import Module
from dnnl.codegen.ir.kernel import Arguments, Reason, Refusal
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, broadcast
from dnnl.codegen.product.multiply import Multiply
from dnnl.errors import InvalidArguments
from dnnl.kernels.product.base.problem import ProductProblem
from dnnl.kernels.product.base.types import multiplies_integers
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
        return Operand(arguments.slot(argument), desc, broadcast(desc, index))

    def emit(self, module: Module, arguments: Arguments) -> list[Phase]:
        """Write the phase that computes the sums, if there is anything to compute."""
        if self.source is None:
            return []
        isa = module.isa
        types = f"{self.source[1].data_type}_{self.sums[1].data_type}"
        symbol = f"{module.ir.name}_sums__{types}__{isa.lanes}x1__{isa.name}"
        given = module, symbol, self.source, self.sums
        if not self.segment:
            return [emit_row_sums(*given, arguments)]
        return [emit_segment_sums(*given, self.segment, arguments)]


def refuse_reductions(problem: ProductProblem) -> Refusal | None:
    """Why given sums of src cannot be used, or None.

    Raises InvalidArguments if they do not vary along all dimensions, or span several scales or zero
    points.
    """
    given, src = problem.reductions, problem.src
    if given is None:
        return None
    every = (1 << src.ndims) - 1
    if given.mask != every:
        rule = f"sums of the rows of src vary along every dimension: {every}"
        raise InvalidArguments("mask", given.mask, rule)
    sizes = given.group_sizes(src.ndims)
    given.shape(src.dims)
    if sizes[-2] != 1:
        raise InvalidArguments("groups", given.groups, "a sum belongs to one row", "(1, K)")
    quantization = problem.quantization
    for specs in (quantization.scales, quantization.zero_points):
        for argument, spec in specs:
            depth = {Arg.SRC: src.ndims - 1, Arg.WEIGHTS: src.ndims - 2}.get(Arg(argument))
            if depth is None or not spec.mask >> depth & 1:
                continue
            if spec.group_sizes(src.ndims)[depth] % sizes[-1]:
                rule = f"{sizes[-1]} neighbours do not share all scales and zero points: {spec}"
                raise InvalidArguments("groups", given.groups, rule)
    integers = multiplies_integers(src.data_type, problem.weights.data_type)
    if not (integers and Arg.WEIGHTS in dict(quantization.zero_points)):
        rule = "precomputed reductions without zero points of weights and a src of u8 or s8"
        return Refusal(Reason.ATTRIBUTE, rule)
    return None
