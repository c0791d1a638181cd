"""Types of the results of each operator, from the types of its sources."""

from __future__ import annotations

import math

import numpy as np

from dnnl.errors import Unimplemented
from dnnl.graph.graph import REAL, ModelError, Shape, TensorType
from dnnl.graph.scope import Scope, normal_axis, transposition
from dnnl.graph.sizes import broadcast
from dnnl.operators.window import Window


def same(scope: Scope) -> list[TensorType]:
    """Elementwise operators of one source."""
    return scope.result(scope.shape())


def floats(scope: Scope) -> list[TensorType]:
    """Elementwise operators of one source of floats.

    Raises Unimplemented for others than f32, bf16 and f16.
    """
    if scope.type().dtype not in REAL:
        rule = f"{scope.type().dtype} is not computed; Cast makes f32 of it"
        raise Unimplemented(f"{scope.node}: {rule}")
    return scope.result(scope.shape())


def elementwise(scope: Scope) -> list[TensorType]:
    """Elementwise operators of several sources, broadcast."""
    return scope.result(broadcast([scope.shape(i) for i in range(len(scope.node.inputs))]))


def comparison(scope: Scope) -> list[TensorType]:
    """The truth about two sources, broadcast."""
    return [TensorType(np.dtype(np.bool_), elementwise(scope)[0].shape)]


def choice(scope: Scope) -> list[TensorType]:
    """One of the two sources behind the condition, all broadcast."""
    return [TensorType(scope.type(1).dtype, elementwise(scope)[0].shape)]


def prelu(scope: Scope) -> list[TensorType]:
    """The source's own type; slopes are broadcast to it."""
    shape, slopes = scope.shape(), scope.shape(1)
    if broadcast([shape, slopes]) != shape:
        raise ModelError(f"slopes {slopes} are not broadcast to source {shape}")
    return scope.result(shape)


def convolution(scope: Scope) -> list[TensorType]:
    """[N, C, ...] with weights [M, C / group, ...] gives [N, M, ...]."""
    source, weights = scope.shape(), scope.shape(1)
    group = scope.attr("group", 1)
    if group < 1 or len(source) < 3:
        raise ModelError(f"group {group} and source {source} are no convolution")
    if len(source) != len(weights) or source[1] != weights[1] * group or weights[0] % group:
        raise ModelError(f"source {source}, weights {weights} and group {group} disagree")
    if scope.node.input(2) and scope.shape(2) != weights[:1]:
        raise ModelError(f"bias {scope.shape(2)} has not one value for each of {weights[0]}")
    return scope.result((source[0], weights[0], *convolution_window(scope).out))


def convolution_window(scope: Scope) -> Window:
    """The window of a convolution; its kernel is the weights' shape."""
    return Window.over(scope.shape()[2:], _kernel(scope), scope.node.attrs)


def _kernel(scope: Scope) -> Shape:
    kernel = scope.shape(1)[2:]
    declared = tuple(scope.attr("kernel_shape", kernel))
    if declared != kernel:
        raise ModelError(f"kernel_shape {declared} is not the weights' {kernel}")
    return kernel


def deconvolution(scope: Scope) -> list[TensorType]:
    """[N, C, ...] with weights [C, M / group, ...] gives [N, M, ...]."""
    source, weights = scope.shape(), scope.shape(1)
    group = scope.attr("group", 1)
    if group < 1 or len(source) < 3:
        raise ModelError(f"group {group} and source {source} are no transposed convolution")
    if len(source) != len(weights) or source[1] != weights[0] or weights[0] % group:
        raise ModelError(f"source {source}, weights {weights} and group {group} disagree")
    channels = weights[1] * group
    if scope.node.input(2) and scope.shape(2) != (channels,):
        raise ModelError(f"bias {scope.shape(2)} has not one value for each of {channels}")
    return scope.result((source[0], channels, *deconvolution_window(scope).out))


def deconvolution_window(scope: Scope) -> Window:
    """The window of a transposed convolution; its kernel is the weights' shape."""
    return Window.onto(scope.shape()[2:], _kernel(scope), scope.node.attrs)


def batch_normalization(scope: Scope) -> list[TensorType]:
    """The source's own type; scale, shift, mean and variance have one value per channel.

    Raises Unimplemented in training mode, where the statistics are those of the batch.
    """
    node, shape = scope.node, scope.shape()
    # Before operator set 14 it is the results after the first that ask for training.
    training = scope.attr("training_mode", 0) or any(node.outputs[1:])
    if training or not scope.attr("spatial", 1):
        raise Unimplemented(f"{node}: only inference with one value per channel is computed")
    for index in range(1, 5):
        if scope.shape(index) != shape[1:2]:
            raise ModelError(f"input {index} has shape {scope.shape(index)}, not {shape[1:2]}")
    return scope.result(shape)


def pooling(scope: Scope) -> list[TensorType]:
    """[N, C, ...] stays, with the spatial sizes of the window's positions."""
    if len(scope.node.outputs) > 1 and scope.node.outputs[1]:
        raise Unimplemented(f"{scope.node}: the indices of the maxima are not computed")
    return scope.result((*scope.shape()[:2], *pooling_window(scope).out))


def pooling_window(scope: Scope) -> Window:
    """The window of a pooling; a global one covers all that is there.

    Raises ModelError for padding as large as the kernel, where windows could see nothing else.
    """
    spatial = scope.shape()[2:]
    kernel = spatial if scope.node.op.startswith("Global") else tuple(scope.attr("kernel_shape"))
    window = Window.over(spatial, kernel, scope.node.attrs)
    pads = tuple(scope.attr("pads", ()))
    if any(pad >= size for pad, size in zip(pads, (*kernel, *kernel), strict=False)):
        raise ModelError(f"attribute 'pads' = {pads} must be smaller than the kernel {kernel}")
    return window


def gemm(scope: Scope) -> list[TensorType]:
    """A' [M, K] x B' [K, N] + C gives [M, N]."""
    a, b = scope.shape(), scope.shape(1)
    if len(a) != 2 or len(b) != 2:
        raise ModelError(f"sources {a} and {b} must be matrices")
    m, k = a[::-1] if scope.attr("transA", 0) else a
    k_b, n = b[::-1] if scope.attr("transB", 0) else b
    if k != k_b:
        raise ModelError(f"inner sizes {k} and {k_b} differ")
    if scope.node.input(2) and broadcast([scope.shape(2), (m, n)]) != (m, n):
        raise ModelError(f"addend {scope.shape(2)} does not broadcast to {(m, n)}")
    return scope.result((m, n))


def matmul(scope: Scope) -> list[TensorType]:
    """As numpy.matmul, vectors included."""
    a, b = scope.shape(), scope.shape(1)
    if not a or not b or a[-1] != (b[-2] if len(b) > 1 else b[0]):
        raise ModelError(f"sources {a} and {b} cannot be multiplied")
    rows = a[-2:-1] if len(a) > 1 else ()
    columns = b[-1:] if len(b) > 1 else ()
    return scope.result((*broadcast([a[:-2], b[:-2]]), *rows, *columns))


def concat(scope: Scope) -> list[TensorType]:
    """Sources that agree outside ``axis``, one after the other along it."""
    shapes = [scope.shape(i) for i in range(len(scope.node.inputs))]
    axis = scope.axis(0)
    others = [(*shape[:axis], 1, *shape[axis + 1 :]) for shape in shapes]
    if any(len(own) != len(others[0]) or own != others[0] for own in others[1:]):
        raise ModelError(f"shapes {', '.join(map(str, shapes))} differ outside axis {axis}")
    joined = list(broadcast(others))
    joined[axis] = sum(shape[axis] for shape in shapes)
    return scope.result(joined)


def reshape(scope: Scope) -> list[TensorType]:
    """0 copies a size of the source (unless allowzero), -1 is what remains."""
    shape = scope.shape()
    target = scope.listed("shape", 1)
    if target is None:
        raise ModelError("the new shape is missing")
    sizes = list(target)
    if not scope.attr("allowzero", 0):
        if any(n == 0 and d >= len(shape) for d, n in enumerate(sizes)):
            raise ModelError(f"new shape {target} copies a size that {shape} does not have")
        sizes = [shape[d] if n == 0 else n for d, n in enumerate(sizes)]
    if sizes.count(-1) == 1:
        rest = -math.prod(sizes)
        if not rest:
            raise ModelError(f"new shape {target} of {shape}: -1 may be any size next to a 0")
        sizes[sizes.index(-1)] = math.prod(shape) // rest
    if math.prod(sizes) != math.prod(shape) or any(size < 0 for size in sizes):
        raise ModelError(f"new shape {target} does not hold the elements of {shape}")
    return scope.result(sizes)


def flatten(scope: Scope) -> list[TensorType]:
    """A matrix: the dimensions before ``axis`` and the others."""
    shape = scope.shape()
    axis = scope.attr("axis", 1)
    axis = axis if axis == len(shape) else normal_axis(axis, len(shape))
    return scope.result((math.prod(shape[:axis]), math.prod(shape[axis:])))


def squeeze(scope: Scope) -> list[TensorType]:
    """Dimensions of size 1 leave: the listed ones, or all."""
    shape = scope.shape()
    listed = scope.listed("axes", 1)
    if listed is None:
        return scope.result([n for n in shape if n != 1])
    axes = {normal_axis(a, len(shape)) for a in listed}
    if any(shape[a] != 1 for a in axes):
        raise ModelError(f"axes {listed} of {shape} are not all of size 1")
    return scope.result([n for d, n in enumerate(shape) if d not in axes])


def unsqueeze(scope: Scope) -> list[TensorType]:
    """Dimensions of size 1 appear at the listed axes of the result."""
    shape, listed = scope.shape(), scope.listed("axes", 1)
    if listed is None:
        raise ModelError("the axes are missing")
    rank = len(shape) + len(listed)
    axes = {normal_axis(a, rank) for a in listed}
    if len(axes) != len(listed):
        raise ModelError(f"axes {listed} name one twice")
    sizes = iter(shape)
    return scope.result([1 if d in axes else next(sizes) for d in range(rank)])


def transpose(scope: Scope) -> list[TensorType]:
    """Dimension ``d`` of the result is dimension ``perm[d]`` of the source."""
    shape = scope.shape()
    perm = transposition(scope)
    if sorted(perm) != list(range(len(shape))):
        raise ModelError(f"perm {perm} is no permutation of {len(shape)} axes")
    return scope.result([shape[p] for p in perm])


def cast(scope: Scope) -> list[TensorType]:
    """The shape of the source, in the data type that ``to`` names."""
    return [TensorType(scope.data_type("to"), scope.shape())]


def dropout(scope: Scope) -> list[TensorType]:
    """In inference the source itself, and a mask that nothing may read.

    Raises Unimplemented in training mode.
    """
    training = scope.constant(2)
    if training is not None and training.any():
        raise Unimplemented(f"{scope.node}: only inference is computed")
    return [scope.type(), TensorType(np.dtype(np.bool_), scope.shape())][: len(scope.node.outputs)]
