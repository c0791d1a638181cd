"""The product of a convolution: pixels times panels of weights, summed over channels and taps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dnnl.codegen.access import Operand
from dnnl.codegen.address import Affine, Axis
from dnnl.codegen.builder import Module
from dnnl.codegen.epilogue import Arguments, Epilogue
from dnnl.codegen.finish import Depth, Finish, core_type
from dnnl.codegen.isa import Isa
from dnnl.codegen.multiply import Multiply
from dnnl.codegen.quantization import Quantization, Quantizer
from dnnl.kernels.blocking import Blocking
from dnnl.kernels.conv_residues import Residues
from dnnl.kernels.conv_tiles import Spatial
from dnnl.kernels.product import Product, emit_product
from dnnl.kernels.product_store import Columns
from dnnl.kernels.scratchpad import Argument
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp


@dataclass(frozen=True)
class Compute:
    """A convolution whose layouts the product can walk.

    ``src``, ``weights`` and ``dst`` are (argument, descriptor): an operand, or its copy in the
    scratchpad. ``channels`` and ``outputs`` are those of one group. ``channel_block`` is how many
    channels of src are contiguous before the next block; 0 if all of them are evenly spaced.
    ``residues`` say which outputs and which taps of the weights those of ``space`` are.
    """

    src: Argument
    weights: Argument
    dst: Argument
    bias: MemoryDesc
    post_ops: tuple[PostOp, ...]
    groups: int
    channels: int
    outputs: int
    channel_block: int
    space: tuple[Spatial, Spatial, Spatial]
    multiply: Multiply
    blocking: Blocking
    residues: tuple[Residues, Residues, Residues] = (Residues(), Residues(), Residues())


def src_index(
    desc: MemoryDesc, n: Affine, c: Affine, spatial: Sequence[Affine]
) -> tuple[Affine, ...]:
    """The index of an activation from its three spatial ones, of which it may have fewer."""
    return (n, c, *spatial[3 - (desc.ndims - 2) :])


def weights_index(
    desc: MemoryDesc, groups: bool, g: Affine, o: Affine, i: Affine, taps: Sequence[Affine]
) -> tuple[Affine, ...]:
    """The index of the weights, with the dimension of groups if they have one."""
    head = (g, o, i) if groups else (o, i)
    return (*head, *taps[3 - (desc.ndims - len(head)) :])


def emit_compute(module: Module, symbol: str, compute: Compute, arguments: Arguments) -> Phase:
    """Write the phase ``symbol``."""
    return emit_product(module, symbol, _product(compute, module.isa, arguments))


def _channels(compute: Compute) -> tuple[tuple[Axis, ...], tuple[Axis, ...], Affine]:
    """The axes around the taps and inside of them, and the channel of a group."""
    block = compute.channel_block
    if not block:
        inner = Axis(-(-compute.channels // compute.multiply.group), "ic")
        return (), (inner,), Affine.of(inner, compute.multiply.group)
    outer = Axis(-(-compute.channels // block), "icb")
    inner = Axis(block // compute.multiply.group, "ic")
    form = Affine.of(outer, block) + Affine.of(inner, compute.multiply.group)
    return (outer,), (inner,), form


def _product(compute: Compute, isa: Isa, arguments: Arguments) -> Product:
    src, weights, dst = (part[1] for part in (compute.src, compute.weights, compute.dst))
    n, g = Axis(dst.dims[0], "n"), Axis(compute.groups, "g")
    names = (("od", "kd"), ("oh", "kh"), ("ow", "kw"))
    od, oh, ow = places = tuple(
        Axis(space.dst, name) for space, (name, _) in zip(compute.space, names, strict=True)
    )
    taps = tuple(
        Axis(space.kernel, name) for space, (_, name) in zip(compute.space, names, strict=True)
    )
    spatial = [
        Affine.of(out, space.stride) + Affine.of(tap, space.dilation) + -space.padding
        for space, out, tap in zip(compute.space, places, taps, strict=True)
    ]
    residues = tuple(Axis(own.count, "residue") for own in compute.residues)
    each = list(zip(compute.residues, residues, places, taps, strict=True))
    around, inside, c = _channels(compute)
    columns = Columns.of(compute.outputs, compute.blocking.tile, isa.lanes)
    batch, group = Affine.of(n), Affine.of(g)
    oc = Affine.of(g, compute.outputs) + columns.form

    def operand(part: Argument, index: tuple[Affine, ...]) -> Operand:
        return Operand(arguments.slot(part[0]), part[1], index)

    a_index = src_index(src, batch, Affine.of(g, compute.channels) + c, spatial)
    b_index = weights_index(
        weights, weights.ndims > src.ndims, group, columns.form, c,
        [own.taps.of(residue, tap) for own, residue, _, tap in each],
    )  # fmt: skip
    at = [own.outputs.of(residue, out) for own, residue, out, _ in each]
    a, b = operand(compute.src, a_index), operand(compute.weights, b_index)
    out = operand(compute.dst, src_index(dst, batch, oc, at))
    bias = None
    if not compute.bias.is_zero:
        bias = operand((Arg.BIAS, compute.bias), (oc,))
    terms = compute.channels
    bare = compute.bias.is_zero and not compute.post_ops
    core = core_type(compute.multiply, dst.data_type, Quantization(), bare=bare)
    finish = Finish(
        compute.multiply, core, out, bias, Epilogue(compute.post_ops, out, arguments),
        Quantizer(Quantization(), {}, arguments), (Arg.SRC, Arg.WEIGHTS), Depth(terms, terms),
    )  # fmt: skip
    # Past the last channel lies padding, to be zeroed, or the next group, to be left alone.
    tail = (columns.inside,) if columns.inside.needed else ()
    order = (*residues, *_order(compute, n, g, columns))
    return Product(
        order, compute.space, (od, oh, ow), (taps[0], taps[1], taps[2]),
        around, inside, columns, a, b, compute.multiply, finish, compute.blocking,
        domain=tail if compute.groups == 1 else (), exists=tail if compute.groups > 1 else (),
    )  # fmt: skip


def _order(compute: Compute, n: Axis, g: Axis, columns: Columns) -> tuple[Axis, ...]:
    """Groups outside. If panels are kept, each image meets all of them before the next one, which
    reads the weights once an image; or each panel meets all images, which reads src once a panel:
    what is less."""
    if not compute.blocking.panels:
        return (g, n)
    src, weights = compute.src[1], compute.weights[1]
    images_outside = weights.size * n.extent < src.size * columns.panel.extent
    return (g, n, columns.panel) if images_outside else (g, columns.panel, n)
