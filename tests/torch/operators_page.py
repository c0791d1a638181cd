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
from tests.torch.gradient_cases import DTYPES as FLOATS
from tests.torch.gradient_cases import gradient_outcomes
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
_MOST_REASONS = 40
_INTRODUCTION = """\
# Operators of PyTorch

This page says who computes an operator in `torch.compile(net, backend="dnnl")`, in inference and
with its [gradient](#gradients-by-dnnl). `dnnl.explain_graph(net, x)` says the same of a network.
`python -m tests.torch.operators_page` writes the page, and a test compares a part of it.

The cases are the records of PyTorch {version}'s own operator database (`op_db`), with up to {most}
samples of each in a type, spread over all. In inference they are in f32, bf16 and int64, and
contents, types and strides of all results are compared with eager PyTorch's; gradients are in f32
and bf16. A result that differs from eager's by rounding has to be as near to that of f64, within
limits or a factor of 2. With up to 60 samples of each (21,590) no result of inference is wrong, and
with 40 (11,501) one gradient of stft, whose transforms are PyTorch's, is 2.3 times as far from that
of f64 as eager's. Samples by who computes the operators of ATen that they consist of:

| inference | gradients | outcome |
|---|---|---|
| {inference[dnnl]:,} | {gradients[dnnl]:,} | dnnl computes all but views that nothing needs |
| {inference[partly]:,} | {gradients[partly]:,} | dnnl computes some |
| {inference[PyTorch]:,} | {gradients[PyTorch]:,} | PyTorch computes all |
| {inference[refused]:,} | {gradients[refused]:,} | PyTorch does not compute or trace the sample |
| {inference[bad]} | {gradients[bad]} | wrong results, or errors that eager does not raise |
| {inference[all]:,} | {gradients[all]:,} | all |

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
GRADIENT_SECTIONS = {  # without those in part, which are half a page
    OURS: """\
## Gradients by dnnl

{count} operators: all of the forward and of the backward graph, in all samples. What is in none of
the lists of gradients is computed in part, or has none.
""",
    LEFT: """\
## Gradients by PyTorch

{count} operators, inside the same compiled function.
""",
    REFUSED: """\
## Gradients that are not traced

{count} operators, which PyTorch refuses to differentiate or to trace.
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


def _counts(outcomes: Iterable[Outcome]) -> dict[str, int]:
    """The number of samples by state."""
    counts = Counter(own.state for own in outcomes)
    counts["bad"] = counts.pop(WRONG, 0) + counts.pop(RAW, 0)
    return {**dict.fromkeys((OURS, PARTLY, LEFT, REFUSED), 0), **counts, "all": counts.total()}


def _listed(head: str, names: list[str]) -> str:
    lines = "\n".join(in_lines(names, _WIDTH))
    return f"{head.format(count=len(names))}\n{lines}\n\n"


def page(
    found: Mapping[str, Mapping[str, list[Outcome]]], gradients: Mapping[str, list[Outcome]]
) -> str:
    """The page for the outcomes of samples by operator and type, and for those of gradients."""
    every = [one for kinds in found.values() for own in kinds.values() for one in own]
    text = _INTRODUCTION.format(
        version=torch.__version__.partition("+")[0],
        most=MOST,
        inference=_counts(every),
        gradients=_counts(one for own in gradients.values() for one in own),
    )
    states = {name: {k: state(own) for k, own in kinds.items()} for name, kinds in found.items()}
    for title, head in SECTIONS.items():
        names = [entry(n, own) for n, own in sorted(states.items()) if section(own) == title]
        text += _listed(head, names)
    for title, head in GRADIENT_SECTIONS.items():
        text += _listed(head, [n for n, own in sorted(gradients.items()) if state(own) == title])
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


def _one(name: str) -> tuple[str, dict[str, list[Outcome]], list[Outcome]]:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found = {kind: outcomes(name, dtype) for kind, dtype in DTYPES.items()}
    gradients = [one for dtype in FLOATS.values() for one in gradient_outcomes(name, dtype)]
    return name, {kind: own for kind, own in found.items() if own}, gradients


if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        every = list(pool.imap_unordered(_one, sorted(operators()), chunksize=8))
    for name, kinds, own in every:
        for kind, found in {**kinds, "gradient": own}.items():
            for outcome in found:
                if outcome.state in (WRONG, RAW):
                    print(name, kind, outcome)
    inference = {name: kinds for name, kinds, _ in every if kinds}
    differentiated = {name: own for name, _, own in every if own}
    PAGE.write_text(page(inference, differentiated), encoding="utf-8")
