"""Operators that only rearrange data: most of them change how it is seen."""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from dnnl.errors import Unimplemented
from dnnl.framework.lowering import Lowering, Source, volume
from dnnl.graph.graph import Node, Shape
from dnnl.graph.scope import Scope, transposition
from dnnl.operators.shapes_data import numbers_of_range, parts_of, slices
from dnnl.primitives.concat import ConcatDesc
from dnnl.primitives.exact import ExactDesc
from dnnl.primitives.gather import GatherDesc
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc


def reshape(lowering: Lowering, node: Node) -> None:
    """Reshape and its special forms; the result's shape is known by now."""
    source = lowering.source(node.inputs[0], lowering.graph.shape_of(node.output))
    lowering.define(node.output, source)


def transpose(lowering: Lowering, node: Node) -> None:
    """Other axes for the same data: the permutation changes, nothing moves."""
    axes = transposition(Scope(node, lowering.graph))
    lowering.transpose(node.output, node.inputs[0], axes)


def concat(lowering: Lowering, node: Node) -> None:
    """Sources in their own layouts, one after the other along an axis."""
    scope = Scope(node, lowering.graph)
    sources = [lowering.source(value) for value in node.inputs]
    dst = lowering.result(node, lowering.graph.shape_of(node.output))
    desc = ConcatDesc(scope.axis(0), tuple(source.desc for source in sources), dst)
    args = {Arg.multiple_src(i): source for i, source in enumerate(sources)}
    lowering.define(node.output, lowering.emit(node, desc, args))


def split(lowering: Lowering, node: Node) -> None:
    """Each part is a view of the source."""
    found = parts_of(Scope(node, lowering.graph))
    for value, part in zip(node.outputs, found, strict=True):
        if value:
            lowering.part(value, node.inputs[0], part.axis, part.first, part.count)


def sliced(lowering: Lowering, node: Node) -> None:
    """A view of one axis; more axes are nodes of their own, and so is the inverse."""
    (found,) = slices(Scope(node, lowering.graph))
    lowering.part(node.output, node.inputs[0], found.axis, found.first, found.count, found.step)


def gather(lowering: Lowering, node: Node) -> None:
    """Constant indices that go up evenly are a view; others are gathered."""
    graph, value = lowering.graph, node.inputs[0]
    shape, axis = graph.shape_of(value), Scope(node, graph).axis(0)
    known = graph.constants.get(node.inputs[1])
    if known is not None and known.size:
        places = np.where(known < 0, known + shape[axis], known).ravel()
        steps = set(np.diff(places).tolist()) or {1}
        if len(steps) == 1 and min(steps) > 0:
            lowering.part(node.output, value, axis, int(places[0]), places.size, *steps)
            return
    indices = lowering.source(node.inputs[1], (volume(graph.shape_of(node.inputs[1])),))
    dims = (*shape[:axis], *indices.desc.dims, *shape[axis + 1 :])
    _gathered(lowering, node, indices, axis, dims)


def gather_elements(lowering: Lowering, node: Node) -> None:
    """Single elements, whose indices have the shape of the result."""
    axis = Scope(node, lowering.graph).axis(0)
    indices = lowering.source(node.inputs[1])
    _gathered(lowering, node, indices, axis, lowering.graph.shape_of(node.output))


def _gathered(lowering: Lowering, node: Node, indices: Source, axis: int, dims: Shape) -> None:
    source, where = lowering.source(node.inputs[0]), indices.desc
    if where.inner_blocks:  # a run looks at them as an array
        where = MemoryDesc(where.dims, where.data_type)
    desc = GatherDesc(source.desc, where, MemoryDesc(dims, source.desc.data_type), axis)
    args: dict[int, Source] = {Arg.SRC: source, Arg.SRC_1: indices}
    lowering.define(node.output, lowering.emit(node, desc, args))
    if node.inputs[1] not in lowering.graph.constants:
        lowering.check_indices(source.desc.dims[axis])


def counted(lowering: Lowering, node: Node) -> None:
    """Numbers of which only a run knows how many there are: written before the first step."""
    first, _, step = numbers_of_range(Scope(node, lowering.graph))
    lowering.count(node.output, first, step)


def expand(lowering: Lowering, node: Node) -> None:
    """A copy, broadcast."""
    shape, out = lowering.graph.shape_of(node.inputs[0]), lowering.graph.shape_of(node.output)
    source = lowering.source(node.inputs[0], (1,) * (len(out) - len(shape)) + shape)
    dst = MemoryDesc(out, source.desc.data_type)
    desc = ExactDesc("cast", [source.desc], dst)
    lowering.define(node.output, lowering.emit(node, desc, {Arg.multiple_src(0): source}))


def unsupported(lowering: Lowering, node: Node) -> NoReturn:
    """What the passes replace or remove, wherever it can be run at all."""
    raise Unimplemented(f"{node}: this form of the operator is not computed")
