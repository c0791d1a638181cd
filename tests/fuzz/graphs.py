"""Random graphs beside ONNX Runtime, in every policy of layouts.

A case is ``SHAPE LAYOUT THREADS SEED`` and the steps of a graph, each a name and how far back its
sources are: ``Conv.0 Add.0.1``.
"""

from __future__ import annotations

from hypothesis import strategies as st

import dnnl
from dnnl.framework.lowering import LAYOUTS
from tests.framework.models import assert_same, feeds_for, model_of, run_peer
from tests.framework.random_graphs import STEPS, Builder
from tests.fuzz.kind import PASSED, Kind, Outcome, failed

_TOLERANCE = 1e-3
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
        try:
            assert_same(session.run(feeds), expected, _TOLERANCE)
        except AssertionError as error:
            return failed(f"wrong: graph, run {number}", str(error))
    return PASSED


KIND = Kind("graph", "random graphs beside ONNX Runtime", _cases, _run, __name__, 3, lives=100)
