"""Every operation leaves sizes to its executions: each example of the records, in every
propagation, by one primitive for several sizes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random

import pytest

from dnnl import Primitive, Stream, Unimplemented
from dnnl.primitives.desc import Desc
from dnnl.primitives.registry import OPERATIONS
from dnnl.tools.bench.cases import Case, Interpreter
from dnnl.tools.bench.creation import Created, at_execution, create
from dnnl.tools.bench.other_sizes import other_cases
from dnnl.tools.bench.trial import Trial
from tests.guard import RUNS, guarded_scratch, near
from tests.test_records import ENGINE, each_line, judge

SIZES = 3
REFUSED = (
    (r":sparse:", "indices and groups go with the sizes"),
    (r"in blocks with run-time sizes", "implementations for run-time sizes take strides alone"),
    (r"open: unsupported data type: u16", "nor integers of 16 and 64 bits"),
    (r"unsupported data type: s64", "nor do products"),
    (r"scales of each column go with known channels", "they are numbers of the description"),
    (r"a depthwise convolution behind one", "a chain has a kernel for its own image"),
)
"""What no description leaves to executions: regular expressions of errors, and why."""


def sampled(line: str) -> Case:
    """One of the cases of a line, with all sizes open."""
    driver, *options = line.split()
    opened = [driver, "--open=all", f"--sizes={SIZES}", *options]
    return Random(line).choice(list(Interpreter().cases(opened)))


def trials(case: Case, kind: type[Desc], created: Created) -> Iterator[Trial]:
    """What is executed: the sizes of the case, and others."""
    yield Trial(case, created, at_execution(case, kind, created))
    for other, sized in other_cases(case, kind, created):
        yield Trial(other, sized, at_execution(other, kind, sized))


@pytest.mark.covers("kind")
@each_line
def test_one_primitive_is_right_on_several_sizes(kind: str, line: str) -> None:
    case = sampled(line)
    try:
        created = create(case, OPERATIONS[kind])
    except Unimplemented as error:
        reasons = " ".join(map(str, error.reasons)) or str(error)
        assert any(re.search(rule, reasons) for rule, _ in REFUSED), reasons
        return
    assert "*" in created.pd.desc.problem
    primitive = Primitive(created.pd)
    for made in trials(case, OPERATIONS[kind], created):
        made.fill(bitwise=False)
        made.place()
        results = []
        for threads, at in RUNS:
            placed = {argument: near(memory, at) for argument, memory in made.memories.items()}
            with guarded_scratch():
                primitive.execute(Stream(ENGINE, threads), placed)
            results.append(placed)
        judge(made, results)
