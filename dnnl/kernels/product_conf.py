"""What convolution, matmul and inner product share besides the product itself: the problem, what is
copied before and after, and the order of the phases."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from dnnl.codegen.access import Operand
from dnnl.codegen.address import Affine, Axis
from dnnl.codegen.brgemm import TileShape, max_rows
from dnnl.codegen.builder import Module
from dnnl.codegen.convert import storage
from dnnl.codegen.epilogue import Arguments, Epilogue, broadcast, refuse
from dnnl.codegen.finish import Depth, Finish, core_type, needs_row_sums
from dnnl.codegen.isa import Isa
from dnnl.codegen.isa.row import FLOATS as FLOAT_PRODUCTS
from dnnl.codegen.kernel import Kernel, Reason, Refusal
from dnnl.codegen.multiply import Multiply
from dnnl.codegen.quantization import Quantization, Quantizer
from dnnl.kernels import product_tiles
from dnnl.kernels.blocking import Blocking, Size, choose_blocking
from dnnl.kernels.computed_scales import emit_scales, refuse_computed
from dnnl.kernels.inside import Inside
from dnnl.kernels.pointwise import BYTES, FLOATS, INTEGERS, emit_copies, emit_copy, refuse_types
from dnnl.kernels.product import emit_product
from dnnl.kernels.product_decompressed import decompressing
from dnnl.kernels.product_form import Product
from dnnl.kernels.product_made import IndexOf, Made, Making
from dnnl.kernels.product_moved import moving
from dnnl.kernels.product_pairs import Narrow, emit_flags, narrow, take_flags
from dnnl.kernels.product_problem import NONE, Problem, Shape, as_read, plain
from dnnl.kernels.product_row_sums import RowSums, refuse_reductions
from dnnl.kernels.product_segments import Cut
from dnnl.kernels.product_sums import Segments
from dnnl.kernels.product_types import refuse_tensors
from dnnl.kernels.product_way import (
    alike,
    direct_way,
    in_bf16,
    needs_floats,
    of_floats,
    packed_way,
    segments_of,
    usual_way,
)
from dnnl.kernels.product_widened import emit_widened, take_widened, widened, words_of
from dnnl.kernels.scratchpad import Argument, Relayout, Scratchpad
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg
from dnnl.types.dropout import Dropout
from dnnl.types.dtype import DataType, any_of
from dnnl.types.kinds import FormatKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp

_FEW_ROWS = 3
"""Rows that read weights only once, which takes longer than all else."""

SCALED_SUMS = Multiply(DataType.f32, DataType.f32, 1, FLOAT_PRODUCTS)
"""How sums of segments are kept: as those of floats."""


@dataclass(frozen=True)
class Conf:
    """A product with every layout decided: the operands as the product reads and writes them, and
    what to copy.

    ``core`` is the type of results until they are stored in dst (`core_type`).
    ``factors`` are the arguments whose quantization is that of src and weights. What does not
    change within a sum is done at its end, as ``quantization``; what does is done ``per_segment``,
    to the sum of each ``segment`` of so many terms, unless that is 0: then both are ``dequantized``
    where they are copied. ``row_sums``, and ``column_sums`` that are not the same for all rows, are
    parts of the scratchpad, where they are needed (`Finish`).
    ``copy_out`` goes after the product, if dst is not computed in place, and then does all that
    follows on the bias, ``dropout`` and ``stochastic`` rounding among it. Where scales of dst are
    computed, post-ops are done before. ``widened`` is what src
    is read as where it is widened before (`product_widened`), ``flags`` are the panels that are
    multiplied without that (`product_pairs`), ``made`` is what threads make panels of
    (`product_made`). ``scratchpad`` is in bytes.
    """

    src: Argument
    weights: Argument
    dst: Argument
    bias: MemoryDesc
    post_ops: tuple[PostOp, ...]
    quantization: Quantization
    dequantized: Quantization
    factors: tuple[int, int]
    multiply: Multiply
    core: DataType
    blocking: Blocking
    row_sums: RowSums | None
    copies_in: tuple[Relayout, ...]
    copy_out: Relayout | None
    scratchpad: int
    column_sums: Argument | None = None
    dropout: Dropout | None = None
    stochastic: bool = False
    segment: int = 0
    per_segment: Quantization = NONE
    widened: Argument | None = None
    flags: Argument | None = None
    made: Making | None = None

    @property
    def read(self) -> Argument:
        """What the product reads as src."""
        return self.widened or self.src

    @property
    def inside(self) -> Inside:
        """What was decided, for people."""
        copies = self.copies_in
        if self.widened is not None:
            copies = (*copies, (self.src, words_of(self.src[1], self.widened)))
        return Inside(
            self.multiply, self.blocking, copies, self.copy_out, pairs=self.flags is not None,
            made_of=None if self.made is None else self.made.weights[1].data_type,
        )  # fmt: skip


AnyConf = TypeVar("AnyConf", bound=Conf)


def resolve(problem: Problem, isa: Isa, shape: Shape) -> Problem:
    """Decide the layouts that are ``any``: row-major ones, and panels for the weights."""
    decided: dict[str, Any] = {
        name: plain(desc)
        for name in ("src", "dst", "bias")
        if (desc := getattr(problem, name)).format_kind is FormatKind.any
    }
    problem = replace(problem, **decided)
    way = packed_way(problem, isa, shape) or usual_way(problem, isa)
    if problem.weights.format_kind is FormatKind.any and way is not None:
        src = as_read(problem.src, way, shape)
        panels = shape.panels(src, problem.weights, way, False).desc
        problem = replace(problem, weights=panels.with_data_type(problem.weights.data_type))
    return problem


def refuse_problem(problem: Problem) -> Refusal | None:
    """Why a convolution cannot be generated, or None."""
    others = [problem.dst] + ([] if problem.bias.is_zero else [problem.bias])
    src, weights = problem.src, problem.weights
    refusal = refuse_types(src, weights, allowed=FLOATS | BYTES)
    refusal = refusal or refuse_types(*others, allowed=FLOATS | INTEGERS)
    types = {src.data_type, weights.data_type}
    if refusal is None and len(types) > 1 and not types <= BYTES:
        rule = f"it takes both alike, {any_of(FLOATS)}, or each {any_of(BYTES)}"
        return Refusal(Reason.DATA_TYPE, f"{src.data_type} times {weights.data_type}; {rule}")
    return refusal or refuse(problem.post_ops, problem.dst)


def refuse_matrices(problem: Problem, *, runtime: bool = False) -> Refusal | None:
    """Why a product of matrices cannot be generated, or None; unless ``runtime``, all sizes have to
    be known."""
    tensors = {
        int(Arg.SRC): problem.src,
        int(Arg.WEIGHTS): problem.weights,
        int(Arg.DST): problem.dst,
    }
    tensors_of = problem.src, problem.weights, problem.bias, problem.dst
    refusal = refuse_tensors(*tensors_of, runtime=runtime)
    refusal = refusal or problem.quantization.refuse(tensors, computes=not runtime)
    refusal = refusal or refuse(problem.post_ops, problem.dst)
    refusal = refusal or refuse_reductions(problem)
    computed = problem.quantization.computed
    if refusal is None and computed is not None:
        refusal = refuse_computed(computed, problem)
    return refusal


def plan(
    problem: Problem, isa: Isa, src: Argument, weights: Argument, terms: int, shape: Shape
) -> Conf:
    """Copy what the product cannot walk. ``src`` and ``weights`` say whose memory they are; each
    sum has so many ``terms``."""
    factors = src[0], weights[0]
    problem, way, parts, dequantized, made = _choose(problem, factors, isa, weights, terms, shape)
    quantization = problem.quantization if parts is None else parts.outer
    stands_for = [dequantized.of_arguments((arg,)) != NONE for arg in factors]
    scratchpad = Scratchpad()
    dst: Argument = (Arg.DST, problem.dst)
    copy_out: Relayout | None = None
    read = as_read(problem.src, way, shape)
    if stands_for[0] or read is not src[1]:
        src = scratchpad.copy(src, read)
    ones = factors[0] in dict(problem.quantization.zero_points)
    wanted = shape.panels(src[1], problem.weights, way, ones)
    if way.tiles is not None:
        words = -(-shape.line(src[1]) // way.group) if parts is None else 0
        if not (wanted.desc.inner_blocks and product_tiles.takes(way, problem.dst.dims[-2], words)):
            untiled = usual_way(problem, isa, tiled=False)
            assert untiled is not None, "refused before"
            way = untiled
    # Beside a matrix unit, a row of ones meets all of a panel at the end of its sums.
    whole = ones and way.tiles is not None
    if made is None and weights[1] != wanted.desc and not (stands_for[1] or whole):
        made = moving(isa, src[1], weights, way, wanted, terms, shape)
    if made is not None:
        weights = weights[0], wanted.desc
    elif stands_for[1] or weights[1] != wanted.desc:
        weights = scratchpad.copy(weights, wanted.desc)
    bare = problem.bias.is_zero and not problem.post_ops and problem.dropout is None
    core = core_type(way, problem.dst.data_type, quantization, bare=bare and parts is None)
    passed = problem.dropout is not None or problem.stochastic
    passed |= problem.quantization.computed is not None
    walkable = shape.dst_walkable(problem.dst) and not passed
    if problem.dst.data_type.bits < 8 or not walkable:
        computed = scratchpad.take(plain(problem.dst.with_data_type(core)))
        copy_out = (computed, dst)
        dst = computed
    sums = None
    if needs_row_sums(way, dict(problem.quantization.zero_points), factors[1]):
        rows, segment = src[1].dims[: shape.summed[0].start], 0 if parts is None else parts.size
        sums = RowSums.of(src, rows, terms, segment, way, problem.reductions, scratchpad)
    wide = flags = None
    if not shape.simple and problem.dst.dims[-2] > _FEW_ROWS:
        products = terms * problem.dst.nelems()
        way = widened(way, src[1], products)
        wide = take_widened(scratchpad, src[1]) if way.widened else None
        if wanted.desc.inner_blocks:
            flags = take_flags(scratchpad, isa, way, wanted.desc, products)
    # Beside a row of ones, panels of a few rows of weights were faster one by one on two threads.
    in_rows = not (wanted.desc.inner_blocks or ones or shape.columns_apart(wanted.desc))
    blocking = _blocking(
        problem, isa, way, wanted.vectors, terms, ones=ones, in_rows=in_rows, made=made is not None
    )
    return Conf(
        src=src, weights=weights, dst=dst, bias=problem.bias, post_ops=problem.post_ops,
        quantization=quantization, dequantized=dequantized, factors=factors,
        multiply=way, core=core, blocking=blocking, row_sums=sums,
        copies_in=tuple(scratchpad.copies), copy_out=copy_out, scratchpad=scratchpad.size,
        dropout=problem.dropout, stochastic=problem.stochastic,
        segment=0 if parts is None else parts.size,
        per_segment=NONE if parts is None else parts.inner, widened=wide, flags=flags,
        made=made,
    )  # fmt: skip


class _Choice(NamedTuple):
    """What is multiplied and how, in which ``parts`` sums are cut, what is ``dequantized`` where it
    is copied, and what threads make panels of."""

    problem: Problem
    way: Multiply
    parts: Cut | None
    dequantized: Quantization
    made: Making | None = None


def _choose(
    problem: Problem, factors: tuple[int, int], isa: Isa, weights: Argument, terms: int,
    shape: Shape,
) -> _Choice:  # fmt: skip
    changing = needs_floats(problem, factors, shape)
    given = problem.quantization.of_arguments(factors) if changing else NONE
    narrow = in_bf16(problem, factors, isa, shape, changing=changing)
    if narrow is not None:
        made = _made(narrow, factors, isa, weights, given, terms, shape)
        if made is not None:
            return made
    way = direct_way(problem, isa, terms, shape) or usual_way(problem, isa)
    parts, dequantized = None, NONE
    if changing:
        parts = segments_of(problem, factors, shape, terms, way)
        if parts is None:
            dequantized = given
            problem = of_floats(problem, factors)
            way = usual_way(problem, isa)
    assert way is not None, "refused before"
    return _Choice(problem, way, parts, dequantized)


def _made(
    problem: Problem, factors: tuple[int, int], isa: Isa, weights: Argument,
    dequantized: Quantization, terms: int, shape: Shape,
) -> _Choice | None:  # fmt: skip
    """A product of panels of bf16 that threads make, if they can."""
    way = usual_way(problem, isa)
    assert way is not None, "bf16 is multiplied everywhere"
    src = as_read(problem.src, way, shape)
    wanted = shape.panels(src, problem.weights, way, False)
    given = dequantized.of_arguments(factors[1:])
    made = decompressing(isa, src, weights, way, wanted, given, terms, shape)
    return None if made is None else _Choice(problem, way, None, dequantized, made)


def _blocking(
    problem: Problem, isa: Isa, way: Multiply, vectors: int, terms: int, *, ones: bool,
    in_rows: bool, made: bool,
) -> Blocking:  # fmt: skip
    """The tile, and what is kept in which cache."""
    *_, rows, columns = problem.dst.dims
    if way.tiles is not None:
        tile = TileShape(product_tiles.tile_rows(isa, vectors, rows), vectors)
    else:
        most = max_rows(isa, vectors * way.span, way.parts, ones=ones)
        tile = TileShape(alike(rows, most), vectors)
    width = vectors * isa.lanes
    size = Size(
        rows, -(-columns // width), -(-terms // way.group),
        way.word_bytes, way.group * width * way.b.bits // 8,
        fast=way.tiles is not None, in_rows=way.group if in_rows else 0, made=made,
    )  # fmt: skip
    return choose_blocking(isa, tile, size)


@dataclass(frozen=True)
class Indices:
    """Where the values lie that belong to a result, in axes of dst: the index of bias, those of src
    and weights with zero for all that is summed up, and those of the sums."""

    bias: tuple[Affine, ...]
    src: tuple[Affine, ...]
    weights: tuple[Affine, ...]
    row_sums: tuple[Affine, ...] = ()
    column_sums: tuple[Affine, ...] = ()


def finish(conf: Conf, arguments: Arguments, dst: Operand, at: Indices, depth: Depth) -> Finish:
    """The end of the product that computes ``dst`` from sums of that depth."""
    here = conf.copy_out is None
    post_ops = conf.post_ops if here or conf.quantization.computed is not None else ()
    bias = None
    if not conf.bias.is_zero:
        bias = Operand(arguments.slot(Arg.BIAS), conf.bias, broadcast(conf.bias, at.bias))
    tensors = {
        conf.factors[0]: Operand(0, conf.src[1], at.src),
        conf.factors[1]: Operand(0, conf.weights[1], at.weights),
        int(Arg.DST): dst,
    }
    quantization = conf.quantization.of_arguments(tensors if here else conf.factors)
    whole = conf.segment == 0
    if conf.column_sums is not None:
        quantization = quantization.without_zero_points(conf.factors[0])

    columns = conf.column_sums
    column_sums = None
    if columns is not None:
        index = broadcast(columns[1], at.column_sums)
        column_sums = Operand(arguments.slot(columns[0]), columns[1], index)
    row_sums = None
    if conf.row_sums is not None and whole:
        row_sums = conf.row_sums.operand(arguments, at.row_sums)
    return Finish(
        conf.multiply if whole else SCALED_SUMS, conf.core, dst, bias,
        Epilogue(post_ops, dst, arguments),
        Quantizer(quantization, tensors, arguments, requantizes=True),
        conf.factors, depth, row_sums, column_sums,
    )  # fmt: skip


def segments(
    conf: Conf, arguments: Arguments, dst: Operand, at: Indices, depth: Depth, axis: Axis
) -> Segments | None:
    """The segments along ``axis`` of a product that has some, each of that depth."""
    if not conf.segment:
        return None
    tensors = {
        conf.factors[0]: Operand(0, conf.src[1], at.src),
        conf.factors[1]: Operand(0, conf.weights[1], at.weights),
    }
    sums = None if conf.row_sums is None else conf.row_sums.operand(arguments, at.row_sums)
    end = Finish(
        conf.multiply, DataType.f32, dst, None, Epilogue((), dst, arguments),
        Quantizer(conf.per_segment, tensors, arguments), conf.factors, depth, sums,
    )  # fmt: skip
    return Segments(axis, end)


def made(conf: Conf, arguments: Arguments, at: IndexOf) -> Made | None:
    """What threads make panels of, of weights that are ``at`` these indices."""
    return None if conf.made is None else conf.made.bound(arguments, at)


def other_way(conf: Conf, arguments: Arguments, src: Operand, isa: Isa) -> Narrow | None:
    """The way of panels that are small enough through a product that reads ``src``."""
    given = conf.flags, conf.src, conf.weights[1], src, conf.multiply
    return narrow(*given, arguments, isa)


def emit_sums(module: Module, conf: Conf, arguments: Arguments) -> Iterable[Phase]:
    """Write the sums of the rows of matrices, if they are needed."""
    if conf.row_sums is not None:
        yield from conf.row_sums.emit(module, arguments)


def build(
    name: str,
    conf: AnyConf,
    isa: Isa,
    products: Callable[[AnyConf, Isa, Arguments], Iterable[Product]],
    sums: Callable[[Module, AnyConf, Arguments], Iterable[Phase]] = emit_sums,
) -> Kernel:
    """The kernel with the phases of `emit` and no others."""
    module, arguments = Module(name, isa), Arguments()
    phases = emit(module, conf, arguments, products, sums)
    return Kernel(module, tuple(phases), arguments.ids)


def emit(
    module: Module,
    conf: AnyConf,
    arguments: Arguments,
    products: Callable[[AnyConf, Isa, Arguments], Iterable[Product]],
    sums: Callable[[Module, AnyConf, Arguments], Iterable[Phase]] = emit_sums,
) -> list[Phase]:
    """Write the copies in, the ``sums``, the products with what they do at their ends, the copy
    out."""
    name, isa = module.ir.name, module.isa
    phases = emit_copies(module, name, conf.copies_in, arguments, conf.dequantized)
    phases.extend(sums(module, conf, arguments))
    if conf.flags is not None:
        symbol = f"{name}_flags__{conf.weights[1].data_type}__{isa.lanes}x1__{isa.name}"
        phases.append(emit_flags(module, symbol, conf.weights, conf.flags, arguments))
    if conf.widened is not None:
        symbol = f"{name}_wide__{conf.src[1].data_type}__{isa.lanes}x1__{isa.name}"
        phases.append(emit_widened(module, symbol, conf.src, conf.widened, conf.flags, arguments))
    tile = conf.blocking.tile
    types = "_".join(
        dict.fromkeys(str(part[1].data_type) for part in (conf.src, conf.weights, conf.dst))
    )
    for number, product in enumerate(products(conf, isa, arguments)):
        symbol = (
            f"{name}{number or ''}__{types}__{tile.rows}x{tile.vectors * isa.lanes}__{isa.name}"
        )
        phases.append(emit_product(module, symbol, product))
    if conf.copy_out is not None:
        given, dst = conf.copy_out
        post_ops, computed = conf.post_ops, conf.quantization.computed
        if computed is not None:
            entry = f"{name}_scales__{computed.data_type}__{isa.lanes}x1__{isa.name}"
            phases.append(emit_scales(module, entry, given, dst[1].data_type, computed, arguments))
            post_ops = ()
        symbol = f"{name}_out__{dst[1].data_type}__{isa.lanes}x1__{isa.name}"
        phases.append(
            emit_copy(
                module, symbol, given, dst, arguments, post_ops,
                conf.quantization.of_arguments((Arg.DST,)), storage(conf.core).element,
                conf.dropout, stochastic=conf.stochastic, requantizes=True,
            )
        )  # fmt: skip
    return phases
