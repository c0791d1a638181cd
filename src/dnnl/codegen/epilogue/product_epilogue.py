"""The epilogue of products: from sums to stored results.

    compensation    removes what zero points and shifted operands added to integer sums
    dequantization  the scales of src and weights
    bias
    post-ops
    quantization    scale and zero point of dst
    conversion      to dst's type

Let a and w be stored integers that mean a - za and w - zw. Let C be the sum of a column of the
weights and R the sum of a row of src, each over K terms::

    sum (a - za) * (w - zw) = sum a * w  -  zw * R  -  za * (C - K * zw)

If sums skip terms, as at the padding of a convolution, the last part differs between rows and is an
operand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass

from llvmlite import ir

from dnnl.codegen.conversion.convert import storage
from dnnl.codegen.epilogue.post_ops import Epilogue
from dnnl.codegen.epilogue.quantization import Quantization, Quantizer
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, I32, Values, i64
from dnnl.codegen.isa.caches import Caches
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.place import Place
from dnnl.codegen.product.brgemm import Tile
from dnnl.codegen.product.multiply import Multiply
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.size import Size, typical

PlaceOf = Callable[[ir.Value, ir.Type], Place]


@dataclass(frozen=True)
class Depth:
    """The number of terms of a sum (K), without and with the padding of the panels. i64 values for
    run-time sizes."""

    terms: int | ir.Value
    padded: int | ir.Value


def core_type(
    multiply: Multiply, dst: DataType, quantization: Quantization, *, bare: bool
) -> DataType:
    """The type of results until they are stored in type ``dst``: f64 for sums of f64; s32 for
    integer sums that are stored as they are; else f32. ``bare``: there is no bias and no
    post-op."""
    if multiply.a is DataType.f64:
        return DataType.f64
    scaled = quantization.scales or quantization.adjust != 1
    scaled = scaled or Arg.DST in dict(quantization.zero_points)
    exact = multiply.is_integer and dst is DataType.s32 and bare and not scaled
    return DataType.s32 if exact else DataType.f32


class ProductEpilogue:
    """The epilogue of a product, bound to its operands.

    ``core`` is `core_type`. ``factors`` are the argument ids of src and weights. ``row_sums`` are
    the sums R, needed if `needs_row_sums`. ``weight_sums`` are the sums C, if the tile does not
    compute them. ``column_sums`` are the complete contributions of src's zero points to each
    result; the quantizer then has no zero points of src.
    """

    def __init__(
        self,
        multiply: Multiply,
        core: DataType,
        dst: Operand,
        bias: Operand | None,
        epilogue: Epilogue,
        quantizer: Quantizer,
        factors: tuple[int, int],
        depth: Depth,
        row_sums: Operand | None = None,
        column_sums: Operand | None = None,
        weight_sums: Operand | None = None,
    ) -> None:
        self.dst = dst
        self.core = storage(core).element
        self._multiply, self._bias, self._epilogue = multiply, bias, epilogue
        self._quantizer, self._factors, self._depth = quantizer, factors, depth
        self._row_sums, self._column_sums = row_sums, column_sums
        self._weight_sums = weight_sums

    def of_depth(self, depth: Depth) -> ProductEpilogue:
        """This epilogue for sums of another depth."""
        made = copy(self)
        made._depth = depth
        return made

    @property
    def operands(self) -> tuple[Operand, ...]:
        """dst, and all operands that are read except src and weights."""
        others = (self._bias, self._row_sums, self._column_sums, self._weight_sums)
        given = (operand for operand in others if operand is not None)
        return (self.dst, *self._epilogue.operands, *self._quantizer.operands, *given)

    @property
    def reads_dst(self) -> bool:
        """Whether what dst had before is added."""
        return self._epilogue.reads_dst

    def far(self, caches: Caches) -> list[Operand]:
        """The operands that should be prefetched: post-op operands too large for the second-level
        cache, and a dst that is only overwritten if it may be in no cache."""
        read = (self.dst,) if self.reads_dst else ()
        large = [
            op for op in (*read, *self._epilogue.operands) if typical(op.desc.size) > caches.l2 // 2
        ]
        if not read and typical(self.dst.desc.size) >= caches.shared:
            large.append(self.dst)
        return large

    @property
    def needs_column_sums(self) -> bool:
        """Whether the tile must compute the column sums of the weights, by a last row of A that is
        all ones."""
        return self._compensates and self._weight_sums is None

    @property
    def _compensates(self) -> bool:
        return self._multiply.is_integer and self._zero(0) is not None

    def complete(self, tile: Tile, place_of: PlaceOf) -> Tile:
        """Remove the contributions of zero points and shifts from the sums, and convert to the core
        type.

        ``place_of(number, core)`` is the place of cell ``number``. The row of ones is dropped.
        """
        if not self._multiply.is_integer:
            return tile if self._row_sums is None else self._without_rows_of_floats(tile, place_of)
        columns: Values = ()
        if self._compensates:
            places = [place_of(i64(v), I32) for v in range(tile.vectors)]
            if self._weight_sums is not None:
                found = [place.load(self._weight_sums) for place in places]
            else:
                ones = tile.row(tile.rows - 1)
                tile = tile.take(range(tile.rows - 1))
                found = [self._unshifted(*pair) for pair in zip(places, ones, strict=True)]
            columns = tuple(self._column(*pair) for pair in zip(places, found, strict=True))

        def one(row: int, v: int, value: ir.Value) -> ir.Value:
            place = place_of(i64(row * tile.vectors + v), I32)
            b = place.e.b
            if columns:
                value = b.sub(value, b.mul(self._load_zero(place, 0), columns[v]))
            elif self._column_sums is not None:
                value = b.sub(value, place.load(self._column_sums))
            value = self._without_rows(place, value)
            if self.core is I32:
                return value
            return b.sitofp(value, vector.vector_type(F32, value.type.count))

        return tile.map(one)

    def scaled(self, tile: Tile, place_of: PlaceOf) -> Tile:
        """Multiply compensated sums by the scales of both factors."""
        core = self.core

        def one(row: int, v: int, value: ir.Value) -> ir.Value:
            place = place_of(i64(row * tile.vectors + v), core)
            for argument in self._factors:
                value = self._quantizer.scaled(place, argument, value)
            return value

        return tile.map(one)

    def zeros(self, places: Sequence[Place]) -> Values:
        """The zero points to subtract from the weights as they are loaded, one for each vector of
        columns; empty if they are compensated in the sums."""
        if self._multiply.compensates_zero_points or self._zero(1) is None:
            return ()
        return tuple(self._load_zero(place, 1) for place in places)

    @property
    def of_weights(self) -> list[Operand]:
        """The scales and zero points of the weights."""
        argument = self._factors[1]
        both = (self._quantizer.scale(argument), self._quantizer.zero_point(argument))
        return [operand for operand in both if operand is not None]

    def store(self, tile: Tile, place_of: PlaceOf) -> None:
        """Finish and store every cell."""
        core = self.core
        e = place_of(i64(0), core).e

        def one(number: ir.Value, value: ir.Value) -> None:
            place = place_of(number, core)
            place.store(self.dst, value if core is I32 else self._finished(place, value))

        self._epilogue.each(e, tile.cells, one)

    def _finished(self, place: Place, value: ir.Value) -> ir.Value:
        b = place.e.b
        for argument in self._factors:
            value = self._quantizer.scaled(place, argument, value)
        if self._bias is not None:
            value = b.fadd(value, place.load(self._bias))
        value = self._epilogue.apply(place, value)
        return self._quantizer.quantize(place, Arg.DST, value)

    def _zero(self, side: int) -> Operand | None:
        """The zero points of src (0) or weights (1)."""
        return self._quantizer.zero_point(self._factors[side])

    def _load_zero(self, place: Place, side: int) -> ir.Value:
        operand = self._zero(side)
        assert operand is not None
        return place.load(operand)

    def _unshifted(self, place: Place, total: ir.Value) -> ir.Value:
        """C from the sums of the row of ones."""
        if not self._multiply.shift:
            return total
        b, shift = place.e.b, vector.splat_constant(total.type, self._multiply.shift)
        return b.sub(total, b.mul(shift, _count(place, self._depth.padded)))

    def _column(self, place: Place, total: ir.Value) -> ir.Value:
        """C - K * zw."""
        if self._zero(1) is None:
            return total
        b, terms = place.e.b, _count(place, self._depth.terms)
        return b.sub(total, b.mul(self._load_zero(place, 1), terms))

    def _without_rows_of_floats(self, tile: Tile, place_of: PlaceOf) -> Tile:
        """Subtract zw * R from sums of floats."""
        rows = self._row_sums
        assert rows is not None

        def one(row: int, v: int, value: ir.Value) -> ir.Value:
            place = place_of(i64(row * tile.vectors + v), F32)
            shifted = place.e.b.fmul(place.load(rows), self._load_zero(place, 1))
            return place.e.b.fsub(value, shifted)

        return tile.map(one)

    def _without_rows(self, place: Place, value: ir.Value) -> ir.Value:
        """Subtract (zw + shift) * R."""
        if self._row_sums is None:
            return value
        b, rows = place.e.b, place.load(self._row_sums)
        factor: ir.Value = vector.splat_constant(value.type, self._multiply.shift)
        if self._zero(1) is not None:
            factor = b.add(factor, self._load_zero(place, 1))
        return b.sub(value, b.mul(rows, factor))


def _count(place: Place, number: int | ir.Value) -> ir.Value:
    """A number of terms in all lanes."""
    if isinstance(number, Size):
        number = place.e.number(number)
    if isinstance(number, int):
        return vector.splat_constant(place.kind, number)
    return vector.splat(place.e, place.e.b.trunc(number, I32), place.kind.count)


def needs_row_sums(multiply: Multiply, zero_points: Mapping[int, object], weights: int) -> bool:
    """Whether row sums of src are needed: the weights have zero points that are compensated in the
    sums, or their elements are shifted."""
    return bool(multiply.shift) or (multiply.compensates_zero_points and weights in zero_points)
