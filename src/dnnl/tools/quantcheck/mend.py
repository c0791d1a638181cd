"""Taking the doctor's advice: a model with other scales."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import numpy_helper

from dnnl.errors import Unimplemented
from dnnl.reference.arrays import f64
from dnnl.tools.quantcheck.canonical import DEQUANTIZE, QUANTIZE, Constants, before, constants_of
from dnnl.tools.quantcheck.report import Report
from dnnl.tools.quantcheck.scheme import Scheme, TensorReport

_BIAS = {"QLinearConv": 8, "QGemm": 6}
_ENDS = (-(2**31), 2**31 - 1)


def mended(
    model: onnx.ModelProto, report: Report, original: onnx.ModelProto | None = None
) -> onnx.ModelProto:
    """The model with the advised scales and zero points, with weights quantized anew where their
    scale changes and biases where those of their factors do. ``original`` is the float model that
    the report was made with.

    Of a scale that several tensors share the largest that is advised for one of them is taken.
    """
    made = onnx.ModelProto()
    made.CopyFrom(model)
    constants = constants_of(model)
    changed: Constants = {}
    floats = constants_of(original) if original is not None else {}
    pairs = dict(_zero_points(model))
    for name, tensor in _changes(report).items():
        if name not in constants:
            raise Unimplemented(f"{name!r} is no constant of the model", ["mend it by hand"])
        best = tensor.best
        changed[name] = _like(constants[name], best.scale)
        if pairs.get(name) in constants:
            changed[pairs[name]] = _like(constants[pairs[name]], best.zero_point)
        if tensor.role == "weights" and tensor.tensor in constants:
            changed |= _weights(tensor, best, constants, floats)
    changed |= dict(_biases(model, constants, changed, floats))
    for initializer in made.graph.initializer:
        if initializer.name in changed:
            array = changed[initializer.name]
            initializer.CopyFrom(numpy_helper.from_array(array, initializer.name))
    return made


def _changes(report: Report) -> dict[str, TensorReport]:
    """The tensors whose scales change, by the name of the scale."""
    found: dict[str, TensorReport] = {}
    for layer in report.layers:
        for tensor in layer.changes:
            known = found.get(tensor.scale)
            if not tensor.known or not tensor.scale:
                continue
            if known is None or known.best.scale.max() < tensor.best.scale.max():
                found[tensor.scale] = tensor
    return found


def _like(old: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Values in the type and the shape of what they replace."""
    return np.asarray(values.reshape(-1).astype(old.dtype).reshape(old.shape))


def _zero_points(model: onnx.ModelProto) -> Iterator[tuple[str, str]]:
    """The zero point next to each scale: in all operators it follows it."""
    for node in model.graph.node:
        if node.op_type in (QUANTIZE, DEQUANTIZE) or node.op_type.startswith("Q"):
            yield from zip(node.input, node.input[1:], strict=False)


def _weights(
    tensor: TensorReport, best: Scheme, constants: Constants, floats: Constants
) -> Constants:
    """Integer weights anew; those that are floats in the model need nothing."""
    stored = constants[tensor.tensor]
    if stored.dtype == np.float32:
        return {}
    exact = before(tensor.tensor, floats)
    assert exact is not None, "of unknown weights nothing is advised"
    return {tensor.tensor: best.stored(f64(exact)).astype(stored.dtype)}


def _biases(
    model: onnx.ModelProto, constants: Constants, changed: Constants, floats: Constants
) -> Iterator[tuple[str, np.ndarray]]:
    """Biases of s32, whose scale is the product of those of src and weights: where either changes,
    what they were in the float model, or else what they stood for."""
    now = {**constants, **changed}
    makers = {name: node for node in model.graph.node for name in node.output}

    def scale(name: str) -> str:
        node = makers.get(name)
        return node.input[1] if node is not None and node.op_type == DEQUANTIZE else ""

    for node in model.graph.node:
        if node.op_type in _BIAS and len(node.input) > _BIAS[node.op_type]:
            factors, bias, own = (node.input[1], node.input[4]), node.input[_BIAS[node.op_type]], ""
        elif len(node.input) > 2 and scale(node.input[2]):
            factors = scale(node.input[0]), scale(node.input[1])
            bias, own = makers[node.input[2]].input[0], scale(node.input[2])
        else:
            continue
        if not all(name in constants for name in (*factors, bias)) or not {*factors} & {*changed}:
            continue
        old = constants[own] if own else constants[factors[0]] * constants[factors[1]]
        new = f64(now[factors[0]]).reshape(-1) * f64(now[factors[1]]).reshape(-1)
        exact = before(bias, floats)
        values = f64(constants[bias]) * f64(old).reshape(-1) if exact is None else f64(exact)
        yield bias, np.clip(np.rint(values / new), *_ENDS).astype(np.int32)
        if own:
            yield own, _like(constants[own], np.broadcast_to(new, constants[own].size))
