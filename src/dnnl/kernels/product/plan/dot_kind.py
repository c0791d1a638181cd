"""The dot-product kind of a product: what is converted to floats in registers, what is copied as
floats before, and in which segments sums are scaled."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from dnnl.codegen.isa import Isa
from dnnl.codegen.isa.row import FLOATS as FLOAT_PRODUCTS
from dnnl.codegen.product.brgemm import choose_vectors, max_rows
from dnnl.codegen.product.decompress import PackedMultiply, PairedGroups
from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.product.base.problem import (
    NONE,
    ProductProblem,
    Shape,
    as_read,
    becomes_floats,
    plain,
)
from dnnl.kernels.product.base.types import dot_of, multiplies_integers
from dnnl.kernels.product.compensation.segments import Cut, cut
from dnnl.kernels.product.unit import tiles as product_tiles
from dnnl.kernels.shared.types import BYTES, FLOATS, SMALL_FLOATS
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc

PANEL_OF_K_GROUPS = 2  # vectors
_ONE_TILE = 8  # the most rows of a single tile

# The largest M for which each tile decompresses weights again: if a copy would be of f32; if it
# would be of bf16, and products of f32; if products are of bf16 too.
FEW_ROWS, FEWER_ROWS, FEW_ROWS_OF_PAIRS = 511, 31, 255

# The least M for which threads pack panels for a matrix unit.
LEAST_PACKED_ROWS = 6


def usual_dot(problem: ProductProblem, isa: Isa, *, tiled: bool = True) -> Multiply | None:
    """The dot-product kind of the types of src and weights."""
    types = problem.src.data_type, problem.weights.data_type
    return dot_of(isa, *types, problem.narrow, tiled=tiled)


def decompresses_4_bits(problem: ProductProblem) -> bool:
    """Whether weights of 4 bits are multiplied by f32, or by a type that is converted to it."""
    return becomes_floats(problem) and problem.weights.data_type.bits == 4


def packed_dot(problem: ProductProblem, isa: Isa, shape: Shape) -> Multiply | None:
    """The dot-product kind that determines the panels of weights, if it differs from the one for
    large M."""
    if shape.simple or not becomes_floats(problem):
        return None
    if problem.weights.data_type in SMALL_FLOATS:
        return Multiply(DataType.f32, problem.weights.data_type, 1, FLOAT_PRODUCTS)
    return PackedMultiply.of(isa, problem.weights.data_type)


def direct_dot(problem: ProductProblem, isa: Isa, terms: int, shape: Shape) -> Multiply | None:
    """The dot-product kind of a src of floats with weights that are converted to f32 or bf16 as
    they are loaded, without a copy; None if M is too large for it."""
    if problem.src.data_type not in FLOATS or shape.simple:
        return None
    rows = prod(problem.dst.dims[:-1])
    dot = _loaded_dot(problem, isa, terms, shape, rows)
    return dot if rows <= _most_rows(problem, dot) else None


def _loaded_dot(
    problem: ProductProblem, isa: Isa, terms: int, shape: Shape, rows: int
) -> Multiply | None:
    """`direct_dot` for any number of rows."""
    src, weights = problem.src, problem.weights
    apart = shape.column_stride(weights)
    in_columns = PackedMultiply.in_columns(isa, weights.data_type, apart) if apart else None
    if weights.data_type is src.data_type and _packs_faster(problem, isa, terms, rows, apart):
        return None
    if in_columns is not None and rows <= max_rows(isa, 1, in_columns.parts):
        whole = terms % in_columns.group == 0 and problem.dst.dims[-1] % isa.lanes == 0
        if whole and _aligned(weights):
            return in_columns
    if weights.data_type in BYTES or (weights.data_type in SMALL_FLOATS and rows <= FEWER_ROWS):
        return Multiply(DataType.f32, weights.data_type, 1, FLOAT_PRODUCTS)
    if not decompresses_4_bits(problem):
        return None
    in_rows = PackedMultiply.of(isa, weights.data_type, rows=True)
    if in_rows is not None:
        read = as_read(src, in_rows, shape)
        panels = shape.panels(read, weights, in_rows, False)
        if panels.desc == weights and panels.vectors % in_rows.row_vectors == 0:
            return in_rows
    return _paired(problem, isa) or PackedMultiply.of(isa, weights.data_type)


def _packs_faster(problem: ProductProblem, isa: Isa, terms: int, rows: int, apart: int) -> bool:
    """Whether packing panels is faster than reading columns with the stride ``apart`` directly, for
    weights of the type of src: if an instruction multiplies more than two f32 at a time, or if
    columns evict each other from the first-level cache, of whose lines a square in registers uses a
    part."""
    usual, size = usual_dot(problem, isa), problem.weights.data_type.size
    if usual is None or rows * terms * size > isa.caches.l2 // 2:
        return False
    if usual.tiles is not None:
        return rows >= LEAST_PACKED_ROWS
    evicted = isa.caches.resident_lines(apart * size) < isa.lanes
    return usual.group > 1 or (rows > 1 and evicted)


def _paired(problem: ProductProblem, isa: Isa) -> PairedGroups | None:
    """The dot-product kind of a src of bf16, or rounded to it, with 4-bit weights in panels, if
    an instruction multiplies bf16. Processors with a matrix unit execute it at half the rate of
    f32."""
    if DataType.bf16 not in (problem.src.data_type, problem.narrow) or isa.matrix is not None:
        return None
    return PairedGroups.for_bf16(isa, problem.weights.data_type)


def _most_rows(problem: ProductProblem, dot: Multiply | None) -> int:
    """The largest M for which it pays to decompress weights again in each tile."""
    if problem.narrow is DataType.f32:
        return FEW_ROWS
    return FEW_ROWS_OF_PAIRS if isinstance(dot, PairedGroups) else FEWER_ROWS


def _aligned(weights: MemoryDesc) -> bool:
    """Whether all rows, columns and matrices begin at a byte."""
    whole = all(step == 1 or step % 2 == 0 for step in (weights.offset0, *weights.strides))
    return weights.data_type.bits >= 8 or whole


def in_bf16(
    problem: ProductProblem, factors: tuple[int, int], isa: Isa, shape: Shape, *, changing: bool
) -> ProductProblem | None:
    """The product with compressed weights as bf16, if an instruction multiplies bf16 faster than
    f32; else None.

    Weights without scales are exact in bf16. ``changing`` says that scales or zero points change
    along K: unless these are powers of two, dequantized weights are rounded, which the attributes
    must allow.
    """
    src, weights = problem.src.data_type, problem.weights
    given = problem.quantization.of_arguments(factors)
    powers = all(spec.data_type is DataType.e8m0 for _, spec in given.scales)
    exact = not changing or (powers and not given.zero_points)
    held = src if exact and src is DataType.bf16 else problem.narrow
    faster = dot_of(isa, DataType.bf16, DataType.bf16)
    if held is not DataType.bf16 or faster is None or faster.group == 1:
        return None
    if changing and given.adjust != 1:  # packing applies scales alone
        return None
    if weights.data_type.bits > 8 or shape.simple or problem.dst.dims[-2] < LEAST_PACKED_ROWS:
        return None
    if changing:
        problem = of_floats(replace(problem, narrow=held), factors)
    return replace(problem, weights=MemoryDesc(weights.dims, held, "any"))


def segments_of(
    problem: ProductProblem,
    factors: tuple[int, int],
    shape: Shape,
    terms: int,
    dot: Multiply | None,
) -> Cut | None:
    """The segments within which quantization is constant, if the product can sum by them; else
    None."""
    in_registers = dot is not None and (dot.a is DataType.f32 or isinstance(dot, PackedMultiply))
    if dot is None or not (dot.is_integer or in_registers) or shape.simple:
        return None
    if problem.src.data_type in FLOATS and prod(problem.dst.dims[:-1]) > _most_rows(problem, dot):
        return None
    tensors = (problem.src, problem.weights)
    summed = dict(zip(factors, zip(tensors, shape.summed, strict=True), strict=True))
    parts = cut(problem.quantization, summed, terms)
    if parts is None or parts.size == terms:
        return parts
    return None if parts.size % dot.group or problem.src.inner_blocks else parts


def needs_floats(problem: ProductProblem, factors: tuple[int, int], shape: Shape) -> bool:
    """Whether scales or zero points of an operand cannot be applied at the end of the sums: they
    change along K, or zero points apply to floats."""
    tensors = {
        arg: (desc, summed)
        for arg, desc, summed in zip(
            factors, (problem.src, problem.weights), shape.summed, strict=True
        )
    }
    given = problem.quantization.of_arguments(factors)
    types = problem.src.data_type, problem.weights.data_type
    if given.zero_points and not multiplies_integers(*types):
        return True
    return any(
        prod(spec.shape(tensors[arg][0].dims)[tensors[arg][1]]) != 1
        for arg, spec in (*given.scales, *given.zero_points)
    )


def of_floats(problem: ProductProblem, factors: tuple[int, int]) -> ProductProblem:
    """The product of the dequantized operands; only dst stays quantized."""
    wide = DataType.f64 if problem.src.data_type is DataType.f64 else problem.narrow

    def meant(factor: int, desc: MemoryDesc) -> MemoryDesc:
        own = problem.quantization.of_arguments((factor,))
        return desc if own == NONE else plain(desc.with_data_type(wide))

    return replace(
        problem,
        src=meant(factors[0], problem.src),
        weights=meant(factors[1], problem.weights),
        quantization=problem.quantization.of_arguments((Arg.DST,)),
    )


def panel_vectors(
    isa: Isa, dot: Multiply, weights: MemoryDesc, column: int, rows: int, row_step: int
) -> int:
    """The width of panels in vectors, for weights whose columns are dimension ``column``, and
    ``rows`` rows of src with a stride of ``row_step`` bytes.

    One vector if only then a tile has all of a few rows, so that weights are read from memory, and
    converted, once. K groups of integers are up-converted for several vectors. Tiles of a matrix
    unit are two vectors wide.
    """
    small = isa.matrix is not None and dot.b.bits <= 8 and not dot.is_integer
    if small or (dot.tiles is not None and rows >= product_tiles.LEAST_ROWS):
        return product_tiles.panel_vectors(isa, weights.dims[column])
    least, most = (max_rows(isa, vectors, dot.parts) for vectors in (PANEL_OF_K_GROUPS, 1))
    if least < rows <= min(most, _ONE_TILE) and isa.lanes > 1 and not dot.is_integer:
        return 1
    if dot.steps > 1:
        return PANEL_OF_K_GROUPS
    far = prod(weights.dims) * weights.data_type.bits // 8 > isa.caches.l2
    return choose_vectors(isa, weights.dims[column], row_step, dot.span, rows, far=far)


def even_rows(rows: int, most: int) -> int:
    """The rows of a tile: as few tiles as possible, of about the same height."""
    return most if rows <= most else -(-rows // -(-rows // most))
