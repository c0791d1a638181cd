"""ONNX files as graphs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import helper, numpy_helper

from dnnl.errors import Unimplemented
from dnnl.graph.graph import (
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
from dnnl.onnx.external_data import load_external_data
from dnnl.onnx.versions import (
    CONVERTED_OPSET,
    FIRST_WITH_DEFAULTS,
    MIN_OPSET,
    OWN,
    opset_of,
    upgraded,
)

_FLAGS = frozenset(
    (
        *("align_corners", "allowzero", "antialias", "ceil_mode", "channels_last"),
        *("count_include_pad", "do_rotary", "exclude_outside", "exclusive", "fmod", "interleaved"),
        *("inverse", "is_causal", "keepdims", "largest", "noop_with_empty_axes", "onesided"),
        *("reverse", "rotary_interleaved", "saturate", "select_last_index", "sorted"),
        *("training_mode", "transA", "transB", "transBatchA", "transBatchB", "unidirectional"),
        "upper",
    )
)
"""The attributes that are 0 or 1: of other values each runtime makes something else."""

_MICROSOFT = "com.microsoft"

_DATA_TYPES = frozenset({"dtype", "output_dtype", "precision", "to"})
"""The attributes that are codes of element types, which nodes have as NumPy's."""

_LARGEST = 2**31
"""Bytes that are too many for a protobuf."""

_FIRST_IR_VERSION = 3
"""The first one whose models say which operator sets they use."""

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
    opset, has_defaults = opset_of(proto, source), proto.ir_version >= FIRST_WITH_DEFAULTS
    if 0 < opset < MIN_OPSET:
        proto, opset = upgraded(proto, opset, source), CONVERTED_OPSET
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
        if function.domain in OWN:
            name = f"operator {function.name} of ONNX's own domain"
            raise Unimplemented(f"{source}: it defines {name}; functions are not run")


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


def _tensor_of(value: onnx.ValueInfoProto) -> tuple[onnx.TypeProto.Tensor, bool]:
    """The tensor type of a value or of the elements of a sequence, and whether it is a sequence.
    Optional types are read as their element."""
    kind = value.type
    if kind.HasField("optional_type"):
        kind = kind.optional_type.elem_type
    if kind.HasField("sequence_type"):
        return kind.sequence_type.elem_type.tensor_type, True
    return kind.tensor_type, False


def _type(value: onnx.ValueInfoProto) -> TensorType:
    kind, is_sequence = _tensor_of(value)
    if not kind.elem_type:
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
    """A size or its name. Open sizes without a name (0, negative numbers, marks such as ?) get
    ``unnamed``, since two of them need not be equal."""
    if dim.HasField("dim_value"):
        return int(dim.dim_value) if dim.dim_value > 0 else unnamed
    return str(dim.dim_param) if any(map(str.isalnum, dim.dim_param)) else unnamed


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
        domain = "" if node.domain in OWN else node.domain
        sources, results = tuple(node.input), tuple(node.output)
        bare = Node(node.op_type, name, sources, results, domain=domain)
        with blamed_on(bare):
            whole = replace(bare, attrs=_attributes(node, known=domain in ("", _MICROSOFT)))
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
    kind, _ = _tensor_of(value)
    return _type(value) if kind.elem_type else None


def _attributes(proto: onnx.NodeProto, *, known: bool) -> Attributes:
    """The attributes of a node; flags of operators of ``known`` domains are 0 or 1."""
    attributes = {a.name: helper.get_attribute_value(a) for a in proto.attribute}
    for name, value in attributes.items():
        if isinstance(value, onnx.GraphProto):
            attributes[name] = _branch(value)
        elif isinstance(value, onnx.TensorProto):
            attributes[name] = _to_array(value)
    for name in _FLAGS.intersection(attributes if known else ()):
        if attributes[name] not in (0, 1):
            raise ModelError(f"attribute {name!r} = {attributes[name]!r} must be 0 or 1")
    for name in _DATA_TYPES.intersection(attributes):
        attributes[name] = _data_type(attributes[name])
    return attributes


def _data_type(code: object) -> object:
    """The element type of a code; what is none stays, for whoever reads the attribute."""
    if not isinstance(code, int):
        return code
    try:
        return np.dtype(helper.tensor_dtype_to_np_dtype(code))
    except KeyError:
        return code
