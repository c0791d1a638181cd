"""Operators on constants alone, beside ONNX Runtime: what folds them is ONNX's own implementation,
which gives other types, other results or errors for some."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.framework.models import Array, model_of, node, run_peer
from tests.framework.one_operator import assert_equal, model_with, results_of

RNG = np.random.default_rng(31)


def normal(*shape: int, kind: npt.DTypeLike = np.float32) -> Array:
    return RNG.standard_normal(shape).astype(kind)


@dataclass(frozen=True)
class Case:
    """A node whose first result is compared; without ``attrs`` it has none."""

    op: str
    sources: tuple[Array, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    results: int = 1
    opset: int = 20
    domain: str = ""


GRID = RNG.uniform(-1.2, 1.2, (1, 3, 4, 2)).astype(np.float32)
CASES = {
    "grids of f64": Case("AffineGrid", (normal(2, 2, 3, kind=np.float64), np.array([2, 3, 4, 5]))),
    "images before operator set 20": Case(
        "GridSample", (normal(1, 2, 5, 6), GRID), {"mode": "bicubic"}, opset=16
    ),
    "slices in their order": Case("Unique", (normal(5, 4, 2),), {"axis": 1, "sorted": 0}),
    "maxima of all dimensions behind one": Case("Hardmax", (normal(2, 3, 4),), opset=11),
    "probabilities of all dimensions behind one": Case("Softmax", (normal(2, 3, 4),), opset=11),
    "norms": Case("LpNormalization", (normal(3, 5),), {"p": 1, "axis": 0}),
    "places of maxima": Case("MaxPool", (normal(2, 3, 8),), {"kernel_shape": [2]}, 2),
    "groups": Case(
        "GroupNormalization", (normal(1, 6, 4), normal(6), normal(6)), {"num_groups": 3}, opset=21
    ),
    "a depth on one axis": Case(
        "OneHot", (np.array([1, 0, 3]), np.array([4]), np.array([0, 1], np.float32)), opset=18
    ),
    "an activation of ONNX Runtime": Case(
        "Gelu", (normal(3, 4),), opset=18, domain="com.microsoft"
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_results(name: str) -> None:
    case = CASES[name]
    held = {f"c{number}": array for number, array in enumerate(case.sources)}
    results = ["y", "z"][: case.results]
    feeds = {"x": np.ones(2, np.float32)}
    options: dict[str, Any] = {"constants": held, "inputs": list(held), "attrs": case.attrs}
    kind = case.sources[-1].dtype if case.op == "OneHot" else case.sources[0].dtype
    kinds = {"y": kind, "z": np.dtype(np.int64)}
    proto = model_with(
        case.op, feeds, {own: kinds[own] for own in results}, opset=case.opset, **options
    )
    proto.graph.node[0].domain = case.domain
    if case.domain:
        proto.opset_import.add(domain=case.domain, version=1)
    proto.graph.node.append(node("Relu", ["x"], "u"))
    proto.graph.output.add(name="u").type.CopyFrom(proto.graph.input[0].type)
    want = run_peer(proto, feeds)
    assert_equal(results_of(model_of(proto), feeds), want, 1e-4)
