"""Normalizations and scales as parameters of what is before them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dnnl.errors import Unimplemented
from dnnl.graph.graph import JOINT, Array, Graph, Node, Shape, blamed_on
from dnnl.graph.sizes import same_shape
from dnnl.types.dtype import DataType

Float64 = npt.NDArray[np.float64]

_NORMALIZED = frozenset({"Conv", "ConvTranspose", "Gemm", "BatchNormalization"})


@dataclass(frozen=True)
class ScaleShift:
    """``x * scale + shift`` per channel (dimension 1), in double precision."""

    scale: Float64
    shift: Float64


def fold_affine(graph: Graph) -> Graph:
    """Per-channel arithmetic moved into the parameters of the convolution, matrix product or
    batch normalization before it, where nothing else reads what is between.

    The new parameters are computed in double precision and rounded once. Where their type does not
    hold them, the arithmetic stays: a division by 0, a scale that makes weights overflow.
    """
    uses, constants = graph.uses(), dict(graph.constants)
    state = replace(graph, constants=constants)
    nodes: list[Node] = []
    position: dict[str, int] = {}
    for node in graph.nodes:
        source = next((v for v in node.inputs if v in position), "")
        with blamed_on(node), np.errstate(all="ignore"):
            affine = _affine(node, source, state) if uses[source] == 1 else None
            if affine is None:
                folded = None
            else:
                folded = _folded(nodes[position[source]], affine, node, constants)
        if folded is not None:
            index = position.pop(source)
            nodes[index] = folded
            position[folded.output] = index
            continue
        if node.op in _NORMALIZED and _has_constant_parameters(node, state):
            position[node.output] = len(nodes)
        nodes.append(node)
    return replace(state, nodes=tuple(nodes)).pruned()


def _has_constant_parameters(node: Node, graph: Graph) -> bool:
    return not node.attrs.get("transA") and all(v in graph.constants for v in node.inputs[1:] if v)


def _affine(node: Node, source: str, graph: Graph) -> ScaleShift | None:
    """What ``node`` does to ``source`` where that is affine per channel."""
    if not source:
        return None
    if node.op == "BatchNormalization":
        return batch_normalization(node, graph)
    if node.op not in ("Add", "Sub", "Mul", "Div") or len(node.inputs) != 2:
        return None
    first = node.inputs[0] == source
    other = graph.constants.get(node.inputs[1] if first else node.inputs[0])
    if other is None or (not first and node.op in ("Sub", "Div")):
        return None
    vector = _per_channel(other, graph.shape_of(source))
    if vector is None or not same_shape(graph.shape_of(node.output), graph.shape_of(source)):
        return None
    one, zero = np.ones_like(vector), np.zeros_like(vector)
    if node.op in ("Mul", "Div"):
        return ScaleShift(vector if node.op == "Mul" else one / vector, zero)
    return ScaleShift(one, -vector if node.op == "Sub" else vector)


def _per_channel(array: Array, shape: tuple[int, ...]) -> Float64 | None:
    """``array`` as one value per channel of ``shape``, None where it varies along others."""
    if array.ndim > len(shape) or len(shape) < 2:
        return None
    aligned = array.reshape((1,) * (len(shape) - array.ndim) + array.shape)
    if aligned.size != aligned.shape[1]:
        return None
    return np.array(np.broadcast_to(aligned.ravel(), shape[1]), np.float64)


def batch_normalization(node: Node, graph: Graph) -> ScaleShift:
    """The affine function of an inference batch normalization.

    Raises Unimplemented for parameters that the model computes.
    """
    parameters = [graph.constants.get(v) for v in node.inputs[1:5]]
    arrays = [np.asarray(p, np.float64) for p in parameters if p is not None]
    if len(arrays) != 4:
        raise Unimplemented(f"{node}: scale, shift, mean and variance must be constant")
    gamma, beta, mean, variance = arrays
    scale = gamma / np.sqrt(variance + node.attrs.get("epsilon", 1e-5))
    return ScaleShift(scale, beta - mean * scale)


def _folded(
    node: Node, affine: ScaleShift, absorbed: Node, constants: dict[str, Array]
) -> Node | None:
    """``node`` with ``affine`` in its parameters, giving the result of ``absorbed``; None where
    they would not have that value."""
    names = [*node.inputs, *[""] * (3 - len(node.inputs))]
    weights, attrs = np.asarray(constants[names[1]]), dict(node.attrs)
    dtype = weights.dtype
    addend = np.asarray(constants[names[2]], np.float64) if names[2] else np.float64(0.0)
    if node.op == "BatchNormalization":
        factor = affine.scale
        shift = addend * affine.scale + affine.shift
    else:
        alpha, beta = attrs.pop("alpha", 1.0), attrs.pop("beta", 1.0)
        factor = alpha * _along(affine.scale, node, weights.shape)
        shift = beta * addend * affine.scale + affine.shift
    scaled, shifted = _rounded_once(weights, factor), shift.astype(dtype)
    if scaled is None or (np.isinf(shifted) & np.isfinite(shift)).any():
        return None
    for index, array in ((1, scaled), (2, shifted)):
        names[index] = f"{absorbed.name}{JOINT}{index}"
        constants[names[index]] = array
    return replace(
        node,
        inputs=tuple(names),
        outputs=absorbed.outputs[:1],
        attrs=attrs,
        fused=(*node.fused, absorbed.name),
    )


def _rounded_once(weights: Array, factor: Float64) -> Array | None:
    """``weights * factor`` in the type of the weights; None if the type cannot represent it.

    An error up to the rounding error of the largest weight of the channel is accepted.
    """
    kind = DataType.from_numpy(weights.dtype)
    # NumPy buffers the f64 products in small pieces; an array of all would exceed the caches.
    scaled = np.empty(np.broadcast_shapes(weights.shape, factor.shape), weights.dtype)
    np.multiply(weights, factor, out=scaled, dtype=np.float64, casting="unsafe")
    along = tuple(d - factor.ndim for d, n in enumerate(factor.shape) if n == 1)
    others = (*range(weights.ndim - factor.ndim), *along)
    ends = (end(weights, axis=others, keepdims=True, initial=0) for end in (np.max, np.min))
    largest = np.maximum(*(np.abs(end * factor) for end in ends))
    if kind.is_float:
        normal = np.nextafter(kind.numpy.type(0), kind.numpy.type(1)) / np.float64(kind.eps)
        if ((largest == 0) | ((normal <= largest) & (largest <= kind.max))).all():
            return scaled
    exact = weights * factor
    return scaled if (np.abs(scaled - exact) <= kind.eps * largest).all() else None


def _along(scale: Float64, node: Node, shape: Shape) -> Float64:
    """One number for each output as weights of a ``shape`` have it, for broadcasting."""
    taps = (1,) * (len(shape) - 2)
    if node.op == "ConvTranspose":  # [C, M / group, ...]
        groups = scale.reshape(node.attrs.get("group", 1), -1)
        return np.repeat(groups, shape[0] // len(groups), axis=0).reshape(*shape[:2], *taps)
    rows = node.op == "Conv" or node.attrs.get("transB", 0)
    return scale.reshape(-1, 1, *taps) if rows else scale
