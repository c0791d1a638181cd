"""Column compensation: the sums of the columns of weights, by which zero points of src are
multiplied.

A row of ones in each tile computes them, at the cost of a row of src. If M is large, a separate
pass over the weights computes them once.
"""

from __future__ import annotations

from typing import NamedTuple

from dnnl.codegen.ir.builder import I32, Emitter, Module, Values
from dnnl.codegen.ir.kernel import Arguments
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, broadcast, letters
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.codegen.product.brgemm import max_rows
from dnnl.codegen.product.multiply import Multiply, multiply
from dnnl.codegen.product.pairs import Pairs
from dnnl.kernels.shared.scratchpad import Argument, Scratchpad
from dnnl.runtime.image import Phase
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc

_GROUP, _VECTORS = 4, 2
_TILES = 2
"""The number of tiles with rows of ones that cost more than a pass over the weights."""


def summed_before(isa: Isa, dot: Multiply, rows: int) -> bool:
    """Whether a separate pass computes the column sums for products with ``rows`` rows of src."""
    of_tile = max_rows(isa, _VECTORS, dot.parts, ones=True)
    return dot.is_integer and rows > _TILES * of_tile


class ColumnSums(NamedTuple):
    """Where the ``sums`` of the columns of ``weights`` are stored; columns of padding are
    included."""

    sums: Argument
    weights: Argument

    @staticmethod
    def of(weights: Argument, summed: slice, scratchpad: Scratchpad) -> ColumnSums:
        """Sums over the dimensions ``summed``."""
        free = list(weights[1].padded_dims)
        free[summed] = [1] * len(free[summed])
        return ColumnSums(scratchpad.take(MemoryDesc(tuple(free), "s32")), weights)

    def operand(self, arguments: Arguments, index: tuple[Affine, ...]) -> Operand:
        """The sums at an index of the weights."""
        argument, desc = self.sums
        return Operand(arguments.slot(argument), desc, broadcast(desc, index))

    def emit(self, module: Module, name: str, arguments: Arguments) -> Phase:
        """Write the phase that computes the sums."""
        isa, (slot, weights) = module.isa, self.weights
        as_s32 = _as_s32(weights)
        read = weights if as_s32 is None else as_s32
        axes = letters(read.padded_dims)
        dims = zip(axes, self.sums[1].dims, strict=True)
        free = tuple(axis for axis, size in dims if axis.extent == size)
        index = tuple(Affine.of(axis) for axis in axes)
        given = Operand(arguments.slot(slot), read, index)
        total = self.operand(arguments, index)
        dot = None if as_s32 is None else _ones_by(module, weights.data_type)

        def add(point: Point, sums: Values) -> Values:
            e = point.e
            if dot is None:
                return (e.b.add(sums, point.load(given)),)
            return (dot.add(e, dot.ones(e), dot.from_packed(e, point.load_stored(given)), sums),)

        def merge(e: Emitter, a: Values, b: Values) -> Values:
            return (e.b.add(a[0], b[0]),)

        def body(point: Point) -> None:
            point.store(total, *point.fold((0,), add, merge))

        summed = tuple(axis for axis in axes if axis not in free)
        nest = Nest(free, summed, (given,), (total,), body, core=I32)
        types = f"{weights.data_type}_s32"
        symbol = f"{name}_columns__{types}__{isa.lanes}x1__{isa.name}"
        return emit_nest(module, symbol, nest)


def _ones_by(module: Module, weights: DataType) -> Multiply:
    """The best dot-product kind for ones by weights, which adds up the weights."""
    ones = DataType.u8 if weights is DataType.s8 else DataType.s8
    dot = multiply(module.isa, ones, weights)
    assert dot is not None, "bytes are multiplied everywhere"
    return Pairs.of(module.isa, dot) or dot


def _as_s32(weights: MemoryDesc) -> MemoryDesc | None:
    """Panels of bytes in K groups viewed as s32, one element for each group; None for other
    weights."""
    *blocks, (dim, size) = weights.inner_blocks or ((0, 0),)
    if size != _GROUP or not blocks or weights.data_type.bits < 8:
        return None
    dims = list(weights.padded_dims)
    dims[dim] //= _GROUP
    return MemoryDesc(
        tuple(dims),
        "s32",
        tuple(step // _GROUP for step in weights.strides),
        inner_blocks=tuple(blocks),
        offset0=weights.offset0 // _GROUP,
    )
