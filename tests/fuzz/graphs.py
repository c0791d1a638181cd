"""Random graphs beside ONNX Runtime, in every policy of layouts.

A case is ``SHAPE LAYOUT THREADS SEED`` and the steps of a graph, each a name and how far back its
sources are: ``Conv.0 Add.0.1``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st

import dnnl
from dnnl.lowering.graphs import LAYOUTS
from tests.framework.models import Array, assert_same, feeds_for, model_of, run_peer
from tests.framework.random_graphs import STEPS, Builder
from tests.fuzz.kind import PASSED, Kind, Outcome, failed

_TOLERANCE = 1e-3
_LAST_BITS = 3e-7  # two roundings of f32, of the largest value
_MOST_STEPS = 20


@st.composite
def _cases(draw: st.DrawFn) -> str:
    sizes = [draw(st.sampled_from(of)) for of in ((2, 1, 3), (16, 8, 4, 1, 19, 32, 40))]
    sizes += [draw(st.sampled_from((5, 4, 1, 7, 8, 13))) for _ in "hw"]
    head = ["x".join(map(str, sizes)), draw(st.sampled_from(LAYOUTS))]
    head += [str(draw(st.sampled_from((1, 2, 3)))), str(draw(st.integers(0, 999)))]
    back = st.lists(st.sampled_from((0, 1, 0, 1, 2, 3, 5)), min_size=1, max_size=3)
    step = st.tuples(st.sampled_from(list(STEPS)), back)
    steps = draw(st.lists(step, min_size=1, max_size=_MOST_STEPS))
    return " ".join([*head, *(".".join([name, *map(str, back)]) for name, back in steps)])


def _run(text: str) -> Outcome:
    shape, layout, threads, seed, *steps = text.split(" ")
    n, c, h, w = map(int, shape.split("x"))
    builder = Builder(int(seed), (n, c, h, w))
    for step in steps:
        name, *back = step.split(".")
        builder.step(name, list(map(int, back)))
    proto = builder.proto()
    model = model_of(proto)
    feeds = feeds_for(model.graph, int(seed))
    expected = run_peer(proto, feeds)
    session = model.compile(dnnl.Engine("cpu"), layout=layout, num_threads=int(threads))
    for number in (1, 2):
        results = session.run(feeds)
        try:
            assert_same(results, expected, _TOLERANCE)
        except AssertionError as error:
            if not _cancelled(proto, feeds, results, expected):
                return failed(f"wrong: graph, run {number}", str(error))
    return PASSED


def _cancelled(
    proto: Any,
    feeds: Mapping[str, Array],
    results: Mapping[str, Array],
    expected: Mapping[str, Array],
) -> bool:
    """Whether all that differs are the last bits of larger values that were subtracted."""
    shown = onnx.ModelProto()
    shown.CopyFrom(proto)
    names = {name for node in proto.graph.node for name in node.output} - expected.keys()
    shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in sorted(names))
    largest = max(
        float(np.abs(array).max(initial=0.0)) for array in run_peer(shown, feeds).values()
    )
    rooted = any(node.op_type == "Sqrt" for node in proto.graph.node)
    return all(
        results[name].shape == array.shape
        and _close(results[name], array, _LAST_BITS * largest, rooted=rooted)
        for name, array in expected.items()
    )


def _close(a: Array, b: Array, bound: float, *, rooted: bool) -> bool:
    """Whether arrays are within a bound, or their squares are: a root of a small difference has
    more of its error than the difference itself."""
    with np.errstate(all="ignore"):
        near = np.abs(a - b) <= bound
        return bool(np.all(near | (np.abs(a * a - b * b) <= bound) if rooted else near))


KIND = Kind("graph", "random graphs beside ONNX Runtime", _cases, _run, __name__, 3, lives=100)
