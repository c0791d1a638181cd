"""The product of a convolution: pixels times panels of weights, summed over channels and taps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dnnl.codegen.epilogue.product_epilogue import Depth
from dnnl.codegen.ir.kernel import Arguments
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import ZERO, Affine, Axis
from dnnl.kernels.convolution.direct.pieces import (
    Piece,
    activation_index,
    channel_block,
    src_index,
    walk,
    weights_index,
)
from dnnl.kernels.convolution.direct.problem import ConvolutionProblem
from dnnl.kernels.product.base.border_bands import Bands
from dnnl.kernels.product.base.store import Columns
from dnnl.kernels.product.loops import phases
from dnnl.kernels.product.loops.form import ONE, Product
from dnnl.kernels.product.loops.joined_rows import JoinedRows
from dnnl.kernels.product.pack.border import NOWHERE
from dnnl.kernels.product.plan.conf import ProductConf
from dnnl.kernels.shared.scratchpad import Argument
from dnnl.types.post_ops import PostOpSum
from dnnl.types.size import is_known, typical

ConvolutionConf = ProductConf[ConvolutionProblem]


def _channels(conf: ConvolutionConf) -> tuple[tuple[Axis, ...], tuple[Axis, ...], Affine]:
    """The axes around the taps and inside of them, and the channel of a group."""
    block, group, channels = channel_block(conf.read[1]), conf.multiply.group, conf.problem.channels
    if not block:
        inner = Axis(-(-channels // group), "ic")
        return (), (inner,), Affine.of(inner, group)
    outer, inner = Axis(-(-channels // block), "icb"), Axis(block // group, "ic")
    return (outer,), (inner,), Affine.of(outer, block) + Affine.of(inner, group)


def products(conf: ConvolutionConf, isa: Isa, arguments: Arguments) -> list[Product]:
    """The products of a convolution, one for each piece."""
    return [_product(conf, piece, isa, arguments) for piece in conf.problem.pieces]


def _product(conf: ConvolutionConf, piece: Piece, isa: Isa, arguments: Arguments) -> Product:
    if conf.border is not None:
        piece = replace(piece, space=conf.border.space(piece.space))
    problem, dst, here = conf.problem, conf.dst[1], walk(piece)
    n, g = Axis(dst.dims[0], "n"), Axis(problem.groups, "g")
    around, inside, c = _channels(conf)
    columns = Columns.of(problem.outputs, conf.blocking.tile, isa.lanes)
    batch, group = Affine.of(n), Affine.of(g)
    oc, nothing = Affine.of(g, problem.outputs) + columns.form, (ZERO,) * 3

    def of_src(n: Affine, c: Affine, at: Sequence[Affine]) -> tuple[Affine, ...]:
        return src_index(problem, conf.src[1], n, group, c, at)

    def of_weights(c: Affine, taps: Sequence[Affine]) -> tuple[Affine, ...]:
        return weights_index(conf.weights[1], problem.grouped, group, columns.form, c, taps)

    def operand(part: Argument, index: tuple[Affine, ...]) -> Operand:
        return Operand(arguments.slot(part[0]), part[1], index)

    bands = _bands(conf, piece, batch, arguments)
    if bands is None:
        src = operand(conf.read, of_src(batch, c, here.src_pixel))
    else:
        src = Operand(NOWHERE, conf.read[1], of_src(ZERO, c, here.src_pixel))
    weights = operand(conf.weights, of_weights(c, here.offsets))
    out = operand(conf.dst, activation_index(dst, batch, (oc,), here.at))
    values = phases.Indices(
        bias=(oc,),
        src=of_src(batch, ZERO, nothing),
        weights=of_weights(ZERO, nothing),
        row_sums=(batch, group, *here.at),
        column_sums=(*here.at, oc),
    )
    padded = -(-problem.channels // conf.multiply.group) * conf.multiply.group
    depth = Depth(problem.channels, padded)
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
        domain=tail if problem.groups == 1 else (),
        exists=tail if problem.groups > 1 else (),
        narrow=phases.narrow_path(conf, arguments, src, isa),
        bands=bands,
        rows=_joined_rows(conf),
    )


def _joined_rows(conf: ConvolutionConf) -> JoinedRows | None:
    """The rows of a line of unfolded pixels; those of a volume are none."""
    if conf.unfolded is None:
        return None
    d, h, w = conf.unfolded.space
    once = any(isinstance(entry, PostOpSum) for entry in conf.problem.post_ops)
    return JoinedRows(h, w, once) if is_known(d.src) and d == ONE else None


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
    of_weights, of_src = typical(weights.size) * n.typical, typical(src.size)
    images_outside = of_weights < of_src * columns.panel.extent
    return (g, n, columns.panel) if images_outside else (g, columns.panel, n)
