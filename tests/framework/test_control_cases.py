"""The node cases of ONNX's own test suite for control flow, sequences, selections, operators whose
sizes are contents of inputs, and those about types: nothing is made constant for them."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.numpy_helper import to_array, to_list

from dnnl.framework.model import Model
from dnnl.onnx.read import graph_from_proto
from dnnl.passes.specialize import check_operators
from dnnl.tools.difference import compare

FAMILIES = {
    "bitcast": 10, "cast": 60, "castlike": 112, "clip": 24, "compress": 5, "constant": 4,
    "constantofshape": 3, "dequantizelinear": 14, "dynamicquantizelinear": 6, "edge": 1,
    "expand": 2, "eyelike": 3, "identity": 3, "if": 2, "isinf": 4, "isnan": 2, "loop11": 1,
    "loop13": 1, "loop16": 1, "mean": 3, "mod": 19, "nonmaxsuppression": 10, "nonzero": 1,
    "optional": 10, "pow": 12, "quantizelinear": 13, "range": 8, "reduce": 132, "reflect": 1,
    "reshape": 10, "resize": 39, "scan": 1, "scan9": 3, "sequence": 14, "shape": 11, "size": 2,
    "slice": 8, "split": 19, "squeeze": 2, "tile": 2, "top": 7, "tril": 9, "triu": 9, "unique": 7,
    "unsqueeze": 7, "upsample": 1, "wrap": 1,
}  # fmt: skip
"""Cases that must be computed, by the first word of their names."""


def cases() -> dict[str, list[Any]]:
    """The cases of each family, without optional values that are not given."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        collected = collect_testcases(None)
    found: dict[str, list[Any]] = {family: [] for family in FAMILIES}
    for case in collected:
        family, given = (
            case.name.split("_")[1],
            [value for pair in case.data_sets for value in pair[0]],
        )
        makes_none = family == "if" and '"Optional"' in str(case.model.graph)
        if family in found and not makes_none and not any(value is None for value in given):
            found[family].append(case)
    return found


def given(source: Any) -> Any:
    if isinstance(source, onnx.TensorProto):
        return to_array(source)
    if isinstance(source, onnx.SequenceProto):
        return to_list(source)
    return list(map(np.asarray, source)) if isinstance(source, list) else np.asarray(source)


def assert_equal(case: str, got: Any, want: Any) -> None:
    if isinstance(want, list):
        assert len(got) == len(want), case
        for own, other in zip(got, want, strict=True):
            assert_equal(case, own, other)
        return
    assert (got.dtype, got.shape) == (want.dtype, want.shape), case
    difference = compare(case, got, want)
    assert difference.is_equal, f"{case}: {difference}"


CASES = cases()


@pytest.mark.parametrize("family", FAMILIES)
def test_cases_are_computed(family: str) -> None:
    counts: Counter[str] = Counter()
    for case in CASES[family]:
        graph = graph_from_proto(case.model)
        check_operators(graph)
        model = Model(graph)
        for sources, results in case.data_sets:
            feeds = dict(zip(graph.inputs, map(given, sources), strict=True))
            got = model(feeds)
            listed = got if isinstance(got, dict) else {model.outputs[0]: got}
            for own, want in zip(listed.values(), results, strict=True):
                assert_equal(case.name, own, given(want))
        counts[case.name] += 1
    assert counts.total() >= FAMILIES[family]
