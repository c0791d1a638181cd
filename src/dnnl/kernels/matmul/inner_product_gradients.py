"""The gradients of an inner product: products of matrices, and a sum of rows for the bias.

With one index ``i`` for all inputs, channels and space::

    diff_src[n, i]     = sum over o of diff_dst[n, o] * weights[o, i]
    diff_weights[o, i] = sum over n of diff_dst[n, o] * src[n, i]

Inputs that follow each other in memory in both tensors that have them are the columns of one
product. If the tensors order them differently, there is a batch of such products, and nothing has
to be copied. Blocked tensors are copied, except weights in panels of the product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from dnnl.codegen.ir.builder import Module
from dnnl.codegen.ir.kernel import Arguments, Kernel, Refusal, symbol
from dnnl.codegen.isa import Isa
from dnnl.codegen.nest.folds import Fold, emit_fold, exact_partials_desc
from dnnl.kernels.matmul import matmul
from dnnl.kernels.matmul.matmul import MatmulConf
from dnnl.kernels.matmul.problem import MatmulProblem
from dnnl.kernels.product.base.problem import plain
from dnnl.kernels.product.base.types import refuse_tensors
from dnnl.kernels.product.loops import phases
from dnnl.kernels.product.plan.summary import PlanSummary
from dnnl.kernels.shared.scratchpad import Argument, Scratchpad
from dnnl.kernels.shared.sums import bias_gradient
from dnnl.kernels.shared.types import computed_in
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.kinds import FormatKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.tag import FormatTag

_NONE = MemoryDesc.zero()
_BYTE = 8


@dataclass(frozen=True)
class InnerProductGradient:
    """``result`` = ``diff_dst`` (N, OC) by ``factor``: diff_src by weights or, ``of_weights``,
    diff_weights by src. Any layout may be ``any``.

    ``diff_bias`` may be the zero descriptor. f32 may be multiplied as ``narrow``.
    """

    diff_dst: MemoryDesc
    factor: MemoryDesc
    result: MemoryDesc
    diff_bias: MemoryDesc = _NONE
    narrow: DataType = DataType.f32
    of_weights: bool = False

    @property
    def arguments(self) -> tuple[int, int, int]:
        """Those of diff_dst, the factor and the result."""
        if self.of_weights:
            return Arg.DIFF_DST, Arg.SRC, Arg.DIFF_WEIGHTS
        return Arg.DIFF_DST, Arg.WEIGHTS, Arg.DIFF_SRC


@dataclass(frozen=True)
class InnerProductGradientConf:
    """The product, and the sum of ``diff_dst`` to ``diff_bias``, of whose parts ``partial`` are in
    the ``scratchpad``, which is in bytes."""

    product: MatmulConf
    diff_dst: MemoryDesc
    diff_bias: MemoryDesc
    partial: MemoryDesc
    scratchpad: int

    @property
    def summary(self) -> PlanSummary:
        """The decisions about the product."""
        return self.product.summary


def resolve(problem: InnerProductGradient, isa: Isa) -> InnerProductGradient:
    """Decide the layouts that are ``any``: activations and bias plain, the gradient of weights in
    the order of src, weights in panels if diff_src is a matrix of whole panels."""
    diff_dst, factor, result, diff_bias = (
        plain(desc) if desc.format_kind is FormatKind.any and not is_weights else desc
        for desc, is_weights in (
            (problem.diff_dst, False),
            (problem.factor, not problem.of_weights),
            (problem.result, problem.of_weights),
            (problem.diff_bias, False),
        )
    )
    problem = replace(problem, diff_dst=diff_dst, factor=factor, result=result, diff_bias=diff_bias)
    if result.format_kind is FormatKind.any:
        return replace(problem, result=result.with_tag(_in_order(_order(factor))))
    if factor.format_kind is FormatKind.any:
        return replace(problem, factor=factor.with_tag(_panels(problem, isa)))
    return problem


def _order(desc: MemoryDesc) -> tuple[int, ...]:
    """The inputs in their order in memory; those of size 1, whose strides are arbitrary, first."""
    rest = range(1, desc.ndims)
    return tuple(sorted(rest, key=lambda dim: (desc.dims[dim] != 1, -desc.strides[dim], dim)))


def _in_order(order: Sequence[int]) -> FormatTag:
    return FormatTag.of((0, *order))


def _panels(problem: InnerProductGradient, isa: Isa) -> FormatTag:
    """The layout of the weights: panels of the product with one matrix of them, unless the last
    one of several lines of columns would be padded."""
    order, sizes = _order(problem.result), problem.factor.dims
    outputs, inputs = sizes[0], prod(sizes[1:])
    result = problem.result.data_type
    one = MatmulProblem(
        problem.diff_dst,
        MemoryDesc((outputs, inputs), problem.factor.data_type, "any"),
        _NONE,
        MemoryDesc((problem.diff_dst.dims[0], inputs), result),
        (),
        narrow=problem.narrow,
    )
    tag = matmul.resolve(one, isa).weights.tag
    assert tag is not None, "it was any"
    last = order[-1]
    width = prod(size for dim, size in tag.inner_blocks if dim == 1)
    if sizes[last] != inputs and sizes[last] % width:
        return _in_order(order)
    outer = [each for dim in tag.order for each in (order if dim else (0,))]
    return FormatTag.of(outer, [(last if dim else 0, size) for dim, size in tag.inner_blocks])


def configure(problem: InnerProductGradient, isa: Isa) -> InnerProductGradientConf | Refusal:
    """Plan a gradient whose layouts are all decided (see :func:`resolve`)."""
    tensors = problem.diff_dst, problem.factor, problem.diff_bias, problem.result
    refusal = refuse_tensors(*tensors)
    if refusal is not None:
        return refusal
    scratchpad = Scratchpad()
    of_dst, of_factor, of_result = problem.arguments
    dst = _unblocked((of_dst, problem.diff_dst), scratchpad)
    result: Argument = (of_result, problem.result)
    if _copied_out(problem.result):
        core = computed_in(problem.diff_dst, problem.factor)
        result = scratchpad.take(plain(problem.result.with_data_type(core)))
    factor = (of_factor, problem.factor)
    slot, second, third = _matrices(factor, result[1], scratchpad)
    rows = dst[1].permute_axes((1, 0)) if problem.of_weights else dst[1]
    product = matmul.configure(
        MatmulProblem(
            rows.reshape((*[1] * (second.ndims - 2), *rows.dims)),
            second,
            _NONE,
            third,
            (),
            narrow=problem.narrow,
            arguments=(dst[0], slot, result[0]),
        ),
        isa,
        scratchpad,
    )
    if isinstance(product, Refusal):
        return product
    if result[0] != of_result:
        product = replace(product, copy_out=(result, (of_result, problem.result)))
    partial = _NONE
    if not problem.diff_bias.is_zero:
        fold = _bias(problem.diff_dst, problem.diff_bias, Arguments())
        wanted = exact_partials_desc(isa, fold)
        if wanted.nelems():
            _, partial = scratchpad.take(wanted)
    return InnerProductGradientConf(
        product, problem.diff_dst, problem.diff_bias, partial, scratchpad.size
    )


def _unblocked(given: Argument, scratchpad: Scratchpad) -> Argument:
    """A source that strides describe: itself, or a copy. Two elements of 4 bits share a byte, which
    is no place for a stride."""
    if given[1].data_type.bits < _BYTE:
        return scratchpad.copy(given, plain(given[1].with_data_type(DataType.bf16)))
    return scratchpad.copy(given, plain(given[1])) if given[1].inner_blocks else given


def _copied_out(result: MemoryDesc) -> bool:
    """Whether a result has blocks, padding that must become zero, or elements of 4 bits."""
    padded = result.dims != result.padded_dims
    return bool(result.inner_blocks) or padded or result.data_type.bits < _BYTE


def _matrices(
    factor: Argument, result: MemoryDesc, scratchpad: Scratchpad
) -> tuple[int, MemoryDesc, MemoryDesc]:
    """The argument of the factor, or of its copy, and the factor and the result as matrices with
    the inputs as columns, in a batch if need be."""
    order, (slot, desc) = _order(result), factor
    second, third = _matrix(desc, order), _matrix(result, order)
    if second is None or third is None:
        slot, desc = _unblocked(factor, scratchpad)
        second, third = _batch(order, desc, result)
    return slot, second, third


def _matrix(desc: MemoryDesc, order: Sequence[int]) -> MemoryDesc | None:
    """The tensor as a matrix whose columns are the inputs in this order, which only the last of
    them cuts into blocks; None if they do not follow each other in memory."""
    *outer, last = order
    sizes = [size for dim, size in desc.inner_blocks if dim == last]
    if any(dim not in (0, last) for dim, _ in desc.inner_blocks):
        return None
    if desc.has_zero_dim or desc.data_type.bits < _BYTE:
        return None
    step = desc.strides[last] * (desc.padded_dims[last] // prod(sizes))
    lines = [dim for dim in outer if desc.dims[dim] != 1]
    if lines and desc.dims[last] != desc.padded_dims[last]:
        return None
    for dim in reversed(lines):
        if desc.strides[dim] != step:
            return None
        step *= desc.dims[dim]
    columns = prod(desc.dims[dim] for dim in outer)
    return MemoryDesc(
        (desc.dims[0], columns * desc.dims[last]),
        desc.data_type,
        (desc.strides[0], desc.strides[last]),
        inner_blocks=[(int(dim == last), size) for dim, size in desc.inner_blocks],
        padded_dims=(desc.padded_dims[0], columns * desc.padded_dims[last]),
        offset0=desc.offset0,
    )


def _batch(
    order: Sequence[int], factor: MemoryDesc, result: MemoryDesc
) -> tuple[MemoryDesc, MemoryDesc]:
    """The factor and the result as a batch of matrices.

    Inputs that follow each other in both are one dimension, the last one the columns.
    """
    both = factor, result
    runs: list[list[int]] = []
    for dim in order:
        if factor.dims[dim] == 1:
            continue
        apart = [desc.strides[dim] * desc.dims[dim] for desc in both]
        if runs and [desc.strides[runs[-1][-1]] for desc in both] == apart:
            runs[-1].append(dim)
        else:
            runs.append([dim])
    *batch, columns = [(prod(factor.dims[dim] for dim in run), run[-1]) for run in runs or [[1]]]

    def matrices(desc: MemoryDesc) -> MemoryDesc:
        lines = [*batch, (desc.dims[0], 0), columns]
        dims, strides = [size for size, _ in lines], [desc.strides[dim] for _, dim in lines]
        return MemoryDesc(dims, desc.data_type, strides, offset0=desc.offset0)

    return matrices(factor), matrices(result)


def build(conf: InnerProductGradientConf, isa: Isa) -> Kernel:
    """The product, and the sum of the rows of diff_dst."""
    module, arguments = Module("inner_product_gradient", isa), Arguments()
    found = []
    if not conf.product.dst[1].has_zero_dim:
        found += phases.emit(module, conf.product, arguments, matmul.products)
    if not conf.diff_bias.is_zero:
        fold = _bias(conf.diff_dst, conf.diff_bias, arguments)
        slot = -1 if conf.partial.is_zero else arguments.slot(Arg.SCRATCHPAD)
        entry = symbol("inner_product_bias", [conf.diff_dst, conf.diff_bias], isa)
        found.extend(emit_fold(module, entry, fold, (slot, conf.partial)))
    return Kernel(module, tuple(found), arguments.ids)


def _bias(diff_dst: MemoryDesc, diff_bias: MemoryDesc, arguments: Arguments) -> Fold:
    """The sum of each output over the batch."""
    given = Arg.DIFF_DST, diff_dst
    return bias_gradient(given, diff_bias, computed_in(diff_dst, diff_bias), arguments)
