"""Normalizations whose statistics are those of the source: of its rows or of groups of channels."""

from __future__ import annotations

from dnnl.framework.lowering import FORWARD, Lowering, Source
from dnnl.graph.graph import Node
from dnnl.primitives.group_normalization import GroupNormalizationDesc
from dnnl.primitives.layer_normalization import LayerNormalizationDesc
from dnnl.types.arg import Arg
from dnnl.types.kinds import NormFlags

_PARAMETERS = ((Arg.SCALE, NormFlags.use_scale), (Arg.SHIFT, NormFlags.use_shift))


def layer(lowering: Lowering, node: Node) -> None:
    """Rows along the last dimension; scale and shift, as far as they are there, are vectors."""
    args, flags = _sources(lowering, node)
    if node.op == "RMSNormalization":
        flags |= NormFlags.rms_norm
    source = args[Arg.SRC]
    dst = lowering.result(node, source.desc.dims)
    epsilon = node.attrs["epsilon"]
    desc = LayerNormalizationDesc.forward(FORWARD, source.desc, dst, epsilon, flags)
    lowering.define(node.output, lowering.emit(node, desc, args))


def group(lowering: Lowering, node: Node) -> None:
    """[N, C, ...] with one scale and one shift for each channel."""
    args, flags = _sources(lowering, node)
    source = args[Arg.SRC]
    dst = lowering.result(node, source.desc.dims)
    groups, epsilon = node.attrs["num_groups"], node.attrs["epsilon"]
    desc = GroupNormalizationDesc.forward(FORWARD, source.desc, dst, groups, epsilon, flags)
    lowering.define(node.output, lowering.emit(node, desc, args))


def _sources(lowering: Lowering, node: Node) -> tuple[dict[int, Source], NormFlags]:
    """The source with its scale and shift, and the flags that announce them."""
    args: dict[int, Source] = {Arg.SRC: lowering.source(node.inputs[0])}
    flags = NormFlags.none
    for (argument, flag), value in zip(_PARAMETERS, (node.input(1), node.input(2)), strict=True):
        if value:
            args[argument] = lowering.source(value)
            flags |= flag
    return args, flags
