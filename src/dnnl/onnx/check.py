"""What ONNX itself says of a model: its checker, with shape inference in strict mode."""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import prod

import onnx
from onnx import helper

from dnnl.onnx.versions import OWN

_LARGE = 1 << 14
"""Elements from which on a tensor's contents decide no shape."""

_IR_VERSION = 4
"""Before it, initializers had to be inputs as well, and nobody holds a model to that."""

_RUNTIMES_OWN = {"LayerNormalization": 17, "SimplifiedLayerNormalization": 1 << 30}
"""Operators that ONNX Runtime has in ONNX's own domain before an operator set in which ONNX does:
its optimizer and its exporters write them."""

_FOREIGN = "com.microsoft"
"""A domain that ONNX's checker does not know, whose operators it accepts."""

_NOISE = re.compile(r"\[\w+Error\] |Inference error\(s\): |==> Context: ")


def refusal(proto: onnx.ModelProto) -> str:
    """Why ONNX refuses a model whose external data are loaded, in one line; empty if it does not.

    What runs elsewhere passes: stale shapes of outputs and of values inside the graph, inputs and
    outputs without a shape, a graph without a name.
    """
    light = _light(proto)
    try:
        onnx.checker.check_model(_ranked(light))
        if not _has_negative_sizes(light):
            onnx.shape_inference.infer_shapes(light, check_type=True, strict_mode=True)
    except Exception as error:  # C++ errors of several kinds, without a common base
        lines = (_NOISE.sub("", line).strip() for line in str(error).splitlines())
        return "; ".join(filter(None, lines))
    return ""


def inferred_types(proto: onnx.ModelProto) -> dict[str, onnx.TypeProto]:
    """The types that ONNX infers of the values of a model; of none where it refuses the model."""
    light = _light(proto)
    del light.graph.value_info[:]
    try:
        if _has_negative_sizes(light):
            return {}
        found = onnx.shape_inference.infer_shapes(light, data_prop=True)
    except Exception:  # as in `refusal`, which is for what is read
        return {}
    return {value.name: value.type for value in found.graph.value_info}


def _light(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model without what the check does not need.

    Large tensors become inputs of their type: their contents would not fit into the 2 GiB of a
    protobuf. Outputs become values: their element types are compared with what is inferred, their
    shapes, which may be stale, are not.
    """
    source = proto.graph
    large = [tensor for tensor in source.initializer if prod(tensor.dims) >= _LARGE]
    names = {tensor.name for tensor in large}
    declared = {value.name for value in source.input}
    graph = onnx.GraphProto(
        name=source.name or "graph",
        node=[_foreign(node, proto) for node in source.node],
        input=map(_with_open_sizes, source.input),
        initializer=[tensor for tensor in source.initializer if tensor.name not in names],
        sparse_initializer=source.sparse_initializer,
        value_info=[_without_shape(value) for value in source.output],
    )
    graph.input.extend(
        helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        for tensor in large
        if tensor.name not in declared
    )
    return onnx.ModelProto(
        ir_version=max(proto.ir_version, _IR_VERSION),
        opset_import=_imports(proto),
        functions=proto.functions,
        graph=graph,
    )


def _with_open_sizes(value: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
    """An input whose negative sizes, which say that they are open, are left out."""
    own = onnx.ValueInfoProto()
    own.CopyFrom(value)
    for dim in own.type.tensor_type.shape.dim if value.type.HasField("tensor_type") else ():
        if dim.dim_value < 0:
            dim.Clear()
    return own


def _has_negative_sizes(model: onnx.ModelProto) -> bool:
    """Whether something has a negative size in a model that slices, as what a window larger than
    its image leaves: the inference of Slice would end the process. Planning refuses it later."""
    if not any(map(_slices, (model.graph, *model.functions))):
        return False
    own = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    own.functions.extend(map(_function, model.functions))
    own.graph.CopyFrom(model.graph)
    del own.graph.node[:]
    own.graph.node.extend(_of_any_size(model.graph.node))
    pending = [onnx.shape_inference.infer_shapes(own).graph]
    while pending:
        graph = pending.pop()
        kinds = (value.type.tensor_type for value in graph.value_info)
        if any(dim.dim_value < 0 for kind in kinds for dim in kind.shape.dim):
            return True
        pending += _graphs(graph)
    return False


def _slices(graph: onnx.GraphProto | onnx.FunctionProto) -> bool:
    """Whether a node slices, or one of its subgraphs does."""
    return any(node.op_type == "Slice" for node in graph.node) or any(map(_slices, _graphs(graph)))


def _graphs(graph: onnx.GraphProto | onnx.FunctionProto) -> list[onnx.GraphProto]:
    """The subgraphs of its nodes."""
    return [own.g for node in graph.node for own in node.attribute if own.HasField("g")]


def _of_any_size(nodes: Iterable[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Nodes that slice tensors of unknown sizes, also in their subgraphs."""
    made = []
    for node in nodes:
        slices = node.op_type == "Slice" and node.domain in OWN and len(node.input) > 1
        if not slices and not any(attribute.HasField("g") for attribute in node.attribute):
            made.append(node)
            continue
        own = onnx.NodeProto()
        own.CopyFrom(node)
        if slices:
            made += _forgetting_sizes(own)
        for attribute in own.attribute:
            if attribute.HasField("g"):
                inside = _of_any_size(attribute.g.node)
                del attribute.g.node[:]
                attribute.g.node.extend(inside)
        made.append(own)
    return made


def _forgetting_sizes(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """The nodes through which ``node`` reads its first input as of any size."""
    given, own = node.input[0], node.output[0]
    shape, opaque, data = (f"{own}: {what}" for what in ("shape", "any shape", "any size"))
    node.input[0] = data
    return [
        helper.make_node("Shape", [given], [shape]),
        helper.make_node("Abs", [shape], [opaque]),  # whose contents nobody infers
        helper.make_node("Reshape", [given, opaque], [data]),
    ]


def _function(function: onnx.FunctionProto) -> onnx.FunctionProto:
    own = onnx.FunctionProto()
    own.CopyFrom(function)
    del own.node[:]
    own.node.extend(_of_any_size(function.node))
    return own


def _foreign(node: onnx.NodeProto, proto: onnx.ModelProto) -> onnx.NodeProto:
    """A node; in the foreign domain if it is ONNX Runtime's operator in this operator set."""
    since = _RUNTIMES_OWN.get(node.op_type, 0) if node.domain in OWN else 0
    if max((o.version for o in proto.opset_import if o.domain in OWN), default=0) >= since:
        return node
    moved = onnx.NodeProto()
    moved.CopyFrom(node)
    moved.domain = _FOREIGN
    return moved


def _imports(proto: onnx.ModelProto) -> list[onnx.OperatorSetIdProto]:
    """The operator sets of a model, plus one for the foreign domain."""
    found = list(proto.opset_import)
    if all(own.domain != _FOREIGN for own in found):
        found.append(helper.make_opsetid(_FOREIGN, 1))
    return found


def _ranked(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with a shape for each input, as the checker wants one; inference does not."""
    ranked = onnx.ModelProto()
    ranked.CopyFrom(model)
    for value in ranked.graph.input:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.shape.SetInParent()
    return ranked


def _without_shape(value: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
    if not value.type.HasField("tensor_type"):
        return value
    return helper.make_tensor_value_info(value.name, value.type.tensor_type.elem_type, None)
