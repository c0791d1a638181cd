"""What the doctor asks of a canonical model: who makes and reads a tensor, how it is stored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx

from dnnl.errors import Unimplemented
from dnnl.reference.arrays import Array
from dnnl.tools.quantcheck.canonical import DEQUANTIZE, QUANTIZE, Constants, constants_of
from dnnl.tools.quantcheck.scheme import Scheme
from dnnl.types.dtype import DataType

_TYPES = {"uint8": DataType.u8, "int8": DataType.s8}
_NOTHING = (-np.inf, np.inf)
PASSED = ("MaxPool", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Identity")
"""Operators whose results are some of what they take."""


@dataclass(frozen=True, eq=False)
class Site:
    """A place where a tensor is stored as integers by constant scales."""

    node: onnx.NodeProto
    tensor: str
    stored: str
    scale: str
    scheme: Scheme


class Graph:
    """A canonical model to look around in. ``original`` is the float model that it was."""

    def __init__(self, model: onnx.ModelProto, original: Graph | None = None) -> None:
        self.model, self.original = model, original
        self.constants: Constants = constants_of(model)
        self.nodes = list(model.graph.node)
        self.makers = {name: node for node in self.nodes for name in node.output}
        self.readers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
        for node in self.nodes:
            for name in node.input:
                self.readers[name].append(node)
        self.outputs = {output.name for output in model.graph.output}

    @cached_property
    def sites(self) -> list[Site]:
        """Every one whose tensor is no constant."""
        found = []
        for node in self.nodes:
            if node.op_type == QUANTIZE and node.input[0] not in self.constants:
                scheme = self.scheme(node, self.ranks.get(node.input[0], 0))
                if scheme is not None:
                    found.append(Site(node, node.input[0], node.output[0], node.input[1], scheme))
        return found

    @cached_property
    def ranks(self) -> dict[str, int]:
        """The numbers of dimensions that the model tells."""
        described = (*self.model.graph.input, *self.model.graph.value_info)
        return {each.name: len(each.type.tensor_type.shape.dim) for each in described}

    def scheme(self, node: onnx.NodeProto, ndim: int) -> Scheme | None:
        """How a Q or DQ node stores a tensor of so many dimensions; None where its scales are
        computed."""
        scale = self.constants.get(node.input[1])
        given = node.input[2] if len(node.input) > 2 else ""
        zero_point = self.constants.get(given) if given else np.zeros((), self._kind(node))
        if scale is None or zero_point is None:
            return None
        kind = _TYPES.get(str(zero_point.dtype))
        if kind is None:
            name = f"{node.op_type} {node.name!r} stores {zero_point.dtype}"
            raise Unimplemented(name, ["quantcheck knows int8 and uint8"])
        axis = next((each.i for each in node.attribute if each.name == "axis"), 1)
        return Scheme.of(kind, *(_along(values, axis, ndim) for values in (scale, zero_point)))

    def _kind(self, node: onnx.NodeProto) -> np.dtype[np.generic]:
        """The type of what is stored where no zero point tells it."""
        constant = self.constants.get(node.input[0])
        if node.op_type == DEQUANTIZE and constant is not None:
            return np.dtype(constant.dtype)
        return np.dtype(np.uint8)

    def factor(self, name: str) -> onnx.NodeProto | None:
        """The DQ node that makes a factor, if one does."""
        node = self.makers.get(name)
        return node if node is not None and node.op_type == DEQUANTIZE else None

    def site_of(self, node: onnx.NodeProto) -> Site | None:
        """Where that was stored which a DQ node restores."""
        known = {site.stored: site for site in self.sites}
        name = node.input[0]
        while name not in known:
            maker = self.makers.get(name)
            if maker is None or maker.op_type not in PASSED:
                return None
            name = maker.input[0]
        return known[name]

    def end_of(self, node: onnx.NodeProto) -> tuple[Site | None, Callable[[Array], Array]]:
        """Where a result is stored, with nothing but Relu and Clip before, and what these do."""
        name, low, high = node.output[0], -np.inf, np.inf
        known = {site.tensor: site for site in self.sites}
        while name not in known:
            reader = self.readers[name][0] if len(self.readers[name]) == 1 else None
            ends = None if reader is None or name in self.outputs else self._ends(reader)
            if reader is None or ends is None:
                return None, lambda values: values
            low, high = max(low, ends[0]), min(high, ends[1])
            name = reader.output[0]
        ends = self.cut(known[name].node)
        low, high = max(low, ends[0]), min(high, ends[1])
        return known[name], lambda values: np.clip(values, low, high)

    def cut(self, node: onnx.NodeProto) -> tuple[float, float]:
        """What storing a tensor by a Q node cuts off on purpose: quantizers leave out a Relu or a
        Clip whose ends are those of the range.

        The float model tells where there was one. Without it, a zero point that is the least
        integer means a Relu.
        """
        name = node.input[0].removesuffix("__f32").removesuffix("_quantized")
        if self.original is not None and name in self.original.makers:
            return self.original.cut_behind(name)
        scheme = self.scheme(node, 0)
        if scheme is None or not (scheme.zero_point == scheme.data_type.min).all():
            return _NOTHING
        return 0.0, np.inf

    def cut_behind(self, name: str) -> tuple[float, float]:
        """The ends of a tensor of a float model that a Relu or a Clip makes, or alone reads."""
        readers = self.readers[name]
        ends = self._ends(self.makers[name])
        if ends is None and len(readers) == 1:
            ends = self._ends(readers[0])
        return _NOTHING if ends is None else ends

    def _ends(self, node: onnx.NodeProto) -> tuple[float, float] | None:
        """What a Relu or a Clip cuts off."""
        if node.op_type == "Relu":
            return 0.0, np.inf
        if node.op_type != "Clip":
            return None
        given = [*node.input[1:], "", ""][:2]
        if any(name and name not in self.constants for name in given):
            return None
        low, high = (float(self.constants[name].item()) if name else np.nan for name in given)
        return (-np.inf if np.isnan(low) else low), (np.inf if np.isnan(high) else high)


def _along(values: Array, axis: int, ndim: int) -> Array:
    """Scales or zero points, broadcast to a tensor of so many dimensions."""
    if values.size == 1 or not ndim:
        return np.asarray(values, np.float64).reshape(-1)[:1] if values.size == 1 else values
    shape = [1] * ndim
    shape[axis % ndim] = values.size
    return np.asarray(values, np.float64).reshape(shape)
