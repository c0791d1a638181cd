"""Operators that are computed in the types of their elements: integers, truth values, conversions.

The others are computed as floats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from dnnl.errors import Unimplemented
from dnnl.graph.graph import EXACT, Graph, Node, TensorType, is_whole
from dnnl.graph.scope import Infer, Scope
from dnnl.graph.writer import Writer
from dnnl.lowering.facts import Source
from dnnl.lowering.graphs import Lowering
from dnnl.operators.inference import elementwise, same
from dnnl.operators.operator import Expand, Operator, Role
from dnnl.operators.small_types import widened
from dnnl.primitives.exact import ExactDesc
from dnnl.types.arg import Arg

_TRUTH = np.dtype(np.bool_)
Choose = Callable[[Scope], str]
COMPARISONS = {
    "Equal": "equal",
    "Greater": "greater",
    "GreaterOrEqual": "greater_or_equal",
    "Less": "less",
    "LessOrEqual": "less_or_equal",
}
TWO_OF_A_TYPE: dict[str, str | Choose] = {
    "And": "and",
    "BitShift": lambda scope: f"shift_{scope.attr('direction').decode().lower()}",
    "BitwiseAnd": "and",
    "BitwiseOr": "or",
    "BitwiseXor": "xor",
    "Mod": lambda scope: "remainder" if scope.attr("fmod", 0) else "mod",
    "Or": "or",
    "Xor": "xor",
}
ONE: dict[str, str | Choose] = {"BitwiseNot": "not", "Not": "not", "Sign": "sign"}
_ONE_INTEGER: dict[str, str | Choose] = {"Abs": "abs", "Neg": "neg"}
_TWO_INTEGERS: dict[str, str | Choose] = {
    op: op.lower() for op in ("Add", "Div", "Max", "Min", "Mul", "Pow", "Sub")
}
_ALWAYS: dict[str, str | Choose] = {
    **COMPARISONS,
    **TWO_OF_A_TYPE,
    **ONE,
    "BitCast": "bitcast",
    "Cast": "cast",
    "Where": "where",
}


def exact_function(node: Node, graph: Graph) -> str | None:
    """The function of elements in their own types that a node is, None for any other."""
    function = _ALWAYS.get(node.op)
    if function is None and is_whole(graph.type_of(node.inputs[0]).dtype):
        # Longer ones become several of two.
        of_integers = {1: _ONE_INTEGER, 2: _TWO_INTEGERS}.get(len(node.inputs), {})
        function = of_integers.get(node.op)
    return function(Scope(node, graph)) if callable(function) else function


def _infer_comparison(scope: Scope) -> list[TensorType]:
    """The truth about two sources, broadcast."""
    return [TensorType(np.dtype(np.bool_), elementwise(scope)[0].shape)]


def _infer_choice(scope: Scope) -> list[TensorType]:
    """One of the two sources behind the condition, all broadcast."""
    return [TensorType(scope.type(1).dtype, elementwise(scope)[0].shape)]


def _infer_truth(scope: Scope) -> list[TensorType]:
    """The truth about each element of a float."""
    if scope.type().dtype.kind in "biu":
        raise Unimplemented(f"{scope.node}: {scope.type().dtype} is always a number")
    return [TensorType(np.dtype(np.bool_), scope.shape())]


def _expand_sign(writer: Writer) -> bool:
    """1 and -1 of floats that are above and below 0, 0 of both zeros; NaN stays."""
    value, shape = writer.node.inputs[0], writer.graph.shape_of(writer.node.output)
    if is_whole(writer.dtype):
        return False
    zero, truth = writer.constant(0), np.dtype(np.bool_)
    for op, sign in (("Less", -1), ("Greater", 1)):
        found = writer.add(op, (writer.node.inputs[0], zero), shape, dtype=truth)
        value = writer.add("Where", (found, writer.constant(sign), value), shape)
    writer.add("Add", (value, zero), shape)
    return True


def _expand_is_nan(writer: Writer) -> bool:
    """What does not equal itself."""
    value, shape = widened(writer, writer.node.inputs[0]), writer.graph.shape_of(writer.node.output)
    number = writer.add("Equal", (value, value), shape, dtype=_TRUTH)
    writer.add("Not", (number,), shape, dtype=_TRUTH)
    return True


def _expand_is_inf(writer: Writer) -> bool:
    """What equals an infinity of a sign that is asked for."""
    node, graph = writer.node, writer.graph
    scope, shape = Scope(node, graph), graph.shape_of(node.output)
    wanted = [
        sign * np.inf
        for sign, name in ((1, "detect_positive"), (-1, "detect_negative"))
        if scope.attr(name, 1)
    ]
    if not wanted:
        never = writer.constant(np.zeros(shape), _TRUTH)
        writer.add("Identity", (never,), shape, dtype=_TRUTH)
        return True
    value = widened(writer, node.inputs[0])
    kind = writer.dtype if value == node.inputs[0] else np.dtype(np.float32)
    found = [
        writer.add("Equal", (value, writer.constant(number, kind)), shape, dtype=_TRUTH)
        for number in wanted
    ]
    if len(found) > 1:
        writer.add("Or", (found[0], found[1]), shape, dtype=_TRUTH)
    return True


def lower_exact(lowering: Lowering, node: Node) -> None:
    """An operator that is computed in the types of its elements."""
    graph = lowering.graph
    function = node.attrs["function"] if node.op == EXACT else exact_function(node, graph)
    if function is None:
        dtype = graph.type_of(node.inputs[0]).dtype
        raise Unimplemented(f"{node}: no function of {dtype} computes it")
    sources = aligned(lowering, node)
    dst = lowering.result(node, graph.shape_of(node.output))
    desc = ExactDesc(function, [source.desc for source in sources], dst)
    args: dict[int, Source] = {Arg.multiple_src(i): source for i, source in enumerate(sources)}
    lowering.define(node.output, lowering.emit(node, desc, args))


def aligned(lowering: Lowering, node: Node) -> list[Source]:
    """All sources with the number of dimensions of the result."""
    rank = len(lowering.graph.shape_of(node.output))
    shapes = [lowering.graph.shape_of(value) for value in node.inputs]
    return [
        lowering.source(value, (1,) * (rank - len(shape)) + shape)
        for value, shape in zip(node.inputs, shapes, strict=True)
    ]


def _exact(
    infer: Infer,
    count: int,
    *required: str,
    expand: Expand | None = None,
    role: Role = Role.EXACT,
) -> Operator:
    return Operator(infer, lower_exact, expand, inputs=(count, count), required=required, role=role)


OPERATORS: Mapping[str, Operator] = {
    "BitShift": _exact(elementwise, 2, "direction"),
    "IsInf": Operator(_infer_truth, expand=_expand_is_inf),
    "IsNaN": Operator(_infer_truth, expand=_expand_is_nan),
    "Sign": _exact(same, 1, expand=_expand_sign),
    "Where": _exact(_infer_choice, 3, role=Role.MOVED),
    **{op: _exact(_infer_comparison, 2) for op in COMPARISONS},
    **{op: _exact(elementwise, 2) for op in TWO_OF_A_TYPE if op != "BitShift"},
    **{op: _exact(same, 1) for op in ONE if op != "Sign"},
}
MADE: Mapping[str, Operator] = {
    EXACT: Operator(same, lower_exact, inputs=(1, None), role=Role.EXACT),
}
