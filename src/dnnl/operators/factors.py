"""Scales and zero points as a primitive takes them."""

from __future__ import annotations

from collections.abc import Sequence

from dnnl.graph.graph import Node
from dnnl.lowering.facts import Factors, Source, volume
from dnnl.lowering.graphs import Lowering
from dnnl.types.arg import Arg

_SCALES, _SRC_ZERO_POINTS, _WEIGHTS_ZERO_POINTS = 3, 4, 5


def quantization_of(
    lowering: Lowering, node: Node, sources: Sequence[Source], masks: Sequence[int]
) -> list[Factors]:
    """What the last inputs of a product of bytes say. ``masks`` are the dimensions of src along
    which its zero points may vary, and those of the weights that are the results'."""
    src, weights = sources
    places = (
        (Arg.SCALES, Arg.WEIGHTS, _SCALES, weights, masks[1]),
        (Arg.ZERO_POINTS, Arg.SRC, _SRC_ZERO_POINTS, src, masks[0]),
        (Arg.ZERO_POINTS, Arg.WEIGHTS, _WEIGHTS_ZERO_POINTS, weights, masks[1]),
    )
    found = []
    for flag, argument, place, owner, mask in places:
        name = node.input(place)
        if not name:
            continue
        varied = 0 if volume(lowering.graph.shape_of(name)) == 1 else mask
        dims = tuple(n if varied >> d & 1 else 1 for d, n in enumerate(owner.desc.dims))
        found.append(Factors(flag, argument, varied, lowering.source(name, dims)))
    return found
