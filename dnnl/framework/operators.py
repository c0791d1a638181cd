"""One row for each ONNX operator: the types of its results, its primitives, what it absorbs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dnnl.framework import lower_data as data
from dnnl.framework import lower_elementwise as elementwise
from dnnl.framework import lower_product as product
from dnnl.framework import lower_spatial as spatial
from dnnl.framework import shapes
from dnnl.framework.elementwise import ELTWISE
from dnnl.framework.graph import Node
from dnnl.framework.lowering import Lowering
from dnnl.framework.shapes import Infer

Lower = Callable[[Lowering, Node], None]

_ANY = frozenset({"eltwise", "binary"})
_ELTWISE = frozenset({"eltwise"})
_BINARY = frozenset({"binary"})


@dataclass(frozen=True, slots=True)
class Operator:
    """How an operator is typed and run, and which kinds of post-ops its primitive takes."""

    infer: Infer
    lower: Lower
    post_ops: frozenset[str] = frozenset()


OPERATORS: dict[str, Operator] = {
    "Add": Operator(shapes.elementwise, elementwise.binary, _ANY),
    "AveragePool": Operator(shapes.pooling, spatial.pooling, _ANY),
    "BatchNormalization": Operator(
        shapes.batch_normalization, spatial.batch_normalization, _ELTWISE
    ),
    "Cast": Operator(shapes.cast, data.unsupported),
    "Concat": Operator(shapes.concat, data.concat),
    "Conv": Operator(shapes.convolution, spatial.convolution, _ANY),
    "Div": Operator(shapes.elementwise, elementwise.binary, _ANY),
    "Dropout": Operator(shapes.dropout, data.unsupported),
    "Flatten": Operator(shapes.flatten, data.reshape),
    "Gemm": Operator(shapes.gemm, product.gemm, _ANY),
    "GlobalAveragePool": Operator(shapes.pooling, spatial.pooling, _ANY),
    "GlobalMaxPool": Operator(shapes.pooling, spatial.pooling, _ANY),
    "Identity": Operator(shapes.same, data.unsupported),
    "LRN": Operator(shapes.same, data.unsupported),
    "LogSoftmax": Operator(shapes.same, elementwise.softmax),
    "MatMul": Operator(shapes.matmul, product.matmul, _ANY),
    "Max": Operator(shapes.elementwise, elementwise.binary, _ANY),
    "MaxPool": Operator(shapes.pooling, spatial.pooling, _ANY),
    "Min": Operator(shapes.elementwise, elementwise.binary, _ANY),
    "Mul": Operator(shapes.elementwise, elementwise.binary, _ANY),
    "Pow": Operator(shapes.elementwise, elementwise.binary, _BINARY),
    "ReduceMean": Operator(shapes.mean, spatial.mean),
    "Reshape": Operator(shapes.reshape, data.reshape),
    "Softmax": Operator(shapes.same, elementwise.softmax),
    "Squeeze": Operator(shapes.squeeze, data.reshape),
    "Sub": Operator(shapes.elementwise, elementwise.binary, _ANY),
    "Sum": Operator(shapes.elementwise, elementwise.summation),
    "Transpose": Operator(shapes.transpose, data.transpose),
    "Unsqueeze": Operator(shapes.unsqueeze, data.reshape),
    **{op: Operator(shapes.same, elementwise.unary, _BINARY) for op in ELTWISE},
}
