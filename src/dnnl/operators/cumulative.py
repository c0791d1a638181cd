"""CumSum and CumProd: sums and products of all elements up to each along an axis."""

from __future__ import annotations

from collections.abc import Mapping

from dnnl.graph.graph import ModelError, Node, TensorType
from dnnl.graph.scope import Scope, normal_axis
from dnnl.lowering.graphs import Lowering
from dnnl.operators.operator import Operator, Role
from dnnl.primitives.cumulative import CumulativeDesc
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc


def _infer(scope: Scope) -> list[TensorType]:
    """The type of the source; the second source is the axis, one constant number."""
    _axis(scope)
    return scope.result(scope.shape())


def _axis(scope: Scope) -> int:
    axis, rank = scope.constant(1), len(scope.shape())
    if axis is None or axis.size != 1 or not rank:
        raise ModelError(f"the axis must be one number, of {rank} dimensions")
    return normal_axis(int(axis.item()), rank)


def _lower(lowering: Lowering, node: Node) -> None:
    """Write dst row-major: the primitive refuses blocks that pad the axis."""
    source = lowering.source(node.inputs[0])
    desc = CumulativeDesc(
        "sum" if node.op == "CumSum" else "product",
        source.desc,
        MemoryDesc(source.desc.dims, source.desc.data_type),
        _axis(Scope(node, lowering.graph)),
        "exclusive" if node.attrs.get("exclusive", 0) else "inclusive",
        "reverse" if node.attrs.get("reverse", 0) else "forward",
    )
    lowering.define(node.output, lowering.emit(node, desc, {Arg.SRC: source}))


OPERATORS: Mapping[str, Operator] = {
    op: Operator(_infer, _lower, inputs=(2, 2), role=Role.EXACT) for op in ("CumProd", "CumSum")
}
