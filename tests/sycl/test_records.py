"""The examples of every record on a SYCL device: each line's cases, forward and backward."""

from __future__ import annotations

import re

import pytest

from dnnl import Engine, Memory, Primitive, PrimitiveDesc, Stream, Unimplemented
from dnnl.primitives.registry import OPERATIONS
from dnnl.tools.bench.cases import Interpreter
from dnnl.tools.bench.trial import Trial
from tests.test_records import LINES, judge, trial

_LACKING = re.compile("(sparse matrices|packed weights|groups) on the device")
"""What devices have no kernels for; any other refusal is a failure."""
_EACH = 3
"""Cases of a line that are run: building each takes the device's compiler."""


def on_device(made: Trial) -> dict[int, Memory]:
    """What the device leaves in copies of the memories, back on the host."""
    engine = Engine("sycl")
    primitive = Primitive(PrimitiveDesc(made.desc, engine, made.pd.attr))
    there = {}
    for argument, memory in made.memories.items():
        there[argument] = Memory(memory.desc, engine)
        for own, part in zip(there[argument].parts, memory.parts, strict=True):
            own.write(part.read())
    primitive.execute(Stream(engine), there).wait()
    back = {}
    for argument, memory in made.memories.items():
        back[argument] = Memory(memory.desc, memory.engine)
        for own, part in zip(back[argument].parts, there[argument].parts, strict=True):
            own.write(part.read())
    return back


@pytest.mark.parametrize(("kind", "line"), LINES, ids=[line for _, line in LINES])
def test_results_are_right(kind: str, line: str) -> None:
    cases = list(Interpreter().cases(line.split()))
    refusals = []
    for case in cases[:: -(-len(cases) // _EACH)]:
        made = trial(case, OPERATIONS[kind])
        if made.pd.across_engines:
            continue
        try:
            results = on_device(made)
        except Unimplemented as error:
            refusals.append(str(error))
            continue
        judge(made, [results])
    for refusal in refusals:
        assert _LACKING.search(refusal), refusal
    if refusals:
        pytest.skip(refusals[0])
