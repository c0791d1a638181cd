"""DFT and STFT as products with matrices of sines and cosines."""

from __future__ import annotations

from collections.abc import Mapping
from math import isqrt, pi, prod

import numpy as np

from dnnl.errors import Unimplemented
from dnnl.graph.graph import REAL, Array, ModelError, Shape, TensorType
from dnnl.graph.scope import Scope, normal_axis
from dnnl.graph.sizes import known_int
from dnnl.graph.writer import Writer
from dnnl.operators.operator import Operator
from dnnl.operators.writing import counted, transposed
from dnnl.runtime.storage import check_capacity
from dnnl.types.dtype import DataType

_INDEX = np.dtype(np.int64)
_AXIS_IS_AN_INPUT = 20
"""The operator set since which DFT has its axis as an input."""
_LONG = 1024
"""The length of a DFT from which it is factored into two products."""
_FLOATS = REAL | {DataType.f64.numpy}


def _infer_transform(scope: Scope) -> list[TensorType]:
    """[..., length or length / 2 + 1, ..., 2]; a one-sided inverse gives real numbers, [..., 1]."""
    shape, axis, length = _transform(scope)
    inverse, half = bool(scope.attr("inverse", 0)), bool(scope.attr("onesided", 0))
    count = length // 2 + 1 if half and not inverse else length
    parts = 1 if half and inverse else 2
    return scope.result((*shape[:axis], count, *shape[axis + 1 : -1], parts))


def _transform(scope: Scope) -> tuple[Shape, int, int]:
    """The shape of the source, the axis, and the length, which a plan must know."""
    shape, graph = scope.shape(), scope.graph
    if scope.type().dtype not in _FLOATS:
        raise Unimplemented(f"{scope.node}: {scope.type().dtype} is not transformed")
    if len(shape) < 2 or shape[-1] not in (1, 2):
        raise ModelError(f"source {shape} has not one or two parts for each number")
    axis = scope.attr("axis", 1)
    if graph.opset >= _AXIS_IS_AN_INPUT:
        given = scope.constant(2)
        axis = -2 if given is None else int(given.item())
    axis = normal_axis(axis, len(shape))
    if axis == len(shape) - 1:
        raise ModelError(f"axis {axis} is that of the parts of numbers")
    whole = scope.attr("inverse", 0) and scope.attr("onesided", 0)
    extent, asked = int(shape[axis]), scope.constant(1)
    length = 2 * (extent - 1) if whole else extent
    length = length if asked is None else int(known_int(asked.item()))
    if length < 1:
        raise ModelError(f"length {length} of a transform must be at least 1")
    return shape, axis, length


def _expand_transform(writer: Writer) -> bool:
    """Rows of the axis with real and imaginary parts, times a matrix of sines and cosines."""
    node, graph = writer.node, writer.graph
    scope, out = Scope(node, graph), graph.shape_of(node.output)
    shape, axis, length = _transform(scope)
    rest = [dim for dim in range(len(shape) - 1) if dim != axis]
    order = (*rest, axis, len(shape) - 1)
    taken = min(int(shape[axis]), _most_taken(scope, length))
    value, dims = node.inputs[0], shape
    if taken < shape[axis]:
        dims = (*shape[:axis], taken, *shape[axis + 1 :])
        value = writer.add(
            "Slice", (value,), dims, {"starts": (0,), "ends": (taken,), "axes": (axis,)}
        )
    value = transposed(writer, value, dims, order)
    rows = prod(dims[dim] for dim in rest)
    count, parts = out[axis], out[-1]
    factor = _factor(length) if taken == length and parts == 2 else 1
    if factor > 1:
        value = _by_factors(writer, value, rows, (factor, length // factor))
        if count < length:
            ends = {"starts": (0,), "ends": (count,), "axes": (1,)}
            value = writer.add("Slice", (value,), (rows, count, 2), ends)
    else:
        value = writer.reshape(value, (rows, taken * shape[-1]))
        matrix = _matrix(scope, taken, length, count)
        value = writer.add("MatMul", (value, writer.constant(matrix)), (rows, count * parts))
    seen = (*(out[dim] for dim in rest), count, parts)
    value = writer.reshape(value, seen)
    back = [order.index(dim) for dim in range(len(shape))]
    writer.reshape(transposed(writer, value, seen, back), out)
    return True


def _factor(length: int) -> int:
    """The largest factor of a long DFT up to its square root; 1 for a short one."""
    if length < _LONG:
        return 1
    return next(n for n in range(isqrt(length), 0, -1) if length % n == 0)


def _by_factors(writer: Writer, value: str, rows: int, factors: tuple[int, int]) -> str:
    """A DFT of rows of a * b numbers as two products (Cooley and Tukey): DFTs of every b-th number,
    with the twiddle factors in their matrices, then DFTs across these."""
    (a, b), parts = factors, Scope(writer.node, writer.graph).shape()[-1]
    length, inverse = a * b, bool(writer.node.attrs.get("inverse", 0))
    sign = 1 if inverse else -1
    first = fourier(a, a, a, parts, inverse=inverse).reshape(a * parts, a, 2)
    twiddles = np.exp(sign * 2j * pi / length * np.outer(np.arange(b), np.arange(a)))
    check_capacity(4 * b * first.nbytes)
    every = (first[..., 0] + 1j * first[..., 1]) * twiddles[:, None, :]
    matrices = np.stack([every.real, every.imag], -1).reshape(b, a * parts, 2 * a)
    seen = (rows, a, b, parts)
    value = transposed(writer, writer.reshape(value, seen), seen, (2, 0, 1, 3))
    value = writer.reshape(value, (b, rows, a * parts))
    value = writer.add("MatMul", (value, writer.constant(matrices)), (b, rows, 2 * a))
    seen = (b, rows, a, 2)
    value = transposed(writer, writer.reshape(value, seen), seen, (1, 2, 0, 3))
    value = writer.reshape(value, (rows * a, 2 * b))
    second = fourier(b, b, b, 2, inverse=inverse)
    value = writer.add("MatMul", (value, writer.constant(second)), (rows * a, 2 * b))
    seen = (rows, a, b, 2)
    value = transposed(writer, writer.reshape(value, seen), seen, (0, 2, 1, 3))
    return writer.reshape(value, (rows, length, 2))


def _most_taken(scope: Scope, length: int) -> int:
    """How many numbers of the source a DFT of a length reads at most."""
    half = scope.attr("inverse", 0) and scope.attr("onesided", 0)
    return length // 2 + 1 if half else length


def _matrix(scope: Scope, taken: int, length: int, count: int) -> Array:
    """The matrix from ``taken`` numbers to ``count`` results, [taken * parts, count * parts]."""
    inverse, half = bool(scope.attr("inverse", 0)), bool(scope.attr("onesided", 0))
    parts = scope.shape()[-1]
    matrix = fourier(taken, length, count, parts, inverse=inverse)
    if not (inverse and half):
        return matrix
    ends = (0, length / 2)  # which have no conjugate
    weights = np.where(np.isin(np.arange(taken), ends), 1.0, 2.0)
    real: Array = matrix.reshape(taken * parts, count, 2)[..., 0]
    weighted: Array = real * np.repeat(weights, parts).reshape(-1, 1)
    return weighted


def fourier(taken: int, length: int, count: int, parts: int, *, inverse: bool) -> Array:
    """The matrix [taken * parts, count * 2] of a DFT of ``length``, in f64. ``parts`` is 1 for real
    numbers and 2 for complex ones."""
    check_capacity(4 * taken * parts * count * np.dtype(np.float64).itemsize)
    steps = np.outer(np.arange(taken), np.arange(count)) % length
    angles = 2 * pi / length * steps
    cosine, sine = np.cos(angles), np.sin(angles) * (1 if inverse else -1)
    real = np.stack([cosine, sine], -1)
    rows = [real] if parts == 1 else [real, np.stack([-sine, cosine], -1)]
    matrix: Array = np.stack(rows, 1).reshape(taken * parts, count * 2)
    return matrix / length if inverse else matrix


def _infer_frames(scope: Scope) -> list[TensorType]:
    """[batch, length, parts] gives [batch, frames, frequencies, 2]."""
    shape = scope.shape()
    step, length = _frames(scope)
    if scope.type().dtype not in _FLOATS:
        raise Unimplemented(f"{scope.node}: {scope.type().dtype} is not transformed")
    if length > shape[1]:
        raise ModelError(f"frames of {length} in a signal of {shape[1]}")
    if scope.node.input(2) and scope.shape(2) != (length,):
        raise ModelError(f"window {scope.shape(2)} has not the length of frames, {length}")
    count = length // 2 + 1 if scope.attr("onesided", 1) else length
    return scope.result((shape[0], (shape[1] - length) // step + 1, count, 2))


def _frames(scope: Scope) -> tuple[int, int]:
    """The step and the length of frames."""
    shape, step, length = scope.shape(), scope.constant(1), scope.constant(3)
    if len(shape) != 3 or shape[2] not in (1, 2):
        raise ModelError(f"signal {shape} is not [batch, length, one or two parts]")
    if length is not None:
        size = int(known_int(length.item()))
    else:
        size = int(scope.shape(2)[0] if scope.node.input(2) else shape[1])
    distance = 0 if step is None else int(known_int(step.item()))
    if distance < 1 or size < 1:
        raise ModelError(f"frame_step {distance} and frame_length {size} must be at least 1")
    return distance, size


def _expand_frames(writer: Writer) -> bool:
    """Frames as rows, times the window and the matrix of a DFT."""
    node, graph = writer.node, writer.graph
    scope, out = Scope(node, graph), graph.shape_of(node.output)
    (batch, _, parts), (step, length) = scope.shape(), _frames(scope)
    frames, count = out[1], out[2]
    first = writer.reshape(counted(writer, frames), (frames, 1), _INDEX)
    first = writer.add("Mul", (first, writer.constant(step, _INDEX)), (frames, 1), dtype=_INDEX)
    within = writer.constant(np.arange(length), _INDEX)
    places = writer.add("Add", (first, within), (frames, length), dtype=_INDEX)
    shape = (batch, frames, length, parts)
    value = writer.add("Gather", (node.inputs[0], places), shape, {"axis": 1})
    matrix = fourier(length, length, count, parts, inverse=False)
    window = graph.constants.get(node.input(2))
    if window is not None:
        matrix *= np.repeat(window.astype(np.float64), parts).reshape(-1, 1)
    elif node.input(2):
        factors = writer.reshape(node.input(2), (length, 1))
        value = writer.add("Mul", (value, factors), shape)
    rows = batch * frames
    value = writer.reshape(value, (rows, length * parts))
    value = writer.add("MatMul", (value, writer.constant(matrix)), (rows, 2 * count))
    writer.reshape(value, out)
    return True


OPERATORS: Mapping[str, Operator] = {
    "DFT": Operator(_infer_transform, expand=_expand_transform, inputs=(1, 3)),
    "STFT": Operator(_infer_frames, expand=_expand_frames, inputs=(2, 4)),
}
