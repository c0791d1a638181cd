"""All operators by their names, from the tables of their families."""

from __future__ import annotations

from collections.abc import Mapping

from dnnl.graph.graph import ModelError, Node
from dnnl.operators import (
    activations,
    arg_reduction,
    attention,
    conversions,
    convolution,
    copies,
    cumulative,
    einsum,
    elementwise,
    exact,
    flex_attention,
    fused,
    fused_attention,
    gather,
    gradients,
    grouped_query,
    integer_products,
    losses,
    matmul_nbits,
    multi_head,
    normalization,
    normalization_training,
    parts,
    pooling,
    products,
    quantize_linear,
    quantized,
    quantized_recurrent,
    rearrangement,
    recurrent,
    reduction,
    resize,
    resize_by_rule,
    roi_align,
    rotary,
    sampling,
    scatter,
    signal,
    skip_normalization,
    softmax,
    states,
    unpooling,
    views,
)
from dnnl.operators.attributes import check_attributes
from dnnl.operators.operator import Operator

OPERATORS: Mapping[str, Operator] = {
    **elementwise.OPERATORS,
    **exact.OPERATORS,
    **conversions.OPERATORS,
    **products.OPERATORS,
    **einsum.OPERATORS,
    **convolution.OPERATORS,
    **pooling.OPERATORS,
    **normalization.OPERATORS,
    **softmax.OPERATORS,
    **losses.OPERATORS,
    **reduction.OPERATORS,
    **resize.OPERATORS,
    **resize_by_rule.OPERATORS,
    **views.OPERATORS,
    **parts.OPERATORS,
    **copies.OPERATORS,
    **rearrangement.OPERATORS,
    **gather.OPERATORS,
    **arg_reduction.OPERATORS,
    **cumulative.OPERATORS,
    **scatter.OPERATORS,
    **sampling.OPERATORS,
    **roi_align.OPERATORS,
    **unpooling.OPERATORS,
    **signal.OPERATORS,
    **quantized.OPERATORS,
    **recurrent.OPERATORS,
    **quantized_recurrent.OPERATORS,
    **quantize_linear.OPERATORS,
    **attention.OPERATORS,
    **rotary.OPERATORS,
    **matmul_nbits.OPERATORS,
    **activations.OPERATORS,
    **fused.OPERATORS,
    **skip_normalization.OPERATORS,
    **multi_head.OPERATORS,
    **grouped_query.OPERATORS,
    **integer_products.OPERATORS,
    **states.OPERATORS,
    **flex_attention.OPERATORS,
    **gradients.OPERATORS,
    **normalization_training.OPERATORS,
}
"""What a file may hold, with the domain in front of the name where it is not ONNX's own."""

MADE: Mapping[str, Operator] = {
    **elementwise.MADE,
    **exact.MADE,
    **products.MADE,
    **convolution.MADE,
    **pooling.MADE,
    **softmax.MADE,
    **recurrent.MADE,
    **fused_attention.MADE,
    **matmul_nbits.MADE,
    **scatter.MADE,
    **sampling.MADE,
}
"""What passes write and no file can hold."""


def row_name(node: Node) -> str:
    """The name of a node's row, with the domain where it is not ONNX's own."""
    return f"{node.domain}.{node.op}" if node.domain else node.op


def operator_of(node: Node) -> Operator:
    """The row of a node that is known, whether a file or a pass wrote it."""
    made = MADE.get(node.op)
    return OPERATORS[row_name(node)] if made is None else made


def check_form(node: Node) -> None:
    """Raise ModelError where a node of the table has a wrong number of sources, lacks an attribute
    or has one of another type."""
    operator = OPERATORS.get(row_name(node))
    if operator is None:
        return
    _check_inputs(node.inputs, *operator.inputs)
    if not any(node.outputs):
        raise ModelError("the node has no result")
    for name in operator.required:
        if name not in node.attrs:
            raise ModelError(f"attribute {name!r} is missing")
    check_attributes(row_name(node), node.attrs)


def _check_inputs(inputs: tuple[str, ...], least: int, most: int | None) -> None:
    required = inputs if most is None else inputs[:least]
    found = f"inputs ({', '.join(map(repr, inputs))})"
    if len(required) < least or (most is not None and len(inputs) > most):
        count = f"{least} or more" if most is None else f"{least}" + f" to {most}" * (most > least)
        raise ModelError(f"{found}: expected {count}")
    if not all(required):
        raise ModelError(f"{found}: input {required.index('')} must be given")
