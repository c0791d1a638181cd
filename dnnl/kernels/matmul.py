"""Batched matrix multiplication on register tiles, for any layouts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dnnl.codegen.access import Operand
from dnnl.codegen.address import Affine, Axis, linear_offset
from dnnl.codegen.brgemm import Tile, choose_vectors, max_rows
from dnnl.codegen.builder import Module
from dnnl.codegen.epilogue import Arguments, Epilogue, broadcast, refuse
from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Kernel, Refusal
from dnnl.kernels.pointwise import emit_copies, emit_copy, refuse_types
from dnnl.kernels.product import Product, column_axes, emit_product
from dnnl.kernels.scratchpad import Argument, Copy, Scratchpad
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg
from dnnl.types.kinds import FormatKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp, PostOpBinary, PostOpPrelu
from dnnl.types.tag import FormatTag

_LETTERS = "abcdefghijkl"


@dataclass(frozen=True)
class Problem:
    """dst[.., m, n] = post_ops(bias + sum_k src[.., m, k] * weights[.., k, n]).

    ``bias`` has as many dimensions as dst, each 1 or dst's, or is the zero descriptor.
    """

    src: MemoryDesc
    weights: MemoryDesc
    bias: MemoryDesc
    dst: MemoryDesc
    post_ops: tuple[PostOp, ...]


@dataclass(frozen=True)
class Conf:
    """The problem with every layout decided: what to copy, and the operands of the product.

    ``copy_out`` goes after the product, if dst is not computed in place, and then does the
    ``post_ops``.
    """

    src: Argument
    weights: Argument
    dst: Argument
    bias: MemoryDesc
    post_ops: tuple[PostOp, ...]
    tile: Tile
    keep_weights: bool
    copies_in: tuple[Copy, ...]
    copy_out: Copy | None
    scratchpad: int


def resolve(problem: Problem, isa: Isa) -> Problem:
    """Decide the layouts that are ``any``: src, dst and bias row-major, weights in panels."""
    plain = {
        name: desc.with_tag(FormatTag(_LETTERS[: desc.ndims]))
        for name in ("src", "dst", "bias")
        if (desc := getattr(problem, name)).format_kind is FormatKind.any
    }
    if problem.weights.format_kind is FormatKind.any:
        src = plain.get("src", problem.src)
        vectors = _vectors(src if _walkable(src) else _plain(src), problem.weights, isa)
        plain["weights"] = _panels(problem.weights, vectors * isa.lanes)
    return replace(problem, **plain)


def _vectors(src: MemoryDesc, weights: MemoryDesc, isa: Isa) -> int:
    """How many vectors wide the tile is."""
    return choose_vectors(isa, weights.dims[-1], src.strides[-2])


def _panels(weights: MemoryDesc, width: int) -> MemoryDesc:
    """Panels of ``width`` columns, each with all of k in one stream."""
    batch, k, n = _LETTERS[: weights.ndims - 2], *_LETTERS[weights.ndims - 2 : weights.ndims]
    return weights.with_tag(FormatTag(f"{batch}{n.upper()}{k}{width}{n}"))


def configure(problem: Problem, isa: Isa) -> Conf | Refusal:
    """Plan a product whose layouts are all decided (see :func:`resolve`)."""
    refusal = refuse_types(problem.src, problem.weights, problem.dst)
    if refusal is None and not problem.bias.is_zero:
        refusal = refuse_types(problem.bias)
    refusal = refusal or refuse(problem.post_ops, problem.dst)
    if refusal is not None:
        return refusal
    src: Argument = (Arg.SRC, problem.src)
    weights: Argument = (Arg.WEIGHTS, problem.weights)
    if _column_major(problem):
        problem = _transposed(problem)
        src, weights = (Arg.WEIGHTS, problem.src), (Arg.SRC, problem.weights)
    scratchpad = Scratchpad()
    dst: Argument = (Arg.DST, problem.dst)
    copy_out: Copy | None = None
    if not _walkable(problem.src):
        src = scratchpad.copy(src, _plain(problem.src))
    vectors = _vectors(src[1], problem.weights, isa)
    panels = _panels(problem.weights, vectors * isa.lanes)
    if problem.weights != panels:
        weights = scratchpad.copy(weights, panels)
    if not _walkable(problem.dst):
        computed = scratchpad.take(_plain(problem.dst))
        copy_out = (computed, dst)
        dst = computed
    return Conf(
        src=src, weights=weights, dst=dst, bias=problem.bias, post_ops=problem.post_ops,
        tile=Tile(max_rows(isa, vectors), vectors), keep_weights=panels.size > isa.l2 // 2,
        copies_in=tuple(scratchpad.copies), copy_out=copy_out, scratchpad=scratchpad.size,
    )  # fmt: skip


def _plain(desc: MemoryDesc) -> MemoryDesc:
    return desc.with_tag(FormatTag(_LETTERS[: desc.ndims]))


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
    """The copies in, the product, the copy out."""
    arguments = Arguments()
    module = Module("matmul", isa)
    phases = emit_copies(module, "matmul", conf.copies_in, arguments)
    post_ops = conf.post_ops if conf.copy_out is None else ()
    symbol = f"matmul__f32__{conf.tile.rows}x{conf.tile.vectors * isa.lanes}__{isa.name}"
    phases.append(
        Phase(symbol, emit_product(module, symbol, _product(conf, post_ops, isa, arguments)))
    )
    if conf.copy_out is not None:
        symbol = f"matmul_out__f32__{isa.lanes}x1__{isa.name}"
        count = emit_copy(module, symbol, *conf.copy_out, arguments, conf.post_ops)
        phases.append(Phase(symbol, count))
    return Kernel(module, tuple(phases), arguments.ids)


def _product(conf: Conf, post_ops: tuple[PostOp, ...], isa: Isa, arguments: Arguments) -> Product:
    *batch_dims, m, n = conf.dst[1].dims
    batch = tuple(
        Axis(extent, letter) for extent, letter in zip(batch_dims, _LETTERS, strict=False)
    )
    row, k = Axis(m, "m"), Axis(conf.src[1].dims[-1], "k")
    panel, vector, lane, column = column_axes(n, conf.tile, isa.lanes)
    outer = [Affine.of(axis) for axis in batch]
    rows, depth = Affine.of(row), Affine.of(k)

    def operand(source: Argument, last: tuple[Affine, Affine]) -> Operand:
        head = broadcast_batch(source[1], outer)
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


def broadcast_batch(desc: MemoryDesc, outer: list[Affine]) -> tuple[Affine, ...]:
    """The batch part of an operand's index: dimensions of size 1 stay where they are."""
    return tuple(
        form if extent != 1 else Affine({}) for extent, form in zip(desc.dims, outer, strict=False)
    )
