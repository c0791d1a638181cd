"""How the gradient of a depthwise convolution's weights is divided: tiles, and parts of sums.

The number of parts follows from the sizes alone, so that any number of threads gives the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.address import Affine, Axis, linear_offset
from dnnl.codegen.product.brgemm import TileShape
from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.convolution.depthwise import factors
from dnnl.kernels.convolution.depthwise.lines import Line
from dnnl.kernels.convolution.direct.gradient_problem import WeightsGradient
from dnnl.kernels.product.base.store import Columns
from dnnl.kernels.shared.scratchpad import Argument, Scratchpad
from dnnl.kernels.shared.types import computed_in
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import larger, typical
from dnnl.types.tag import FormatTag

_MOST_PLACES = 8
_USUAL_PLACES = 7  # which divides the widths of the images of many models
_MOST_TAPS = 16  # of a row, which is unrolled
_MOST_LINES = 2**12  # multiply-adds that are unrolled
_MOST_BORDERS = 4  # tiles, which are unrolled
_ITEMS = 64  # at least, where sums are long enough
_TERMS = 2**14  # at most, of a part of a sum
_BAND = 56  # pixels at least, of channels last, for which sums stay in registers
_LINE = 256  # contiguous bytes of a pixel that a work item reads, at least
_PIXELS = 16  # of a part at least, for each tap: the sums of parts are written and read once


@dataclass(frozen=True)
class Shape:
    """A tile of ``places`` pixels and ``vectors`` vectors of channels. The sums are ``resident`` in
    registers for a band, or one row of taps is."""

    places: int
    vectors: int
    resident: bool

    def columns(self, channels: int, isa: Isa) -> Columns:
        """The panels of so many channels."""
        return Columns.of(channels, TileShape(1, self.vectors), isa.lanes)


@dataclass(frozen=True)
class Tiles:
    """How the sums of ``taps`` taps are divided: parts of ``rows`` rows, bands of ``band`` rows,
    and work items of ``panels`` panels of channels. ``sums`` are those of parts, channels and taps;
    if ``biased``, the sum of diff_dst is behind those of the taps."""

    shape: Shape
    multiply: Multiply
    taps: int
    rows: int
    band: int
    panels: int
    sums: Argument
    biased: bool


def shape_of(problem: WeightsGradient, isa: Isa) -> Shape | None:
    """The tile of a gradient, or None if it is left to nests."""
    depth, height, width = problem.space
    tensors = problem.src, problem.diff_weights, problem.diff_dst
    if isa.lanes == 1 or any(desc.has_zero_dim for desc in tensors):
        return None
    if computed_in(*tensors, problem.diff_bias) is DataType.f64 or width.kernel > _MOST_TAPS:
        return None
    places = _USUAL_PLACES
    borders = 2  # one with any pixels outside, and one pixel
    if not width.is_open:
        places = -(-width.dst // -(-width.dst // _MOST_PLACES))
        first, last = Line(width, transposed=False).inner(places)
        borders = first + -(-width.dst // places) - last
    if borders > _MOST_BORDERS:
        return None
    lines = (borders + 1) * places * width.kernel
    needed = -(-problem.groups // isa.lanes)
    for resident, vectors in ((True, 2), (True, 1), (False, 2), (False, 1)):
        rows = height.kernel if resident else 1
        used = (rows * width.kernel + width.kernel + 1) * vectors
        written = lines * vectors * (rows + resident)
        wide = vectors == 1 or needed % 2 == 0 or needed > 2 * _MOST_PLACES
        flat = not resident or depth.kernel == 1
        if flat and wide and used < isa.registers and written <= _MOST_LINES:
            return Shape(places, vectors, resident)
    return None


def plan(
    problem: WeightsGradient, diff_dst: MemoryDesc, shape: Shape, isa: Isa, scratchpad: Scratchpad
) -> Tiles:
    """Divide the sums. ``diff_dst`` is what is read as such."""
    columns = shape.columns(problem.groups, isa)
    taps = prod(own.kernel for own in problem.space)
    rows = problem.diff_dst.dims[0] * prod(own.dst for own in problem.space[:2])
    pixels, panels = typical(rows * problem.space[2].dst), columns.panel.extent
    most = min(typical(rows), max(1, pixels // (_PIXELS * taps)))
    last = diff_dst.strides[1] == 1 and not diff_dst.inner_blocks
    if last:
        count = min(most, _ITEMS)
        lines = -(-problem.groups * problem.src.data_type.size // _LINE)
        each = -(-panels // min(panels, lines, -(-_ITEMS // count)))
    else:
        count, each = min(most, -(-_ITEMS // panels)), 1
    count = max(count, min(typical(rows), -(-pixels // _TERMS)))
    of_part = -(-rows // count)
    wide = -(-_BAND // typical(problem.space[2].dst))
    band = min(typical(of_part), wide) if last else of_part
    biased = not problem.diff_bias.is_zero and not problem.of_src
    dims = -(-rows // of_part), panels * columns.width, taps + biased
    tag = FormatTag(f"aBc{columns.width}b")
    sums = scratchpad.take(MemoryDesc(dims, DataType.f32, tag))
    multiply = factors.multiply_of(isa, (problem.src.data_type, diff_dst.data_type))
    return Tiles(shape, multiply, taps, of_part, band, each, sums, biased)


def walkable(desc: MemoryDesc, shape: Shape, isa: Isa) -> bool:
    """Whether vectors of channels are contiguous, at affine offsets."""
    columns = shape.columns(desc.dims[1], isa)
    index = [Affine.of(Axis(larger(2, extent), "i")) for extent in desc.dims]
    index[1] = columns.form
    form = linear_offset(desc, index)
    return form is not None and form.stride(columns.lane) == 1
