"""Values that 8-bit integers represent: scale * (integer - zero point), as ONNX writes them.

Passes bring every quantized model into one form first: operators of floats between DequantizeLinear
and QuantizeLinear. The operators below are what they become then.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dnnl.graph.graph import Array, Graph, Node
from dnnl.graph.scope import Scope, normal_axis
from dnnl.types.expression import PARAMETER
from dnnl.types.scalar import Scalar, apply

QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
DYNAMIC = "DynamicQuantizeLinear"
INTEGER_PRODUCTS = {"ConvInteger": "Conv", "MatMulInteger": "MatMul"}

CONV = "dnnl.QuantizedConv"
CONV_TRANSPOSE = "dnnl.QuantizedConvTranspose"
MATMUL = "dnnl.QuantizedMatMul"
SOFTMAX = "dnnl.QuantizedSoftmax"
"""Operators on integers that no file can hold. Sources of a product: src, weights, bias, scales of
the results, zero points of src and of weights, the last four where they are needed; of a softmax:
src and its scale."""

QUANTIZED = frozenset({CONV, CONV_TRANSPOSE, MATMUL, SOFTMAX})

BYTES = (np.dtype(np.int8), np.dtype(np.uint8))
HALF_RANGE = 128  # that signed bytes are below unsigned ones

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Parameters:
    """Constant scales and zero points, broadcast to what they belong to as NumPy does."""

    scale: Float64
    zero_point: Float64

    @property
    def is_single(self) -> bool:
        """Whether one pair belongs to the whole tensor."""
        return self.scale.size == 1 and self.zero_point.size == 1

    def equals(self, other: Parameters) -> bool:
        """Whether the same integers represent the same numbers."""
        return np.array_equal(self.scale, other.scale) and np.array_equal(
            self.zero_point, other.zero_point
        )

    def dequantized(self, integers: Array) -> Array:
        """The values of integers, in f32."""
        whole = integers.astype(np.float64) - self.zero_point
        result: Array = (whole * self.scale).astype(np.float32)
        return result


def parameters(node: Node, graph: Graph) -> Parameters | None:
    """The parameters of a QuantizeLinear or DequantizeLinear; None where one is computed."""
    rank = len(graph.shape_of(node.inputs[0]))
    values = []
    for name in (node.inputs[1], node.input(2)):
        array = graph.constants.get(name) if name else np.zeros((), np.uint8)
        if array is None:
            return None
        aligned = array.reshape(aligned_shape(array.shape, rank, node.attrs.get("axis", 1)))
        values.append(aligned.astype(np.float64))
    return Parameters(*values)


def aligned_shape(shape: tuple[int, ...], rank: int, axis: int) -> tuple[int, ...]:
    """The shape that broadcasts parameters of an axis to a tensor of ``rank`` dimensions."""
    if shape in ((), (1,)):
        return ()
    if len(shape) != 1:
        return shape
    place = normal_axis(axis, rank)
    return (*(1,) * place, *shape, *(1,) * (rank - 1 - place))


def dequantized(node: Node, graph: Graph) -> Array | None:
    """The result of a DequantizeLinear of constants; None for other nodes."""
    if node.op != DEQUANTIZE:
        return None
    array, known = graph.constants.get(node.inputs[0]), parameters(node, graph)
    return None if array is None or known is None else known.dequantized(array)


def converted(node: Node, graph: Graph, dtype: np.dtype) -> dict[str, Array] | None:
    """The result, of type ``dtype``, of a QuantizeLinear or DequantizeLinear of constants. None for
    other nodes, and for int8 and uint8 weights, which int8 products read."""
    array, known = graph.constants.get(node.inputs[0]), parameters(node, graph)
    if array is None or known is None:
        return None
    if node.op == DEQUANTIZE:
        return None if array.dtype in BYTES else {node.output: known.dequantized(array)}
    scaled = np.rint(array.astype(np.float32) / known.scale.astype(np.float32))
    limits = np.iinfo(dtype)
    return {node.output: np.clip(scaled + known.zero_point, limits.min, limits.max).astype(dtype)}


def quantize(scope: Scope, x: Scalar, scale: Scalar | float, zero: Scalar | float = 0.0) -> Scalar:
    """round(x / scale) + zero; what stores it saturates, and rounds where ``zero`` is 0.

    What is computed in a kernel is multiplied by the inverse, which may be off by a rounding; data
    are divided, as ONNX says.
    """
    if isinstance(scale, Scalar):
        scaled = apply("div", x, scale)
    elif scale == 1.0:
        scaled = x
    else:
        scaled = x / scale if x.step.name == PARAMETER else x * (1.0 / scale)
    if isinstance(zero, float) and zero == 0.0:
        return scaled
    return apply("add", apply("round", scaled), zero)


def dequantize(
    scope: Scope, x: Scalar, scale: Scalar | float, zero: Scalar | float = 0.0
) -> Scalar:
    """(x - zero) * scale."""
    whole = x if isinstance(zero, float) and zero == 0.0 else apply("sub", x, zero)
    return apply("mul", whole, scale)
