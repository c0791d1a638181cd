"""Weights of recurrent layers that are constant bytes: what they stand for, and what a layer
reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dnnl.graph.graph import Array, Graph, Shape
from dnnl.graph.writer import Writer
from dnnl.operators.quantization import BYTES, DEQUANTIZE, HALF_RANGE, Float64, parameters

_S8, _S32, _F32 = (np.dtype(kind) for kind in (np.int8, np.int32, np.float32))
_SIGNED = np.iinfo(np.int8)


@dataclass(frozen=True)
class Compressed:
    """Bytes [D, columns, inputs] that stand for ``scale`` * (byte - ``zero``); both have the shape
    [D or 1, columns or 1, 1]."""

    integers: Array
    scale: Float64
    zero: Float64

    def signed(self) -> tuple[Array, Float64]:
        """The same as s8, and zero points: those are 0 where bytes without them are s8."""
        whole = self.integers.astype(np.int16)
        zero = np.broadcast_to(self.zero, (*self._columns, 1)).astype(np.int16)
        moved = whole - zero
        if moved.min(initial=0) >= _SIGNED.min and moved.max(initial=0) <= _SIGNED.max:
            return moved.astype(_S8), np.zeros((1, 1, 1))
        shift = HALF_RANGE if self.integers.dtype != _S8 else 0
        return (whole - shift).astype(_S8), self.zero - shift

    @property
    def _columns(self) -> Shape:
        return tuple(self.integers.shape[:2])


def compressed(graph: Graph, value: str) -> Compressed | None:
    """What a DequantizeLinear makes of constant bytes [D, columns, inputs] whose parameters do not
    vary along inputs; None for other values."""
    node = next((node for node in graph.nodes if value in node.outputs), None)
    if node is None or node.op != DEQUANTIZE or graph.type_of(value).dtype != _F32:
        return None
    integers, known = graph.constants.get(node.inputs[0]), parameters(node, graph)
    if integers is None or known is None or integers.dtype not in BYTES or integers.ndim != 3:
        return None
    own = [np.reshape(each, (1,) * (3 - each.ndim) + each.shape) for each in
           (known.scale, known.zero_point)]  # fmt: skip
    allowed = *((1, size) for size in integers.shape[:2]), (1,)
    fits = all(n in sizes for each in own for n, sizes in zip(each.shape, allowed, strict=True))
    return Compressed(integers, *own) if fits else None


def written(
    writer: Writer, weights: Compressed, gates: int, order: Sequence[int]
) -> tuple[str, str, str]:
    """The constants [D, inputs, gates, H] that a layer reads, its gates in an ``order``, and their
    scales and zero points [1, D or 1, 1, gates or 1, H or 1], if there are any."""

    def arranged(array: Array) -> Array:
        directions, columns, inputs = array.shape
        if columns == 1:
            return array.reshape(directions, inputs, 1, 1)
        shape = (directions, gates, columns // gates, inputs)
        return array.reshape(shape).take(order, 1).transpose(0, 3, 1, 2)

    integers, zero = weights.signed()
    scale = writer.constant(arranged(weights.scale)[None], _F32)
    moved = writer.constant(arranged(zero)[None], _S32) if zero.any() else ""
    return writer.constant(arranged(integers), _S8), scale, moved


def mask_of(shape: Shape) -> int:
    """The dimensions along which parameters of a ``shape`` vary."""
    return sum(1 << axis for axis, size in enumerate(shape) if size > 1)
