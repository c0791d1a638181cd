"""A model of integers as a patient: layer by layer, with real inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx

from dnnl.errors import InvalidArguments
from dnnl.graph.graph import ModelError
from dnnl.reference.arrays import Array, f64
from dnnl.runtime.threads import get_num_threads
from dnnl.tools.peer_onnxruntime import OnnxRuntime
from dnnl.tools.quantcheck.canonical import (
    canonical,
    constants_of,
    exposing,
    in_floats,
    known_before,
)
from dnnl.tools.quantcheck.errors import Error
from dnnl.tools.quantcheck.graph import PASSED, Graph, Site
from dnnl.tools.quantcheck.layer import Layer, LayerReport, Named, examine, stored_tensor
from dnnl.tools.quantcheck.products import product_of
from dnnl.tools.quantcheck.report import Report
from dnnl.tools.quantcheck.scheme import Scheme, TensorReport
from dnnl.types.kinds import nearest

Arrays = Mapping[str, np.ndarray]


def read_model(path: Path) -> onnx.ModelProto:
    """An ONNX file; raises ModelError where it cannot be read."""
    try:
        return onnx.load(str(path))
    except FileNotFoundError as error:
        raise ModelError(f"{path}: no such file") from error
    except Exception as error:  # protobuf's errors have no public base
        raise ModelError(f"{path}: no ONNX model, or a damaged one ({error})") from error


def check_model(
    model: onnx.ModelProto,
    inputs: Arrays,
    original: onnx.ModelProto | None = None,
    subject: str = "model",
) -> Report:
    """The report on a model of integers: QDQ, QLinear operators or dynamic quantization.

    Each layer is examined with what comes to it where nothing is rounded, and compared with what
    comes to it in fact. ``original`` is the float model, whose weights are known by name; without
    it the values of integer weights are taken for right. ONNX Runtime executes both models.
    Raises Unimplemented for operators without a rule and InvalidArguments for wrong inputs.
    """
    _check_inputs(model, inputs)
    graph = Graph(canonical(model), None if original is None else Graph(original))
    if not graph.sites and not any(node.op_type.endswith("Integer") for node in model.graph.node):
        rule = "stores nothing as integers by constant scales"
        raise InvalidArguments("MODEL", subject, rule, "quantize it first")
    floats = constants_of(original) if original is not None else {}
    patient = _Patient(graph, floats, *_executed(graph, floats, inputs))
    return Report.of(subject, list(patient.rows()), patient.errors(), patient.notes())


def _check_inputs(model: onnx.ModelProto, inputs: Arrays) -> None:
    held = {each.name for each in model.graph.initializer}
    wanted = {each.name: each for each in model.graph.input if each.name not in held}
    for name in inputs:
        if name not in wanted:
            rule = f"the model has no such input; it has {', '.join(wanted)}"
            raise InvalidArguments("--data", name, rule, nearest(name, list(wanted)))
    for name, described in wanted.items():
        if name not in inputs:
            rule = f"must have the input {name!r}"
            raise InvalidArguments("--data", ", ".join(inputs) or "nothing", rule)
        tensor = described.type.tensor_type
        kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if inputs[name].dtype != kind:
            raise InvalidArguments(name, str(inputs[name].dtype), f"expected {kind}")
        dims = [d.dim_value or None for d in tensor.shape.dim]
        shape = inputs[name].shape
        fits = len(dims) == len(shape) and all(
            known in (None, size) for known, size in zip(dims, shape, strict=True)
        )
        if not fits:
            expected = "x".join(str(known or "?") for known in dims)
            raise InvalidArguments(name, shape, f"the model takes {expected}")


def _executed(
    graph: Graph, floats: Arrays, inputs: Arrays
) -> tuple[dict[str, Array], dict[str, Array]]:
    """What all tensors that matter hold without rounding, and in fact."""
    names = {*graph.outputs}
    for site in graph.sites:
        names |= {site.tensor, site.stored}
    for node in graph.nodes:
        if product_of(node) is not None:
            names |= {*node.input, *node.output}
    names -= {"", *inputs}
    made = [name for name in names if name in graph.makers]
    found = []
    for model in (in_floats(graph.model, floats, graph.cut), graph.model):
        run = OnnxRuntime(exposing(model, made), get_num_threads(), fused=False)
        held: dict[str, Array] = {name: f64(array) for name, array in run.run(inputs).items()}
        held |= {name: f64(array) for name, array in inputs.items()}
        found.append(held)
    return found[0], found[1]


@dataclass(frozen=True, eq=False)
class _Patient:
    """A model with the values of its tensors as they are ``meant`` and as they ``came``."""

    graph: Graph
    floats: Arrays
    meant: Mapping[str, Array]
    came: Mapping[str, Array]

    def rows(self) -> Iterator[LayerReport]:
        """A row for each product, and for whatever else is stored."""
        owners = self._owners()
        for node in self.graph.nodes:
            layer = self._layer(node)
            if layer is None:
                continue
            report = examine(layer)
            site, _ = self.graph.end_of(node)
            reached = self._at_site(site) if site else self._between(node.output[0])
            yield replace(report, reached=reached, stored_by=self._stored_by(node, owners))
        for site in self.graph.sites:
            maker = self.graph.makers.get(site.tensor)
            name, reported = owners[site.tensor]
            if reported:
                continue
            tensor = TensorReport.of(
                "dst", site.tensor, site.scale, _fitting(site.scheme), self.meant[site.stored]
            )
            operator = "input" if maker is None else maker.op_type
            yield stored_tensor(name, operator, tensor, self._at_site(site))

    def errors(self) -> list[tuple[str, Error]]:
        """Those of the outputs that are floats."""
        names = sorted(self.graph.outputs & self.meant.keys())
        stored = {site.stored: site.scheme for site in self.graph.sites}
        return [
            (name, Error.of(stored[name].restored(self.came[name]), self.meant[name]))
            if name in stored
            else (name, self._between(name))
            for name in names
        ]

    def notes(self) -> list[str]:
        """What could not be known."""
        if self.floats:
            return []
        return ["weights are taken as they are: --float MODEL tells what they were before"]

    def _owners(self) -> dict[str, tuple[str, bool]]:
        """The row that tells of each stored tensor, and whether that is a row of something else: of
        a product, or of what an operator only passes on by the same scale."""
        owners: dict[str, tuple[str, bool]] = {}
        for node in self.graph.nodes:
            if self._is_layer(node):
                end, _ = self.graph.end_of(node)
                if end is not None:
                    owners[end.tensor] = _name(node), True
        by_scale: dict[str, str] = {}
        for site in self.graph.sites:
            maker = self.graph.makers.get(site.tensor)
            passed = maker is not None and maker.op_type in PASSED and site.scale in by_scale
            if site.tensor not in owners:
                own = f"input {site.tensor}" if maker is None else _name(maker)
                owners[site.tensor] = (by_scale[site.scale] if passed else own), passed
            by_scale.setdefault(site.scale, owners[site.tensor][0])
        return owners

    def _is_layer(self, node: onnx.NodeProto) -> bool:
        """Whether a node multiplies something that is stored as integers."""
        known = product_of(node) is not None
        return known and any(self.graph.factor(name) is not None for name in node.input[:2])

    def _layer(self, node: onnx.NodeProto) -> Layer | None:
        product = product_of(node)
        if product is None or not self._is_layer(node):
            return None
        schemes: dict[str, Scheme] = {}
        names: dict[str, Named] = {}
        stored, lost = None, False
        for role, name in zip(("src", "weights"), node.input, strict=False):
            factor = self.graph.factor(name)
            values = self._value(name)
            scheme = None if factor is None else self.graph.scheme(factor, values.ndim)
            if factor is None or scheme is None:
                continue
            constant = self.graph.constants.get(factor.input[0])
            schemes[role], names[role] = scheme, Named(factor.input[0], factor.input[1])
            if role == "weights" and constant is not None and constant.dtype != np.float32:
                stored, lost = f64(constant), not known_before(factor, self.floats)
        site, after = self.graph.end_of(node)
        if site is not None:
            schemes["dst"], names["dst"] = _fitting(site.scheme), Named(site.tensor, site.scale)
        src, weights = (self._value(name) for name in node.input[:2])
        bias = self._bias(node, src.ndim)
        return Layer(
            _name(node),
            node.op_type,
            product,
            src,
            weights,
            bias,
            schemes,
            names,
            after,
            stored,
            lost,
        )

    def _bias(self, node: onnx.NodeProto, ndim: int) -> Array | None:
        if len(node.input) < 3 or not node.input[2]:
            return None
        bias = self._value(node.input[2])
        return bias.reshape(1, -1, *[1] * (ndim - 2)) if bias.ndim == 1 else bias

    def _value(self, name: str) -> Array:
        """What a tensor is meant to hold."""
        return self.meant[name] if name in self.meant else f64(self.graph.constants[name])

    def _between(self, name: str) -> Error:
        return Error.of(self.came[name], self.meant[name])

    def _at_site(self, site: Site) -> Error:
        """What has become of a tensor where it is stored."""
        return Error.of(
            _fitting(site.scheme).restored(self.came[site.stored]), self.meant[site.stored]
        )

    def _stored_by(
        self, node: onnx.NodeProto, owners: Mapping[str, tuple[str, bool]]
    ) -> dict[str, str]:
        """Who has stored the factors of a product."""
        found = {}
        for role, name in zip(("src", "weights"), node.input, strict=False):
            factor = self.graph.factor(name)
            site = None if factor is None else self.graph.site_of(factor)
            if site is not None:
                found[role] = owners[site.tensor][0]
        return found


def _fitting(scheme: Scheme) -> Scheme:
    """The scheme of an activation, which has one scale."""
    if scheme.scale.size != 1:
        rule = "a scale for each channel of an activation"
        raise InvalidArguments("MODEL", scheme.scale.shape, rule, "quantize activations as a whole")
    return scheme


def _name(node: onnx.NodeProto) -> str:
    return str(node.name or node.output[0])
