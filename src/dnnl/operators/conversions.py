"""Cast, CastLike and BitCast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from dnnl.graph.graph import EXACT, REAL, Graph, ModelError, Node, TensorType
from dnnl.graph.scope import Scope
from dnnl.graph.writer import Writer
from dnnl.lowering.graphs import Lowering
from dnnl.operators.exact import lower_exact
from dnnl.operators.numbers import LIKE
from dnnl.operators.operator import Operator, Role
from dnnl.operators.small_types import SMALL, element_of, number_of, stored_type
from dnnl.types.scalar import Scalar, traced


def _infer_cast(scope: Scope) -> list[TensorType]:
    """The shape of the source, in the data type that ``to`` names."""
    return [TensorType(scope.data_type("to"), scope.shape())]


def _infer_like(scope: Scope) -> list[TensorType]:
    """The shape of the first source, in the data type of the second."""
    return [TensorType(scope.type(1).dtype, scope.shape())]


def _infer_bits(scope: Scope) -> list[TensorType]:
    """As `_infer_cast`; both types have the same number of bits."""
    source, (kind,) = scope.type().dtype, _infer_cast(scope)
    if _bits(source) != _bits(kind.dtype):
        raise ModelError(f"{source} has {_bits(source)} bits, {kind.dtype} {_bits(kind.dtype)}")
    return [kind]


def _bits(dtype: np.dtype) -> int:
    """The bits of an element."""
    digits = "".join(filter(str.isdigit, dtype.name.split("_")[0])) if dtype in SMALL else ""
    return int(digits) if digits else 8 * dtype.itemsize


def _expand_cast(writer: Writer) -> bool:
    """Conversions to and from small types, as functions of the bytes."""
    node, graph = writer.node, writer.graph
    source, kind = writer.dtype, graph.type_of(node.output)
    if source == kind.dtype or not {source, kind.dtype} & SMALL.keys():
        return False
    saturates = bool(node.attrs.get("saturate", 1))
    round_mode = node.attrs.get("round_mode", b"up").decode()

    def cast(stored: Scalar) -> Scalar:
        return element_of(kind.dtype, number_of(source, stored), saturates, round_mode)

    function = traced(cast, 1, [stored_type(source)])
    writer.add(EXACT, node.inputs[:1], kind.sizes, {"function": function}, kind.dtype)
    return True


def with_type(node: Node, graph: Graph) -> Node:
    """CastLike as the Cast that it is once the type of its second source is known."""
    if node.op != LIKE or node.domain:
        return node
    (kind,) = _infer_like(Scope(node, graph))
    return replace(node, op="Cast", inputs=node.inputs[:1], attrs={**node.attrs, "to": kind.dtype})


def _lower_cast(lowering: Lowering, node: Node) -> None:
    """A conversion; between floats the reader of the result does it."""
    kinds = {lowering.graph.type_of(value).dtype for value in (node.inputs[0], node.output)}
    if kinds <= REAL:
        lowering.convert(node.output, node.inputs[0])
    else:
        lower_exact(lowering, node)


def _lower_bits(lowering: Lowering, node: Node) -> None:
    """A view if both types are stored as one; a copy if the result is a constant output."""
    source = lowering.source(node.inputs[0])
    if lowering.kind(node.inputs[0]) is lowering.kind(node.output) and not source.constant:
        lowering.define(node.output, source)
    else:
        lower_exact(lowering, node)


OPERATORS: Mapping[str, Operator] = {
    "BitCast": Operator(_infer_bits, _lower_bits, required=("to",), role=Role.EXACT),
    "Cast": Operator(_infer_cast, _lower_cast, _expand_cast, required=("to",), role=Role.EXACT),
    LIKE: Operator(_infer_like, inputs=(2, 2), role=Role.EXACT),
}
