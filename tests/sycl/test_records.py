"""The examples of every record on a SYCL device: each line's cases, forward and backward."""

from __future__ import annotations

import pytest

from dnnl import Engine, Memory, Primitive, PrimitiveDesc, Stream, Unimplemented
from dnnl.primitives.registry import OPERATIONS
from dnnl.tools.bench.cases import Interpreter
from dnnl.tools.bench.trial import Trial
from tests.test_records import LINES, judge, trial

_EACH = 3
"""Cases of a line that are run: building each takes the device's compiler."""

_STEPS = "rnn"
"""The kind whose phases are repeated in one execution, which devices cannot do."""

_TAKEN = [(kind, line) for kind, line in LINES if kind != _STEPS]


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


@pytest.mark.parametrize("line", [line for kind, line in LINES if kind == _STEPS])
def test_repeated_phases_are_refused(line: str) -> None:
    made = trial(next(iter(Interpreter().cases(line.split()))), OPERATIONS[_STEPS])
    with pytest.raises(Unimplemented, match="repeats no phases"):
        PrimitiveDesc(made.desc, Engine("sycl"), made.pd.attr)


@pytest.mark.parametrize(("kind", "line"), _TAKEN, ids=[line for _, line in _TAKEN])
def test_results_are_right(kind: str, line: str) -> None:
    cases = list(Interpreter().cases(line.split()))
    for case in cases[:: -(-len(cases) // _EACH)]:
        made = trial(case, OPERATIONS[kind])
        if not made.pd.across_engines:
            judge(made, [on_device(made)])
