"""The definition of a convolution: tensors, window, groups; the layouts that its products take, and
the quantization."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TypeVar

from dnnl.codegen.epilogue.product_epilogue import needs_row_sums
from dnnl.codegen.ir.kernel import Reason, Refusal
from dnnl.codegen.isa import Isa
from dnnl.codegen.product.brgemm import TileShape, choose_vectors, max_rows
from dnnl.codegen.product.multiply import Multiply
from dnnl.errors import InvalidArguments
from dnnl.kernels.convolution.direct.pieces import Piece, channel_block
from dnnl.kernels.convolution.direct.sums import PixelSums
from dnnl.kernels.product.base.blocking import Blocking
from dnnl.kernels.product.base.pixel_tiles import Space
from dnnl.kernels.product.base.problem import LETTERS, Panels
from dnnl.kernels.product.base.types import dot_of
from dnnl.kernels.product.compensation.compensation import Compensation
from dnnl.kernels.product.pack.border import Border, take_border
from dnnl.kernels.product.pack.on_the_fly import PanelPacking
from dnnl.kernels.product.plan.contraction import Contraction
from dnnl.kernels.product.unit import tiles as product_tiles
from dnnl.kernels.shared.scratchpad import Argument, Scratchpad
from dnnl.types.arg import Arg, name_of
from dnnl.types.dtype import DataType
from dnnl.types.kinds import FormatKind
from dnnl.types.layout import Layout
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import surely_divides, typical
from dnnl.types.tag import FormatTag

AnyConvolution = TypeVar("AnyConvolution", bound="ConvolutionProblem")


@dataclass(frozen=True, kw_only=True)
class ConvolutionProblem(Contraction):
    """A forward convolution. The layout of src, weights and dst may be ``any``."""

    space: Space

    @property
    def grouped(self) -> bool:
        """Whether the weights have a dimension of groups."""
        return self.weights.ndims > self.dst.ndims

    @property
    def groups(self) -> int:
        """The number of groups."""
        return self.weights.dims[0] if self.grouped else 1

    @property
    def outputs(self) -> int:
        """The output channels of a group."""
        return self.weights.dims[1 if self.grouped else 0]

    @property
    def channels(self) -> int:
        """The channels of src in a group."""
        return self.weights.dims[2 if self.grouped else 1]

    @property
    def transposed(self) -> bool:
        """Whether it is a deconvolution, whose strides and dilations are distances in dst."""
        return False

    @property
    def step(self) -> tuple[int, int]:
        """The distance of consecutive rows of a tile in pixels of src, and of dst."""
        return self.space[2].stride, 1

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The convolutions that dst consists of."""
        return (Piece(self.space),)

    @property
    def borders(self) -> bool:
        """Whether some outputs have fewer taps inside src than others."""
        return any(s.padded for s in self.space)

    @property
    def image(self) -> ConvolutionProblem:
        """The convolution whose borders limit which taps a sum has."""
        return self

    @property
    def terms(self) -> int:
        """Channels and taps."""
        return self.channels * prod(own.kernel for own in self.space)

    @property
    def summed(self) -> tuple[slice, slice]:
        """Pixels and taps. What changes along channels is compensated pixel by pixel."""
        return slice(2, None), slice(3 if self.grouped else 2, None)

    @property
    def rows(self) -> int:
        """The pixels of an image."""
        return prod(self.dst.dims[2:])

    def planned_rows(self, isa: Isa) -> int:
        """Those of a typical image: one plan is for any number."""
        return typical(self.rows)

    @property
    def uses(self) -> int:
        """The pixels of all images."""
        return typical(self.dst.dims[0] * self.rows)

    @property
    def simple(self) -> bool:
        """Sums of tiles have no segments."""
        return True

    @property
    def row_of_ones(self) -> bool:
        """Near borders, the columns of some pixels have fewer weights."""
        return False

    def takes_unit(self, isa: Isa) -> bool:
        """Whether lines of src are long enough."""
        types = self.src.data_type, self.weights.data_type
        dot = dot_of(isa, *types, self.narrow, tiled=True)
        return dot is not None and product_tiles.takes(
            dot, self.rows, -(-self.line(dot) // dot.group)
        )

    def reads(self, src: MemoryDesc, dot: Multiply) -> bool:
        """Whether K groups of channels are contiguous, without a remainder."""
        if not self._walkable(src, self.channels):
            return False
        block = channel_block(src)
        if dot.group == 1 or block:
            return block % dot.group == 0
        return src.strides[1] == 1 and self.channels % dot.group == 0

    def packed(self, src: MemoryDesc, dot: Multiply) -> MemoryDesc:
        """Channels last. K groups that the channels of a group do not fill are padded; groups then
        have a dimension of their own."""
        src = src.with_data_type(dot.a)
        if self.channels % dot.group:
            dims = (src.dims[0], self.groups, self.channels, *src.dims[2:])
            spatial = LETTERS[3 : len(dims)]
            return MemoryDesc(dims, dot.a, FormatTag(f"a{spatial}bC{dot.group}c"))
        if dot.group == 1 and self._walkable(src, self.channels) and src.tag is not None:
            return src
        return channels_last(src)

    def panels(
        self, isa: Isa, src: MemoryDesc, weights: MemoryDesc, dot: Multiply, *, ones: bool = False
    ) -> Panels:
        """Panels of a tile's output channels, each with all of K in one stream, in the order of
        ``src``."""
        first, vectors = 1 if self.grouped else 0, self._vectors(isa, src, dot)
        o, i = LETTERS[first], LETTERS[first + 1]
        taps, width = LETTERS[first + 2 : weights.ndims], vectors * isa.lanes
        head, block, group = LETTERS[:first] + o.upper(), channel_block(src), dot.group
        k_group = f"{group}{i}" if group > 1 else ""
        if block:
            step = f"{block // group}{i}" if block > group else ""
            tag = f"{head}{i.upper()}{taps}{step}{width}{o}{k_group}"
        else:
            tag = f"{head}{taps}{i.upper() if k_group else i}{width}{o}{k_group}"
        return Panels(weights.with_data_type(dot.b).with_tag(FormatTag(tag)), vectors)

    def _vectors(self, isa: Isa, src: MemoryDesc, dot: Multiply) -> int:
        """The width of a tile in vectors; its rows are consecutive pixels of ``src``."""
        if dot.tiles is not None:
            return product_tiles.panel_vectors(isa, self.outputs)
        step = src.strides[-1] * src.data_type.size
        return choose_vectors(isa, self.outputs, step * self.step[0])

    def _walkable(self, desc: MemoryDesc, channels: int) -> bool:
        """Whether all offsets of an activation are affine in channel blocks, all of which belong to
        it as a whole, and pixels."""
        block = channel_block(desc)
        if len(desc.inner_blocks) != bool(block):
            return False
        if block and desc.padded_dims[1] % block:
            return False
        return self.groups == 1 or not block or surely_divides(block, channels)

    def stores(self, width: int) -> bool:
        """Whether tiles are stored in vectors, of channels or, transposed, of contiguous pixels,
        and panels cover all of dst's padding, which must become zero."""
        dst = self.dst
        in_vectors = self.step[1] == 1 or bool(dst.inner_blocks) or dst.strides[1] == 1
        if not (in_vectors and self._walkable(dst, self.outputs)):
            return False
        if any(dst.dims[dim] != dst.padded_dims[dim] for dim in range(dst.ndims) if dim != 1):
            return False
        return self.groups > 1 or dst.padded_dims[1] <= -(-self.outputs // width) * width

    def computed(self, core: DataType) -> MemoryDesc:
        """The result with channels last."""
        return channels_last(self.dst).with_data_type(core)

    def line(self, dot: Multiply) -> int:
        """The consecutive elements of a sum that are contiguous in src, or in its copy."""
        src, group = self.src, dot.group
        k_groups = -(-self.channels // group)
        if src.format_kind is not FormatKind.any and not self.bordered(dot):
            block = channel_block(src)
            reads = src.data_type is dot.a and self.reads(src, dot)
            if reads and (block or src.strides[-1] != k_groups * group):
                return block or k_groups * group
        w = self.pieces[0].space[2]
        alone = self.groups == w.dilation == 1
        return (k_groups * w.kernel if alone else k_groups) * group

    def bordered(self, dot: Multiply) -> bool:
        """Whether the product reads a padded copy of src."""
        return dot.tiles is not None and any(
            own.padded for piece in self.pieces for own in piece.space
        )

    def border(
        self, isa: Isa, dot: Multiply, src: Argument, scratchpad: Scratchpad
    ) -> Border | None:
        """The padded copy of src in the layout that a matrix unit reads. It is written per thread
        and band unless several products, groups or panels read an image, each of which would write
        it again."""
        if not self.bordered(dot):
            return None
        layout = self.packed(self.src, dot)
        src = _of_dims(src, layout.dims, scratchpad)
        spaces = [piece.space for piece in self.pieces]
        small = self.weights.nelems() * dot.b.size <= isa.caches.l2 // 2
        once = len(spaces) == self.groups == 1 and (small or src[1].dims[0] == 1)
        spatial = self.dst.ndims - 2
        return take_border(scratchpad, src, layout, spatial, spaces, isa, in_bands=once)

    def copied(self, given: Argument, wanted: MemoryDesc, scratchpad: Scratchpad) -> Argument:
        """A copy of an operand, maybe with a dimension of groups."""
        return scratchpad.copy(_of_dims(given, wanted.dims, scratchpad), wanted)

    def compensation(
        self,
        src: Argument,
        weights: Argument,
        dot: Multiply,
        segment: int,
        scratchpad: Scratchpad,
        *,
        ones: bool,
    ) -> Compensation:
        """Sums for each pixel of dst."""
        zero_points = dict(self.quantization.zero_points)
        of_rows = needs_row_sums(dot, zero_points, self.arguments[1])
        of_columns = self.arguments[0] in zero_points
        return PixelSums.take(
            self, self.image, src, weights, scratchpad, of_rows=of_rows, of_columns=of_columns
        )

    def blocking(
        self,
        isa: Isa,
        dot: Multiply,
        src: MemoryDesc,
        panels: Panels,
        *,
        ones: bool,
        packing: PanelPacking | None,
    ) -> Blocking:
        """Tiles of the panels' width. If all panels do not fit in the cache, one of them stays
        there for all pixels."""
        vectors = panels.vectors
        rows = most_rows(isa, dot, vectors)
        if dot.tiles is not None:
            rows = min(
                product_tiles.tile_rows(isa, vectors, piece.space[2].dst, _pitch(piece, src))
                for piece in self.pieces
            )
        one = panels.desc.size > isa.caches.l2 // 2
        return Blocking(TileShape(rows, vectors), panels=1 if one else 0)


def most_rows(isa: Isa, dot: Multiply, vectors: int) -> int:
    """The rows of a tile, unless a matrix unit computes it."""
    return max_rows(isa, vectors * dot.span, dot.parts)


def channels_last(desc: MemoryDesc) -> MemoryDesc:
    """The activation with channels as its innermost dimension."""
    return desc.with_tag(FormatTag(f"a{LETTERS[2 : desc.ndims]}b"))


def _of_dims(src: Argument, dims: tuple[int, ...], scratchpad: Scratchpad) -> Argument:
    """src with these dimensions: its own, or with an additional one of groups."""
    slot, desc = src
    if len(dims) == desc.ndims:
        return src
    if desc.inner_blocks:
        try:
            return slot, desc.reshape(dims)
        except InvalidArguments:  # groups cut the blocks of channels
            slot, desc = scratchpad.copy(src, channels_last(desc))
    groups = dims[1], dims[2]
    layout = Layout(
        dims,
        (desc.padded_dims[0], *groups, *desc.padded_dims[2:]),
        (desc.strides[0], dims[2] * desc.strides[1], *desc.strides[1:]),
        (),
        desc.offset0,
    )
    return slot, MemoryDesc.of_layout(desc, layout)


def _pitch(piece: Piece, src: MemoryDesc) -> int:
    """The distance, in pixels at the stride of w, between the first pixels of src that consecutive
    rows of dst read; 0 if it is not an integer."""
    if src.ndims < 4:
        return 0
    _, h, w = piece.space
    steps, rest = divmod(src.strides[-2] * h.stride, src.strides[-1] * w.stride)
    return 0 if rest else steps


def refuse_quantization(problem: ConvolutionProblem) -> Refusal | None:
    """Why scales and zero points cannot be generated, or None.

    What changes along K must be applied before the sum, except zero points of src, which are
    compensated. A group of one channel has a single scale along K.
    """
    given = problem.quantization
    tensors = {
        int(Arg.SRC): problem.src,
        int(Arg.WEIGHTS): problem.weights,
        int(Arg.DST): problem.dst,
    }
    per_output = 0b11 if problem.grouped else 0b1
    refusal = given.refuse(tensors)
    alone = 2 if problem.grouped and problem.channels == 1 else 0
    kinds = ("scales", given.scales, alone), ("zero points", given.zero_points, 2)
    for what, specs, of_src in kinds:
        allowed = {int(Arg.SRC): of_src, int(Arg.WEIGHTS): per_output}
        for arg, spec in specs:
            if refusal is None and arg in allowed and spec.mask & ~allowed[arg]:
                rule = f"it takes 0 or {allowed[arg]}" if allowed[arg] else "it takes 0"
                detail = f"{what} of {name_of(arg)} with mask {spec.mask}; {rule}"
                refusal = Refusal(Reason.ATTRIBUTE, detail)
    return refusal
