"""The dot-product kind of a product: what is converted to floats in registers, what is copied as
floats before, and in which segments sums are scaled."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from dnnl.codegen.isa import Isa
from dnnl.codegen.isa.caches import LINE
from dnnl.codegen.product.brgemm import choose_vectors, max_rows
from dnnl.codegen.product.decompress import PackedMultiply, PairedGroups
from dnnl.codegen.product.multiply import Multiply, as_f32
from dnnl.kernels.product.base.problem import becomes_floats, plain
from dnnl.kernels.product.base.types import dot_of, multiplies_integers
from dnnl.kernels.product.compensation.segments import Segmentation, Summed, cut
from dnnl.kernels.product.plan.contraction import AnyContraction, Contraction
from dnnl.kernels.product.unit import tiles as product_tiles
from dnnl.kernels.shared.types import BYTES, FLOATS, SMALL_FLOATS
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import typical

PANEL_OF_K_GROUPS = 2  # vectors
_ONE_TILE = 8  # the most rows of a single tile

# The largest M for which each tile decompresses weights again: if a copy would be of f32; if it
# would be of bf16, and products of f32; if products are of bf16 too.
FEW_ROWS, FEWER_ROWS, FEW_ROWS_OF_PAIRS = 511, 31, 255

# The least M for which threads pack panels for a matrix unit.
LEAST_PACKED_ROWS = 6


def chosen_dot(problem: Contraction, isa: Isa) -> Multiply | None:
    """The dot-product kind of a product. A matrix unit may turn out not to fit its panels."""
    direct = direct_dot(problem, isa)
    return direct or usual_dot(problem, isa, tiled=problem.takes_unit(isa))


def usual_dot(problem: Contraction, isa: Isa, *, tiled: bool = True) -> Multiply | None:
    """The dot-product kind of the types of src and weights."""
    types = problem.src.data_type, problem.weights.data_type
    return dot_of(isa, *types, problem.narrow, tiled=tiled)


def decompresses_4_bits(problem: Contraction) -> bool:
    """Whether weights of 4 bits are multiplied by f32, or by a type that is converted to it."""
    return becomes_floats(problem) and problem.weights.data_type.bits == 4


def packed_dot(problem: Contraction, isa: Isa) -> Multiply | None:
    """The dot-product kind that determines the panels of weights, if it differs from the one for
    large M."""
    if problem.simple or not becomes_floats(problem):
        return None
    if problem.varies and direct_dot(problem, isa) is None:
        return None
    if problem.weights.data_type in SMALL_FLOATS:
        return as_f32(problem.weights.data_type)
    return PackedMultiply.of(isa, problem.weights.data_type)


def direct_dot(problem: Contraction, isa: Isa) -> Multiply | None:
    """The dot-product kind of a src of floats with weights that are converted to f32 or bf16 as
    they are loaded, without a copy; None if M is too large for it."""
    if problem.src.data_type not in FLOATS or problem.simple:
        return None
    rows = _all_rows(problem, isa)
    dot = _loaded_dot(problem, isa, rows)
    return dot if rows <= _most_rows(problem, dot) else None


def _all_rows(problem: Contraction, isa: Isa) -> int:
    """The rows of all matrices of a batch."""
    return typical(prod(problem.dst.dims[:-2])) * problem.planned_rows(isa)


def _loaded_dot(problem: Contraction, isa: Isa, rows: int) -> Multiply | None:
    """`direct_dot` for any number of rows."""
    src, weights, terms = problem.src, problem.weights, problem.terms
    apart = problem.column_stride(weights)
    in_columns = PackedMultiply.in_columns(isa, weights.data_type, apart) if apart else None
    if weights.data_type is src.data_type and _packs_faster(problem, isa, rows, apart):
        return None
    if in_columns is not None and rows <= max_rows(isa, 1, in_columns.parts):
        whole = terms % in_columns.group == 0 and problem.dst.dims[-1] % isa.lanes == 0
        if whole and _aligned(weights):
            return in_columns
    if weights.data_type in BYTES or (weights.data_type in SMALL_FLOATS and rows <= FEWER_ROWS):
        return as_f32(weights.data_type)
    if not decompresses_4_bits(problem):
        return None
    in_rows = PackedMultiply.of(isa, weights.data_type, rows=True)
    if in_rows is not None:
        panels = problem.panels(isa, problem.as_read(in_rows), weights, in_rows)
        if panels.desc == weights and panels.vectors % in_rows.row_vectors == 0:
            return in_rows
    return _paired(problem, isa) or PackedMultiply.of(isa, weights.data_type)


def _packs_faster(problem: Contraction, isa: Isa, rows: int, apart: int) -> bool:
    """Whether packing panels is faster than reading columns with the stride ``apart`` directly, for
    weights of the type of src: if an instruction multiplies more than two f32 at a time, or if
    columns evict each other from the first-level cache, of whose lines a square in registers uses a
    part."""
    usual = usual_dot(problem, isa, tiled=problem.takes_unit(isa))
    size = problem.weights.data_type.size
    if usual is None or rows * typical(problem.terms) * size > isa.caches.l2 // 2:
        return False
    if usual.tiles is not None:
        return rows >= LEAST_PACKED_ROWS
    evicted = isa.caches.resident_lines(typical(apart) * size) < isa.lanes
    return usual.group > 1 or (rows > 1 and evicted)


def _paired(problem: Contraction, isa: Isa) -> PairedGroups | None:
    """The dot-product kind of a src of bf16, or rounded to it, with 4-bit weights in panels, if
    an instruction multiplies bf16. Processors with a matrix unit execute it at half the rate of
    f32."""
    if DataType.bf16 not in (problem.src.data_type, problem.narrow) or isa.matrix is not None:
        return None
    return PairedGroups.for_bf16(isa, problem.weights.data_type)


def _most_rows(problem: Contraction, dot: Multiply | None) -> int:
    """The largest M for which it pays to decompress weights again in each tile."""
    if problem.varies and not isinstance(dot, PairedGroups):
        return _ONE_TILE
    if problem.narrow is DataType.f32:
        return FEW_ROWS
    return FEW_ROWS_OF_PAIRS if isinstance(dot, PairedGroups) else FEWER_ROWS


def _aligned(weights: MemoryDesc) -> bool:
    """Whether all rows, columns and matrices begin at a byte."""
    whole = all(step == 1 or step % 2 == 0 for step in (weights.offset0, *weights.strides))
    return weights.data_type.bits >= 8 or whole


def in_bf16(problem: AnyContraction, isa: Isa) -> AnyContraction | None:
    """The product with compressed weights as bf16, if an instruction multiplies bf16 faster than
    f32; else None.

    Weights without scales are exact in bf16. If scales or zero points change along K, dequantized
    weights are rounded unless these are powers of two, which the attributes must allow.
    """
    src, weights, changing = problem.src.data_type, problem.weights, bool(to_dequantize(problem))
    given = problem.quantization.of_arguments(problem.arguments[:2])
    powers = all(spec.data_type is DataType.e8m0 for _, spec in given.scales)
    exact = not changing or (powers and not given.zero_points)
    held = src if exact and src is DataType.bf16 else problem.narrow
    faster = dot_of(isa, DataType.bf16, DataType.bf16)
    if held is not DataType.bf16 or faster is None or faster.group == 1:
        return None
    if changing and given.adjust != 1:  # packing applies scales alone
        return None
    if (
        weights.data_type.bits > 8
        or problem.simple
        or problem.planned_rows(isa) < LEAST_PACKED_ROWS
    ):
        return None
    if not problem.takes_unit(isa):
        return None
    if changing:
        problem = of_floats(replace(problem, narrow=held))
    return replace(problem, weights=MemoryDesc(weights.dims, held, "any"))


def segments_of(problem: Contraction, isa: Isa, dot: Multiply | None) -> Segmentation | None:
    """The segments within which quantization is constant, if the product can sum by them; else
    None."""
    in_registers = dot is not None and (dot.a is DataType.f32 or isinstance(dot, PackedMultiply))
    if dot is None or not (dot.is_integer or in_registers) or problem.simple:
        return None
    if problem.src.data_type in FLOATS and _all_rows(problem, isa) > _most_rows(problem, dot):
        return None
    parts = cut(problem.quantization, _summed(problem), problem.terms)
    if parts is None or parts.size == problem.terms:
        return parts
    return None if parts.size % dot.group or problem.src.inner_blocks else parts


def _summed(problem: Contraction) -> Summed:
    tensors = zip((problem.src, problem.weights), problem.summed, strict=True)
    return dict(zip(problem.arguments[:2], tensors, strict=True))


def to_dequantize(problem: Contraction) -> tuple[int, ...]:
    """The operands, as arguments, whose scales or zero points cannot be applied at the end of the
    sums: they change along K, or zero points apply to floats, which all operands become if values
    change along K."""
    given, summed = problem.quantization.of_arguments(problem.arguments[:2]), _summed(problem)
    found = set()
    for arg, spec in (*given.scales, *given.zero_points):
        desc, dims = summed[arg]
        if prod(spec.shape(desc.dims)[dims]) != 1:
            found.add(arg)
    if found or not multiplies_integers(problem.src.data_type, problem.weights.data_type):
        found.update(arg for arg, _ in given.zero_points)
    return tuple(arg for arg in problem.arguments[:2] if arg in found)


def of_floats(problem: AnyContraction) -> AnyContraction:
    """The product with the operands `to_dequantize` as floats."""
    wide = DataType.f64 if problem.src.data_type is DataType.f64 else problem.narrow
    floats = to_dequantize(problem)

    def meant(argument: int, desc: MemoryDesc) -> MemoryDesc:
        return plain(desc.with_data_type(wide)) if argument in floats else desc

    others = tuple(arg for arg in (*problem.arguments[:2], int(Arg.DST)) if arg not in floats)
    return replace(
        problem,
        src=meant(problem.arguments[0], problem.src),
        weights=meant(problem.arguments[1], problem.weights),
        quantization=problem.quantization.of_arguments(others),
    )


def panel_vectors(
    isa: Isa, dot: Multiply, weights: MemoryDesc, column: int, rows: int, row_step: int
) -> int:
    """The width of panels in vectors, for weights whose columns are dimension ``column``, and
    ``rows`` rows of src with a stride of ``row_step`` bytes.

    One vector if only then a tile has all of a few rows, so that weights are read from memory, and
    converted, once. K groups of integers are up-converted for several vectors. Tiles of a matrix
    unit are two vectors wide. A single row that would read one line of f32 a step reads two.
    """
    columns = typical(weights.dims[column])
    small = isa.matrix is not None and dot.b.bits <= 8 and not dot.is_integer
    if small or (dot.tiles is not None and rows >= product_tiles.LEAST_ROWS):
        return product_tiles.panel_vectors(isa, columns)
    least, most = (max_rows(isa, vectors, dot.parts) for vectors in (PANEL_OF_K_GROUPS, 1))
    if least < rows <= min(most, _ONE_TILE) and isa.lanes > 1 and not dot.is_integer:
        return 1
    if dot.steps > 1:
        return PANEL_OF_K_GROUPS
    far = typical(prod(weights.dims)) * weights.data_type.bits // 8 > isa.caches.l2
    if rows == 1 and {weights.data_type, dot.b} == {DataType.f32}:
        far &= 2 * isa.lanes * DataType.f32.size != LINE
    return choose_vectors(isa, columns, row_step, dot.span, rows, far=far)
