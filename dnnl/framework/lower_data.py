"""Operators that only rearrange data: most of them change how it is seen."""

from __future__ import annotations

from typing import NoReturn

from dnnl.errors import Unimplemented
from dnnl.framework.graph import Node
from dnnl.framework.lowering import Lowering
from dnnl.framework.shapes import Scope, transposition
from dnnl.primitives.concat import ConcatDesc
from dnnl.types.arg import Arg


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
    dst = lowering.result(lowering.graph.shape_of(node.output), sources[0])
    desc = ConcatDesc(scope.axis(0), tuple(source.desc for source in sources), dst)
    args = {Arg.multiple_src(i): source for i, source in enumerate(sources)}
    lowering.define(node.output, lowering.emit(node, desc, args))


def unsupported(lowering: Lowering, node: Node) -> NoReturn:
    """What the passes replace or remove, wherever it can be run at all."""
    raise Unimplemented(f"{node}: this form of the operator is not computed")
