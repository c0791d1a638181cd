"""A model of one operator, whose sizes are open, beside a peer for each of some inputs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from dnnl.framework.model import Model
from dnnl.onnx.read import graph_from_proto
from dnnl.tools.difference import compare
from tests.framework.models import Array, model_of, run_peer

Feeds = Mapping[str, Array]


def model_with(
    op: str,
    feeds: Feeds,
    kinds: Mapping[str, npt.DTypeLike],
    *,
    opset: int = 18,
    constants: Mapping[str, Array] | None = None,
    inputs: Sequence[str] | None = None,
    attrs: Mapping[str, Any] | None = None,
) -> Any:
    """A ModelProto of a node whose inputs have the names of ``feeds``, then of ``constants``, or
    ``inputs`` where others are between. Each dimension has a name of its own."""
    held = constants or {}
    node = helper.make_node(op, inputs or [*feeds, *held], list(kinds), **(attrs or {}))

    def typed(name: str, kind: npt.DTypeLike, shape: Sequence[str] | None) -> Any:
        code = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        return helper.make_tensor_value_info(name, code, shape)

    given = [
        typed(name, array.dtype, [f"{name}{d}" for d in range(array.ndim)])
        for name, array in feeds.items()
    ]
    graph = helper.make_graph(
        [node],
        op,
        given,
        [typed(name, kind, None) for name, kind in kinds.items()],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model_gen_version(graph, opset_imports=opsets)


def evaluated(proto: Any, feeds: Feeds) -> dict[str, Array]:
    """What ONNX's own implementation gives."""
    names = [output.name for output in proto.graph.output]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        results = ReferenceEvaluator(proto).run(None, dict(feeds))
    return {name: np.asarray(own) for name, own in zip(names, results, strict=True)}


def results_of(model: Model, feeds: Feeds, threads: int | None = None) -> dict[str, Array]:
    """The outputs of a call by their names."""
    found = model(dict(feeds), num_threads=threads)
    return found if isinstance(found, dict) else {model.outputs[0]: found}


def assert_equal(got: Mapping[str, Array], want: Mapping[str, Array], tolerance: float) -> None:
    """Types, shapes and values are equal; floats differ by no more than the tolerance."""
    assert got.keys() == want.keys()
    for name, array in want.items():
        assert (got[name].dtype, got[name].shape) == (array.dtype, array.shape), name
        if array.dtype.kind in "biu" or not tolerance:
            np.testing.assert_array_equal(got[name], array)
        else:
            difference = compare(name, got[name], array)
            assert difference.relative <= tolerance, str(difference)


def check(
    op: str,
    kinds: Mapping[str, npt.DTypeLike],
    *every: Feeds,
    peer: str = "runtime",
    tolerance: float = 0.0,
    wanted: Sequence[Mapping[str, Array]] = (),
    **options: Any,
) -> None:
    """Call a model of the operator with each of ``every``: the first makes a plan for its sizes,
    the others one for open sizes. Results are those of ONNX Runtime, or of ONNX's own ``reference``
    evaluator, or as ``wanted``, on one thread and on two, and in plain layouts."""
    proto = model_with(op, every[0], kinds, **options)
    model = model_of(proto)
    for number, feeds in enumerate(every):
        if wanted:
            want = wanted[number]
        else:
            want = run_peer(proto, feeds) if peer == "runtime" else evaluated(proto, feeds)
        for threads in (1, 2):
            assert_equal(results_of(model, feeds, threads), want, tolerance)
        plain = Model(graph_from_proto(proto)).with_shapes({n: a.shape for n, a in feeds.items()})
        if _is_planned(plain):
            session = plain.compile(layout="plain", num_threads=1)
            assert_equal(session.run(dict(feeds)), want, tolerance)


def _is_planned(model: Model) -> bool:
    return all(kind.shape and kind.dtype.kind == "f" for kind in model.inputs.values())
