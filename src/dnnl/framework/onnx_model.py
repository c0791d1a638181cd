"""ONNX files as graphs, and graphs as ONNX protobufs for whoever wants to run the same model."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import helper, numpy_helper, version_converter

from dnnl.errors import Unimplemented
from dnnl.framework.external_data import load_external_data
from dnnl.framework.graph import (
    JOINT,
    SEQUENCE,
    UNRANKED,
    Array,
    Attributes,
    Branch,
    Graph,
    ModelError,
    Node,
    TensorType,
    blamed_on,
)

MIN_OPSET = 7
"""Older models broadcast by an attribute of each operator: they are converted first."""

CONVERTED_OPSET = 9

_OWN = ("", "ai.onnx")
"""The names of ONNX's own domain."""

_FLAGS = frozenset(
    (
        *("allowzero", "antialias", "ceil_mode", "count_include_pad", "exclude_outside"),
        *("exclusive", "fmod", "noop_with_empty_axes", "reverse", "select_last_index"),
        *("training_mode", "transA", "transB", "upper"),
    )
)
"""The attributes that are 0 or 1: of other values each runtime makes something else."""

_LARGEST = 2**31
"""Bytes that are too many for a protobuf."""

_FIRST_IR_VERSION = 3
"""The first one whose models say which operator sets they use."""

_FIRST_WITH_DEFAULTS = 4
"""The first IR version in which an initializer that is an input as well may be given. Before it,
each had to be one."""

_IR_VERSION_KEY = b"\x08"
"""The first byte of a serialized model: field 1, the IR version."""


def read_model(path: str | Path) -> onnx.ModelProto:
    """The model in an ONNX file, its external data included.

    Raises ModelError for a file that cannot be read, is no model, ends early or misses its
    external data.
    """
    path = Path(path)
    _check_size(path)
    proto = _parse(path, _read(path))
    load_external_data(proto, path)
    return proto


def graph_from_proto(proto: onnx.ModelProto, source: str = "model") -> Graph:
    """The graph of a parsed model; ``source`` names it in errors.

    Raises ModelError for one that contradicts itself.
    """
    _check_names(proto.graph, source)
    _check_functions(proto, source)
    opset, has_defaults = _opset(proto, source), proto.ir_version >= _FIRST_WITH_DEFAULTS
    if 0 < opset < MIN_OPSET:
        proto, opset = _converted(proto, opset, source), CONVERTED_OPSET
    constants = {t.name: _to_array(t) for t in proto.graph.initializer}
    if len(constants) != len(proto.graph.initializer):
        raise ModelError(f"{source}: two initializers have the same name")
    declared = [i.name for i in proto.graph.input]
    if len(set(declared)) != len(declared):
        raise ModelError(f"{source}: two inputs have the same name")
    types = {i.name: _type(i) for i in proto.graph.input}
    inputs = {name: kind for name, kind in types.items() if name not in constants}
    defaults = {name: kind for name, kind in types.items() if name in constants and has_defaults}
    nodes = _nodes(proto.graph)
    outputs = {o.name: o.name for o in proto.graph.output}
    for output in proto.graph.output:
        if output.type.HasField("tensor_type") and not output.type.tensor_type.elem_type:
            raise ModelError(f"{source}: output {output.name!r} has no element type")
    graph = Graph(nodes, inputs, outputs, constants, opset, defaults=defaults)
    graph.check_order()
    return graph


def _check_names(graph: onnx.GraphProto, source: str) -> None:
    """Raise ModelError for a name that is no UTF-8: protobuf hands it out as bytes."""
    names = [value.name for value in (*graph.initializer, *graph.input, *graph.output)]
    for node in graph.node:
        names += [node.name, node.op_type, node.domain, *node.input, *node.output]
        names += [attribute.name for attribute in node.attribute]
    for name in names:
        if not isinstance(name, str):
            raise ModelError(f"{source}: damaged: the name {name!r} is no text")


def _check_functions(proto: onnx.ModelProto, source: str) -> None:
    """Raise Unimplemented for an operator of ONNX's own domain that the model means otherwise."""
    for function in proto.functions:
        if function.domain in _OWN:
            name = f"operator {function.name} of ONNX's own domain"
            raise Unimplemented(f"{source}: it defines {name}; functions are not run")


def _opset(proto: onnx.ModelProto, source: str) -> int:
    """The version of ONNX's own operators, 0 for a model that has only others."""
    versions = {int(o.version) for o in proto.opset_import if o.domain in _OWN}
    if not versions and not any(node.domain in _OWN for node in proto.graph.node):
        return 0
    newest = onnx.defs.onnx_opset_version()
    if len(versions) != 1 or min(versions) < 1:
        rule = f"expected one version of ONNX's operators from 1 to {newest}"
        raise ModelError(f"{source}: operator sets {sorted(versions)}: {rule}")
    version = versions.pop()
    if version > newest:
        known = f"onnx {onnx.__version__} knows 1 to {newest}"
        raise Unimplemented(
            f"{source}: operator set {version}: {known}; a newer onnx may know more"
        )
    return version


def _converted(proto: onnx.ModelProto, opset: int, source: str) -> onnx.ModelProto:
    """The model in newer operators.

    Raises Unimplemented for slopes of channels, which the converter leaves as they are, though
    newer models broadcast them along the last dimension.
    """
    single = {t.name for t in proto.graph.initializer if prod(t.dims) == 1}
    for node in proto.graph.node:
        if node.op_type == "PRelu" and not single.issuperset(node.input[1:2]):
            rule = f"slopes of channels of a PRelu in operator set {opset}"
            raise Unimplemented(f"{source}: {rule}; write it in operator set {MIN_OPSET} or later")
    # Initializers that are no inputs are undefined to the converter before this version.
    newer = onnx.ModelProto()
    newer.CopyFrom(proto)
    newer.ir_version = max(proto.ir_version, _FIRST_WITH_DEFAULTS)
    try:
        return version_converter.convert_version(newer, CONVERTED_OPSET)
    except Exception as error:  # the converter raises its C++ errors as they are
        raise ModelError(f"{source}: operator set {opset} cannot be converted: {error}") from error


def graph_to_proto(graph: Graph) -> onnx.ModelProto:
    """An ONNX model of a graph that no fusion has changed yet."""
    nodes = [node_to_proto(node) for node in graph.nodes]
    inputs = [_value_info(n, kind) for n, kind in {**graph.inputs, **graph.defaults}.items()]
    outputs = [
        _value_info(name, graph.type_of(value))
        if value in graph.types or value in graph.inputs or value in graph.constants
        else onnx.ValueInfoProto(name=name)
        for name, value in graph.outputs.items()
    ]
    initializers = [numpy_helper.from_array(a, name) for name, a in graph.constants.items()]
    body = helper.make_graph(nodes, "graph", inputs, outputs, initializers)
    domains = sorted({node.domain for node in graph.nodes} - {""})
    opsets = [helper.make_operatorsetid(domain, 1) for domain in domains]
    own = helper.make_operatorsetid("", graph.opset)
    version = max(_FIRST_WITH_DEFAULTS, helper.find_min_ir_version_for([own]))
    return helper.make_model(body, ir_version=version, opset_imports=[own, *opsets])


def node_to_proto(node: Node) -> onnx.NodeProto:
    """The node as a protobuf.

    Raises ModelError for attributes that ONNX cannot hold.
    """
    inputs = node.inputs[: len(node.inputs) - len(node.captured)]
    proto = helper.make_node(node.op, inputs, node.outputs, node.name, domain=node.domain)
    for name, value in sorted(node.attrs.items()):
        content = _branch_to_proto(name, value) if isinstance(value, Branch) else value
        try:
            proto.attribute.append(helper.make_attribute(name, content))
        except (TypeError, ValueError) as error:
            raise ModelError(f"{node}: attribute {name!r} is damaged: {error}") from error
    return proto


def _branch_to_proto(name: str, branch: Branch) -> onnx.GraphProto:
    nodes = [node_to_proto(node) for node in branch.nodes]
    inputs = [_declared(value, kind) for value, kind in branch.inputs.items()]
    outputs = [_declared(value, branch.types.get(value)) for value in branch.outputs]
    constants = [numpy_helper.from_array(array, key) for key, array in branch.constants.items()]
    return helper.make_graph(nodes, name, inputs, outputs, constants)


def _declared(name: str, kind: TensorType | None) -> onnx.ValueInfoProto:
    return onnx.ValueInfoProto(name=name) if kind is None else _value_info(name, kind)


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
    except ValueError as error:  # a path that the system cannot spell
        raise ModelError(f"{str(path)!r}: cannot be read: {error}") from error


def _check_size(path: Path) -> None:
    """Raise ModelError for a file that is too large, before it is read."""
    size = 0
    with suppress(OSError, ValueError):  # reading it says what is wrong
        size = path.stat().st_size
    if size >= _LARGEST:
        rule = "an ONNX file has at most 2 GiB; larger models store tensors as external data"
        raise ModelError(f"{path}: {size} bytes: {rule}")


def _parse(path: Path, content: bytes) -> onnx.ModelProto:
    if not content:
        raise ModelError(f"{path}: the file is empty, not an ONNX model")
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(content)
    except DecodeError as error:
        bytearray(2 * len(content))  # MemoryError: protobuf does not say that it had none
        is_model = content.startswith(_IR_VERSION_KEY)
        state = "truncated or damaged" if is_model else "not an ONNX model"
        raise ModelError(f"{path}: {state}: it does not parse as an ONNX protobuf") from error
    if not proto.ir_version:
        raise ModelError(f"{path}: not an ONNX model: it has no IR version")
    if proto.ir_version < _FIRST_IR_VERSION:
        rule = f"models with operator sets have {_FIRST_IR_VERSION} or more"
        raise ModelError(f"{path}: damaged: IR version {proto.ir_version}; {rule}")
    if not proto.opset_import or not proto.graph.output:
        raise ModelError(f"{path}: truncated or damaged: no operator set or no output")
    return proto


def _to_array(tensor: onnx.TensorProto) -> Array:
    if min(tensor.dims, default=0) < 0:
        raise ModelError(f"tensor {tensor.name!r} has negative dims {tuple(tensor.dims)}")
    try:
        return np.asarray(numpy_helper.to_array(tensor))
    except (ValueError, TypeError, KeyError) as error:
        raise ModelError(f"tensor {tensor.name!r} is damaged: {error}") from error


def _type(value: onnx.ValueInfoProto) -> TensorType:
    kind, is_sequence = value.type.tensor_type, value.type.HasField("sequence_type")
    if is_sequence:
        kind = value.type.sequence_type.elem_type.tensor_type
    if not (value.type.HasField("tensor_type") or is_sequence) or not kind.elem_type:
        raise ModelError(f"input {value.name!r} is not a tensor")
    shape: tuple[int | str, ...] = UNRANKED
    if is_sequence:
        shape = SEQUENCE
    elif kind.HasField("shape"):
        shape = tuple(
            _size(dim, f"{value.name}[{axis}]") for axis, dim in enumerate(kind.shape.dim)
        )
    try:
        return TensorType(np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type)), shape)
    except KeyError as error:
        rule = f"has the element type {kind.elem_type}, which ONNX does not define"
        raise ModelError(f"input {value.name!r} {rule}") from error


def _size(dim: onnx.TensorShapeProto.Dimension, unnamed: str) -> int | str:
    """The size, or its name: ``unnamed`` where it is open without one, as a negative number and a
    mark such as ? say, of which two need not be equal."""
    if dim.HasField("dim_value"):
        return int(dim.dim_value) if dim.dim_value >= 0 else unnamed
    return str(dim.dim_param) if any(map(str.isalnum, dim.dim_param)) else unnamed


def _value_info(name: str, kind: TensorType) -> onnx.ValueInfoProto:
    elem_type = helper.np_dtype_to_tensor_dtype(kind.dtype)
    if kind.shape == SEQUENCE:
        return helper.make_tensor_sequence_value_info(name, elem_type, None)
    shape = None if kind.shape == UNRANKED else list(kind.shape)
    return helper.make_tensor_value_info(name, elem_type, shape)


def _nodes(proto: onnx.GraphProto) -> tuple[Node, ...]:
    """The nodes, each under a name of its own."""
    names: set[str] = set()
    nodes = []
    for index, node in enumerate(proto.node):
        name = node.name
        if not name or name in names:
            name = f"{name or node.op_type}_{index}"
        while name in names:
            name += "_"
        names.add(name)
        strange = [text for text in (name, *node.input, *node.output) if JOINT in text]
        if strange:
            raise ModelError(f"the name {strange[0]!r} has a {JOINT}, which is for names made here")
        domain = "" if node.domain in _OWN else node.domain
        sources, results = tuple(node.input), tuple(node.output)
        bare = Node(node.op_type, name, sources, results, domain=domain)
        with blamed_on(bare):
            whole = replace(bare, attrs=_attributes(node, own=not domain))
            nodes.append(replace(whole, inputs=(*sources, *whole.captured)))
    return tuple(nodes)


def _branch(proto: onnx.GraphProto) -> Branch:
    _check_names(proto, "a branch")
    constants = {tensor.name: _to_array(tensor) for tensor in proto.initializer}
    inputs = {value.name: _type_if_any(value) for value in proto.input}
    types = {value.name: _type_if_any(value) for value in proto.output}
    outputs = tuple(output.name for output in proto.output)
    given = {name: kind for name, kind in inputs.items() if name not in constants}
    return Branch(_nodes(proto), constants, outputs, given, types)


def _type_if_any(value: onnx.ValueInfoProto) -> TensorType | None:
    """The type that a graph inside a node declares, which it need not do."""
    kind = value.type.tensor_type
    if value.type.HasField("sequence_type"):
        kind = value.type.sequence_type.elem_type.tensor_type
    return _type(value) if kind.elem_type else None


def _attributes(proto: onnx.NodeProto, *, own: bool) -> Attributes:
    """The attributes of a node; flags of ONNX's ``own`` operators are 0 or 1."""
    attributes = {a.name: helper.get_attribute_value(a) for a in proto.attribute}
    for name, value in attributes.items():
        if isinstance(value, onnx.GraphProto):
            attributes[name] = _branch(value)
    for name in _FLAGS.intersection(attributes if own else ()):
        if attributes[name] not in (0, 1):
            raise ModelError(f"attribute {name!r} = {attributes[name]!r} must be 0 or 1")
    return attributes
