"""The product of a convolution: pixels times panels of weights, summed over channels and taps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dnnl.codegen.epilogue.product_epilogue import Depth
from dnnl.codegen.ir.kernel import Arguments
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import ZERO, Affine, Axis, block_boundaries
from dnnl.kernels.convolution.direct.border import NOWHERE, Border
from dnnl.kernels.convolution.direct.residues import Residues
from dnnl.kernels.product.base.border_bands import Bands
from dnnl.kernels.product.base.pixel_tiles import Spatial
from dnnl.kernels.product.base.store import Columns
from dnnl.kernels.product.loops import phases
from dnnl.kernels.product.loops.form import Axes, Product
from dnnl.kernels.product.plan import conf as product_conf
from dnnl.kernels.shared.scratchpad import Argument
from dnnl.types.memory_desc import MemoryDesc

Space = tuple[Spatial, Spatial, Spatial]
"""Depth, height and width; a missing one has size 1."""


@dataclass(frozen=True)
class Piece:
    """A convolution of a part of dst with a part of the weights: its sizes, and which outputs and
    taps those of ``space`` are. By default all."""

    space: Space
    residues: tuple[Residues, Residues, Residues] = (Residues(), Residues(), Residues())


@dataclass(frozen=True, eq=False)
class Walk:
    """The axes of a piece, each for depth, height and width, and the indices of an iteration: the
    pixel ``at`` in dst, the tap ``offsets`` in the weights, the pixel ``src_pixel`` in src."""

    residues: Axes
    places: Axes
    taps: Axes
    at: list[Affine]
    offsets: list[Affine]
    src_pixel: list[Affine]


@dataclass(frozen=True, kw_only=True)
class ConvolutionConf(product_conf.ProductConf):
    """A convolution whose layouts the product can walk.

    ``channels`` and ``outputs`` are those of one group; ``pieces`` make up dst. ``row_sums`` and
    ``column_sums`` are computed from ``channel_sums`` and ``tap_sums`` in the scratchpad (`sums`).
    Column sums are the same for all pixels unless there are ``borders``. If the product reads a
    padded copy of src (``border``), the sums are still those of src.
    """

    groups: int
    channels: int
    outputs: int
    pieces: tuple[Piece, ...]
    borders: bool
    channel_sums: Argument | None
    tap_sums: Argument | None
    border: Border | None = None

    @property
    def read(self) -> Argument:
        """What the product reads as src."""
        return (self.up_converted or self.src) if self.border is None else self.border.copy

    @property
    def grouped(self) -> bool:
        """Whether the weights have a dimension of groups."""
        return self.weights[1].ndims > self.dst[1].ndims

    def src_index(
        self, n: Affine, g: Affine, c: Affine, at: Sequence[Affine]
    ) -> tuple[Affine, ...]:
        """The index of src for a channel of a group; groups may be a dimension of their own."""
        src = self.src[1]
        split = src.ndims > self.dst[1].ndims
        channel = (g, c) if split else (g * self.channels + c,)
        return activation_index(src, n, channel, at)

    def weights_index(
        self, g: Affine, o: Affine, i: Affine, taps: Sequence[Affine]
    ) -> tuple[Affine, ...]:
        """The index of the weights."""
        return weights_index(self.weights[1], self.grouped, g, o, i, taps)


def activation_index(
    desc: MemoryDesc, n: Affine, channel: tuple[Affine, ...], spatial: Sequence[Affine]
) -> tuple[Affine, ...]:
    """The index of an activation from three spatial indices, of which it may have fewer."""
    head = (n, *channel)
    return (*head, *spatial[3 - (desc.ndims - len(head)) :])


def weights_index(
    desc: MemoryDesc, groups: bool, g: Affine, o: Affine, i: Affine, taps: Sequence[Affine]
) -> tuple[Affine, ...]:
    """The index of the weights, with a dimension of groups if they have one."""
    head = (g, o, i) if groups else (o, i)
    return (*head, *taps[3 - (desc.ndims - len(head)) :])


def channel_block(src: MemoryDesc) -> int:
    """The size of src's channel blocks, 0 without blocks."""
    sizes = block_boundaries(src, 1)
    return sizes[-1] if sizes else 0


def walk(piece: Piece) -> Walk:
    """The axes of all outputs and taps of a piece."""
    d, h, w = piece.space
    places = Axis(d.dst, "od"), Axis(h.dst, "oh"), Axis(w.dst, "ow")
    taps = Axis(d.kernel, "kd"), Axis(h.kernel, "kh"), Axis(w.kernel, "kw")
    in_d, in_h, in_w = (Axis(own.count, "residue") for own in piece.residues)
    residues = in_d, in_h, in_w
    each = list(zip(piece.space, piece.residues, residues, places, taps, strict=True))
    return Walk(
        residues,
        places,
        taps,
        at=[own.outputs.of(residue, out) for _, own, residue, out, _ in each],
        offsets=[own.taps.of(residue, tap) for _, own, residue, _, tap in each],
        src_pixel=[
            Affine.of(out, s.stride) + Affine.of(tap, s.dilation) + -s.padding
            for s, _, _, out, tap in each
        ],
    )


def _channels(conf: ConvolutionConf) -> tuple[tuple[Axis, ...], tuple[Axis, ...], Affine]:
    """The axes around the taps and inside of them, and the channel of a group."""
    block, group = channel_block(conf.read[1]), conf.multiply.group
    if not block:
        inner = Axis(-(-conf.channels // group), "ic")
        return (), (inner,), Affine.of(inner, group)
    outer, inner = Axis(-(-conf.channels // block), "icb"), Axis(block // group, "ic")
    return (outer,), (inner,), Affine.of(outer, block) + Affine.of(inner, group)


def products(conf: ConvolutionConf, isa: Isa, arguments: Arguments) -> list[Product]:
    """The products of a convolution, one for each piece."""
    return [_product(conf, piece, isa, arguments) for piece in conf.pieces]


def _product(conf: ConvolutionConf, piece: Piece, isa: Isa, arguments: Arguments) -> Product:
    if conf.border is not None:
        piece = replace(piece, space=conf.border.space(piece.space))
    dst, here = conf.dst[1], walk(piece)
    n, g = Axis(dst.dims[0], "n"), Axis(conf.groups, "g")
    around, inside, c = _channels(conf)
    columns = Columns.of(conf.outputs, conf.blocking.tile, isa.lanes)
    batch, group = Affine.of(n), Affine.of(g)
    oc, nothing = Affine.of(g, conf.outputs) + columns.form, (ZERO,) * 3

    def operand(part: Argument, index: tuple[Affine, ...]) -> Operand:
        return Operand(arguments.slot(part[0]), part[1], index)

    bands = _bands(conf, piece, batch, arguments)
    if bands is None:
        src = operand(conf.read, conf.src_index(batch, group, c, here.src_pixel))
    else:
        src = Operand(NOWHERE, conf.read[1], conf.src_index(ZERO, group, c, here.src_pixel))
    weights = operand(conf.weights, conf.weights_index(group, columns.form, c, here.offsets))
    out = operand(conf.dst, activation_index(dst, batch, (oc,), here.at))
    values = phases.Indices(
        bias=(oc,),
        src=conf.src_index(batch, group, ZERO, nothing),
        weights=conf.weights_index(group, columns.form, ZERO, nothing),
        row_sums=(batch, group, *here.at),
        column_sums=(*here.at, oc),
    )
    padded = -(-conf.channels // conf.multiply.group) * conf.multiply.group
    depth = Depth(conf.channels, padded)
    # Behind the last channel is padding, to be zeroed, or the next group, not to be written.
    tail = (columns.inside,) if columns.inside.needed else ()
    return Product(
        (*here.residues, *_order(conf, n, g, columns)),
        piece.space,
        here.places,
        here.taps,
        around,
        inside,
        columns,
        src,
        weights,
        conf.multiply,
        phases.finish(conf, arguments, out, values, depth),
        conf.blocking,
        domain=tail if conf.groups == 1 else (),
        exists=tail if conf.groups > 1 else (),
        narrow=phases.narrow_path(conf, arguments, src, isa),
        bands=bands,
    )


def _bands(
    conf: ConvolutionConf, piece: Piece, batch: Affine, arguments: Arguments
) -> Bands | None:
    """The per-thread padded copy of src, if there is one."""
    border = conf.border
    if border is None or border.rows is None or not border.in_bands:
        return None
    slot, desc = border.src
    given = Operand(arguments.slot(slot), desc, ())
    return Bands(given, border.rows, batch, piece.space[1])


def _order(conf: ConvolutionConf, n: Axis, g: Axis, columns: Columns) -> tuple[Axis, ...]:
    """The outer axes, groups outermost. If one panel at a time stays in the cache, either each
    image meets all panels before the next image, which reads the weights once per image, or each
    panel meets all images, which reads src once per panel: whichever moves fewer bytes."""
    if conf.blocking.places or not conf.blocking.panels:
        return (g, n)
    src, weights = conf.read[1], conf.weights[1]
    images_outside = weights.size * n.extent < src.size * columns.panel.extent
    return (g, n, columns.panel) if images_outside else (g, columns.panel, n)
