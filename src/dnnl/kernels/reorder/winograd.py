"""Reorder weights of a convolution to and from those that Winograd's algorithm multiplies.

Transformed weights are G g G' of the taps g. Taps are recovered by the least-squares inverse of G,
which is exact but for rounding. Between two sizes of tiles both are one map.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dnnl.codegen.functions.linear import transform_rows
from dnnl.codegen.ir.builder import Module
from dnnl.codegen.ir.kernel import Arguments, Kernel, Reason, Refusal, symbol
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import ZERO, Affine, Axis
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.kernels.shared.types import FLOATS, refuse_types
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg
from dnnl.types.cook_toom import TAPS, Matrix, composed, cook_toom, identity
from dnnl.types.dtype import DataType, any_of
from dnnl.types.encoding import Winograd
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True)
class Filters:
    """The weights of a convolution in the argument ``slot``: taps, or what they were transformed
    to, as `Winograd` says; then ``desc`` is that of the buffer. Taps have ``tile`` 0."""

    slot: int
    desc: MemoryDesc
    tile: int = 0
    rotated: bool = False
    exchanged: bool = False

    @staticmethod
    def of(slot: int, weights: MemoryDesc) -> Filters:
        """Weights as a user describes them."""
        encoding, (desc,) = weights.encoding, weights.buffers
        if isinstance(encoding, Winograd):
            return Filters(slot, desc, encoding.tile, encoding.rotated, encoding.exchanged)
        return Filters(slot, desc)

    @property
    def side(self) -> int:
        """The height and the width of what belongs to a pair of channels."""
        return self.tile + TAPS - 1 if self.tile else TAPS

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Groups, output channels and channels of a group."""
        dims = self.desc.dims
        if self.tile:
            rows, columns = dims[2:]
            return (dims[0], rows, columns) if self.exchanged else (dims[0], columns, rows)
        return (dims[0], dims[1], dims[2]) if len(dims) == 5 else (1, dims[0], dims[1])

    def elements(self, slot: int, axes: Sequence[Axis]) -> list[list[Operand]]:
        """The elements of a pair of channels, row by row."""
        group, output, channel = map(Affine.of, axes)
        pair = (output, channel) if self.exchanged or not self.tile else (channel, output)

        def index(i: int, j: int) -> tuple[Affine, ...]:
            if self.tile:
                return (group, ZERO + (self.side * i + j), *pair)
            return (*((group,) if self.desc.ndims == 5 else ()), *pair, ZERO + i, ZERO + j)

        sides = range(self.side)
        return [[Operand(slot, self.desc, index(i, j)) for j in sides] for i in sides]

    def map_to(self, other: Filters) -> Matrix:
        """The map of columns, and of rows, to other weights."""
        if (self.tile, self.rotated) == (other.tile, other.rotated):
            return identity(self.side)
        taps = cook_toom(self.tile).from_taps if self.tile else identity(TAPS)
        if self.rotated != other.rotated:
            taps = taps[::-1]
        return composed(cook_toom(other.tile).of_taps, taps) if other.tile else taps


@dataclass(frozen=True)
class WinogradReorderConf:
    """Weights of the same dims, some of which are transformed."""

    src: Filters
    dst: Filters


def configure(src: MemoryDesc, dst: MemoryDesc, isa: Isa) -> WinogradReorderConf | Refusal:
    """Accept floats; those that are not transformed are in any dense layout. Transformed taps are
    those of src, so that their type is f32 or that of src: nothing rounds them."""
    encodings = src.encoding, dst.encoding
    if not any(isinstance(own, Winograd) for own in encodings):
        return Refusal(Reason.LAYOUT, f"{src} to {dst}; neither is transformed by Winograd")
    if not all(own is None or isinstance(own, Winograd) for own in encodings):
        return Refusal(Reason.LAYOUT, f"{src} to {dst}; weights are transformed from dense ones")
    refusal = refuse_types(src, dst, allowed=FLOATS)
    wanted = {src.data_type, DataType.f32}
    if refusal is None and dst.encoding is not None and dst.data_type not in wanted:
        return Refusal(Reason.DATA_TYPE, f"{src} to {dst}; it takes {any_of(wanted)}")
    return refusal or WinogradReorderConf(Filters.of(Arg.FROM, src), Filters.of(Arg.TO, dst))


def build(conf: WinogradReorderConf, isa: Isa) -> Kernel:
    """One phase."""
    module, arguments = Module("reorder", isa), Arguments()
    phase = emit_filters(module, "reorder_winograd", conf.src, conf.dst, arguments)
    return Kernel(module, (phase,), arguments.ids)


def emit_filters(
    module: Module, name: str, src: Filters, dst: Filters, arguments: Arguments
) -> Phase:
    """Write the phase ``name``: a nest over groups and channels, each iteration of which maps all
    elements of a pair of channels."""
    axes = tuple(Axis(extent, name) for extent, name in zip(src.sizes, "goi", strict=True))
    given, made = (own.elements(arguments.slot(own.slot), axes) for own in (src, dst))
    matrix = src.map_to(dst)

    def body(point: Point) -> None:
        columns = ([point.load(own) for own in column] for column in zip(*given, strict=True))
        for operands, row in zip(made, transform_rows(point.e, matrix, columns), strict=True):
            for operand, value in zip(operands, row, strict=True):
                point.store(operand, value)

    inputs, outputs = (tuple(own for row in side for own in row) for side in (given, made))
    entry = symbol(name, (src.desc, dst.desc), module.isa)
    nest = Nest(axes, (), inputs, outputs, body, steps=len(outputs))
    return emit_nest(module, entry, nest)
