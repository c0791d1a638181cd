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
from tests.torch.module_cases import modules
from tests.torch.operator_cases import database, operators

_OWN = str(Path(dnnl.__file__).parent)
SAME, TRACED, ACCEPTED, MISSING, OTHER, RAW = (
    "same",
    "traced",
    "accepted",
    "missing",
    "other",
    "raw",
)
"""The error is of eager's kind; it is that of PyTorch's own tracing; there is none, as without the
backend; there is none, or another one, though without the backend there is; it began in a file of
ours."""

_PLAIN = "aot_eager", "aot_eager_decomp_partition"
"""Backends that compute what PyTorch traces; the second writes operators as others, as dnnl does,
which drops some of their checks."""


@dataclass(frozen=True, slots=True)
class Raised:
    """What becomes of a call that PyTorch's database has as one to be refused."""

    state: str
    detail: str = ""


def raised(name: str) -> list[Raised]:
    """What becomes of the samples of an operator that are to be refused."""
    record = operators()[name]
    if record.error_inputs_func is None:
        return []
    torch.manual_seed(0)
    every = [own.sample_input for own in record.error_inputs("cpu")]
    return [_outcome(record.op, own.input, *own.args, **own.kwargs) for own in every]


def module_raised(name: str) -> list[Raised]:
    """What becomes of the samples of a module that are to be refused when it is called."""
    record = modules()[name]
    if record.module_error_inputs_func is None:
        return []
    torch.manual_seed(0)
    every = record.module_error_inputs_func(
        record, device="cpu", dtype=torch.float32, requires_grad=False, training=False
    )
    in_calls = database("common_modules").ModuleErrorEnum.FORWARD_ERROR
    found = []
    for sample in [own.module_error_input for own in every if own.error_on is in_calls]:
        made, given = sample.constructor_input, sample.forward_input
        net = record.module_cls(*made.args, **made.kwargs).eval()
        found.append(_outcome(net, *given.args, **given.kwargs))
    return found


def _outcome(function: Callable[..., Any], *args: Any, **keywords: Any) -> Raised:
    def call() -> Any:
        return function(*args, **keywords)

    expected, actual = _error(call), _error(call, compile_graph)
    if actual is not None and _is_raw(actual):
        return Raised(RAW, f"{type(actual).__name__}: {actual}")
    if type(actual) is type(expected):
        return Raised(ACCEPTED if actual is None else SAME)
    if any(type(actual) is type(_error(call, own)) for own in _PLAIN):
        return Raised(ACCEPTED if actual is None else TRACED)
    detail = f"{type(expected).__name__}: {expected}"
    if actual is None:
        return Raised(MISSING, detail)
    return Raised(OTHER, f"{type(actual).__name__}: {actual} instead of {detail}")


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
    counts: Counter[tuple[bool, str]] = Counter()
    for name in sys.argv[1:] or (*operators(), *modules()):
        for number, own in enumerate(raised(name) if name in operators() else module_raised(name)):
            counts[name in modules(), own.state] += 1
            if own.state in (MISSING, OTHER, RAW):
                print(name, number, own)
    for (is_module, state), count in sorted(counts.items()):
        print("modules" if is_module else "operators", state, count)
