"""Damaged and hostile model files: an error of the library, or what ONNX Runtime computes.

A case is the number of a model and edits of it; `tests.fuzz.model_edits` says what these are.
"""

from __future__ import annotations

import re
import resource
import tempfile
from collections.abc import Mapping
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import external_data_helper

import dnnl
from dnnl.framework.model import Model, load
from dnnl.onnx.versions import MIN_OPSET
from tests.framework.models import Array, assert_same, feeds_for, run_peer
from tests.framework.random_graphs import STEPS, Builder
from tests.fuzz.kind import PASSED, Kind, Outcome, State, failed
from tests.fuzz.model_edits import edited, edits

_SHAPE = (1, 4, 4, 4)
_EACH = 5  # steps of a model
_MOST_ELEMENTS = 2**20  # of an input that is run
_MOST_BYTES = 2**28  # of the activations of a model that is run
_MEMORY = 8 << 30
_TOLERANCE = 1e-3
_REASON = 24  # characters of a rule by which models that break it are one finding


@cache
def models() -> list[Any]:
    """Small models of every step of graphs, two of them also with parameters in another file."""
    names = list(STEPS)
    made = []
    for first in range(0, len(names), _EACH):
        builder = Builder(first, _SHAPE)
        for step in names[first : first + _EACH]:
            builder.step(step, (0, 1, 2))
        made.append(_with_types(builder.proto()))
    return [*made, *map(_external, made[1:3])]


def _with_types(proto: Any) -> Any:
    """The model with the shapes of its outputs, each once, which ONNX's checker wants."""
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    del made.graph.output[:]
    for name in dict.fromkeys(output.name for output in proto.graph.output):
        made.graph.output.append(onnx.ValueInfoProto(name=name))
    inferred = onnx.shape_inference.infer_shapes(made, strict_mode=True)
    del made.graph.output[:]
    made.graph.output.extend(inferred.graph.output)
    return made


def _external(proto: Any) -> Any:
    """The model with its parameters in ``weights.bin``."""
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    external_data_helper.convert_model_to_external_data(
        made, all_tensors_to_one_file=True, location="weights.bin", size_threshold=0
    )
    for tensor, own in zip(made.graph.initializer, proto.graph.initializer, strict=True):
        tensor.raw_data = own.raw_data
    return made


@st.composite
def _cases(draw: st.DrawFn) -> str:
    number = draw(st.integers(0, len(models()) - 1))
    return f"{number} {draw(edits(models()[number]))}"


def _run(text: str) -> Outcome:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    number, *texts = text.split(" ")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "model")
        folder.mkdir()
        path = folder / "model.onnx"
        path.write_bytes(edited(_with_files(models()[int(number)], folder), texts))
        try:
            return _beside(path)
        except dnnl.Unimplemented as error:
            return Outcome(State.UNIMPLEMENTED, type(error).__name__)
        except dnnl.Error as error:
            return Outcome(State.REFUSED, type(error).__name__)


def _with_files(proto: Any, folder: Path) -> Any:
    """The model beside the files that it and edits name."""
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    secret = folder.parent / "weights.bin"
    secret.write_bytes(bytes(2**16))
    (folder / "link.bin").symlink_to(secret)
    outside = [tensor for tensor in made.graph.initializer if tensor.external_data]
    if outside:
        with (folder / "weights.bin").open("wb") as file:
            for tensor in outside:
                external_data_helper.set_external_data(
                    tensor, "weights.bin", file.tell(), len(tensor.raw_data)
                )
                file.write(tensor.raw_data)
                tensor.ClearField("raw_data")
    return made


def _beside(path: Path) -> Outcome:
    """Load, compile and run a model, here and in ONNX Runtime."""
    model = load(path)
    shapes = [kind.shape for kind in model.inputs.values()]
    if any(prod(n for n in shape if isinstance(n, int)) > _MOST_ELEMENTS for shape in shapes):
        return Outcome(State.REFUSED, "an input that is too large to be run here")
    session = model.compile(dnnl.Engine("cpu"), num_threads=1)
    if session.nbytes > _MOST_BYTES:
        return Outcome(State.REFUSED, "activations that are too large to be computed here")
    feeds = feeds_for(model.graph)
    with np.errstate(all="ignore"):
        results = session.run(feeds)
    return _compared(path, model, feeds, results)


def _compared(
    path: Path, model: Model, feeds: Mapping[str, Array], results: Mapping[str, Array]
) -> Outcome:
    proto = onnx.load(path)
    try:
        expected = run_peer(proto, feeds)
    except Exception as error:
        return _alone(proto, error)
    if _has_unfinite_kernel(proto):
        results = {
            name: np.where(np.isnan(expected[name]), np.nan, array)
            if array.dtype.kind == "f"
            else array
            for name, array in results.items()
        }
    try:
        assert_same(results, expected, _TOLERANCE)
    except AssertionError as error:
        # ONNX Runtime's LRN takes large squares out of its sums again, and may be left below zero.
        lost = any(np.isnan(array).any() for array in expected.values())
        if not (lost and "LRN" in _operators(model)) and not _undefined(proto, feeds):
            return failed(f"wrong: {_operators(model)}", str(error))
    return PASSED


def _has_unfinite_kernel(proto: Any) -> bool:
    """Whether a convolution has weights that are no numbers: ONNX Runtime multiplies them by the
    zeros of its padding, where there is no product for us."""
    weights = {node.input[1] for node in proto.graph.node if node.op_type.startswith("Conv")}
    return any(
        not np.isfinite(onnx.numpy_helper.to_array(tensor)).all()
        for tensor in proto.graph.initializer
        if tensor.name in weights
    )


def _undefined(proto: Any, feeds: Mapping[str, Array]) -> bool:
    """Whether floats become integers that cannot hold them, which ONNX leaves undefined."""
    casts = {n.input[0]: n.attribute[0].i for n in proto.graph.node if n.op_type == "Cast"}
    shown = onnx.ModelProto()
    shown.CopyFrom(proto)
    shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in casts)
    sources = {**feeds, **run_peer(shown, feeds)}
    for name, to in casts.items():
        array, kind = sources[name], onnx.helper.tensor_dtype_to_np_dtype(to)
        if array.dtype.kind == "f" and np.issubdtype(kind, np.integer):
            ends = np.iinfo(kind)
            whole = np.trunc(array)
            if not np.all((whole >= ends.min) & (whole <= ends.max)):
                return True
    return False


def _operators(model: Model) -> str:
    return " ".join(sorted({node.op for node in model.graph.nodes}))


def _alone(proto: Any, refusal: Exception) -> Outcome:
    """What is right where ONNX Runtime has no result: a model that ONNX's checker takes, but for
    stale shapes, with which models run elsewhere, and for operators that are converted."""
    if any(o.version < MIN_OPSET for o in proto.opset_import):
        return Outcome(State.PASSED, "refused by ONNX Runtime alone")
    try:
        made = onnx.ModelProto()
        made.CopyFrom(proto)
        del made.graph.value_info[:]
        onnx.checker.check_model(_with_types(made), full_check=True)
    except Exception as error:
        rule = re.sub("[^A-Za-z]+", " ", str(error))[:_REASON]
        return failed(f"ONNX refuses: {rule}", f"{error}\nONNX Runtime: {refusal}")
    return Outcome(State.PASSED, "refused by ONNX Runtime alone")


KIND = Kind("model", "damaged and hostile model files", _cases, _run, __name__, 3, lives=100)
