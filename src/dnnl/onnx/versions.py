"""The operator sets of models: which are taken, and old ones as newer ones."""

from __future__ import annotations

from math import prod

import onnx
from onnx import version_converter

from dnnl.errors import Unimplemented
from dnnl.graph.graph import ModelError

MIN_OPSET = 7
"""Older models broadcast by an attribute of each operator: they are converted first."""

CONVERTED_OPSET = 9

OWN = ("", "ai.onnx")
"""The names of ONNX's own domain."""

FIRST_WITH_DEFAULTS = 4
"""The first IR version in which an initializer that is an input as well may be given. Before it,
each had to be one."""


def opset_of(proto: onnx.ModelProto, source: str) -> int:
    """The version of ONNX's own operators, 0 for a model that has only others.

    Raises ModelError where it is missing or out of range, Unimplemented where it is newer than
    those of onnx.
    """
    versions = {int(o.version) for o in proto.opset_import if o.domain in OWN}
    if not versions and not any(node.domain in OWN for node in proto.graph.node):
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


def upgraded(proto: onnx.ModelProto, opset: int, source: str) -> onnx.ModelProto:
    """The model in operators of `CONVERTED_OPSET`.

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
    newer.ir_version = max(proto.ir_version, FIRST_WITH_DEFAULTS)
    try:
        return version_converter.convert_version(newer, CONVERTED_OPSET)
    except Exception as error:  # the converter raises its C++ errors as they are
        raise ModelError(f"{source}: operator set {opset} cannot be converted: {error}") from error
