"""The node cases of ONNX's own test suite, for every operator that has a row."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from dnnl.errors import InvalidArguments, Unimplemented
from dnnl.framework.graph import Array, ModelError
from dnnl.framework.model import Model
from dnnl.framework.onnx_model import graph_from_proto
from dnnl.framework.operators import OPERATORS
from dnnl.runtime.engine import Engine
from dnnl.tools.difference import compare

FEWEST = 200
"""Cases that must be computed, so that a mistake cannot hide as a refusal."""


def cases() -> Iterator[Any]:
    """Cases of one known operator on float32 tensors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        collected = collect_testcases(None)
    for case in collected:
        nodes, inputs = case.model.graph.node, case.model.graph.input
        first = inputs[0].type.tensor_type.elem_type if inputs else 0
        if len(nodes) == 1 and nodes[0].op_type in OPERATORS and first == 1:
            yield case


def prepared(case: Any, arrays: list[Array]) -> tuple[Model, dict[str, Array]]:
    """The model with everything but its first input, and inputs of that shape, as constants."""
    graph = graph_from_proto(case.model)
    feeds = dict(zip(graph.inputs, arrays, strict=True))
    fixed = {n: a for n, a in feeds.items() if a.dtype != np.float32 or not a.shape}
    feeds = {name: array for name, array in feeds.items() if name not in fixed}
    inputs = {name: kind for name, kind in graph.inputs.items() if name in feeds}
    graph = replace(graph, inputs=inputs, constants={**graph.constants, **fixed})
    return Model(graph).with_shapes({name: a.shape for name, a in feeds.items()}), feeds


def test_cases_are_computed_or_refused() -> None:
    computed = 0
    for case in cases():
        for sources, results in case.data_sets:
            try:
                model, feeds = prepared(case, [np.asarray(source) for source in sources])
                session = model.compile(Engine("cpu"), num_threads=1)
            except (Unimplemented, InvalidArguments, ModelError):
                continue
            outputs = session.run(feeds)
            for name, result in zip(session.outputs, results, strict=True):
                expected = np.asarray(result)
                assert outputs[name].shape == expected.shape, case.name
                difference = compare(name, outputs[name], expected)
                assert difference.is_equal, f"{case.name}: {difference}"
            computed += 1
    assert computed >= FEWEST
