"""Cases that leave sizes open, which ten executions decide on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from dnnl.language.values import open_dims
from dnnl.tools.bench.cases import Case, Interpreter

_WITHOUT = ("--runtime", "--oflag", "--encoding", "--grouped")
"""What says sizes itself, or has none to leave open."""
_COUNT = 10


@st.composite
def with_open_sizes_of(draw: st.DrawFn, case: Case) -> Case:
    """The case with some of its sizes open."""
    names = st.sampled_from(("all", "all", "batch", "spatial", "batch+spatial", "channels"))
    masks = st.integers(1, 15).map(str)
    dims = draw(st.one_of(names, names, masks))
    *options, problem = case.repro.split(" ")
    others = [option for option in options if not option.startswith(_WITHOUT)]
    (made,) = Interpreter().cases([*others, f"--open={dims}", f"--sizes={_COUNT}", problem])
    return made


def with_known_sizes(case: Case) -> Case:
    """The case with all sizes known."""
    values: dict[str, Any] = {**case.values, "open": open_dims("none"), "sizes": 1}
    return replace(case, values=values)
