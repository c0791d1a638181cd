"""What convolution, matmul and inner product share besides the loops: the plan of operands, copies
before and after, quantization and blocking."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from dnnl.codegen.epilogue.post_ops import refuse
from dnnl.codegen.epilogue.product_epilogue import core_type, needs_row_sums
from dnnl.codegen.epilogue.quantization import Quantization
from dnnl.codegen.ir.kernel import Refusal
from dnnl.codegen.isa import Isa
from dnnl.codegen.product.brgemm import TileShape, max_rows
from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.product.base.blocking import Blocking, Size, choose_blocking
from dnnl.kernels.product.base.problem import (
    NONE,
    Panels,
    ProductProblem,
    Shape,
    as_read,
    plain,
    with_plain_layouts,
)
from dnnl.kernels.product.base.types import refuse_tensors
from dnnl.kernels.product.compensation.columns import ColumnSums, summed_before
from dnnl.kernels.product.compensation.rows import RowSums, refuse_reductions
from dnnl.kernels.product.compensation.segments import Cut
from dnnl.kernels.product.pack.decompressed import plan_decompressed
from dnnl.kernels.product.pack.on_the_fly import PanelPacking
from dnnl.kernels.product.pack.pairs import take_flags
from dnnl.kernels.product.pack.repacked import plan_repacked
from dnnl.kernels.product.pack.sparse_decoded import SparseDecodedPacking
from dnnl.kernels.product.pack.unpacked import plan_unpacked
from dnnl.kernels.product.pack.up_converted import as_s64, take_up_converted, with_up_conversion
from dnnl.kernels.product.plan.computed_scales import refuse_computed
from dnnl.kernels.product.plan.dot_kind import (
    direct_dot,
    even_rows,
    in_bf16,
    needs_floats,
    of_floats,
    packed_dot,
    segments_of,
    usual_dot,
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
"""Up to this many rows reading the weights, once, takes longer than all else."""


@dataclass(frozen=True)
class ProductConf:
    """A product with every layout decided: the operands as the product reads and writes them, and
    the copies around it.

    - ``core`` is the type of results until they are stored in dst (`core_type`).
    - ``factors`` are the arguments whose quantization is that of src and weights. What is constant
      along K is applied at the end, as ``quantization``. What changes is applied ``per_segment``,
      to the sum of each ``segment`` of so many terms; if ``segment`` is 0, operands are
      ``dequantized`` when they are copied.
    - ``row_sums``, and ``column_sums`` that differ between rows, are in the scratchpad, if they are
      needed (`ProductEpilogue`). ``weight_sums`` are column sums from a separate pass.
    - ``copy_out`` follows the product if dst is not computed in place. It then applies all that
      follows the bias, ``dropout`` and ``stochastic`` rounding included. Post-ops are applied
      earlier if scales of dst are computed.
    - ``up_converted`` is what the product reads in place of src (`up_converted`). ``flags`` are
      those of panels multiplied without it (`pairs`). ``packing`` packs panels on the fly
      (`on_the_fly`). Where threads have no memory for that, packed weights are ``decoded`` in a
      phase before.
    - ``scratchpad`` is in bytes.
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
    up_converted: Argument | None = None
    flags: Argument | None = None
    packing: PanelPacking | None = None
    decoded: SparseDecodedPacking | None = None
    weight_sums: ColumnSums | None = None

    @property
    def read(self) -> Argument:
        """What the product reads as src."""
        return self.up_converted or self.src

    @property
    def summary(self) -> PlanSummary:
        """The decisions, for `dnnl explain`."""
        copies = self.copies_in
        if self.up_converted is not None:
            copies = (*copies, (self.src, as_s64(self.src[1], self.up_converted)))
        return PlanSummary(
            self.multiply,
            self.blocking,
            copies,
            self.copy_out,
            pairs=self.flags is not None,
            packed_from=None if self.packing is None else self.packing.weights[1].data_type,
        )


def resolve(problem: ProductProblem, isa: Isa, shape: Shape) -> ProductProblem:
    """Decide the layouts that are ``any``: row-major, and panels for the weights."""
    problem = with_plain_layouts(problem)
    dot = packed_dot(problem, isa, shape) or usual_dot(problem, isa)
    if problem.weights.format_kind is FormatKind.any and dot is not None:
        src = as_read(problem.src, dot, shape)
        panels = shape.panels(src, problem.weights, dot, False).desc
        problem = replace(problem, weights=panels.with_data_type(problem.weights.data_type))
    return problem


def refuse_problem(problem: ProductProblem) -> Refusal | None:
    """Why a convolution cannot be generated, or None."""
    refusal = refuse_tensors(problem.src, problem.weights, problem.bias, problem.dst)
    return refusal or refuse(problem.post_ops, problem.dst, (problem.src,))


def refuse_matrices(problem: ProductProblem) -> Refusal | None:
    """Why a product of matrices cannot be generated, or None."""
    tensors = {
        int(Arg.SRC): problem.src,
        int(Arg.WEIGHTS): problem.weights,
        int(Arg.DST): problem.dst,
    }
    refusal = refuse_tensors(problem.src, problem.weights, problem.bias, problem.dst)
    refusal = refusal or problem.quantization.refuse(tensors, computes=True)
    refusal = refusal or refuse(problem.post_ops, problem.dst, (problem.src,))
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
    decoded: tuple[SparseDecodedPacking, Panels] | None = None,
    scratchpad: Scratchpad | None = None,
) -> ProductConf:
    """Plan a product; operands that it cannot read in place are copied.

    ``src`` and ``weights`` are the arguments with their layouts, ``terms`` is K. ``decoded`` is the
    packing of packed (sparse) weights and its panels. ``scratchpad`` has what was copied before.
    """
    factors, scratchpad = (src[0], weights[0]), scratchpad or Scratchpad()
    choice = _choose(problem, factors, isa, weights, terms, shape)
    problem, parts = choice.problem, choice.parts
    zero_points = dict(problem.quantization.zero_points)
    read = _read(choice, isa, src, weights, terms, shape, scratchpad, decoded)
    dot, wanted, ones = read.dot, read.wanted, read.ones
    quantization = problem.quantization if parts is None else parts.outer
    bare = problem.bias.is_zero and not problem.post_ops and problem.dropout is None
    core = core_type(dot, problem.dst.data_type, quantization, bare=bare and parts is None)
    dst, copy_out = _result(problem, core, shape, scratchpad)
    segment, sums = 0 if parts is None else parts.size, None
    if needs_row_sums(dot, zero_points, factors[1]):
        rows = read.src[1].dims[: shape.summed[0].start]
        sums = RowSums.of(read.src, rows, terms, segment, dot, problem.reductions, scratchpad)
    columns = None
    if factors[0] in zero_points and not ones:
        stored = read.weights if read.packing is None else read.packing.weights
        columns = ColumnSums.of(stored, shape.summed[1], scratchpad)
    wide = flags = None
    if not shape.simple and problem.dst.dims[-2] > _FEW_ROWS:
        products = terms * problem.dst.nelems()
        dot = with_up_conversion(dot, read.src[1], products)
        wide = take_up_converted(scratchpad, read.src[1]) if dot.up_converted else None
        if wanted.desc.inner_blocks and decoded is None:
            flags = take_flags(scratchpad, isa, dot, wanted.desc, products)
    # With a row of ones, panels of a few rows of weights were faster one by one on two threads.
    in_rows = not (wanted.desc.inner_blocks or ones or shape.column_stride(wanted.desc))
    blocking = _blocking(
        problem, isa, dot, wanted.vectors, terms, ones=ones, in_rows=in_rows, packing=read.packing
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
        multiply=dot,
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
        up_converted=wide,
        flags=flags,
        packing=read.packing,
        decoded=decoded[0] if decoded is not None and read.packing is None else None,
        weight_sums=columns,
    )


class _Choice(NamedTuple):
    """The operands and the dot-product kind, the segments (``parts``) of sums, what is
    ``dequantized`` by copies, and the packing of panels."""

    problem: ProductProblem
    dot: Multiply
    parts: Cut | None
    dequantized: Quantization
    packing: PanelPacking | None = None


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
        packing = _with_packed_panels(narrow, factors, isa, weights, given, terms, shape)
        if packing is not None:
            return packing
    dot = direct_dot(problem, isa, terms, shape) or usual_dot(problem, isa)
    parts, dequantized = None, NONE
    if changing:
        parts = segments_of(problem, factors, shape, terms, dot)
        if parts is None:
            dequantized = given
            problem = of_floats(problem, factors)
            dot = usual_dot(problem, isa)
    assert dot is not None, "refused before"
    return _Choice(problem, dot, parts, dequantized)


def _with_packed_panels(
    problem: ProductProblem,
    factors: tuple[int, int],
    isa: Isa,
    weights: Argument,
    dequantized: Quantization,
    terms: int,
    shape: Shape,
) -> _Choice | None:
    """A product of bf16 panels that threads pack, if they can."""
    dot = usual_dot(problem, isa)
    assert dot is not None, "bf16 is multiplied everywhere"
    src = as_read(problem.src, dot, shape)
    wanted = shape.panels(src, problem.weights, dot, False)
    given = dequantized.of_arguments(factors[1:])
    packing = plan_decompressed(isa, src, weights, dot, wanted, given, terms, shape)
    return None if packing is None else _Choice(problem, dot, None, dequantized, packing)


class _Read(NamedTuple):
    """What a product reads: ``weights`` in the ``wanted`` panels, unless ``packing`` packs these on
    the fly. ``ones`` says that tiles have a row of ones."""

    src: Argument
    weights: Argument
    dot: Multiply
    wanted: Panels
    packing: PanelPacking | None
    ones: bool


def _read(
    choice: _Choice,
    isa: Isa,
    src: Argument,
    weights: Argument,
    terms: int,
    shape: Shape,
    scratchpad: Scratchpad,
    decoded: tuple[SparseDecodedPacking, Panels] | None,
) -> _Read:
    """Copy src and weights whose layouts are not the wanted ones."""
    problem, dot, packing = choice.problem, choice.dot, choice.packing
    factors = src[0], weights[0]
    dequantizes = [choice.dequantized.of_arguments((arg,)) != NONE for arg in factors]
    as_wanted = as_read(problem.src, dot, shape)
    if dequantizes[0] or as_wanted is not src[1]:
        src = scratchpad.copy(src, as_wanted)
    ones = factors[0] in dict(problem.quantization.zero_points)
    if choice.parts is None and not shape.simple and decoded is None:
        ones &= not summed_before(isa, dot, problem.dst.dims[-2])
    wanted = shape.panels(src[1], problem.weights, dot, ones)
    if decoded is not None:
        wanted = decoded[1]
        if isa.thread_memory:
            packing = decoded[0]
        else:
            weights = scratchpad.take(wanted.desc)
    if dot.tiles is not None:
        k_groups = -(-shape.line(src[1]) // dot.group)
        if choice.parts is not None:
            k_groups = (
                0 if ones else product_tiles.whole_k_groups(isa, choice.parts.size // dot.group)
            )
        fits = wanted.desc.inner_blocks and not (ones and decoded)
        if not (fits and product_tiles.takes(dot, problem.dst.dims[-2], k_groups)):
            untiled = usual_dot(problem, isa, tiled=False)
            assert untiled is not None, "refused before"
            dot = untiled
    # On a matrix unit, a row of ones meets a whole panel at the end of its sums.
    whole = ones and dot.tiles is not None
    copied = weights[1] != wanted.desc and not (dequantizes[1] or whole)
    if isa.thread_memory and packing is None and copied:
        packing = plan_repacked(isa, src[1], weights, dot, wanted, terms, shape)
        packing = packing or plan_unpacked(isa, weights, dot, wanted, terms, shape)
    if packing is not None:
        weights = weights[0], wanted.desc
    elif dequantizes[1] or weights[1] != wanted.desc:
        weights = scratchpad.copy(weights, wanted.desc)
    return _Read(src, weights, dot, wanted, packing, ones)


def _result(
    problem: ProductProblem, core: DataType, shape: Shape, scratchpad: Scratchpad
) -> tuple[Argument, Relayout | None]:
    """What the product writes, and the copy behind it if that is not dst."""
    dst: Argument = (problem.arguments[2], problem.dst)
    passed = problem.dropout is not None or problem.stochastic
    passed |= problem.quantization.computed is not None
    if problem.dst.data_type.bits >= 8 and shape.dst_walkable(problem.dst) and not passed:
        return dst, None
    computed = scratchpad.take(plain(problem.dst.with_data_type(core)))
    return computed, (computed, dst)


def _blocking(
    problem: ProductProblem,
    isa: Isa,
    dot: Multiply,
    vectors: int,
    terms: int,
    *,
    ones: bool,
    in_rows: bool,
    packing: PanelPacking | None,
) -> Blocking:
    """The shape of a tile and the cache blocks."""
    *_, rows, columns = problem.dst.dims
    if dot.tiles is not None:
        tile = TileShape(product_tiles.tile_rows(isa, vectors, rows), vectors)
    else:
        most = max_rows(isa, vectors * dot.span, dot.parts, ones=ones)
        tile = TileShape(even_rows(rows, most), vectors)
    width = vectors * isa.lanes
    size = Size(
        rows,
        -(-columns // width),
        -(-terms // dot.group),
        dot.group_bytes,
        dot.group * width * dot.b.bits // 8,
        fast=dot.tiles is not None,
        in_rows=dot.group if in_rows else 0,
        packed_on_the_fly=packing is not None,
        row_bytes=0 if packing is None else packing.row_bytes,
    )
    return choose_blocking(isa, tile, size)
