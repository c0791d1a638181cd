"""A model of integers with each integer operator as its float one between QuantizeLinear and
DequantizeLinear, and the same model in floats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dnnl.errors import Unimplemented

QUANTIZE, DEQUANTIZE, DYNAMIC = "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"
Constants = dict[str, np.ndarray]
_ONE = "quantcheck_one"


@dataclass(frozen=True)
class _Operator:
    """The float operator of an integer one whose inputs are ``factors`` triples of tensor, scale
    and zero point. Scale and zero point of dst follow, or come first; ``bias`` is the place of a
    bias in s32, and 0 where there is none."""

    name: str
    factors: int
    dst: int
    bias: int = 0
    dropped: tuple[str, ...] = ()


_OPERATORS = {
    "QLinearConv": _Operator("Conv", 2, 6, 8),
    "QLinearMatMul": _Operator("MatMul", 2, 6),
    "QGemm": _Operator("Gemm", 2, 7, 6),
    "QLinearAdd": _Operator("Add", 2, 6),
    "QLinearMul": _Operator("Mul", 2, 6),
    "QLinearSigmoid": _Operator("Sigmoid", 1, 3),
    "QLinearLeakyRelu": _Operator("LeakyRelu", 1, 3),
    "QLinearAveragePool": _Operator("AveragePool", 1, 3, dropped=("channels_last",)),
    "QLinearGlobalAveragePool": _Operator("GlobalAveragePool", 1, 3, dropped=("channels_last",)),
    "QLinearSoftmax": _Operator("Softmax", 1, 3, dropped=("opset",)),
    "QLinearConcat": _Operator("Concat", 0, 0),
}
_INTEGER = {"MatMulInteger": "MatMul", "ConvInteger": "Conv"}
_LAST = ("MatMul", "Gemm")
"""Operators whose weights have their columns in the last dimension."""
_FOREIGN = ("QAttention", "QLinear", "QGemm", "DynamicQuantize", "MatMulIntegerToFloat", "QEmbed")


def constants_of(model: onnx.ModelProto) -> Constants:
    """The initializers of a model, and what its Constant nodes hold, by name."""
    found = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    for node in model.graph.node:
        value = next((a for a in node.attribute if a.name == "value"), None)
        if node.op_type == "Constant" and value is not None:
            found[node.output[0]] = numpy_helper.to_array(value.t)
    return found


def canonical(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with operators on integers rewritten; raises Unimplemented for those that have no
    rule."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    rewriter = _Rewriter(constants_of(model))
    for node in model.graph.node:
        rewriter.take(node)
    del made.graph.node[:], made.graph.value_info[:]
    made.graph.node.extend(rewriter.nodes)
    for name, array in rewriter.added.items():
        made.graph.initializer.append(numpy_helper.from_array(array, name))
    return made


@dataclass
class _Rewriter:
    constants: Constants
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    added: Constants = field(default_factory=dict)

    def take(self, node: onnx.NodeProto) -> None:
        """Add a node, or its equivalent."""
        if node.op_type in _INTEGER:
            self._integer(node)
        elif node.op_type in _OPERATORS:
            if node.op_type == "QLinearConcat":
                self._concat(node)
            else:
                self._linear(node, _OPERATORS[node.op_type])
        elif node.op_type.startswith(_FOREIGN) and node.op_type != DYNAMIC:
            rule = f"quantcheck has no rule for the operator {node.op_type} of node {node.name!r}"
            raise Unimplemented(rule, [f"it knows {', '.join((*_OPERATORS, *_INTEGER))}"])
        else:
            self.nodes.append(node)

    def _linear(self, node: onnx.NodeProto, rule: _Operator) -> None:
        names = [*node.input, *[""] * 9]
        factors = []
        for number in range(rule.factors):
            data, scale, zero_point = names[3 * number : 3 * number + 3]
            axis = _axis(rule.name, node, number)
            factors.append(self._restored(f"{node.name}_{number}", data, scale, zero_point, axis))
        if rule.bias and names[rule.bias]:
            factors.append(self._bias(node, names[rule.bias], names[1], names[4]))
        dst = node.output[0]
        stored = bool(names[rule.dst])
        result = f"{dst}__f32" if stored else dst
        self._operator(node, rule.name, factors, result, rule.dropped)
        if stored:
            given = [result, *names[rule.dst : rule.dst + 2]]
            self.nodes.append(helper.make_node(QUANTIZE, given, [dst], f"{node.name}__q"))

    def _concat(self, node: onnx.NodeProto) -> None:
        scale, zero_point, *rest = node.input
        parts = [
            self._restored(f"{node.name}_{place}", rest[place], rest[place + 1], rest[place + 2], 0)
            for place in range(0, len(rest), 3)
        ]
        result = f"{node.output[0]}__f32"
        self._operator(node, "Concat", parts, result, ())
        given = [result, scale, zero_point]
        self.nodes.append(helper.make_node(QUANTIZE, given, [node.output[0]], f"{node.name}__q"))

    def _integer(self, node: onnx.NodeProto) -> None:
        """Products whose scales are applied behind them."""
        names = [*node.input, "", ""]
        one = self._constant(_ONE, np.float32(1))
        name = _INTEGER[node.op_type]
        factors = [
            self._restored(
                f"{node.name}_{number}",
                names[number],
                one,
                names[2 + number],
                _axis(name, node, number),
            )
            for number in range(2)
        ]
        self._operator(node, name, factors, node.output[0], ())

    def _operator(
        self, node: onnx.NodeProto, name: str, given: list[str], dst: str, dropped: tuple[str, ...]
    ) -> None:
        made = helper.make_node(name, given, [dst], node.name)
        made.attribute.extend(each for each in node.attribute if each.name not in dropped)
        self.nodes.append(made)

    def _restored(self, name: str, data: str, scale: str, zero_point: str, axis: int) -> str:
        made = f"{name}__{data}__f32"
        given = [data, scale, *([zero_point] if zero_point else [])]
        several = scale in self.constants and self.constants[scale].size > 1
        extra = {"axis": axis} if several else {}
        self.nodes.append(helper.make_node(DEQUANTIZE, given, [made], f"{made}__dq", **extra))
        return made

    def _bias(self, node: onnx.NodeProto, bias: str, src: str, weights: str) -> str:
        scale = self.constants[src].reshape(()) * self.constants[weights]
        name = self._constant(f"{node.name}__bias_scale", np.asarray(scale, np.float32))
        return self._restored(f"{node.name}_bias", bias, name, "", 0)

    def _constant(self, name: str, value: Any) -> str:
        self.added[name] = self.constants[name] = np.asarray(value)
        return name


def _axis(name: str, node: onnx.NodeProto, number: int) -> int:
    """The dimension along which scales of weights vary, if they do."""
    if number == 0 or name not in _LAST:
        return 0
    swapped = any(each.name == "transB" and each.i for each in node.attribute)
    return 0 if swapped else 1


def in_floats(
    model: onnx.ModelProto,
    original: Mapping[str, np.ndarray],
    cut: Callable[[onnx.NodeProto], tuple[float, float]],
) -> onnx.ModelProto:
    """A canonical model without any rounding: what is quantized stays as it is, and constants that
    are integers are their real values, or those that ``original`` has for them by name. ``cut``
    tells which ends of a tensor a Q node is to cut off."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    del made.graph.node[:]
    constants = constants_of(model)
    floats: set[str] = set()
    divided: set[str] = set()
    for node in model.graph.node:
        changed = onnx.NodeProto()
        changed.CopyFrom(node)
        if node.op_type == QUANTIZE:
            ends = [f"{node.output[0]}__{end}" for end in ("low", "high")]
            for name, end in zip(ends, cut(node), strict=True):
                made.graph.initializer.append(
                    numpy_helper.from_array(np.array(end, np.float32), name)
                )
            above = f"{node.output[0]}__above"
            made.graph.node.append(helper.make_node("Max", [node.input[0], ends[0]], [above]))
            changed = helper.make_node("Min", [above, ends[1]], node.output)
        elif node.op_type == DYNAMIC:
            made.graph.node.append(_renamed(node))
            given = [node.input[0], node.output[1]]
            changed = helper.make_node("Div", given, node.output[:1])
            divided.add(node.output[0])
        elif node.op_type == DEQUANTIZE and node.input[0] in divided:
            changed = helper.make_node("Mul", node.input[:2], node.output)
        elif node.op_type == DEQUANTIZE and node.input[0] in floats:
            changed = helper.make_node("Identity", node.input[:1], node.output)
        elif node.op_type == DEQUANTIZE and node.input[0] in constants:
            array = before(node.input[0], original)
            if array is not None and known_before(node, original):
                name = f"{node.output[0]}__original"
                made.graph.initializer.append(numpy_helper.from_array(array, name))
                changed = helper.make_node("Identity", [name], node.output)
        if node.op_type != DEQUANTIZE and (node.op_type == QUANTIZE or floats & set(node.input)):
            floats.update(node.output)
        made.graph.node.append(changed)
    return made


def _renamed(node: onnx.NodeProto) -> onnx.NodeProto:
    """A dynamic quantization for its scale and zero point alone."""
    outputs = [f"{node.output[0]}__unused", *node.output[1:]]
    return helper.make_node(DYNAMIC, node.input, outputs)


def before(name: str, original: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """What the float model has for an integer constant, by the names of ONNX Runtime."""
    return original.get(name.removesuffix("_quantized")) if original else None


def known_before(node: onnx.NodeProto, original: Mapping[str, np.ndarray]) -> bool:
    """Whether the float model tells what the constant of a DQ node was. The scales of weights that
    are applied behind a product are not in that node."""
    return node.input[1] != _ONE and before(node.input[0], original) is not None


def exposing(model: onnx.ModelProto, names: list[str]) -> bytes:
    """A model whose outputs are tensors inside of it."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    del made.graph.output[:], made.graph.value_info[:]
    made.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    content: bytes = made.SerializeToString()
    return content
