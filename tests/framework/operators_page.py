"""Writes docs/operators.md: which operators of ONNX run, by its own node cases.

python -m tests.framework.operators_page
"""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import onnx

from dnnl.framework.summary import in_lines
from dnnl.operators.numbers import CONTROL, FOLDED, ON_ARRAYS, SELECTIONS, SEQUENCES, SIZES
from dnnl.operators.table import OPERATORS
from tests.framework.node_cases import PASSES, REFUSED, Outcome, cases, outcome

PAGE = Path(__file__).parents[2] / "docs" / "operators.md"
TITLE = "operator"
_WIDTH = 100
"""Columns of a line."""
_BETWEEN = CONTROL | FOLDED | ON_ARRAYS | SELECTIONS | SEQUENCES | SIZES
_EXCLUDED = {
    "strings": ("String", "Regex", "TfIdf"),
    "random numbers": ("Random", "Bernoulli", "Multinomial"),
    "training": ("ai.onnx.preview.training.", "Gradient"),
    "trees, encoders and scalers of ai.onnx.ml": ("ai.onnx.ml.",),
    "decoding of images": ("ImageDecoder",),
    "optional values": ("Optional",),
}
"""What is left out, by the beginnings of the names of operators."""
_INTRODUCTION = """\
# Operators

This page lists which operators of ONNX run. `dnnl check MODEL.onnx` answers the same for a model.
`python -m tests.framework.operators_page` writes the page, and a test compares it with the cases.

The cases are the node cases of the package onnx {version}. Each input is an argument of the call,
even if models usually have a constant there. A case passes, or is refused with a reason; no result
is wrong.

{passing:,} of {count:,} cases pass.

## ONNX's operators

Each supported operator, with the number of cases of this operator alone that pass. Those in
*italics* run on NumPy arrays between the [parts of a model](changing-sizes.md#models-in-parts), or
are computed from sizes before a run.

"""
_OTHERS = """
## Operators of other domains

{names}

## What is refused

| reason | cases | for example |
|---|---|---|
"""


def page() -> str:
    """The page."""
    found = {name: [outcome(case) for case in own] for name, own in cases().items()}
    every = [own for outcomes in found.values() for own in outcomes]
    passing = sum(own.state == PASSES for own in every)
    head = _INTRODUCTION.format(version=onnx.__version__, passing=passing, count=len(every))
    others = sorted(name for name in OPERATORS if "." in name)
    listed = "\n".join(in_lines([f"`{name}`" for name in others], _WIDTH))
    reasons = "\n".join(_refusals(every))
    return f"{head}{_known(found)}\n{_OTHERS.format(names=listed)}{reasons}\n"


def row(name: str, outcomes: Sequence[Outcome]) -> str:
    """What the page says of an operator."""
    passing = sum(own.state == PASSES for own in outcomes)
    count = f" {passing}" if passing == len(outcomes) else f" {passing} of {len(outcomes)}"
    between = name in _BETWEEN
    return f"{f'*{name}*' if between else name}{count if outcomes else ''}"


def _known(found: Mapping[str, Sequence[Outcome]]) -> str:
    names = {name for name in OPERATORS if "." not in name}
    names |= _BETWEEN | {"If", "Constant"}
    rows = [row(name, found.get(name, ())) for name in sorted(names)]
    return "\n".join(in_lines(rows, _WIDTH))


def _refusals(outcomes: Iterable[Outcome]) -> Iterable[str]:
    counts: Counter[str] = Counter()
    examples: defaultdict[str, list[str]] = defaultdict(list)
    for own in outcomes:
        if own.state == REFUSED:
            reason = _grouped(own.reason)
            counts[reason] += 1
            examples[reason].append(own.case)
    for reason, count in sorted(counts.items(), key=lambda own: (-own[1], own[0])):
        text = reason.replace("|", "\\|")
        yield f"| {text} | {count} | `{min(examples[reason])}` |"


def _grouped(reason: str) -> str:
    """The reason, or what it is an instance of."""
    known, names = reason.partition("not known: ")[::2]
    if known or not names:
        return "strings" if "NumPy's object" in reason else reason
    for title, beginnings in _EXCLUDED.items():
        if all(name.startswith(beginnings) for name in names.split(", ")):
            return title
    return f"operators that are not known: {names}"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    PAGE.write_text(page(), encoding="utf-8")
