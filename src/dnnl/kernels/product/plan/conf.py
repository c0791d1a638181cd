"""What convolution, matmul and inner product share besides the product itself: the problem, what is
copied before and after, and the order of the phases."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from dnnl.codegen.epilogue.finish import core_type, needs_row_sums
from dnnl.codegen.epilogue.post_ops import refuse
from dnnl.codegen.epilogue.quantization import Quantization
from dnnl.codegen.ir.kernel import Refusal
from dnnl.codegen.isa import Isa
from dnnl.codegen.product.brgemm import TileShape, max_rows
from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.product.base.blocking import Blocking, Size, choose_blocking
from dnnl.kernels.product.base.problem import NONE, Panels, ProductProblem, Shape, as_read, plain
from dnnl.kernels.product.base.types import refuse_tensors
from dnnl.kernels.product.compensation.columns import ColumnSums, summed_before
from dnnl.kernels.product.compensation.rows import RowSums, refuse_reductions
from dnnl.kernels.product.compensation.segments import Cut
from dnnl.kernels.product.pack.decompressed import decompressing
from dnnl.kernels.product.pack.on_the_fly import Making
from dnnl.kernels.product.pack.pairs import take_flags
from dnnl.kernels.product.pack.repacked import moving
from dnnl.kernels.product.pack.unpacked import unpacking
from dnnl.kernels.product.pack.up_converted import take_widened, widened, words_of
from dnnl.kernels.product.plan.computed_scales import refuse_computed
from dnnl.kernels.product.plan.dot_kind import (
    alike,
    direct_way,
    in_bf16,
    needs_floats,
    of_floats,
    packed_way,
    segments_of,
    usual_way,
)
from dnnl.kernels.product.plan.summary import PlanSummary
from dnnl.kernels.product.unit import tiles as product_tiles
from dnnl.kernels.shared.scratchpad import Argument, Relayout, Scratchpad
from dnnl.types.arg import Arg
from dnnl.types.dropout import Dropout
from dnnl.types.dtype import DataType
from dnnl.types.kinds import FormatKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp

_FEW_ROWS = 3
"""Rows that read weights only once, which takes longer than all else."""


@dataclass(frozen=True)
class ProductConf:
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
    (`product_made`), ``weight_sums`` are sums of the columns of weights that are added up before.
    ``scratchpad`` is in bytes.
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
    weight_sums: ColumnSums | None = None

    @property
    def read(self) -> Argument:
        """What the product reads as src."""
        return self.widened or self.src

    @property
    def inside(self) -> PlanSummary:
        """What was decided, for people."""
        copies = self.copies_in
        if self.widened is not None:
            copies = (*copies, (self.src, words_of(self.src[1], self.widened)))
        return PlanSummary(
            self.multiply,
            self.blocking,
            copies,
            self.copy_out,
            pairs=self.flags is not None,
            made_of=None if self.made is None else self.made.weights[1].data_type,
        )


def resolve(problem: ProductProblem, isa: Isa, shape: Shape) -> ProductProblem:
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


def refuse_problem(problem: ProductProblem) -> Refusal | None:
    """Why a convolution cannot be generated, or None."""
    refusal = refuse_tensors(problem.src, problem.weights, problem.bias, problem.dst)
    return refusal or refuse(problem.post_ops, problem.dst)


def refuse_matrices(problem: ProductProblem) -> Refusal | None:
    """Why a product of matrices cannot be generated, or None."""
    tensors = {
        int(Arg.SRC): problem.src,
        int(Arg.WEIGHTS): problem.weights,
        int(Arg.DST): problem.dst,
    }
    refusal = refuse_tensors(problem.src, problem.weights, problem.bias, problem.dst)
    refusal = refusal or problem.quantization.refuse(tensors, computes=True)
    refusal = refusal or refuse(problem.post_ops, problem.dst)
    refusal = refusal or refuse_reductions(problem)
    computed = problem.quantization.computed
    if refusal is None and computed is not None:
        refusal = refuse_computed(computed, problem)
    return refusal


def plan(
    problem: ProductProblem,
    isa: Isa,
    src: Argument,
    weights: Argument,
    terms: int,
    shape: Shape,
    expanded: tuple[Making, Panels] | None = None,
) -> ProductConf:
    """Copy what the product cannot walk. ``src`` and ``weights`` say whose memory they are; each
    sum has so many ``terms``. Packed weights are ``expanded`` into such panels."""
    factors, scratchpad = (src[0], weights[0]), Scratchpad()
    choice = _choose(problem, factors, isa, weights, terms, shape)
    problem, parts = choice.problem, choice.parts
    zero_points = dict(problem.quantization.zero_points)
    read = _read(choice, isa, src, weights, terms, shape, scratchpad, expanded)
    way, wanted, ones = read.way, read.wanted, read.ones
    quantization = problem.quantization if parts is None else parts.outer
    bare = problem.bias.is_zero and not problem.post_ops and problem.dropout is None
    core = core_type(way, problem.dst.data_type, quantization, bare=bare and parts is None)
    dst, copy_out = _result(problem, core, shape, scratchpad)
    segment, sums = 0 if parts is None else parts.size, None
    if needs_row_sums(way, zero_points, factors[1]):
        rows = read.src[1].dims[: shape.summed[0].start]
        sums = RowSums.of(read.src, rows, terms, segment, way, problem.reductions, scratchpad)
    columns = None
    if factors[0] in zero_points and not ones:
        lying = read.weights if read.made is None else read.made.weights
        columns = ColumnSums.of(lying, shape.summed[1], scratchpad)
    wide = flags = None
    if not shape.simple and problem.dst.dims[-2] > _FEW_ROWS:
        products = terms * problem.dst.nelems()
        way = widened(way, read.src[1], products)
        wide = take_widened(scratchpad, read.src[1]) if way.up_converted else None
        if wanted.desc.inner_blocks and expanded is None:
            flags = take_flags(scratchpad, isa, way, wanted.desc, products)
    # Beside a row of ones, panels of a few rows of weights were faster one by one on two threads.
    in_rows = not (wanted.desc.inner_blocks or ones or shape.columns_apart(wanted.desc))
    blocking = _blocking(
        problem, isa, way, wanted.vectors, terms, ones=ones, in_rows=in_rows, made=read.made
    )
    return ProductConf(
        src=read.src,
        weights=read.weights,
        dst=dst,
        bias=problem.bias,
        post_ops=problem.post_ops,
        quantization=quantization,
        dequantized=choice.dequantized,
        factors=factors,
        multiply=way,
        core=core,
        blocking=blocking,
        row_sums=sums,
        copies_in=tuple(scratchpad.copies),
        copy_out=copy_out,
        scratchpad=scratchpad.size,
        dropout=problem.dropout,
        stochastic=problem.stochastic,
        segment=segment,
        per_segment=NONE if parts is None else parts.inner,
        widened=wide,
        flags=flags,
        made=read.made,
        weight_sums=columns,
    )


class _Choice(NamedTuple):
    """What is multiplied and how, in which ``parts`` sums are cut, what is ``dequantized`` where it
    is copied, and what threads make panels of."""

    problem: ProductProblem
    way: Multiply
    parts: Cut | None
    dequantized: Quantization
    made: Making | None = None


def _choose(
    problem: ProductProblem,
    factors: tuple[int, int],
    isa: Isa,
    weights: Argument,
    terms: int,
    shape: Shape,
) -> _Choice:
    changing = needs_floats(problem, factors, shape)
    given = problem.quantization.of_arguments(factors) if changing else NONE
    narrow = in_bf16(problem, factors, isa, shape, changing=changing)
    if narrow is not None and weights[1].encoding is None:
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
    problem: ProductProblem,
    factors: tuple[int, int],
    isa: Isa,
    weights: Argument,
    dequantized: Quantization,
    terms: int,
    shape: Shape,
) -> _Choice | None:
    """A product of panels of bf16 that threads make, if they can."""
    way = usual_way(problem, isa)
    assert way is not None, "bf16 is multiplied everywhere"
    src = as_read(problem.src, way, shape)
    wanted = shape.panels(src, problem.weights, way, False)
    given = dequantized.of_arguments(factors[1:])
    made = decompressing(isa, src, weights, way, wanted, given, terms, shape)
    return None if made is None else _Choice(problem, way, None, dequantized, made)


class _Read(NamedTuple):
    """What a product reads and how: ``weights`` in the ``wanted`` panels, unless they are ``made``
    by threads. Tiles have a row of ``ones``, or do not."""

    src: Argument
    weights: Argument
    way: Multiply
    wanted: Panels
    made: Making | None
    ones: bool


def _read(
    choice: _Choice,
    isa: Isa,
    src: Argument,
    weights: Argument,
    terms: int,
    shape: Shape,
    scratchpad: Scratchpad,
    expanded: tuple[Making, Panels] | None,
) -> _Read:
    """Copy src and weights where they do not lie as they are wanted."""
    problem, way, made = choice.problem, choice.way, choice.made
    factors = src[0], weights[0]
    stands_for = [choice.dequantized.of_arguments((arg,)) != NONE for arg in factors]
    as_wanted = as_read(problem.src, way, shape)
    if stands_for[0] or as_wanted is not src[1]:
        src = scratchpad.copy(src, as_wanted)
    ones = factors[0] in dict(problem.quantization.zero_points)
    if choice.parts is None and not shape.simple and expanded is None:
        ones &= not summed_before(isa, way, problem.dst.dims[-2])
    wanted = shape.panels(src[1], problem.weights, way, ones)
    if expanded is not None:
        made, wanted = expanded
    if way.tiles is not None:
        words = -(-shape.line(src[1]) // way.group)
        if choice.parts is not None:
            words = 0 if ones else product_tiles.whole_words(isa, choice.parts.size // way.group)
        fits = wanted.desc.inner_blocks and not (ones and expanded)
        if not (fits and product_tiles.takes(way, problem.dst.dims[-2], words)):
            untiled = usual_way(problem, isa, tiled=False)
            assert untiled is not None, "refused before"
            way = untiled
    # Beside a matrix unit, a row of ones meets all of a panel at the end of its sums.
    whole = ones and way.tiles is not None
    if made is None and weights[1] != wanted.desc and not (stands_for[1] or whole):
        made = moving(isa, src[1], weights, way, wanted, terms, shape)
        made = made or unpacking(isa, weights, way, wanted, terms, shape)
    if made is not None:
        weights = weights[0], wanted.desc
    elif stands_for[1] or weights[1] != wanted.desc:
        weights = scratchpad.copy(weights, wanted.desc)
    return _Read(src, weights, way, wanted, made, ones)


def _result(
    problem: ProductProblem, core: DataType, shape: Shape, scratchpad: Scratchpad
) -> tuple[Argument, Relayout | None]:
    """What the product writes, and the copy behind it where that is not dst."""
    dst: Argument = (Arg.DST, problem.dst)
    passed = problem.dropout is not None or problem.stochastic
    passed |= problem.quantization.computed is not None
    if problem.dst.data_type.bits >= 8 and shape.dst_walkable(problem.dst) and not passed:
        return dst, None
    computed = scratchpad.take(plain(problem.dst.with_data_type(core)))
    return computed, (computed, dst)


def _blocking(
    problem: ProductProblem,
    isa: Isa,
    way: Multiply,
    vectors: int,
    terms: int,
    *,
    ones: bool,
    in_rows: bool,
    made: Making | None,
) -> Blocking:
    """The tile, and what is kept in which cache."""
    *_, rows, columns = problem.dst.dims
    if way.tiles is not None:
        tile = TileShape(product_tiles.tile_rows(isa, vectors, rows), vectors)
    else:
        most = max_rows(isa, vectors * way.span, way.parts, ones=ones)
        tile = TileShape(alike(rows, most), vectors)
    width = vectors * isa.lanes
    size = Size(
        rows,
        -(-columns // width),
        -(-terms // way.group),
        way.group_bytes,
        way.group * width * way.b.bits // 8,
        fast=way.tiles is not None,
        in_rows=way.group if in_rows else 0,
        made=made is not None,
        row_bytes=0 if made is None else made.row_bytes,
    )
    return choose_blocking(isa, tile, size)
