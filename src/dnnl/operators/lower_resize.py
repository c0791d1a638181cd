"""Images in another size."""

from __future__ import annotations

from dnnl.framework.lowering import FORWARD, Lowering
from dnnl.graph.graph import Node
from dnnl.primitives.resampling import ResamplingDesc
from dnnl.types.arg import Arg


def resize(lowering: Lowering, node: Node) -> None:
    """[N, C, ...] by the taps of the node, or else by the nearest elements or linearly between
    the centres of pixels."""
    source = lowering.source(node.inputs[0])
    dst = lowering.result(node, lowering.graph.shape_of(node.output))
    alg, taps = f"resampling_{node.attrs['mode']}", node.attrs["taps"]
    desc = ResamplingDesc.forward(FORWARD, alg, source.desc, dst, taps=taps)
    lowering.define(node.output, lowering.emit(node, desc, {Arg.SRC: source}))
