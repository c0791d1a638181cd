"""Every operation that is bound by memory, as its record describes it: cases drawn by hypothesis.

The fuzzer draws problems, types, attributes, instruction sets, caches and threads, and checks each
result; here all cases have layouts that no tag spells as well.
"""

from __future__ import annotations

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from dnnl.primitives.operation import Operation
from dnnl.primitives.registry import OPERATIONS
from tests.fuzz.kind import State
from tests.fuzz.primitives import KIND, lines
from tests.properties import examples

BOUND_BY_MEMORY = [
    kind for kind, own in OPERATIONS.items() if own.operation.flops is Operation.flops
]
"""Those that count no multiplications."""


@pytest.mark.parametrize("kind", BOUND_BY_MEMORY)
def test_results_of_any_layouts(kind: str) -> None:
    @examples(3)
    @given(st.deferred(lambda: lines((kind,), laid_out=True)))
    def run(line: str) -> None:
        outcome = KIND.run(line)
        if outcome.state in (State.UNIMPLEMENTED, State.REFUSED):
            reject()
        assert outcome.state is State.PASSED, f"{line}\n{outcome.reason}\n{outcome.detail}"

    run()
