"""Elementwise ONNX operators in the library's terms: an algorithm with alpha and beta."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from dnnl.graph.graph import EXACT, FUNCTION, Array, Graph, ModelError, Node, PostOp, is_whole
from dnnl.graph.scope import Scope
from dnnl.graph.sizes import same_shape
from dnnl.types.scalar import Scalar, replayed, trace

Parameters = tuple[str, float, float]


def _fixed(alg: str, alpha: float = 0.0, beta: float = 0.0) -> Callable[[Scope], Parameters]:
    return lambda scope: (alg, alpha, beta)


def _from_attrs(alg: str, alpha: float = 0.0, beta: float = 0.0) -> Callable[[Scope], Parameters]:
    return lambda scope: (alg, scope.attr("alpha", alpha), scope.attr("beta", beta))


def _clip(scope: Scope) -> Parameters:
    low, high = -math.inf, math.inf
    if scope.graph.opset < 11:
        return "eltwise_clip", scope.attr("min", low), scope.attr("max", high)
    bounds = scope.constant(1), scope.constant(2)
    if any(bound is not None and bound.size != 1 for bound in bounds):
        raise ModelError("a bound must be one number")
    low = low if bounds[0] is None else bounds[0].item()
    high = high if bounds[1] is None else bounds[1].item()
    return "eltwise_clip", min(low, high), high


def _gelu(scope: Scope) -> Parameters:
    exact = scope.attr("approximate", b"none") == b"none"
    return "eltwise_gelu_erf" if exact else "eltwise_gelu_tanh", 0.0, 0.0


ELTWISE: dict[str, Callable[[Scope], Parameters]] = {
    "Abs": _fixed("eltwise_abs"),
    "Clip": _clip,
    "Elu": _from_attrs("eltwise_elu", 1.0),
    "Exp": _fixed("eltwise_exp"),
    "Gelu": _gelu,
    "HardSigmoid": _from_attrs("eltwise_hardsigmoid", 0.2, 0.5),
    "HardSwish": _fixed("eltwise_hardswish", 1 / 6, 0.5),
    "LeakyRelu": _from_attrs("eltwise_relu", 0.01),
    "Log": _fixed("eltwise_log"),
    "Mish": _fixed("eltwise_mish"),
    "Neg": _fixed("eltwise_linear", -1.0),
    "Reciprocal": _fixed("eltwise_pow", 1.0, -1.0),
    "Relu": _fixed("eltwise_relu"),
    "Round": _fixed("eltwise_round"),
    "Sigmoid": _fixed("eltwise_logistic"),
    "Softplus": _fixed("eltwise_soft_relu", 1.0),
    "Sqrt": _fixed("eltwise_sqrt"),
    "Swish": _from_attrs("eltwise_swish", 1.0),
    "Tanh": _fixed("eltwise_tanh"),
}
"""Operators of one source."""

BINARY = {
    "Add": "binary_add",
    "Div": "binary_div",
    "Max": "binary_max",
    "Min": "binary_min",
    "Mul": "binary_mul",
    "Sub": "binary_sub",
}
"""Operators of two sources that broadcast."""


def _shifted(scale: float, shift: float) -> Parameters | None:
    """None for a shift of 0: without it, as eltwise_linear is then, -0 stays -0."""
    is_zero = shift == 0.0 and math.copysign(1.0, shift) > 0.0
    return None if is_zero or math.isnan(shift) else ("eltwise_linear", scale, shift)


def _scaled(scale: float) -> Parameters | None:
    """None for -0, which is equal to 0 in descriptors, and for NaN, which they do not have."""
    is_special = math.isnan(scale) or (scale == 0.0 and math.copysign(1.0, scale) < 0.0)
    return None if is_special else ("eltwise_linear", scale, 0.0)


def _divided_by(number: float) -> Parameters | None:
    return ("eltwise_linear", 1.0 / number, 0.0) if _has_inverse(number) else None


def _quotient(number: float) -> Parameters | None:
    """Of 1 and -1 alone: the inverse of a large number loses digits, and that of a small one is
    infinite."""
    return ("eltwise_pow", number, -1.0) if abs(number) == 1.0 else None


def _power(number: float) -> Parameters | None:
    return None if math.isnan(number) else ("eltwise_pow", 1.0, number)


_SCALAR: dict[str, Callable[[float], Parameters | None]] = {
    "Add": lambda c: _shifted(1.0, c),
    "Div": _divided_by,
    "Mul": _scaled,
    "Pow": _power,
    "Sub": lambda c: _shifted(1.0, -c),
}
"""What operators with a number as second source are, where that is the same for every value."""
_SCALAR_FIRST: dict[str, Callable[[float], Parameters | None]] = {
    "Add": _SCALAR["Add"],
    "Div": _quotient,
    "Mul": _SCALAR["Mul"],
    "Sub": lambda c: _shifted(-1.0, c),
}
_COMMUTATIVE = frozenset({"Add", "Max", "Min", "Mul"})


def post_op_of(node: Node, value: str, graph: Graph) -> PostOp | None:
    """What ``node`` does to ``value``, one of its sources, as a post-op.

    None where it is no elementwise operator of floats, or where its result is larger than
    ``value``. A function may be one of integers that stand for floats.
    """
    if node.op == FUNCTION:
        return _function_of(value, node, graph)
    if is_whole(graph.type_of(value).dtype):
        return None
    if node.op in ELTWISE:
        return PostOp("eltwise", *ELTWISE[node.op](Scope(node, graph)))
    if len(node.inputs) != 2 or not same_shape(graph.shape_of(node.output), graph.shape_of(value)):
        return None
    first = node.inputs[0] == value
    other = node.inputs[1] if first else node.inputs[0]
    scalar = scalar_of(graph.constants.get(other))
    rule = (_SCALAR if first else _SCALAR_FIRST).get(node.op)
    parameters = None if scalar is None or rule is None else rule(scalar)
    if parameters is not None and not (node.op == "Div" and _needs_quotient(node, graph)):
        return PostOp("eltwise", *parameters)
    if node.op in BINARY and other != value and (first or node.op in _COMMUTATIVE):
        return PostOp("binary", BINARY[node.op], operands=(other,))
    return None


def _function_of(value: str, node: Node, graph: Graph) -> PostOp | None:
    """A traced function whose first parameter is ``value``."""
    if not same_shape(graph.shape_of(node.output), graph.shape_of(value)):
        return None
    function, place = node.attrs["function"], node.inputs.index(value)
    operands = (*node.inputs[:place], *node.inputs[place + 1 :])
    if place:

        def with_first(first: Scalar, *others: Scalar) -> Scalar:
            sources = (*others[:place], first, *others[place:])
            return replayed(function.expression, sources)

        function = replace(function, expression=trace(with_first, len(node.inputs)))
    return PostOp("function", function=function, operands=operands)


_COMPARISONS = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
_CARRIERS = frozenset(
    {"Concat", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze"}
    | {"Transpose", "Unsqueeze"}
    | {"Abs", "Add", "Clip", "Max", "Min", "Mul", "Neg", "Pow", "Relu", "Sub", "Where", FUNCTION}
)
"""Operators after which an element may still be the whole number that a quotient is."""


def _needs_quotient(node: Node, graph: Graph) -> bool:
    """Whether the last bit of a quotient decides about an integer or a truth value: 41 times the
    inverse of 41 is less than 1."""
    reached = {node.output}
    for reader in graph.nodes:
        if reached.isdisjoint(reader.inputs):
            continue
        if reader.op in _COMPARISONS or reader.op == EXACT:
            return True
        if reader.op == "Cast" and is_whole(graph.type_of(reader.output).dtype):
            return True
        if reader.op in _CARRIERS:
            reached.update(reader.outputs)
    return False


def _has_inverse(number: float) -> bool:
    """Whether f32 holds one divided by a number with all its digits."""
    return 2.0**-126 <= abs(number) <= 2.0**126


def unary_parameters(node: Node, graph: Graph) -> Parameters | None:
    """Algorithm, alpha and beta of a node that has one source besides scalar constants."""
    value = source_of(node, graph)
    post_op = post_op_of(node, value, graph)
    if post_op is None or post_op.kind != "eltwise":
        return None
    return post_op.alg, post_op.alpha, post_op.beta


def source_of(node: Node, graph: Graph) -> str:
    """The first input that is not constant (the first of all where each is)."""
    computed = [v for v in node.inputs if v not in graph.constants]
    return computed[0] if computed else node.inputs[0]


def scalar_of(array: Array | None) -> float | None:
    """The number of a constant of one element, None for any other."""
    return float(array.reshape(())) if array is not None and array.size == 1 else None
