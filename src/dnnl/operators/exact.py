"""Operators that are computed in the types of their elements: integers, truth values, conversions.

The others are computed as floats.
"""

from __future__ import annotations

from collections.abc import Callable

from dnnl.graph.graph import Graph, Node, is_whole
from dnnl.graph.scope import Scope

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
