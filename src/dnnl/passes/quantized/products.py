"""Products whose factors are bytes: one node with integer sums, scaled at their end.

A convolution or matrix product of dequantized values becomes one of the bytes. The scales of both
factors, and that of the result where a QuantizeLinear follows, are one factor for each output then;
what zero points of src add to a sum is the same in each, and part of the bias.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from dnnl.graph.graph import JOINT, Array, Graph, Node, Shape, TensorType, blamed_on
from dnnl.graph.scope import Scope, normal_axis
from dnnl.graph.sizes import broadcast
from dnnl.operators.convolution import convolution_window
from dnnl.operators.quantization import (
    BYTES,
    CONV,
    CONV_TRANSPOSE,
    DEQUANTIZE,
    HALF_RANGE,
    INTEGER_PRODUCTS,
    MATMUL,
    QUANTIZE,
    SOFTMAX,
    Float64,
    Parameters,
    parameters,
)
from dnnl.passes.expand import written_out
from dnnl.types.size import typical

_SOFTMAX = frozenset({"LogSoftmax", "Softmax"})
_PRODUCTS = {"Conv": CONV, "ConvTranspose": CONV_TRANSPOSE, "Gemm": MATMUL, "MatMul": MATMUL}
_LARGEST_BYTE = 255
_BORDERED = 2
"""Where dst has so many times the elements of src, padding is written out: an image costs two
copies then, and not a sum for each element of dst."""
_EXACT = 2**24
"""Sums of integers up to this are exact in f32."""


@dataclass
class _Factor:
    """A source of a product: bytes, and their values, as far as the model knows it. The name
    of a zero point that it computes is in ``computed``."""

    value: str
    scale: Float64
    zero_point: Float64
    computed: str = ""


def fuse_products(graph: Graph) -> Graph:
    """The graph with such products, and softmax of bytes, as nodes on bytes."""
    fuser = _Fuser(graph)
    for node in graph.nodes:
        with blamed_on(node):
            fuser.add(fuser.changed.get(node.name, node))
    return replace(
        graph, nodes=tuple(fuser.nodes), types=fuser.types, constants=fuser.constants
    ).pruned()


@dataclass
class _Fuser:
    """Nodes so far; ``changed`` are their replacements of later nodes."""

    graph: Graph
    nodes: list[Node] = field(default_factory=list)
    changed: dict[str, Node] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.types: dict[str, TensorType] = dict(self.graph.types)
        self.constants: dict[str, Array] = dict(self.graph.constants)
        self.producers = {value: node for node in self.graph.nodes for value in node.outputs}
        self.readers: dict[str, list[Node]] = defaultdict(list)
        for node in self.graph.nodes:
            for value in node.reads:
                self.readers[value].append(node)

    def add(self, node: Node) -> None:
        """Append a node, or what it is on bytes."""
        if node.name in self.gone:
            return
        if node.op in INTEGER_PRODUCTS:
            self._integers(node)
        elif not (node.op in _PRODUCTS and self._floats(node)):
            self.nodes.append(self._softmax(node) if node.op in _SOFTMAX else node)

    def _softmax(self, node: Node) -> Node:
        """Along one axis of bytes that have one scale."""
        factor, rank = self._factor(node.inputs[0]), len(self.graph.shape_of(node.output))
        axis = node.attrs.get("axis", 1 if self.graph.opset < 13 else -1)
        axis = normal_axis(axis, rank)
        behind = prod(self.graph.shape_of(node.output)[axis + 1 :])
        if factor is None or factor.scale.size != 1 or (self.graph.opset < 13 and behind != 1):
            return node
        scale = self._constant(node, "scale", factor.scale.reshape(1))
        attrs = {"axis": axis, "log": node.op == "LogSoftmax"}
        return replace(node, op=SOFTMAX, inputs=(factor.value, scale), attrs=attrs)

    def _floats(self, node: Node) -> bool:
        """A product of dequantized values."""
        src, weights = (self._factor(value) for value in node.inputs[:2])
        bias = self.graph.constants.get(node.input(2)) if node.input(2) else np.zeros(())
        if src is None or weights is None or bias is None or src.scale.size != 1:
            return False
        axis = self._output_axis(node)
        if src.zero_point.size != 1 or not self._is_along(weights, axis):
            return False
        scale = src.scale.reshape(1) * weights.scale.ravel() * node.attrs.get("alpha", 1.0)
        self._write(node, src, weights, scale, bias.astype(np.float64).ravel())
        return True

    def _integers(self, node: Node) -> None:
        """A product of integers, and what makes a float of it."""
        src = _Factor(node.inputs[0], np.ones(1), *self._zero_point(node.input(2)))
        weights = _Factor(node.inputs[1], np.ones(1), *self._zero_point(node.input(3)))
        source = replace(node, op=INTEGER_PRODUCTS[node.op])
        scale = np.ones(1)
        cast = self._only_reader(node.output)
        if cast is not None and cast.op == "Cast" and cast.attrs["to"] == np.float32:
            self.gone.add(cast.name)
            source = replace(source, outputs=cast.outputs, fused=(*node.fused, cast.name))
            scale = self._constant_factor(cast.output, self._output_axis(source))
        self._write(source, src, weights, scale, np.zeros(1))

    def _constant_factor(self, value: str, axis: int) -> Float64:
        """The constant part of what a product is multiplied by, taken out of the node that does."""
        node = self._only_reader(value)
        if node is None or node.op != "Mul":
            return np.ones(1)
        other = node.inputs[1 - node.inputs.index(value)]
        factors = self.producers.get(other)
        if factors is None or factors.op != "Mul":
            return np.ones(1)
        for name, rest in (factors.inputs, factors.inputs[::-1]):
            array = self.graph.constants.get(name)
            single = rest not in self.graph.constants and prod(self.graph.shape_of(rest)) == 1
            if array is None or not single:
                continue
            if array.size == 1 or array.shape == self._channels(value, axis):
                inputs = tuple(rest if v == other else v for v in node.inputs)
                self.changed[node.name] = replace(node, inputs=inputs)
                return np.float64(array).ravel()
        return np.ones(1)

    def _channels(self, value: str, axis: int) -> Shape:
        """The shape of one number for each channel of a product, as it is broadcast: of images
        where the weights have an axis 0 of channels."""
        shape = self.graph.shape_of(value)
        return shape[-1:] if axis == -1 else (shape[1], *(1,) * (len(shape) - 2))

    def _write(
        self, node: Node, src: _Factor, weights: _Factor, scale: Float64, bias: Float64
    ) -> None:
        """The node on bytes; all that is known of scales is put into one for each output."""
        division = self._following(node.output)
        scale, bias = scale / division, bias / division
        weights = self._signed(node, weights)
        node, src = self._bordered(node, src, weights)
        shift = self._shift(node, src, weights)
        if shift is not None:
            src = replace(src, zero_point=np.zeros(1))
            bias = bias + shift * scale
        whole = self.types[node.output].dtype == np.int32
        given = [
            src.value,
            weights.value,
            self._constant(node, "bias", self._row(node, bias)) if bias.any() else "",
            "" if whole else self._constant(node, "scale", scale),
            self._zero(node, "src", src),
            self._zero(node, "weights", weights),
        ]
        attrs = {name: value for name, value in node.attrs.items() if name not in ("alpha", "beta")}
        made = replace(node, op=_PRODUCTS[node.op], inputs=tuple(given), attrs=attrs)
        if made.op == MATMUL:
            self._as_matrices(made)
        else:
            self.nodes.append(made)

    def _following(self, value: str) -> float:
        """The scale of a QuantizeLinear behind a product, which divides by 1 from now on."""
        reader = self._only_reader(value)
        if reader is not None and reader.op == "Relu":
            reader = self._only_reader(reader.output)
        if reader is None or reader.op != QUANTIZE:
            return 1.0
        known = parameters(reader, self.graph)
        if known is None or known.scale.size != 1:
            return 1.0
        one = f"{reader.name}{JOINT}one"
        self.constants[one] = np.ones((), np.float32)
        inputs = (reader.inputs[0], one, *reader.inputs[2:])
        self.changed[reader.name] = replace(reader, inputs=inputs)
        return known.scale.item()

    def _signed(self, node: Node, weights: _Factor) -> _Factor:
        """Constant weights as signed bytes, which every processor multiplies best."""
        array = self.constants.get(weights.value)
        if array is None or array.dtype != np.uint8:
            return weights
        name = f"{node.name}{JOINT}weights"
        self.constants[name] = (array.astype(np.int16) - HALF_RANGE).astype(np.int8)
        if weights.computed:
            return weights
        return replace(weights, value=name, zero_point=weights.zero_point - HALF_RANGE)

    def _bordered(self, node: Node, src: _Factor, weights: _Factor) -> tuple[Node, _Factor]:
        """A convolution and its src with the padding written out, as bytes that mean 0: what
        a zero point adds to the sums is the same in all pixels then, and part of the bias."""
        if node.op != "Conv" or src.computed or not src.zero_point.any():
            return node, src
        window = convolution_window(Scope(node, self.graph))
        ends = tuple(zip(window.padding_l, window.padding_r, strict=True))
        attrs = {name: value for name, value in node.attrs.items() if name != "auto_pad"}
        bare = replace(node, attrs={**attrs, "pads": (0,) * 2 * len(ends)})
        kind = self.graph.type_of(src.value)
        read, written = prod(kind.sizes), prod(self.graph.shape_of(node.output))
        if not any(map(any, ends)) or typical(written) < _BORDERED * typical(read):
            return node, src
        if self._shift(bare, src, weights) is None:
            return node, src
        name = f"{node.name}{JOINT}padded"
        padded = [size + sum(counts) for size, counts in zip(kind.sizes[2:], ends, strict=True)]
        self.types[name] = TensorType(kind.dtype, (*kind.sizes[:2], *padded))
        (before, behind), filler = zip(*ends, strict=True), src.zero_point.item()
        attrs = {"pads": (0, 0, *before, 0, 0, *behind), "value": filler}
        pad = Node("Pad", name, (src.value,), (name,), attrs)
        graph = replace(self.graph, types=self.types, constants=self.constants)
        self.nodes += written_out(pad, graph, self.types, self.constants)
        return bare, replace(src, value=name)

    def _shift(self, node: Node, src: _Factor, weights: _Factor) -> Float64 | None:
        """What the zero point of src adds to the sums; None where it changes from one to the next,
        and where sums are too large to be exact once they are floats."""
        array = self.constants.get(weights.value)
        whole = self.types[node.output].dtype == np.int32
        if array is None or src.computed or weights.computed or src.zero_point.size != 1:
            return None
        if not src.zero_point.any():
            return np.zeros(1)
        if whole or node.op == "ConvTranspose" or (node.op == "MatMul" and array.ndim > 2):
            return None
        if node.op == "Conv":
            window = convolution_window(Scope(node, self.graph))
            if any(window.padding_l) or any(window.padding_r):
                return None
        axis = self._output_axis(node)
        others = tuple(d for d in range(array.ndim) if d != axis % array.ndim)
        wide = array.astype(np.int64) - self._aligned(weights.zero_point, array.ndim, axis)
        if _LARGEST_BYTE * np.abs(wide).sum(axis=others).max(initial=0) >= _EXACT:
            return None
        sums: Float64 = wide.sum(axis=others).astype(np.float64)
        return -src.zero_point.reshape(1) * sums

    def _as_matrices(self, node: Node) -> None:
        """A product of matrices: vectors become them, and rows that all meet one are one."""
        shapes = [self._shape(value) for value in node.inputs[:2]]
        out, views = self.graph.shape_of(node.output), list(shapes)
        if len(shapes[0]) == 1:
            views[0] = (1, *shapes[0])
        if len(shapes[1]) == 1:
            views[1] = (*shapes[1], 1)
        if len(views[1]) == 2 < len(views[0]):
            views[0] = (prod(views[0][:-1]), views[0][-1])
        rows, columns = (
            view[::-1] if node.attrs.get(name, 0) else view
            for view, name in zip(views, ("transA", "transB"), strict=True)
        )
        seen = (*broadcast([rows[:-2], columns[:-2]]), rows[-2], columns[-1])
        inputs = list(node.inputs)
        for place, (shape, view) in enumerate(zip(shapes, views, strict=True)):
            if shape != view:
                inputs[place] = self._reshaped(node, inputs[place], view, f"src{place}")
        if seen == out:
            self.nodes.append(replace(node, inputs=tuple(inputs)))
            return
        early = f"{node.output}{JOINT}matrix"
        self.types[early] = TensorType(self.types[node.output].dtype, seen)
        self.nodes.append(replace(node, inputs=tuple(inputs), outputs=(early,)))
        name = f"{node.name}{JOINT}view"
        self.nodes.append(Node("Reshape", name, (early,), node.outputs, {"shape": out}))

    def _reshaped(self, node: Node, value: str, shape: Shape, name: str) -> str:
        result = f"{node.output}{JOINT}{name}"
        array = self.constants.get(value)
        if array is not None:
            self.constants[result] = array.reshape(shape)
            return result
        self.types[result] = TensorType(self._dtype(value), shape)
        attrs = {"shape": shape}
        self.nodes.append(Node("Reshape", f"{node.name}{JOINT}{name}", (value,), (result,), attrs))
        return result

    def _factor(self, value: str) -> _Factor | None:
        """The bytes that hold a value."""
        node = self.producers.get(value)
        if node is None or node.op != DEQUANTIZE or self._dtype(node.inputs[0]) not in BYTES:
            return None
        known = parameters(node, self.graph)
        return None if known is None else _Factor(node.inputs[0], *_parts(known))

    def _zero_point(self, name: str) -> tuple[Float64, str]:
        """A zero point, or the name of one that is computed."""
        array = self.graph.constants.get(name) if name else np.zeros(1)
        return (np.zeros(1), name) if array is None else (array.astype(np.float64), "")

    def _zero(self, node: Node, what: str, factor: _Factor) -> str:
        if factor.computed:
            return factor.computed
        if not factor.zero_point.any():
            return ""
        return self._constant(node, f"{what}_zero", factor.zero_point.ravel(), np.int32)

    def _constant(
        self, node: Node, what: str, values: Float64, dtype: type[np.generic] = np.float32
    ) -> str:
        name = f"{node.name}{JOINT}{what}"
        self.constants[name] = values.astype(dtype)
        return name

    def _row(self, node: Node, bias: Float64) -> Float64:
        """One number for each output."""
        shape = self.graph.shape_of(node.output)
        if node.op in ("Conv", "ConvTranspose"):
            return np.broadcast_to(bias, shape[1:2])
        single = node.op == "MatMul" and len(self._shape(node.inputs[1])) == 1
        return np.broadcast_to(bias, (1,) if single else shape[-1:])

    def _output_axis(self, node: Node) -> int:
        """The axis of the weights that is that of the results."""
        if node.op == "Conv" or (node.op == "Gemm" and node.attrs.get("transB", 0)):
            return 0
        return 1 if node.op in ("ConvTranspose", "Gemm") else -1

    def _is_along(self, weights: _Factor, axis: int) -> bool:
        """Whether parameters vary along an axis and no other."""
        rank = len(self._shape(weights.value))
        for array in (weights.scale, weights.zero_point):
            if array.size == 1:
                continue
            if array.ndim != rank or rank < 2 or array.size != array.shape[axis]:
                return False
        return True

    def _aligned(self, zero: Float64, rank: int, axis: int) -> Float64:
        if zero.size == 1:
            return zero.reshape(())
        place = axis % rank
        return zero.reshape((*(1,) * place, -1, *(1,) * (rank - 1 - place)))

    def _only_reader(self, value: str) -> Node | None:
        """Who reads a value that nobody else does and that is no result."""
        if value in self.graph.outputs.values() or len(self.readers[value]) != 1:
            return None
        return self.readers[value][0]

    def _shape(self, value: str) -> Shape:
        array = self.constants.get(value)
        return self.graph.shape_of(value) if array is None else array.shape

    def _dtype(self, value: str) -> np.dtype[np.generic]:
        return self.graph.type_of(value).dtype


def _parts(known: Parameters) -> tuple[Float64, Float64]:
    return known.scale, known.zero_point
