"""Inner product on register tiles: rows are the batch, everything else of src is summed."""

from __future__ import annotations

from functools import partial

from dnnl.codegen.access import Operand
from dnnl.codegen.address import Affine, Axis, block_boundaries
from dnnl.codegen.brgemm import choose_vectors
from dnnl.codegen.epilogue import Arguments, Epilogue
from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Kernel, Refusal
from dnnl.kernels import product_conf
from dnnl.kernels.product import Product, column_axes
from dnnl.kernels.product_conf import LETTERS, Conf, Problem
from dnnl.kernels.product_conf import build as build_product
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp
from dnnl.types.tag import FormatTag


def resolve(problem: Problem, isa: Isa) -> Problem:
    """Decide the layouts that are ``any``: activations plain, weights in panels in src's order."""
    return product_conf.resolve(problem, _walkable, partial(_panels, isa))


def _order(src: MemoryDesc) -> tuple[int, ...]:
    """The summed dimensions as src has them in memory, outermost first."""
    return tuple(sorted(range(1, src.ndims), key=lambda dim: (-src.strides[dim], dim)))


def _block(src: MemoryDesc) -> int:
    """The size of src's channel blocks, 0 without."""
    sizes = block_boundaries(src, 1)
    return sizes[-1] if sizes else 0


def _panels(isa: Isa, src: MemoryDesc, weights: MemoryDesc) -> tuple[MemoryDesc, int]:
    """Panels of a tile's output channels, each with all that is summed in one stream; their number
    of vectors."""
    vectors = choose_vectors(isa, weights.dims[0], src.strides[0])
    block = _block(src)
    names = "".join(
        LETTERS[dim].upper() if dim == 1 and block else LETTERS[dim] for dim in _order(src)
    )
    channels = f"{block}b" if block else ""
    return weights.with_tag(FormatTag(f"A{names}{channels}{vectors * isa.lanes}a")), vectors


def _walkable(src: MemoryDesc) -> bool:
    """Whether all offsets of src are affine in channel blocks, with blocks of channels only, all of
    which belong to src as a whole."""
    sizes = block_boundaries(src, 1)
    whole = not sizes or src.padded_dims[1] % sizes[-1] == 0
    return len(src.inner_blocks) == len(sizes) <= 1 and whole


def _plain(dst: MemoryDesc) -> bool:
    """Whether dst has neither blocks nor padding to be kept zero."""
    return not dst.inner_blocks and dst.dims == dst.padded_dims


def configure(problem: Problem, isa: Isa) -> Conf | Refusal:
    """Plan an inner product whose layouts are all decided (see :func:`resolve`): dst is (N, OC),
    bias (OC), weights have the dimensions of src with OC for N."""
    return product_conf.refuse_problem(problem) or product_conf.plan(
        problem, isa, (Arg.SRC, problem.src), (Arg.WEIGHTS, problem.weights),
        src_walkable=_walkable, dst_walkable=_plain, panels=partial(_panels, isa),
    )  # fmt: skip


def build(conf: Conf, isa: Isa) -> Kernel:
    """One product."""
    return build_product("inner_product", conf, isa, partial(_product, conf, isa))


def _product(conf: Conf, isa: Isa, post_ops: tuple[PostOp, ...], arguments: Arguments) -> Product:
    src, weights = conf.src[1], conf.weights[1]
    block = _block(src)
    row = Axis(src.dims[0], "n")
    panel, vector, lane, column = column_axes(weights.dims[0], conf.tile, isa.lanes)
    summed: list[Axis] = []
    forms: dict[int, Affine] = {}
    for dim in _order(src):
        extent = src.dims[dim]
        if dim == 1 and block:
            extent = -(-extent // block)
        axis = Axis(extent, LETTERS[dim])
        summed.append(axis)
        forms[dim] = Affine.of(axis, block if dim == 1 and block else 1)
    if block:
        inner = Axis(block, "block")
        summed.append(inner)
        forms[1] = forms[1] + Affine.of(inner)
    tail = tuple(forms[dim] for dim in range(1, src.ndims))
    rows = Affine.of(row)
    dst = Operand(arguments.slot(conf.dst[0]), conf.dst[1], (rows, column))
    bias = None
    if not conf.bias.is_zero:
        bias = Operand(arguments.slot(Arg.BIAS), conf.bias, (column,))
    return Product(
        (), row, tuple(summed), weights.dims[0], panel, vector, lane, column,
        src=Operand(arguments.slot(conf.src[0]), src, (rows, *tail)),
        weights=Operand(arguments.slot(conf.weights[0]), weights, (column, *tail)),
        dst=dst, bias=bias, epilogue=Epilogue(post_ops, dst, arguments),
        tile=conf.tile, keep_weights=conf.keep_weights,
    )  # fmt: skip
