"""Resizing by rules for axes of any sizes, and its gradient, which graphs of PyTorch have."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import prod

import numpy as np

from dnnl.errors import Unimplemented
from dnnl.graph.graph import ModelError, Node, Shape, TensorType, is_whole
from dnnl.graph.scope import Scope
from dnnl.graph.training import DOMAIN, RESIZE, RESIZE_DATA
from dnnl.graph.writer import Writer
from dnnl.lowering.graphs import Lowering
from dnnl.operators.operator import Operator
from dnnl.operators.resize import in_passes
from dnnl.primitives.resampling import ResamplingDesc
from dnnl.runtime.storage import check_capacity
from dnnl.types.arg import Arg
from dnnl.types.interpolation import Interpolation
from dnnl.types.size import is_known
from dnnl.types.taps import Taps

_LARGEST_DENOMINATOR = 2**11
_RANKS = range(3, 6)


def _infer(scope: Scope) -> list[TensorType]:
    """The shape that the second input is: with batch and channels of the first one."""
    shape, own = scope.shape(), scope.listed("shape", 1)
    if own is None or len(own) != len(shape) or len(own) not in _RANKS or own[:2] != shape[:2]:
        raise ModelError(f"{shape} cannot be resized to {own}")
    return scope.result(own)


def _rules(scope: Scope) -> tuple[Interpolation, ...]:
    """That of each spatial axis.

    Raises Unimplemented for a scale that is no quotient of small integers.
    """
    function, coordinates, rounding = (
        scope.attr(name, b"").decode() for name in ("function", "coordinates", "rounding")
    )
    scales = scope.attr("scales", None) or [None] * (len(scope.shape()) - 2)
    exact = [None if scale is None else _fraction(scale) for scale in scales]
    cubic = scope.attr("cubic", -0.75)
    return tuple(Interpolation(function, coordinates, rounding, own, cubic) for own in exact)


def _fraction(scale: float) -> Fraction:
    found = Fraction(scale).limit_denominator(_LARGEST_DENOMINATOR)
    if float(found) != scale:
        raise Unimplemented(f"scale {scale}: quotients of integers up to {_LARGEST_DENOMINATOR}")
    return found


def _expand(writer: Writer) -> bool:
    """One resampling by rules where only a run knows some sizes, else by tables, which may be one
    axis after the other."""
    scope = Scope(writer.node, writer.graph)
    old, new, rules = scope.shape(), writer.graph.shape_of(writer.node.output), _rules(scope)
    if is_whole(writer.dtype):
        raise Unimplemented(f"interpolation of {writer.dtype}; Cast makes floats of it")
    if not all(map(is_known, (*old, *new))):
        attrs = {"mode": _mode(rules), "taps": rules}
        writer.add("Resize", writer.node.inputs[:1], new, attrs)
        return True
    check_capacity(prod(new) * writer.dtype.itemsize)
    own = {
        d: Taps(*rule.table(old[d], new[d]))
        for d, rule in enumerate(rules, 2)
        if old[d] != new[d] or rule.scale not in (None, 1)
    }
    if not own or 0 in new:
        source = writer.constant(np.zeros(new)) if 0 in new else writer.node.inputs[0]
        writer.add("Identity", (source,), new)
        return True
    # Those axes first that lose elements, which leaves less to do for the others.
    order = sorted(own, key=lambda d: new[d] / old[d])
    in_passes(writer, _mode(rules), (old, new), {d: own[d] for d in order})
    return True


def _mode(rules: tuple[Interpolation, ...]) -> str:
    return "nearest" if rules[0].count == 1 else "linear"


def _lower_gradient(lowering: Lowering, node: Node) -> None:
    """The gradient of the resampling by these rules."""
    rules = _rules(Scope(node, lowering.graph))
    shape: Shape = lowering.graph.shape_of(node.output)
    gradient = lowering.source(node.inputs[0])
    dst = lowering.result(node, shape)
    desc = ResamplingDesc.backward(f"resampling_{_mode(rules)}", dst, gradient.desc, taps=rules)
    lowering.define(node.output, lowering.emit(node, desc, {Arg.DIFF_DST: gradient}))


_FIELDS = ("function", "coordinates", "rounding")

OPERATORS: Mapping[str, Operator] = {
    f"{DOMAIN}.{RESIZE}": Operator(_infer, expand=_expand, inputs=(2, 2), required=_FIELDS),
    f"{DOMAIN}.{RESIZE_DATA}": Operator(_infer, _lower_gradient, inputs=(2, 2), required=_FIELDS),
}
