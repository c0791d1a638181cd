"""Matrix products with run-time sizes and strides, by one kernel.

The code depends on types, the number of dimensions, and on which dimensions are contiguous. All
else is read from a block of launch parameters, 64 bits each::

    those of `LaunchParameter`
    for src and for weights: offset, and the strides along lines and k; weights in panels have the
    stride of panels
    for each operand of the epilogue: offset, and the strides along rows and columns
    for each batch dimension: extent, and the strides in src, weights and those operands
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from math import prod

from dnnl.codegen.epilogue.post_ops import Epilogue
from dnnl.codegen.epilogue.product_epilogue import Depth, ProductEpilogue, core_type, needs_row_sums
from dnnl.codegen.epilogue.quantization import Quantization, Quantizer
from dnnl.codegen.ir.kernel import Arguments, Reason, Refusal, Sizes
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import ZERO, Affine, Axis, broadcast
from dnnl.codegen.product.brgemm import choose_vectors
from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.matmul.open_blocks import Extents, ThreadScratch, choose_blocks
from dnnl.kernels.matmul.open_pack import Order
from dnnl.kernels.matmul.problem import (
    MatmulProblem,
    column_major,
    panels_of,
    transposed,
    transposed_desc,
)
from dnnl.kernels.product.base.problem import plain, with_plain_layouts
from dnnl.kernels.product.base.types import dot_of, multiplies_integers
from dnnl.kernels.product.plan.refusals import refuse_matrices
from dnnl.kernels.shared.open_nests import refuse_groups, refuse_open, with_operands
from dnnl.kernels.shared.scratchpad import Argument
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.kinds import RUNTIME_DIM, FormatKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp

_WIDEST = 4  # the widest panel, in vectors


class LaunchParameter(IntEnum):
    """The first launch parameters."""

    UNITS = 0  # blocks of dst
    ROWS = 1
    COLUMNS = 2
    PANELS = 3
    K_GROUPS = 4  # of a line
    TERMS = 5  # of a sum: k
    BLOCK_ROWS = 6
    BLOCK_PANELS = 7
    BLOCK_K_GROUPS = 8
    PARTS = 9  # of a sum
    SRC_ORDER = 10
    WEIGHTS_ORDER = 11
    VECTORS = 12  # whether the operands of the epilogue are contiguous along columns
    WEIGHTS_IN_PLACE = 13  # whether row-major weights are read in place
    TILE_ROWS = 14  # at most
    TILE_COLUMNS = 15


HEAD = len(LaunchParameter)


@dataclass(frozen=True)
class OpenMatmulConf:
    """A product. ``src`` is the operand that is broadcast: the weights, if the product is
    ``transposed``. Weights are in panels, or in any plain layout; panels are ``vectors`` wide."""

    src: Argument
    weights: Argument
    bias: MemoryDesc
    dst: MemoryDesc
    post_ops: tuple[PostOp, ...]
    quantization: Quantization
    multiply: Multiply
    core: DataType
    transposed: bool
    panels: bool
    vectors: int


@dataclass(frozen=True, eq=False)
class Tensors:
    """The operands of a configuration, by their index at a place of the product."""

    src: Operand
    weights: Operand
    finish: ProductEpilogue
    row_sums: Operand | None
    batch: tuple[Axis, ...]
    row: Axis
    column: Axis
    depth: Axis

    @property
    def ends(self) -> tuple[Operand, ...]:
        """The operands of the epilogue."""
        return self.finish.operands


def resolve(problem: MatmulProblem, isa: Isa) -> MatmulProblem:
    """Decide the layouts that are ``any``: weights of known sizes get panels if dst is row-major;
    all others are row-major."""
    weights = problem.weights
    problem = with_plain_layouts(problem)
    if weights.format_kind is not FormatKind.any:
        return problem
    dot = _dot(problem, isa)
    if dot is None or weights.data_type is not dot.b or column_major(problem):
        return replace(problem, weights=plain(weights))
    found = panels_of(weights, dot, isa, choose_vectors(isa, weights.dims[-1], 0, dot.span))
    return replace(problem, weights=found.with_data_type(weights.data_type))


def _dot(problem: MatmulProblem, isa: Isa) -> Multiply | None:
    """The dot-product kind on vectors. A matrix unit takes fixed sizes only; beside one, vectors
    are slower with pairs of bf16 than with f32."""
    types = problem.src.data_type, problem.weights.data_type
    return dot_of(isa, *types, problem.narrow, grouped=isa.matrix is None)


def configure(problem: MatmulProblem, isa: Isa) -> OpenMatmulConf | Refusal:
    """Accept a product whose layouts are decided (see `resolve`) and plain, except for weights."""
    refusal = _refuse(problem, isa)
    if refusal is not None:
        return refusal
    given = problem
    ids = int(Arg.SRC), int(Arg.WEIGHTS)
    is_transposed = column_major(problem) and not problem.weights.inner_blocks
    if is_transposed:
        problem, ids = transposed(problem), ids[::-1]
    dot = _dot(problem, isa)
    assert dot is not None, "refused before"
    refusal = _refuse_sums(problem, ids)
    if refusal is not None:
        return refusal
    vectors = _vectors(problem.weights, dot, isa)
    if vectors is None:
        return Refusal(Reason.LAYOUT, f"{given.weights} with run-time sizes")
    bare = problem.bias.is_zero and not problem.post_ops
    return OpenMatmulConf(
        (ids[0], problem.src),
        (ids[1], problem.weights),
        problem.bias,
        problem.dst,
        problem.post_ops,
        problem.quantization,
        dot,
        core_type(dot, problem.dst.data_type, problem.quantization, bare=bare),
        is_transposed,
        bool(problem.weights.inner_blocks),
        vectors,
    )


def _refuse(problem: MatmulProblem, isa: Isa) -> Refusal | None:
    refusal = refuse_matrices(problem) or refuse_groups(problem.quantization)
    if refusal is not None:
        return refusal
    if problem.quantization.computed is not None:
        rule = "scales of DST that the library computes, with run-time sizes"
        return Refusal(Reason.ATTRIBUTE, rule)
    operands = [desc for entry in problem.post_ops for _, desc in entry.operands]
    plain = (problem.src, problem.dst, problem.bias, *operands)
    return refuse_open(plain, (problem.weights,))


def _refuse_sums(problem: MatmulProblem, factors: tuple[int, int]) -> Refusal | None:
    """A refusal of scales and zero points that cannot be applied at the end of a sum."""
    given = problem.quantization.of_arguments(factors)
    if given.zero_points and not multiplies_integers(
        problem.src.data_type, problem.weights.data_type
    ):
        return Refusal(Reason.ATTRIBUTE, "zero points of floats with run-time sizes")
    depths = {factors[0]: 1, factors[1]: 2}  # the position of k, from the end
    for arg, spec in (*given.scales, *given.zero_points):
        if spec.mask >> (problem.dst.ndims - depths[arg]) & 1:
            return Refusal(Reason.ATTRIBUTE, "scales along k with run-time sizes")
    return None


def _vectors(weights: MemoryDesc, dot: Multiply, isa: Isa) -> int | None:
    """The width of the panels of weights in vectors; None if weights have other blocks."""
    if not weights.inner_blocks:
        known = weights.dims[-1] != RUNTIME_DIM
        return choose_vectors(isa, weights.dims[-1] if known else 4 * isa.lanes, 0, dot.span)
    for vectors in range(1 if isa.lanes > 1 else 2, _WIDEST + 1):
        if weights.data_type is dot.b and _same_blocks(
            weights, panels_of(weights, dot, isa, vectors)
        ):
            return vectors
    return None


def _same_blocks(given: MemoryDesc, wanted: MemoryDesc) -> bool:
    """Whether two layouts are the same within a matrix."""
    return (given.inner_blocks, given.strides[-2]) == (wanted.inner_blocks, wanted.strides[-2])


def shared(conf: OpenMatmulConf) -> OpenMatmulConf:
    """The configuration that all descriptions with the same code share."""

    def some(desc: MemoryDesc) -> MemoryDesc:
        """The descriptor with everything open but dimensions of 1, and which dimension is
        contiguous."""
        if desc.is_zero:
            return desc
        dims = [1 if extent == 1 else RUNTIME_DIM for extent in desc.dims]
        known = not desc.inner_blocks
        strides = [1 if known and stride == 1 else RUNTIME_DIM for stride in desc.strides]
        return MemoryDesc(dims, desc.data_type, strides, offset0=RUNTIME_DIM)

    return replace(
        conf,
        src=(conf.src[0], some(conf.src[1])),
        weights=(conf.weights[0], some(conf.weights[1])),
        bias=some(conf.bias),
        dst=some(conf.dst),
        post_ops=tuple(entry.mapped(some) for entry in conf.post_ops),
    )


def _known(conf: OpenMatmulConf, descs: Mapping[int, MemoryDesc]) -> OpenMatmulConf:
    """The configuration with the descriptors of an execution, by argument."""

    def given(argument: int, own: MemoryDesc) -> MemoryDesc:
        desc = descs.get(argument, own)
        return transposed_desc(desc) if conf.transposed and argument in descs else desc

    entries = enumerate(conf.post_ops)
    return replace(
        conf,
        src=(conf.src[0], given(*conf.src)),
        weights=(conf.weights[0], given(*conf.weights)),
        bias=given(Arg.BIAS, conf.bias),
        dst=given(Arg.DST, conf.dst),
        post_ops=tuple(with_operands(number, entry, given) for number, entry in entries),
    )


def tensors(conf: OpenMatmulConf, arguments: Arguments) -> Tensors:
    """The operands of a product."""
    *batch_dims, rows, columns = conf.dst.dims
    batch = tuple(Axis(extent, "batch") for extent in batch_dims)
    row, column, depth = Axis(rows, "m"), Axis(columns, "n"), Axis(conf.src[1].dims[-1], "k")
    m, n, k = map(Affine.of, (row, column, depth))
    outer = tuple(map(Affine.of, batch))

    def place(desc: MemoryDesc, *last: Affine) -> tuple[Affine, ...]:
        return broadcast(desc, (*outer, *last))

    src_desc, weights_desc = conf.src[1], conf.weights[1]
    dst = Operand(arguments.slot(Arg.DST), conf.dst, (*outer, m, n))
    bias = None
    if not conf.bias.is_zero:
        bias = Operand(arguments.slot(Arg.BIAS), conf.bias, place(conf.bias, m, n))
    factors = conf.src[0], conf.weights[0]
    quantized = {
        factors[0]: Operand(0, src_desc, (*place(src_desc, m, ZERO),)),
        factors[1]: Operand(0, weights_desc, (*place(weights_desc, ZERO, n),)),
        int(Arg.DST): dst,
    }
    row_sums = None
    if needs_row_sums(conf.multiply, dict(conf.quantization.zero_points), factors[1]):
        row_sums = Operand(dst.slot, MemoryDesc((conf.dst.dims[-2],), "s32"), (m,))
    finish = ProductEpilogue(
        conf.multiply,
        conf.core,
        dst,
        bias,
        Epilogue(conf.post_ops, dst, arguments),
        Quantizer(conf.quantization, quantized, arguments, requantizes=True),
        factors,
        Depth(0, 0),
        row_sums,
    )
    return Tensors(
        Operand(arguments.slot(factors[0]), src_desc, place(src_desc, m, k)),
        Operand(arguments.slot(factors[1]), weights_desc, place(weights_desc, k, n)),
        finish,
        row_sums,
        batch,
        row,
        column,
        depth,
    )


def scratch(conf: OpenMatmulConf, isa: Isa, of: Tensors) -> ThreadScratch:
    """The scratch memory of a thread."""
    return ThreadScratch.of(isa, conf.multiply, conf.vectors, ones=of.finish.needs_column_sums)


def sizes(conf: OpenMatmulConf, isa: Isa, descs: Mapping[int, MemoryDesc]) -> Sizes:
    """The launch parameters of an execution on memories of these descriptors, by argument."""
    known = _known(conf, descs)
    found = tensors(known, Arguments())
    here, group = scratch(conf, isa, found), conf.multiply.group
    *batch, rows, columns = known.dst.dims
    terms = known.src[1].dims[-1]
    src = _steps(found.src, found, (found.row, found.depth))
    weights = _steps(found.weights, found, (found.column, found.depth))
    order = _order(weights)
    k_groups = -(-terms // group)
    in_rows = order is Order.LINES and reads_in_place(conf, isa) and not terms % group
    blocks = choose_blocks(
        isa, here, Extents(prod(batch), rows, columns, k_groups, terms, conf.panels, in_rows)
    )
    width = blocks.tile.vectors * here.lanes
    panels = -(-columns // width)
    units = prod(batch) * -(-rows // blocks.rows) * -(-panels // blocks.panels)
    ends = [_steps(operand, found, (found.row, found.column)) for operand in found.ends]
    pattern = tensors(shared(conf), Arguments()).ends
    varying = [
        step[2]
        for step, operand in zip(ends, pattern, strict=True)
        if varies_along_columns(operand)
    ]
    vectors = columns == 1 or all(step == 1 for step in varying)
    head = {
        LaunchParameter.UNITS: units,
        LaunchParameter.ROWS: rows,
        LaunchParameter.COLUMNS: columns,
        LaunchParameter.PANELS: panels,
        LaunchParameter.K_GROUPS: k_groups,
        LaunchParameter.TERMS: terms,
        LaunchParameter.BLOCK_ROWS: blocks.rows,
        LaunchParameter.BLOCK_PANELS: blocks.panels,
        LaunchParameter.BLOCK_K_GROUPS: blocks.k_groups,
        LaunchParameter.PARTS: max(1, -(-k_groups // blocks.k_groups)),
        LaunchParameter.SRC_ORDER: _order(src),
        LaunchParameter.WEIGHTS_ORDER: order,
        LaunchParameter.VECTORS: vectors,
        LaunchParameter.WEIGHTS_IN_PLACE: blocks.in_place,
        LaunchParameter.TILE_ROWS: blocks.tile.rows,
        LaunchParameter.TILE_COLUMNS: width,
    }
    parameters = [int(head[name]) for name in LaunchParameter]
    for steps in (src, weights, *ends):
        parameters += steps[:3]
    for number, extent in enumerate(batch):
        parameters += [extent, *(steps[3 + number] for steps in (src, weights, *ends))]
    data = struct.pack(f"={len(parameters)}q", *parameters)
    return Sizes(data, blocks.threads, (max(1, units),))


def _steps(operand: Operand, of: Tensors, axes: tuple[Axis, Axis]) -> list[int]:
    """The offset of an operand, its strides along two axes and along the batch."""
    if operand.desc.inner_blocks:
        desc = operand.desc
        outer = (
            0 if size == 1 else step for size, step in zip(desc.dims, desc.strides, strict=True)
        )
        return [desc.offset0, desc.strides[-1], desc.strides[-2], *list(outer)[:-2]]
    offset = operand.offset(operand.index)
    assert offset is not None, "plain tensors have strides"
    return [offset.const, *(offset.stride(axis) for axis in (*axes, *of.batch))]


def _order(steps: Sequence[int]) -> Order:
    _, lines, depth, *_ = steps
    if depth == 1:
        return Order.DEPTH
    return Order.LINES if lines == 1 else Order.NONE


def orders(desc: MemoryDesc, depth: int) -> tuple[Order, ...]:
    """The orders that an operand may have whose k is dimension ``depth``, -1 or -2."""
    if desc.strides[depth] == 1:
        return (Order.DEPTH,)
    if desc.strides[-3 - depth] == 1:
        return (Order.LINES,)
    return tuple(Order)


def reads_in_place(conf: OpenMatmulConf, isa: Isa) -> bool:
    """Whether there is code that reads row-major weights in place. They must be in the address
    space of scratch memory."""
    _, weights = conf.weights
    in_rows = isa.thread_memory and Order.LINES in orders(weights, -2)
    return not conf.panels and in_rows and weights.data_type is conf.multiply.b


def varies_along_columns(operand: Operand) -> bool:
    """Whether an operand varies along columns."""
    return operand.desc.ndims > 1 and operand.desc.dims[-1] != 1
