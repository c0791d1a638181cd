"""Inner product on register tiles: rows are the batch, everything else of src is summed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dnnl.codegen.access import Operand
from dnnl.codegen.address import Affine, Axis, block_boundaries
from dnnl.codegen.brgemm import Tile, choose_vectors, max_rows
from dnnl.codegen.builder import Module
from dnnl.codegen.epilogue import Arguments, Epilogue, refuse
from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Kernel, Refusal
from dnnl.kernels.pointwise import emit_copies, emit_copy, refuse_types
from dnnl.kernels.product import Product, column_axes, emit_product
from dnnl.kernels.scratchpad import Argument, Copy, Scratchpad
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg
from dnnl.types.kinds import FormatKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp
from dnnl.types.tag import FormatTag

_LETTERS = "abcdefghijkl"


@dataclass(frozen=True)
class Problem:
    """dst[n, oc] = post_ops(bias[oc] + sum src[n, ic, ...] * weights[oc, ic, ...])."""

    src: MemoryDesc
    weights: MemoryDesc
    bias: MemoryDesc
    dst: MemoryDesc
    post_ops: tuple[PostOp, ...]


@dataclass(frozen=True)
class Conf:
    """The problem with every layout decided. ``order`` are the summed dimensions as src has them
    in memory, outermost first; ``block`` is the size of src's channel blocks, 0 without."""

    src: Argument
    weights: Argument
    dst: Argument
    bias: MemoryDesc
    post_ops: tuple[PostOp, ...]
    order: tuple[int, ...]
    block: int
    tile: Tile
    keep_weights: bool
    copies_in: tuple[Copy, ...]
    copy_out: Copy | None
    scratchpad: int


def resolve(problem: Problem, isa: Isa) -> Problem:
    """Decide the layouts that are ``any``: activations plain, weights in panels in src's order."""
    plain = {
        name: desc.with_tag(FormatTag(_LETTERS[: desc.ndims]))
        for name in ("src", "dst", "bias")
        if (desc := getattr(problem, name)).format_kind is FormatKind.any
    }
    problem = replace(problem, **plain)
    if problem.weights.format_kind is FormatKind.any:
        src = problem.src if _walkable(problem.src) else _plain(problem.src)
        problem = replace(problem, weights=_panels(problem.weights, src, isa))
    return problem


def _order(src: MemoryDesc) -> tuple[int, ...]:
    return tuple(sorted(range(1, src.ndims), key=lambda dim: (-src.strides[dim], dim)))


def _block(src: MemoryDesc) -> int:
    sizes = block_boundaries(src, 1)
    return sizes[-1] if sizes else 0


def _vectors(weights: MemoryDesc, src: MemoryDesc, isa: Isa) -> int:
    """How many vectors wide the tile is."""
    return choose_vectors(isa, weights.dims[0], src.strides[0])


def _panels(weights: MemoryDesc, src: MemoryDesc, isa: Isa) -> MemoryDesc:
    """Panels of a tile's output channels, each with all that is summed in one stream."""
    width = _vectors(weights, src, isa) * isa.lanes
    block = _block(src)
    names = "".join(
        _LETTERS[dim].upper() if dim == 1 and block else _LETTERS[dim] for dim in _order(src)
    )
    channels = f"{block}b" if block else ""
    return weights.with_tag(FormatTag(f"A{names}{channels}{width}a"))


def _walkable(src: MemoryDesc) -> bool:
    """Whether all offsets of src are affine in channel blocks, with blocks of channels only."""
    sizes = block_boundaries(src, 1)
    return len(src.inner_blocks) == len(sizes) <= 1


def configure(problem: Problem, isa: Isa) -> Conf | Refusal:
    """Plan an inner product whose layouts are all decided (see :func:`resolve`)."""
    refusal = refuse_types(problem.src, problem.weights, problem.dst)
    if refusal is None and not problem.bias.is_zero:
        refusal = refuse_types(problem.bias)
    refusal = refusal or refuse(problem.post_ops, problem.dst)
    if refusal is not None:
        return refusal
    scratchpad = Scratchpad()
    src: Argument = (Arg.SRC, problem.src)
    weights: Argument = (Arg.WEIGHTS, problem.weights)
    dst: Argument = (Arg.DST, problem.dst)
    copy_out: Copy | None = None
    if not _walkable(problem.src):
        src = scratchpad.copy(src, _plain(problem.src))
    panels = _panels(problem.weights, src[1], isa)
    if problem.weights != panels:
        weights = scratchpad.copy(weights, panels)
    if problem.dst.inner_blocks:
        dst = scratchpad.take(_plain(problem.dst))
        copy_out = (dst, (Arg.DST, problem.dst))
    vectors = _vectors(problem.weights, src[1], isa)
    return Conf(
        src=src, weights=weights, dst=dst, bias=problem.bias, post_ops=problem.post_ops,
        order=_order(src[1]), block=_block(src[1]), tile=Tile(max_rows(isa, vectors), vectors),
        keep_weights=panels.size > isa.l2 // 2, copies_in=tuple(scratchpad.copies),
        copy_out=copy_out, scratchpad=scratchpad.size,
    )  # fmt: skip


def _plain(desc: MemoryDesc) -> MemoryDesc:
    return desc.with_tag(FormatTag(_LETTERS[: desc.ndims]))


def build(conf: Conf, isa: Isa) -> Kernel:
    """The copies in, the product, the copy out."""
    arguments = Arguments()
    module = Module("inner_product", isa)
    phases = emit_copies(module, "inner_product", conf.copies_in, arguments)
    post_ops = conf.post_ops if conf.copy_out is None else ()
    symbol = f"inner_product__f32__{conf.tile.rows}x{conf.tile.vectors * isa.lanes}__{isa.name}"
    product = _product(conf, post_ops, isa, arguments)
    phases.append(Phase(symbol, emit_product(module, symbol, product)))
    if conf.copy_out is not None:
        symbol = f"inner_product_out__f32__{isa.lanes}x1__{isa.name}"
        count = emit_copy(module, symbol, *conf.copy_out, arguments, conf.post_ops)
        phases.append(Phase(symbol, count))
    return Kernel(module, tuple(phases), arguments.ids)


def _product(conf: Conf, post_ops: tuple[PostOp, ...], isa: Isa, arguments: Arguments) -> Product:
    src, weights = conf.src[1], conf.weights[1]
    row = Axis(src.dims[0], "n")
    panel, vector, lane, column = column_axes(weights.dims[0], conf.tile, isa.lanes)
    summed: list[Axis] = []
    forms: dict[int, Affine] = {}
    for dim in conf.order:
        extent = src.dims[dim]
        if dim == 1 and conf.block:
            extent = -(-extent // conf.block)
        axis = Axis(extent, _LETTERS[dim])
        summed.append(axis)
        forms[dim] = Affine.of(axis, conf.block if dim == 1 and conf.block else 1)
    if conf.block:
        inner = Axis(conf.block, "block")
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
