"""ONNX files as graphs, and graphs as ONNX protobufs for whoever wants to run the same model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import external_data_helper, helper, numpy_helper, version_converter

from dnnl.framework.graph import Array, Graph, ModelError, Node, TensorType, blamed_on

MIN_OPSET = 7
"""Older models broadcast by an attribute of each operator: they are converted first."""

CONVERTED_OPSET = 9

_IR_VERSION_KEY = b"\x08"
"""The first byte of a serialized model: field 1, the IR version."""


def read_graph(path: str | Path) -> Graph:
    """The graph of an ONNX file.

    Raises ModelError for a file that cannot be read, is no model, ends early, misses its external
    data or contradicts itself.
    """
    path = Path(path)
    proto = _parse(path, _read(path))
    _load_external_data(proto, path)
    graph = graph_from_proto(proto, str(path))
    graph.check_order()
    return graph


def graph_from_proto(proto: onnx.ModelProto, source: str = "model") -> Graph:
    """The graph of a parsed model; ``source`` names it in errors."""
    _check_names(proto.graph, source)
    opset = _opset(proto)
    if opset < MIN_OPSET:
        proto, opset = _converted(proto, source), CONVERTED_OPSET
    constants = {t.name: _to_array(t) for t in proto.graph.initializer}
    if len(constants) != len(proto.graph.initializer):
        raise ModelError(f"{source}: two initializers have the same name")
    inputs = {i.name: _type(i) for i in proto.graph.input if i.name not in constants}
    nodes = _nodes(proto.graph)
    outputs = {o.name: o.name for o in proto.graph.output}
    return Graph(nodes, inputs, outputs, constants, opset)


def _check_names(graph: onnx.GraphProto, source: str) -> None:
    """Raise ModelError for a name that is no UTF-8: protobuf hands it out as bytes."""
    names = [value.name for value in (*graph.initializer, *graph.input, *graph.output)]
    for node in graph.node:
        names += [node.name, node.op_type, node.domain, *node.input, *node.output]
        names += [attribute.name for attribute in node.attribute]
    for name in names:
        if not isinstance(name, str):
            raise ModelError(f"{source}: damaged: the name {name!r} is no text")


def _opset(proto: onnx.ModelProto) -> int:
    return next((int(o.version) for o in proto.opset_import if o.domain in ("", "ai.onnx")), 0)


def _converted(proto: onnx.ModelProto, source: str) -> onnx.ModelProto:
    try:
        return version_converter.convert_version(proto, CONVERTED_OPSET)
    except Exception as error:  # the converter raises its C++ errors as they are
        opset = _opset(proto)
        raise ModelError(f"{source}: operator set {opset} cannot be converted: {error}") from error


def graph_to_proto(graph: Graph) -> onnx.ModelProto:
    """An ONNX model of a graph that no fusion has changed yet."""
    nodes = [node_to_proto(node) for node in graph.nodes]
    inputs = [_value_info(name, kind) for name, kind in graph.inputs.items()]
    outputs = [
        _value_info(name, graph.type_of(value))
        if value in graph.types or value in graph.inputs or value in graph.constants
        else onnx.ValueInfoProto(name=name)
        for name, value in graph.outputs.items()
    ]
    initializers = [numpy_helper.from_array(a, name) for name, a in graph.constants.items()]
    body = helper.make_graph(nodes, "graph", inputs, outputs, initializers)
    opset = helper.make_operatorsetid("", graph.opset)
    return helper.make_model_gen_version(body, opset_imports=[opset])


def node_to_proto(node: Node) -> onnx.NodeProto:
    """The node as a protobuf.

    Raises ModelError for attributes that ONNX cannot hold.
    """
    proto = helper.make_node(node.op, node.inputs, node.outputs, node.name, domain=node.domain)
    for name, value in sorted(node.attrs.items()):
        try:
            proto.attribute.append(helper.make_attribute(name, value))
        except (TypeError, ValueError) as error:
            raise ModelError(f"{node}: attribute {name!r} is damaged: {error}") from error
    return proto


def read_tensor(path: str | Path) -> Array:
    """The array in a ``.npy`` file or in a serialized ONNX TensorProto (any other suffix)."""
    path = Path(path)
    content = _read(path)
    if path.suffix == ".npy":
        try:
            array = np.load(path, allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise ModelError(f"{path}: not a NumPy array file, or truncated ({error})") from error
        return np.asarray(array)
    tensor = onnx.TensorProto()
    try:
        tensor.ParseFromString(content)
        return _to_array(tensor)
    except (DecodeError, ValueError, TypeError) as error:
        raise ModelError(f"{path}: not a serialized ONNX tensor, or truncated") from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise ModelError(f"{path}: no such file") from error
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}") from error


def _parse(path: Path, content: bytes) -> onnx.ModelProto:
    if not content:
        raise ModelError(f"{path}: the file is empty, not an ONNX model")
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(content)
    except DecodeError as error:
        is_model = content.startswith(_IR_VERSION_KEY)
        state = "truncated or damaged" if is_model else "not an ONNX model"
        raise ModelError(f"{path}: {state}: it does not parse as an ONNX protobuf") from error
    if not proto.ir_version:
        raise ModelError(f"{path}: not an ONNX model: it has no IR version")
    if not proto.opset_import or not proto.graph.output:
        raise ModelError(f"{path}: truncated or damaged: no operator set or no output")
    return proto


def _load_external_data(proto: onnx.ModelProto, path: Path) -> None:
    for tensor in proto.graph.initializer:
        if not external_data_helper.uses_external_data(tensor):
            continue
        where = external_data_helper.ExternalDataInfo(tensor).location
        try:
            external_data_helper.load_external_data_for_tensor(tensor, str(path.parent))
        except (OSError, ValueError, onnx.checker.ValidationError) as error:
            raise ModelError(
                f"{path}: tensor {tensor.name!r} lies in the external file {where!r}, "
                "which is missing or cannot be read"
            ) from error
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]


def _to_array(tensor: onnx.TensorProto) -> Array:
    if min(tensor.dims, default=0) < 0:
        raise ModelError(f"tensor {tensor.name!r} has negative dims {tuple(tensor.dims)}")
    try:
        return np.asarray(numpy_helper.to_array(tensor))
    except (ValueError, TypeError, KeyError) as error:
        raise ModelError(f"tensor {tensor.name!r} is damaged: {error}") from error


def _type(value: onnx.ValueInfoProto) -> TensorType:
    kind = value.type.tensor_type
    if not value.type.HasField("tensor_type") or not kind.elem_type:
        raise ModelError(f"input {value.name!r} is not a tensor")
    shape = tuple(
        d.dim_value if d.HasField("dim_value") else d.dim_param or f"{value.name}[{axis}]"
        for axis, d in enumerate(kind.shape.dim)
    )
    try:
        return TensorType(np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type)), shape)
    except KeyError as error:
        rule = f"has the element type {kind.elem_type}, which ONNX does not define"
        raise ModelError(f"input {value.name!r} {rule}") from error


def _value_info(name: str, kind: TensorType) -> onnx.ValueInfoProto:
    elem_type = helper.np_dtype_to_tensor_dtype(kind.dtype)
    return helper.make_tensor_value_info(name, elem_type, list(kind.shape))


def _nodes(proto: onnx.GraphProto) -> tuple[Node, ...]:
    """The nodes, each under a name of its own."""
    names: set[str] = set()
    nodes = []
    for index, node in enumerate(proto.node):
        name = node.name
        if not name or name in names:
            name = f"{name or node.op_type}_{index}"
        names.add(name)
        domain = "" if node.domain == "ai.onnx" else node.domain
        sources, results = tuple(node.input), tuple(node.output)
        bare = Node(node.op_type, name, sources, results, domain=domain)
        with blamed_on(bare):
            nodes.append(replace(bare, attrs=_attributes(node)))
    return tuple(nodes)


def _attributes(proto: onnx.NodeProto) -> Mapping[str, Any]:
    return MappingProxyType({a.name: helper.get_attribute_value(a) for a in proto.attribute})
