"""Errors of PyTorch's databases through `torch.compile`: they are eager's, and none is raw.

python -m tests.torch.error_cases [name ...]
"""

from __future__ import annotations

import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import dnnl
from dnnl.torch.backend import compile_graph
from tests.torch.operator_cases import operators

_OWN = str(Path(dnnl.__file__).parent)
SAME, TRACED, MISSING, OTHER, RAW = "eager's", "as traced", "missing", "other", "raw"
"""The error is eager's; it is that of PyTorch's tracing, which may have none; there is none; it is
another one; it began in a file of ours."""


@dataclass(frozen=True, slots=True)
class Raised:
    """What becomes of a call that eager refuses."""

    state: str
    detail: str = ""


def raised(name: str) -> list[Raised]:
    """What becomes of the samples of an operator that eager refuses."""
    record = operators()[name]
    if record.error_inputs_func is None:
        return []
    torch.manual_seed(0)
    return [_outcome(record.op, own.sample_input) for own in record.error_inputs("cpu")]


def _outcome(function: Callable[..., Any], sample: Any) -> Raised:
    def call() -> Any:
        return function(given, *sample.args, **sample.kwargs)

    given = sample.input
    expected = _error(call)
    if expected is None:
        return Raised(SAME, "none")
    actual = _error(call, compile_graph)
    if actual is not None and _is_raw(actual):
        return Raised(RAW, f"{type(actual).__name__}: {actual}")
    if type(actual) is type(expected):
        return Raised(SAME)
    if type(actual) is type(_error(call, "aot_eager")):
        return Raised(TRACED)
    if actual is None:
        return Raised(MISSING, f"{type(expected).__name__}: {expected}")
    return Raised(OTHER, f"{type(actual).__name__}: {actual} instead of {type(expected).__name__}")


def _error(call: Callable[[], Any], backend: Any = None) -> Exception | None:
    """What a call raises, compiled if a ``backend`` is given."""
    torch._dynamo.reset()
    try:
        (torch.compile(call, backend=backend) if backend else call)()
    except Exception as error:
        return error
    return None


def _is_raw(error: BaseException) -> bool:
    """Whether it began in a file of ours."""
    causes = [error]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    first = causes[-1]
    frames = traceback.extract_tb(first.__traceback__)
    return bool(frames) and frames[-1].filename.startswith(_OWN)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    counts: Counter[str] = Counter()
    for name in sys.argv[1:] or operators():
        for number, own in enumerate(raised(name)):
            counts[own.state] += 1
            if own.state in (MISSING, OTHER, RAW):
                print(name, number, own)
    print(dict(counts))
