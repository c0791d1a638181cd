"""Operators that are computed in the types of their elements: integers, truth values, conversions.

The others are computed as floats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dnnl.framework.graph import Array, Graph, Node
from dnnl.framework.shapes import Scope
from dnnl.reference.expression import exact
from dnnl.types.dtype import DataType

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


def is_whole(dtype: np.dtype[Any]) -> bool:
    """Whether elements are integers or truth values."""
    return dtype.kind in "biu"


def exact_function(node: Node, graph: Graph) -> str | None:
    """The function of elements in their own types that a node is, None for any other."""
    function = _ALWAYS.get(node.op)
    if function is None and is_whole(graph.type_of(node.inputs[0]).dtype):
        # Longer ones become several of two.
        of_integers = {1: _ONE_INTEGER, 2: _TWO_INTEGERS}.get(len(node.inputs), {})
        function = of_integers.get(node.op)
    return function(Scope(node, graph)) if callable(function) else function


def folded(function: str, sources: Sequence[Array], result: np.dtype[Any]) -> Array | None:
    """The integers that a function makes of constants, None where it makes others.

    ONNX's own implementation refuses negative exponents, computes powers of some types as floats,
    and leaves to the processor what becomes of floats that no integer holds.
    """
    taken = _NUMBERS if function == "cast" else _WHOLE
    if result not in _WHOLE or any(source.dtype not in taken for source in sources):
        return None
    return exact(function, sources, DataType.from_numpy(result))


_NUMBERS = {kind.numpy for kind in DataType if kind.bits >= 16 or kind.is_integer}
_WHOLE = set(filter(is_whole, _NUMBERS))
