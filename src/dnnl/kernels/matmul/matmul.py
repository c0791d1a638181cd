"""Batched matrix multiplication on register tiles, for any layouts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dnnl.codegen.epilogue.product_epilogue import Depth
from dnnl.codegen.ir.kernel import Arguments, Kernel, Reason, Refusal
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import ZERO, Affine, Axis
from dnnl.kernels.matmul.problem import MatmulProblem, column_major, in_columns, transposed
from dnnl.kernels.product.base.problem import LETTERS, plain
from dnnl.kernels.product.base.store import Columns
from dnnl.kernels.product.loops import phases
from dnnl.kernels.product.loops.form import Product, along_line
from dnnl.kernels.product.pack.sparse_decoded import (
    as_panels,
    packed,
    packed_as,
    plan_sparse_decoded,
    refuse_packed,
)
from dnnl.kernels.product.plan import plan as planner
from dnnl.kernels.product.plan.conf import ProductConf
from dnnl.kernels.product.plan.dot_kind import chosen_dot, segments_of, to_dequantize
from dnnl.kernels.product.plan.plan import plan
from dnnl.kernels.product.plan.refusals import refuse_matrices
from dnnl.kernels.shared.scratchpad import Argument, Scratchpad
from dnnl.types.kinds import FormatKind
from dnnl.types.memory_desc import MemoryDesc

MatmulConf = ProductConf[MatmulProblem]


def resolve(problem: MatmulProblem, isa: Isa) -> MatmulProblem:
    """Decide the layouts that are ``any``: src, dst and bias row-major, weights in panels, packed
    ones too."""
    given = problem.weights
    encoding = packed(given)
    one = given.format_kind is FormatKind.any and given.dims[-1] == 1
    if one and in_columns(problem.src):
        problem = replace(problem, weights=plain(given))
    if encoding is None:
        return planner.resolve(problem, isa)
    dense = planner.resolve(replace(problem, weights=as_panels(given)), isa)
    weights = given if encoding.columns else packed_as(given, dense.weights)
    return replace(dense, weights=weights)


def configure(
    problem: MatmulProblem, isa: Isa, scratchpad: Scratchpad | None = None
) -> MatmulConf | Refusal:
    """Plan a product whose layouts are all decided (see :func:`resolve`).

    ``bias`` has as many dimensions as dst, each 1 or dst's. ``scratchpad`` has what was copied
    before.
    """
    refusal = refuse_matrices(problem)
    if refusal is not None:
        return refusal
    if packed(problem.weights) is not None:
        weights = problem.arguments[1], problem.weights
        return _plan_packed(replace(problem, weights=as_panels(problem.weights)), isa, weights)
    if column_major(problem):
        problem = transposed(problem)
    return plan(problem, isa, scratchpad=scratchpad)


def _plan_packed(problem: MatmulProblem, isa: Isa, weights: Argument) -> MatmulConf | Refusal:
    """Plan a product of packed weights, which are decoded to those of ``problem``."""
    refusal = refuse_packed(weights[1])
    if refusal is not None:
        return refusal
    if not problem.terms:
        return plan(problem, isa)
    dot = chosen_dot(problem, isa)
    assert dot is not None, "bytes are multiplied everywhere"
    decoded = plan_sparse_decoded(isa, weights, dot, problem.terms)
    if isinstance(decoded, Refusal):
        return decoded
    if to_dequantize(problem) and segments_of(problem, isa, dot) is None:
        rule = "scales and zero points for which packed weights would have to be copied"
        return Refusal(Reason.ATTRIBUTE, rule)
    return plan(problem, isa, decoded=decoded)


def build(conf: MatmulConf, isa: Isa) -> Kernel:
    """One product with the batch around it."""
    return phases.build("matmul", conf, isa, products)


def products(conf: ProductConf[Any], isa: Isa, arguments: Arguments) -> tuple[Product]:
    """The product of matrices, with the batch around it."""
    dims = conf.dst[1].dims[:-2]
    batch = tuple(Axis(extent, letter) for extent, letter in zip(dims, LETTERS, strict=False))
    return (product(conf, isa, arguments, batch),)


def product(
    conf: ProductConf[Any], isa: Isa, arguments: Arguments, batch: tuple[Axis, ...]
) -> Product:
    """The product of matrices for each point of ``batch``; dimensions of size 1 are broadcast."""
    m, n = conf.dst[1].dims[-2:]
    group, terms = conf.multiply.group, conf.src[1].dims[-1]
    size = conf.segment or terms
    row, k = Axis(m, "m"), Axis(-(-size // group), "k")
    part = Axis(terms // size if conf.segment else 1, "segment")
    columns = Columns.of(n, conf.blocking.tile, isa.lanes)
    outer = [Affine.of(axis) for axis in batch]
    rows, begin = Affine.of(row), Affine.of(part, size)
    depth = begin + Affine.of(k, group)

    def operand(source: Argument, last: tuple[Affine, Affine]) -> Operand:
        index = (*_batch_index(source[1], outer), *last)
        return Operand(arguments.slot(source[0]), source[1], index)

    src = operand(conf.read, (rows, depth))
    weights = operand(conf.weights, (depth, columns.form))
    dst = operand(conf.dst, (rows, columns.form))
    at = phases.Indices(
        (*outer, rows, columns.form),
        (*_batch_index(conf.src[1], outer), rows, begin),
        (*_batch_index(conf.weights[1], outer), begin, columns.form),
        row_sums=(
            *_batch_index(conf.src[1], outer),
            rows,
            *([Affine.of(part)] if conf.segment else []),
        ),
    )
    in_rows = group > 1 and conf.multiply.row_vectors and not conf.weights[1].inner_blocks
    space, places, taps = along_line(row)
    summed = (part, k) if conf.segment else (k,)
    depth_of = Depth(size, k.extent * group)
    return Product(
        batch,
        space,
        places,
        taps,
        (),
        summed,
        columns,
        src,
        weights,
        conf.multiply,
        phases.finish(conf, arguments, dst, at, depth_of),
        conf.blocking,
        domain=(columns.inside,) if columns.inside.needed else (),
        k_stride=conf.weights[1].strides[-2] if in_rows else 0,
        segments=phases.segments(conf, arguments, dst, at, depth_of, part),
        narrow=phases.narrow_path(conf, arguments, src, isa),
        packing=phases.packing(
            conf, arguments, lambda k: (*_batch_index(conf.weights[1], outer), k, columns.form)
        ),
    )


def _batch_index(desc: MemoryDesc, outer: list[Affine]) -> tuple[Affine, ...]:
    """The batch part of an operand's index; dimensions of size 1 are broadcast."""
    return tuple(
        form if extent != 1 else ZERO for extent, form in zip(desc.dims, outer, strict=False)
    )
