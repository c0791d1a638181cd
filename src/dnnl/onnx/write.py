"""Graphs as ONNX protobufs, for whoever wants to run the same model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dnnl.graph.graph import JOINT, SEQUENCE, UNRANKED, Branch, Graph, ModelError, Node, TensorType
from dnnl.onnx.check import inferred_types
from dnnl.onnx.portable import portable
from dnnl.onnx.versions import FIRST_WITH_DEFAULTS


def graph_to_proto(graph: Graph) -> onnx.ModelProto:
    """An ONNX model of a graph that no fusion has changed yet.

    Raises Unimplemented that names all nodes which ONNX does not have.
    """
    graph = portable(graph)
    nodes = [node_to_proto(node) for node in graph.nodes]
    shown = {name: value for name, value in graph.outputs.items() if name != value}
    inputs = [_value_info(n, kind) for n, kind in {**graph.inputs, **graph.defaults}.items()]
    outputs = [
        _value_info(name, graph.type_of(value))
        if value in graph.types or value in graph.inputs or value in graph.constants
        else onnx.ValueInfoProto(name=name)
        for name, value in graph.outputs.items()
    ]
    initializers = [numpy_helper.from_array(a, name) for name, a in graph.constants.items()]
    body = helper.make_graph(nodes, "graph", inputs, [], initializers)
    others = _other_names(shown, set(_names(body)))
    _rename(body, others)
    for name, value in shown.items():  # an output has the name of its value in a file
        body.node.append(helper.make_node("Identity", [others.get(value, value)], [name]))
    body.output.extend(outputs)
    _rename(body, _portable(set(_names(body))))
    domains = sorted({node.domain for node in graph.nodes} - {""})
    opsets = [helper.make_operatorsetid(domain, 1) for domain in domains]
    own = helper.make_operatorsetid("", graph.opset)
    version = max(FIRST_WITH_DEFAULTS, helper.find_min_ir_version_for([own]))
    model = helper.make_model(body, ir_version=version, opset_imports=[own, *opsets])
    untyped = [output for output in model.graph.output if not output.HasField("type")]
    types = inferred_types(model) if untyped else {}
    for output in untyped:
        if output.name in types:
            output.type.CopyFrom(types[output.name])
    return model


def node_to_proto(node: Node) -> onnx.NodeProto:
    """The node as a protobuf.

    Raises ModelError for attributes that ONNX cannot hold.
    """
    inputs = node.inputs[: len(node.inputs) - len(node.captured)]
    proto = helper.make_node(node.op, inputs, node.outputs, node.name, domain=node.domain)
    for name, value in sorted(node.attrs.items()):
        content = _branch_to_proto(name, value) if isinstance(value, Branch) else value
        try:
            if isinstance(value, np.ndarray):
                content = numpy_helper.from_array(value)
            elif isinstance(value, np.dtype):
                content = helper.np_dtype_to_tensor_dtype(value)
            proto.attribute.append(helper.make_attribute(name, content))
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"{node}: attribute {name!r} is damaged: {error}") from error
    return proto


def _names(graph: onnx.GraphProto) -> Iterator[str]:
    """The names of values and nodes, including those of subgraphs."""
    for tensor in (*graph.input, *graph.output, *graph.initializer):
        yield tensor.name
    for node in graph.node:
        yield from (node.name, *node.input, *node.output)
        for inside in _inside(node):
            yield from _names(inside)


def _inside(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    return [own.g for own in node.attribute if own.HasField("g")]


def _other_names(taken: Iterable[str], names: set[str]) -> dict[str, str]:
    """Replacements for those of ``names`` that something else is called."""
    found: dict[str, str] = {}
    for name in sorted(names.intersection(taken)):
        other = f"{name}_"
        while other in names:
            other += "_"
        names.add(other)
        found[name] = other
    return found


def _portable(names: set[str]) -> dict[str, str]:
    """Replacements for names with characters that only names of passes have."""
    found: dict[str, str] = {}
    for name in sorted(own for own in names if JOINT in own):
        other = name.replace(JOINT, ".")
        while other in names:
            other += "_"
        names.add(other)
        found[name] = other
    return found


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    if not names:
        return
    for tensor in (*graph.input, *graph.output, *graph.initializer):
        tensor.name = names.get(tensor.name, tensor.name)
    for node in graph.node:
        node.name = names.get(node.name, node.name)
        for values in (node.input, node.output):
            values[:] = [names.get(value, value) for value in values]
        for inside in _inside(node):
            _rename(inside, names)


def _branch_to_proto(name: str, branch: Branch) -> onnx.GraphProto:
    nodes = [node_to_proto(node) for node in branch.nodes]
    inputs = [_declared(value, kind) for value, kind in branch.inputs.items()]
    outputs = [_declared(value, branch.types.get(value)) for value in branch.outputs]
    constants = [numpy_helper.from_array(array, key) for key, array in branch.constants.items()]
    return helper.make_graph(nodes, name, inputs, outputs, constants)


def _declared(name: str, kind: TensorType | None) -> onnx.ValueInfoProto:
    return onnx.ValueInfoProto(name=name) if kind is None else _value_info(name, kind)


def _value_info(name: str, kind: TensorType) -> onnx.ValueInfoProto:
    elem_type = helper.np_dtype_to_tensor_dtype(kind.dtype)
    if kind.shape == SEQUENCE:
        return helper.make_tensor_sequence_value_info(name, elem_type, None)
    shape = None if kind.shape == UNRANKED else list(kind.shape)
    return helper.make_tensor_value_info(name, elem_type, shape)
