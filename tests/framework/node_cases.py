"""The node cases of ONNX's own test suite, run as a user would: every input comes with the call."""

from __future__ import annotations

import re
import warnings
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx.numpy_helper import to_array, to_list, to_optional

from dnnl.errors import Error
from dnnl.framework.model import Model
from dnnl.onnx.read import graph_from_proto
from dnnl.passes.specialize import check_operators
from dnnl.tools.difference import Tolerance, compare

PASSES, REFUSED, WRONG = "passes", "refused", "wrong"
_STEPWISE = "attention"
"""In the names of cases whose expected results are rounded to f16 or bf16 behind each product,
scale, mask and sum, which ours are not: they may differ by two units in the last place."""
_ROUNDED = {
    "float16": Tolerance(2.0**-9, reason="f16"),
    "bfloat16": Tolerance(2.0**-6, reason="bf16"),
}
_NUMBER = re.compile(r"-?\b\d+(\.\d+)?\b")
_NODE = re.compile(r"(\d+ nodes, the first is )?node '[^']*'( \(\w+\))?(: )?")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case; ``reason`` says why it is refused, or what is wrong."""

    case: str
    state: str
    reason: str = ""


@cache
def cases() -> Mapping[str, tuple[Any, ...]]:
    """All cases, by the operator that they are named after."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        collected = collect_testcases(None)
    found: defaultdict[str, list[Any]] = defaultdict(list)
    for case in collected:
        found[subject(case)].append(case)
    return {name: tuple(own) for name, own in sorted(found.items())}


def subject(case: Any) -> str:
    """The operator that a case is about: of its only node, or ``expanded`` where it is written out
    as others."""
    nodes = list(case.model.graph.node)
    if case.name.endswith("_expanded") or "_expanded_" in case.name:
        return "(written as other operators)"
    node = nodes[-1]
    return f"{node.domain}.{node.op_type}" if node.domain else str(node.op_type)


def outcome(case: Any) -> Outcome:
    """Run a case. What is raised and is no error of the library is raised on."""
    assert case.data_sets, f"{case.name} has nothing to run"
    try:
        graph = graph_from_proto(case.model)
        check_operators(graph)
        model = Model(graph)
        for sources, results in case.data_sets:
            feeds = dict(zip(graph.inputs, map(given, sources), strict=False))
            got = model(feeds)
            listed = got if isinstance(got, dict) else {model.outputs[0]: got}
            for name, own, want in zip(listed, listed.values(), map(given, results), strict=True):
                said = difference(name, own, want, stepwise=_STEPWISE in case.name)
                if said:
                    return Outcome(case.name, WRONG, said)
    except Error as error:
        return Outcome(case.name, REFUSED, reason_of(error))
    return Outcome(case.name, PASSES)


def given(source: Any) -> Any:
    """A value of a case as arrays."""
    if isinstance(source, onnx.TensorProto):
        return to_array(source)
    if isinstance(source, onnx.SequenceProto):
        return to_list(source)
    if isinstance(source, onnx.OptionalProto):
        return to_optional(source)
    if source is None:
        return None
    return list(map(np.asarray, source)) if isinstance(source, list) else np.asarray(source)


def difference(name: str, got: Any, want: Any, *, stepwise: bool = False) -> str:
    """How a result differs from what is expected; empty where it does not."""
    if isinstance(want, list):
        if len(got) != len(want):
            return f"{name} has {len(got)} tensors instead of {len(want)}"
        pairs = zip(got, want, strict=True)
        parts = (difference(name, *pair, stepwise=stepwise) for pair in pairs)
        return next(filter(None, parts), "")
    if (got.dtype, got.shape) != (want.dtype, want.shape):
        return f"{name} is {got.dtype} {got.shape} instead of {want.dtype} {want.shape}"
    rounded = _ROUNDED.get(want.dtype.name) if stepwise else None
    found = compare(name, got, want, rounded or Tolerance())
    return "" if found.is_equal else str(found)


def reason_of(error: Error) -> str:
    """Why a case is refused, without names of nodes and numbers."""
    first, *more = str(error).split("\n  - ")
    if first.startswith("the model uses operators that this runner does not know"):
        names = sorted({line.split()[1] for line in more})
        return f"not known: {', '.join(names)}"
    text = _NODE.sub("", more[-1] if more else first).strip()
    return _NUMBER.sub("N", text)
