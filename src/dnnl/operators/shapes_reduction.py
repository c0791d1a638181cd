"""Types of the results of reductions."""

from __future__ import annotations

from dnnl.errors import Unimplemented
from dnnl.graph.graph import ModelError, TensorType, is_whole
from dnnl.graph.scope import Scope, normal_axis

_NAMES = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
REDUCTIONS = tuple(f"Reduce{name}" for name in _NAMES)
_OF_FLOATS = frozenset({"ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean"})
_OF_TRUTHS = frozenset({"ReduceMax", "ReduceMin"})


def reduction(scope: Scope) -> list[TensorType]:
    """The axes are 1 or, without keepdims, gone.

    Raises Unimplemented for integers whose result would not be one, and for truth values that are
    to be added up.
    """
    op, dtype, shape = scope.node.op, scope.type().dtype, scope.shape()
    if (op in _OF_FLOATS and is_whole(dtype)) or (op not in _OF_TRUTHS and dtype.kind == "b"):
        rule = f"{op} of {dtype} is not computed; Cast makes floats of it"
        raise Unimplemented(f"{scope.node}: {rule}")
    axes = reduced_axes(scope)
    dims = [1 if d in axes else n for d, n in enumerate(shape)]
    if scope.attr("keepdims", 1) != 1:
        dims = [n for d, n in enumerate(dims) if d not in axes]
    return scope.result(dims)


def reduced_axes(scope: Scope) -> tuple[int, ...]:
    """The axes of a reduction, nonnegative and in order: all where none is given, unless
    the node says otherwise."""
    rank = len(scope.shape())
    given = scope.constant(1)
    if given is not None and given.ndim != 1:
        raise ModelError(f"axes of shape {given.shape} are no list")
    axes = scope.listed("axes", 1)
    if not axes:
        return () if scope.attr("noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(sorted({normal_axis(a, rank) for a in axes}))
