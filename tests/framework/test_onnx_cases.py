"""The node cases of ONNX's own test suite, for every operator that has a row."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx.numpy_helper import to_array

from dnnl.errors import InvalidArguments, Unimplemented
from dnnl.framework.model import Model
from dnnl.graph.graph import Array, ModelError
from dnnl.onnx.read import graph_from_proto
from dnnl.operators.numbers import REDUCTIONS
from dnnl.operators.table import OPERATORS
from dnnl.runtime.engine import Engine
from dnnl.tools.difference import compare

FEWEST, FEWEST_EXACT = 1061, 398
"""Cases that must be computed, so that a mistake cannot hide as a refusal."""

_FLOAT = onnx.TensorProto.FLOAT


def cases(*, exact: bool) -> Iterator[Any]:
    """Cases of one known operator on float32 tensors; with ``exact`` those on tensors of other
    types as well."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        collected = collect_testcases(None)
    for case in collected:
        graph = case.model.graph
        if len(graph.node) != 1 or graph.node[0].op_type not in OPERATORS or not graph.input:
            continue
        if not all(value.type.HasField("tensor_type") for value in graph.input):
            continue
        kinds = {value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)}
        if kinds != {_FLOAT} if exact else graph.input[0].type.tensor_type.elem_type == _FLOAT:
            yield case


def array(source: Any) -> Array:
    return to_array(source) if isinstance(source, onnx.TensorProto) else np.asarray(source)


def prepared(
    case: Any, arrays: list[Array], *, exact: bool, constant: bool = False
) -> tuple[Model, dict[str, Array]]:
    """The model with what must be constant, and inputs of the given shapes, as constants; all but
    the first input if ``constant``."""
    graph = graph_from_proto(case.model)
    feeds = dict(zip(graph.inputs, arrays, strict=True))
    if constant or case.model.graph.node[0].op_type in _SHAPED:
        fixed = dict(list(feeds.items())[1:])
    elif not exact:
        fixed = {n: a for n, a in feeds.items() if a.dtype != np.float32 or not a.shape}
    else:
        fixed = {}
    feeds = {name: array for name, array in feeds.items() if name not in fixed}
    inputs = {name: kind for name, kind in graph.inputs.items() if name in feeds}
    graph = replace(graph, inputs=inputs, constants={**graph.constants, **fixed})
    return Model(graph).with_shapes({name: a.shape for name, a in feeds.items()}), feeds


_SHAPED = ("Dropout", *REDUCTIONS, "Reshape", "Resize", "Squeeze", "Unsqueeze", "Upsample")
"""Operators whose sources behind the first are about its shape."""


def computed(*, exact: bool) -> Iterator[tuple[str, str, Array, Array]]:
    """The name of each case that is not refused, of its operator, and each result beside what is
    expected."""
    for case in cases(exact=exact):
        for sources, results in case.data_sets:
            try:
                model, feeds = prepared(case, [array(source) for source in sources], exact=exact)
                session = model.compile(Engine("cpu"), num_threads=1)
            except (Unimplemented, InvalidArguments, ModelError):
                continue
            outputs = session.run(feeds)
            for name, result in zip(session.outputs, results, strict=False):
                op = case.model.graph.node[0].op_type
                yield case.name, op, outputs[name], array(result)


def test_cases_are_computed_or_refused() -> None:
    count = 0
    for case, _, got, want in computed(exact=False):
        assert got.shape == want.shape, case
        difference = compare(case, got, want)
        assert difference.is_equal, f"{case}: {difference}"
        count += 1
    assert count >= FEWEST


def test_integers_and_truth_values_are_exact() -> None:
    counts: Counter[str] = Counter()
    for case, op, got, want in computed(exact=True):
        if want.dtype.kind in "biu" or op == "Cast":
            assert (got.dtype, got.shape) == (want.dtype, want.shape), case
            given, expected = (np.ascontiguousarray(each).view(np.uint8) for each in (got, want))
            np.testing.assert_array_equal(given, expected, case)
            counts[op] += 1
    assert counts.total() >= FEWEST_EXACT, counts
