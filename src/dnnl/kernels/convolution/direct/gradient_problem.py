"""The definition of the gradient of a convolution's weights, and of its bias, and the layouts that
its products take."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.address import Affine, Axis, linear_offset
from dnnl.codegen.product.brgemm import TileShape, choose_vectors, max_rows
from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.convolution.direct.gradient_blocking import Cut, OpenCut, cut_sums
from dnnl.kernels.convolution.direct.pieces import channel_block
from dnnl.kernels.product.base.blocking import Blocking, even_rows
from dnnl.kernels.product.base.pixel_tiles import Space
from dnnl.kernels.product.base.problem import LETTERS, Panels
from dnnl.kernels.product.base.store import Columns
from dnnl.kernels.product.pack.on_the_fly import PanelPacking
from dnnl.kernels.product.plan.contraction import Contraction
from dnnl.kernels.shared.scratchpad import Argument, Relayout, Scratchpad
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import is_known, larger
from dnnl.types.tag import FormatTag

_USES = 42
"""diff_dst is copied into panels if each of its elements is used at least so many times for each
row of a tile. Panels are read in one stream, rows at a stride of all channels."""


def exchanged(weights: MemoryDesc, first: int) -> MemoryDesc:
    """The weights with output and input channels, dimension ``first`` and the next, exchanged."""
    axes = list(range(weights.ndims))
    axes[first], axes[first + 1] = first + 1, first
    return weights.permute_axes(axes)


@dataclass(frozen=True, kw_only=True)
class WeightsGradient(Contraction):
    """diff_weights[o, i, k] = sum over images n and outputs p of
    src[n, i, p * stride + k * dilation - padding] * diff_dst[n, o, p].

    A product whose ``weights`` are diff_dst, and whose ``dst`` are diff_weights. The tensors and
    ``space`` are those of a *convolution*; any layout may be ``any``. ``diff_bias`` sums diff_dst,
    or src if ``of_src``, as the bias of a deconvolution does; it may be the zero descriptor.
    """

    space: Space
    diff_bias: MemoryDesc
    of_src: bool = False

    @property
    def diff_dst(self) -> MemoryDesc:
        """The second operand."""
        return self.weights

    @property
    def diff_weights(self) -> MemoryDesc:
        """The result."""
        return self.dst

    @property
    def grouped(self) -> bool:
        """Whether the weights have a dimension of groups."""
        return self.diff_weights.ndims > self.diff_dst.ndims

    @property
    def groups(self) -> int:
        """The number of groups."""
        return self.diff_weights.dims[0] if self.grouped else 1

    @property
    def outputs(self) -> int:
        """The channels of diff_dst in a group."""
        return self.diff_weights.dims[1 if self.grouped else 0]

    @property
    def channels(self) -> int:
        """The channels of src in a group."""
        return self.diff_weights.dims[2 if self.grouped else 1]

    @property
    def knows_channels(self) -> bool:
        """Whether channels and taps are known, whatever the images are."""
        gradients = *self.diff_weights.layout_numbers, *self.diff_bias.layout_numbers
        return all(map(is_known, (*gradients, self.src.dims[1], self.diff_dst.dims[1])))

    @property
    def pointwise(self) -> bool:
        """Whether src and diff_dst have the same pixels, which meet one by one."""
        return all((s.kernel, s.stride, s.padding, s.src) == (1, 1, 0, s.dst) for s in self.space)

    def exchanged(self) -> WeightsGradient:
        """The gradient with diff_dst as src and vice versa, as it may be if it is pointwise."""
        of_src, of_dst, of_weights = self.arguments
        return replace(
            self,
            src=self.diff_dst,
            weights=self.src,
            dst=exchanged(self.diff_weights, 1 if self.grouped else 0),
            arguments=(of_dst, of_src, of_weights),
            of_src=not self.of_src,
        )

    @property
    def terms(self) -> int:
        """Images and pixels."""
        return self.src.dims[0] * prod(own.dst for own in self.space)

    @property
    def summed(self) -> tuple[slice, slice]:
        """Nothing is quantized."""
        return slice(0), slice(0)

    @property
    def rows(self) -> int:
        """The channels of src in a group."""
        return self.channels

    @property
    def simple(self) -> bool:
        """Nothing is quantized."""
        return True

    def takes_unit(self, isa: Isa) -> bool:
        """Sums go over pixels, of which a matrix unit would take whole lines."""
        return False

    def line(self, dot: Multiply) -> int:
        """K groups are of images."""
        return dot.group

    def reads(self, src: MemoryDesc, dot: Multiply) -> bool:
        """Whether the product reads single elements at any stride, or whole blocks of channels."""
        if dot.group > 1:
            return False
        return not src.inner_blocks or _in_blocks(src, self.channels)

    def packed(self, src: MemoryDesc, dot: Multiply) -> MemoryDesc:
        """Channels last. Images are summed over, so a K group is of images."""
        spatial = LETTERS[2 : src.ndims]
        tag = f"a{spatial}b" if dot.group == 1 else f"A{spatial}b{dot.group}a"
        return src.with_data_type(dot.a).with_tag(FormatTag(tag))

    def panels(
        self, isa: Isa, src: MemoryDesc, weights: MemoryDesc, dot: Multiply, *, ones: bool = False
    ) -> Panels:
        """diff_dst in place, or a copy in panels of channels; groups have a dimension of their own
        where panels cut them."""
        block = channel_block_of(src, dot)
        step = 0 if block else src.strides[1] * src.data_type.size
        vectors = choose_vectors(isa, self.outputs, step, dot.span)
        rows, width = self._tile_rows(isa, block, vectors, dot), vectors * isa.lanes
        taps = prod(own.kernel for own in self.space)
        often = self.channels * taps >= _USES * rows and not weights.inner_blocks
        if not often and self._in_rows(weights, dot, width, isa.lanes):
            return Panels(weights, vectors)
        dims, head, channel = weights.dims, "", "b"
        if self.groups > 1 and self.outputs % width:
            dims, head, channel = (dims[0], self.groups, self.outputs, *dims[2:]), "b", "c"
        spatial = LETTERS[len(dims) - (weights.ndims - 2) : len(dims)]
        tag = f"{head}{channel.upper()}a{spatial}{width}{channel}"
        if dot.group > 1:
            tag = f"{head}{channel.upper()}A{spatial}{width}{channel}{dot.group}a"
        return Panels(MemoryDesc(dims, dot.b, FormatTag(tag)), vectors)

    def copied(self, given: Argument, wanted: MemoryDesc, scratchpad: Scratchpad) -> Argument:
        """A copy of an operand, maybe with a dimension of groups."""
        slot, desc = given
        if wanted.ndims > desc.ndims:
            if desc.inner_blocks:
                spatial = LETTERS[2 : desc.ndims]
                slot, desc = scratchpad.copy(given, desc.with_tag(FormatTag(f"a{spatial}b")))
            desc = desc.reshape(wanted.dims)
        return scratchpad.copy((slot, desc), wanted)

    def _in_rows(self, desc: MemoryDesc, dot: Multiply, width: int, lanes: int) -> bool:
        """Whether the product reads diff_dst in place: whole panels, in vectors of consecutive
        channels."""
        if desc.data_type is not dot.b or self.outputs % width:
            return False
        if dot.group > 1:
            whole = desc.dims[0] % dot.group == 0 and width % (dot.row_vectors * lanes) == 0
            return whole and desc.strides[1] == 1 and not desc.inner_blocks
        if desc.inner_blocks:
            return _in_blocks(desc, self.outputs) and self._in_vectors(desc, width, lanes)
        return desc.strides[1] == 1

    def _in_vectors(self, desc: MemoryDesc, width: int, lanes: int) -> bool:
        """Whether the vectors of panels of ``width`` channels of diff_dst are in blocks, evenly
        apart."""
        index = [Affine.of(Axis(larger(2, extent), "i")) for extent in desc.dims]
        columns = Columns.of(self.outputs, TileShape(1, width // lanes), lanes)
        index[1] = Affine.of(Axis(self.groups, "g"), self.outputs) + columns.form
        offset = linear_offset(desc, index)
        return offset is not None and offset.stride(columns.lane) == 1

    def _tile_rows(self, isa: Isa, block: int, vectors: int, dot: Multiply) -> int:
        """The rows of a tile: channels, of several taps along the width if there are few."""
        channels = block or self.channels
        most = max_rows(isa, vectors * dot.span, dot.parts)
        return most if channels * 2 <= most else even_rows(channels, most)

    def cut(self, isa: Isa, dot: Multiply, src: MemoryDesc, panels: Panels) -> Cut | OpenCut:
        """How the sums are cut, for src and diff_dst as they are read."""
        block = channel_block_of(src, dot)
        tile = TileShape(self._tile_rows(isa, block, panels.vectors, dot), panels.vectors)
        return cut_sums(self, isa, tile, dot, block)

    def stores(self, width: int) -> bool:
        """Whether the product writes diff_weights in vectors of either channels."""
        desc, first = self.diff_weights, 1 if self.grouped else 0
        if desc.inner_blocks or desc.dims != desc.padded_dims:
            return False
        return desc.strides[first] == 1 or desc.strides[first + 1] == 1

    def result(
        self,
        isa: Isa,
        dot: Multiply,
        src: MemoryDesc,
        panels: Panels,
        core: DataType,
        scratchpad: Scratchpad,
    ) -> tuple[Argument, Relayout | None]:
        """diff_weights, or sums in the scratchpad: for parts of images, of rows, groups, taps,
        channels of src and of diff_dst. These are added up, not copied."""
        cut = self.cut(isa, dot, src, panels)
        if cut.parts == 1 and self.writes(panels.vectors * isa.lanes):
            return (self.arguments[2], self.dst), None
        kernel = (own.kernel for own in self.space)
        dims = (cut.image_parts, cut.row_parts, self.groups, *kernel, self.channels, self.outputs)
        return scratchpad.take(MemoryDesc(dims, core)), None

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
        """Blocks of the channels of a work item."""
        cut, block = self.cut(isa, dot, src, panels), channel_block_of(src, dot)
        tile = TileShape(self._tile_rows(isa, block, panels.vectors, dot), panels.vectors)
        return Blocking(tile, cut.panels, block or cut.channels, cut.steps)


def channel_block_of(src: MemoryDesc, dot: Multiply) -> int:
    """The size of the channel blocks of src that tiles respect, 0 without."""
    return channel_block(src) if dot.group == 1 else 0


def _in_blocks(desc: MemoryDesc, channels: int) -> bool:
    """Whether the only blocks are of channels, whole ones of each group."""
    whole = desc.dims == desc.padded_dims and len(desc.inner_blocks) == 1
    return whole and desc.inner_blocks[0][0] == 1 and channels % channel_block(desc) == 0
