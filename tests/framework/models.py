"""Small ONNX models, and what ONNX Runtime makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from dnnl.framework.model import Model
from dnnl.framework.plans import Plans
from dnnl.graph.graph import Graph
from dnnl.onnx.read import graph_from_proto
from dnnl.tools.difference import compare

Array = npt.NDArray[Any]
LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"


def node(op: str, inputs: Sequence[str], *outputs: str, **attrs: Any) -> Any:
    """A NodeProto, named after its first output."""
    return helper.make_node(op, inputs, outputs, name=f"node_{outputs[0]}", **attrs)


def make_model(
    nodes: Sequence[Any],
    inputs: Mapping[str, Sequence[int | str]],
    outputs: Sequence[str],
    constants: Mapping[str, Any] | None = None,
    opset: int = 17,
    kinds: Mapping[str, npt.DTypeLike] | None = None,
) -> Any:
    """A ModelProto of inputs and outputs of ``kinds``, or floats; float64 constants become
    float32."""

    def kind(name: str) -> int:
        if kinds is None or name not in kinds:
            return int(TensorProto.FLOAT)
        return int(helper.np_dtype_to_tensor_dtype(np.dtype(kinds[name])))

    arrays = {name: np.asarray(value) for name, value in (constants or {}).items()}
    initializers = [
        numpy_helper.from_array(a.astype(np.float32) if a.dtype == np.float64 else a, name)
        for name, a in arrays.items()
    ]
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(n, kind(n), s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, kind(n), None) for n in outputs],
        initializers,
    )
    return helper.make_model_gen_version(graph, opset_imports=[helper.make_opsetid("", opset)])


def plans_of(model: Model) -> Plans:
    """The plans of a model of one part that was called."""
    (plans,) = model._called(()).runner.plans
    return plans


def graph_of(proto: Any) -> Graph:
    """The graph of a model."""
    return graph_from_proto(proto)


def feeds_for(graph: Graph, seed: int = 0) -> dict[str, Array]:
    """Seeded inputs; an open dimension has size 1."""
    rng = np.random.default_rng(seed)
    return {
        name: rng.standard_normal([n if isinstance(n, int) else 1 for n in kind.shape]).astype(
            kind.dtype
        )
        for name, kind in graph.inputs.items()
    }


def run_peer(proto: Any, feeds: Mapping[str, Array], as_written: bool = False) -> dict[str, Array]:
    """ONNX Runtime's outputs; ``as_written`` without its own rewrites."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    # Its further fusions lose values of valid graphs: a product of scaled factors, of which one has
    # another reader, cannot be loaded.
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = (
        levels.ORT_DISABLE_ALL if as_written else levels.ORT_ENABLE_BASIC
    )
    content = proto if isinstance(proto, bytes) else proto.SerializeToString()
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))


def assert_same(
    given: Mapping[str, Array], expected: Mapping[str, Array], tolerance: float
) -> None:
    """Every output has the expected shape and values."""
    assert given.keys() == expected.keys()
    for name, array in expected.items():
        assert given[name].shape == array.shape
        difference = compare(name, given[name], array)
        assert difference.relative < tolerance, str(difference)


def model_of(proto: Any) -> Model:
    """A Model of a protobuf."""
    return Model(graph_from_proto(proto))
