"""Random graphs on zeros with a sign, infinities and NaN, bit for bit beside ONNX Runtime.

A case is ``SEED LAYOUT`` and the steps of a graph.
"""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from dnnl.lowering.graphs import LAYOUTS
from tests.framework.models import model_of, run_peer
from tests.framework.special_graphs import STEPS, SpecialGraph, bits
from tests.fuzz.kind import PASSED, Kind, Outcome, failed

_MOST_STEPS = 8  # more make all NaN


@st.composite
def _cases(draw: st.DrawFn) -> str:
    steps = draw(st.lists(st.sampled_from(list(STEPS)), min_size=1, max_size=_MOST_STEPS))
    head = [str(draw(st.integers(0, 9999))), draw(st.sampled_from(LAYOUTS))]
    return " ".join([*head, *steps])


def _run(text: str) -> Outcome:
    seed, layout, *steps = text.split(" ")
    graph = SpecialGraph(int(seed))
    for step in steps:
        graph.step(step)
    proto, feeds = graph.proto(), graph.feeds()
    expected = run_peer(proto, feeds, as_written=True)
    results = model_of(proto).compile(layout=layout, num_threads=1).run(feeds)
    for name, array in expected.items():
        different = bits(results[name]) != bits(array)
        if different.any():
            found = np.stack((results[name], array), -1)[different].tolist()
            return failed("wrong: special values", f"{name}: ours and theirs: {found}")
    return PASSED


KIND = Kind("special", "graphs on special values beside ONNX Runtime", _cases, _run, __name__)
