"""Batched matrix multiplication on register tiles, for any layouts."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from dnnl.codegen.access import Operand
from dnnl.codegen.address import Affine, Axis, linear_offset
from dnnl.codegen.brgemm import choose_vectors
from dnnl.codegen.epilogue import Arguments, Epilogue, broadcast
from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Kernel, Refusal
from dnnl.kernels import product_conf
from dnnl.kernels.product import Product, column_axes
from dnnl.kernels.product_conf import LETTERS, Conf, Problem
from dnnl.kernels.product_conf import build as build_product
from dnnl.kernels.scratchpad import Argument
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp, PostOpBinary, PostOpPrelu
from dnnl.types.tag import FormatTag


def resolve(problem: Problem, isa: Isa) -> Problem:
    """Decide the layouts that are ``any``: src, dst and bias row-major, weights in panels."""
    return product_conf.resolve(problem, _walkable, partial(_panels, isa))


def _panels(isa: Isa, src: MemoryDesc, weights: MemoryDesc) -> tuple[MemoryDesc, int]:
    """Panels of a tile's columns, each with all of k in one stream; their number of vectors."""
    vectors = choose_vectors(isa, weights.dims[-1], src.strides[-2])
    batch, k, n = LETTERS[: weights.ndims - 2], *LETTERS[weights.ndims - 2 : weights.ndims]
    tag = FormatTag(f"{batch}{n.upper()}{k}{vectors * isa.lanes}{n}")
    return weights.with_tag(tag), vectors


def configure(problem: Problem, isa: Isa) -> Conf | Refusal:
    """Plan a product whose layouts are all decided (see :func:`resolve`).

    ``bias`` has as many dimensions as dst, each 1 or dst's.
    """
    refusal = product_conf.refuse_problem(problem)
    if refusal is not None:
        return refusal
    src: Argument = (Arg.SRC, problem.src)
    weights: Argument = (Arg.WEIGHTS, problem.weights)
    if _column_major(problem):
        problem = _transposed(problem)
        src, weights = (Arg.WEIGHTS, problem.src), (Arg.SRC, problem.weights)
    return product_conf.plan(
        problem, isa, src, weights,
        src_walkable=_walkable, dst_walkable=_walkable, panels=partial(_panels, isa),
    )  # fmt: skip


def _column_major(problem: Problem) -> bool:
    """Whether neighbours in memory are neighbours in a column, with nothing else tied to rows."""
    dst = problem.dst
    if any(isinstance(entry, PostOpPrelu) for entry in problem.post_ops):
        return False
    return not dst.inner_blocks and dst.strides[-2] == 1 and dst.strides[-1] != 1


def _transposed(problem: Problem) -> Problem:
    """The product of the transposed matrices, which is the transposed product."""

    def turn(desc: MemoryDesc) -> MemoryDesc:
        if desc.is_zero:
            return desc
        last = desc.ndims - 1
        return desc.permute_axes((*range(last - 1), last, last - 1))

    post_ops = tuple(
        replace(entry, src1_desc=turn(entry.src1_desc))
        if isinstance(entry, PostOpBinary)
        else entry
        for entry in problem.post_ops
    )
    return Problem(
        turn(problem.weights), turn(problem.src), turn(problem.bias), turn(problem.dst), post_ops
    )


def _walkable(desc: MemoryDesc) -> bool:
    """Whether offsets are affine in single steps along the last two dimensions, and there is no
    padding to be kept zero."""
    index = [Affine.of(Axis(max(2, extent), "i")) for extent in desc.dims]
    return linear_offset(desc, index) is not None and desc.dims == desc.padded_dims


def build(conf: Conf, isa: Isa) -> Kernel:
    """One product with the batch around it."""
    return build_product("matmul", conf, isa, partial(_product, conf, isa))


def _product(conf: Conf, isa: Isa, post_ops: tuple[PostOp, ...], arguments: Arguments) -> Product:
    *batch_dims, m, n = conf.dst[1].dims
    batch = tuple(Axis(extent, letter) for extent, letter in zip(batch_dims, LETTERS, strict=False))
    row, k = Axis(m, "m"), Axis(conf.src[1].dims[-1], "k")
    panel, vector, lane, column = column_axes(n, conf.tile, isa.lanes)
    outer = [Affine.of(axis) for axis in batch]
    rows, depth = Affine.of(row), Affine.of(k)

    def operand(source: Argument, last: tuple[Affine, Affine]) -> Operand:
        head = _batch_index(source[1], outer)
        return Operand(arguments.slot(source[0]), source[1], (*head, *last))

    dst = Operand(arguments.slot(conf.dst[0]), conf.dst[1], (*outer, rows, column))
    bias = None
    if not conf.bias.is_zero:
        index = broadcast(conf.bias, dst.index)
        bias = Operand(arguments.slot(Arg.BIAS), conf.bias, index)
    return Product(
        batch, row, (k,), n, panel, vector, lane, column,
        src=operand(conf.src, (rows, depth)), weights=operand(conf.weights, (depth, column)),
        dst=dst, bias=bias, epilogue=Epilogue(post_ops, dst, arguments),
        tile=conf.tile, keep_weights=conf.keep_weights,
    )  # fmt: skip


def _batch_index(desc: MemoryDesc, outer: list[Affine]) -> tuple[Affine, ...]:
    """The batch part of an operand's index: dimensions of size 1 stay where they are."""
    return tuple(
        form if extent != 1 else Affine({}) for extent, form in zip(desc.dims, outer, strict=False)
    )
