"""Writes docs/pytorch-operators.md: who computes the operators of PyTorch's own database.

python -m tests.torch.operators_page
"""

from __future__ import annotations

import multiprocessing
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch

from dnnl.framework.summary import in_lines
from tests.torch.operator_cases import (
    DTYPES,
    LEFT,
    MOST,
    OURS,
    PARTLY,
    RAW,
    REFUSED,
    WRONG,
    Outcome,
    operators,
    outcomes,
)

PAGE = Path(__file__).parents[2] / "docs" / "pytorch-operators.md"
States = Mapping[str, str]
"""The state of an operator in each of the types that it has."""
_WIDTH = 100
_MOST_REASONS = 60
_INTRODUCTION = """\
# Operators of PyTorch

This page says who computes an operator in `torch.compile(net, backend="dnnl")`, without gradients.
`dnnl.explain_graph(net, x)` says the same of a network. `python -m tests.torch.operators_page`
writes the page, and a test compares a part of it.

The cases are the records of PyTorch {version}'s own operator database (`op_db`), with up to {most}
samples of each in f32, bf16 and int64, beside eager PyTorch: contents, types and strides of all
results. Of {count:,} samples

| samples | outcome |
|---|---|
| {ours:,} | dnnl computes all operators of ATen, views that nothing else needs aside |
| {partly:,} | dnnl computes some |
| {left:,} | PyTorch computes all |
| {refused:,} | PyTorch does not compute or trace the sample |
| {wrong} | wrong results, or errors that eager does not raise |

"""
SECTIONS = {
    OURS: """\
## By dnnl

{count} operators: all samples in each type that the operator has. Those with types have further
ones that are PyTorch's, in whole or in part.
""",
    PARTLY: """\
## In part

{count} operators: dnnl computes some of the samples, or some of the operators of ATen that they
consist of.
""",
    LEFT: """\
## By PyTorch

{count} operators, inside the same compiled function.
""",
    REFUSED: """\
## Not traced

{count} operators that PyTorch does not trace into one graph: their results have sizes that are
data, are sparse, or are no tensors.
""",
}
_REASONS = """\
## Reasons

The operators of ATen that are most often left to PyTorch, with the number of samples.

| operator | samples | reason |
|---|---|---|
"""


def state(found: Iterable[Outcome]) -> str:
    """What becomes of an operator in one type."""
    states = {own.state for own in found}
    for own in (RAW, WRONG):
        if own in states:
            return own
    if len(states - {REFUSED}) == 1:
        states -= {REFUSED}
    return states.pop() if len(states) == 1 else PARTLY


def section(states: States) -> str:
    """The section of an operator."""
    every = set(states.values())
    if OURS in every:
        return OURS
    for own in (PARTLY, LEFT):
        if own in every:
            return own
    return REFUSED


def entry(name: str, states: States) -> str:
    """What the page says of an operator."""
    ours = [kind for kind, own in states.items() if own == OURS]
    partly = section(states) == OURS and len(ours) < len(states)
    return f"{name} ({', '.join(ours)})" if partly else name


def page(found: Mapping[str, Mapping[str, list[Outcome]]]) -> str:
    """The page for the outcomes of samples by operator and type."""
    every = [one for kinds in found.values() for own in kinds.values() for one in own]
    counts = Counter(own.state for own in every)
    text = _INTRODUCTION.format(
        version=torch.__version__.partition("+")[0],
        most=MOST,
        count=len(every),
        ours=counts[OURS],
        partly=counts[PARTLY],
        left=counts[LEFT],
        refused=counts[REFUSED],
        wrong=counts[WRONG] + counts[RAW],
    )
    states = {name: {k: state(own) for k, own in kinds.items()} for name, kinds in found.items()}
    for title, head in SECTIONS.items():
        names = [entry(n, own) for n, own in sorted(states.items()) if section(own) == title]
        lines = "\n".join(in_lines(names, _WIDTH))
        text += f"{head.format(count=len(names))}\n{lines}\n\n"
    reasons = Counter(
        (operator, _general(reason)) for own in every for operator, reason in set(own.left)
    )
    rows = sorted(reasons.items(), key=lambda own: (-own[1], own[0]))[:_MOST_REASONS]
    return f"{text}{_REASONS}" + "".join(f"| `{op}` | {n} | {why} |\n" for (op, why), n in rows)


def _general(reason: str) -> str:
    """A reason without the names and the numbers of one graph."""
    if "is not known" in reason:
        return "not known"
    if "torch.complex" in reason:
        return "complex numbers"
    text = re.sub(r"(input|node) '[^']*'( \(\w+\))?:? ?", "", reason.partition("; array.")[0])
    text = re.sub(r"[([][-\d, ]*[)\]]", "N", text)
    return re.sub(r"(?<!\w)-?\d+(\.\d+)?\b", "N", text).replace("|", "\\|")


def _one(name: str) -> tuple[str, dict[str, list[Outcome]]]:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found = {kind: outcomes(name, dtype) for kind, dtype in DTYPES.items()}
    return name, {kind: own for kind, own in found.items() if own}


if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        every = dict(pool.imap_unordered(_one, sorted(operators()), chunksize=8))
    for name, kinds in every.items():
        for kind, own in kinds.items():
            for outcome in own:
                if outcome.state in (WRONG, RAW):
                    print(name, kind, outcome)
    PAGE.write_text(page({name: own for name, own in every.items() if own}), encoding="utf-8")
