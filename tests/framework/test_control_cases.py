"""The node cases of ONNX's own test suite for control flow, sequences, selections, and operators
whose sizes are contents of inputs: nothing is made constant for them."""

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
    "center": 12, "clip": 24, "col2im": 5, "compress": 5, "constant": 3, "constantofshape": 3,
    "cumprod": 9, "cumsum": 9, "dft": 10, "edge": 1, "expand": 2, "if": 2, "loop11": 1,
    "loop13": 1, "maxunpool": 2, "melweightmatrix": 1, "nonmaxsuppression": 10, "nonzero": 1,
    "onehot": 6, "range": 8, "reduce": 114, "reflect": 1, "reshape": 10, "resize": 39, "scan": 1,
    "scan9": 3, "scatter": 9, "scatternd": 7, "sequence": 14, "slice": 8, "split": 19,
    "squeeze": 2, "stft": 2, "tile": 2, "top": 7, "tril": 9, "triu": 9, "unique": 7,
    "unsqueeze": 7, "upsample": 1, "wrap": 1,
}  # fmt: skip
"""Cases that must be computed, by the first word of their names."""


def cases() -> dict[str, list[Any]]:
    """The cases of each family, without optional values and CastLike, which are not known."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        collected = collect_testcases(None)
    found: dict[str, list[Any]] = {family: [] for family in FAMILIES}
    for case in collected:
        text, words = str(case.model.graph), case.name.split("_")
        known = not any(name in text for name in ("optional_type", "CastLike"))
        if words[1] in found and known and '"Optional"' not in text:
            found[words[1]].append(case)
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
