"""PyTorch's database of modules through `torch.compile`, beside eager.

python -m tests.torch.module_cases [name ...]
"""

from __future__ import annotations

import copy
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch.utils import _pytree as pytree

from dnnl.torch.backend import compiled
from dnnl.torch.partition import Decision
from tests.torch.operator_cases import (
    RAW,
    REFUSED,
    WRONG,
    Outcome,
    compared,
    computed,
    database,
    spread,
)

MOST = 6
"""Samples of a module in one mode: 3,600 are too many, with 400 of some."""
_ATOL = 1e-4
"""Gradients of weights are sums over all positions."""

Found = tuple[Any, list[Any], list[Any]]
"""What a step gives: results, gradients of arguments and parameters, buffers."""


@cache
def modules() -> dict[str, Any]:
    """The records of ``torch.testing._internal`` by name."""
    return {own.name: own for own in database("common_modules").module_db}


def module_outcomes(name: str, training: bool, most: int = MOST) -> list[Outcome]:
    """What becomes of samples of a module, spread over all, in evaluation or in training."""
    record = modules()[name]
    torch.manual_seed(0)
    every = record.module_inputs_func(
        record, device="cpu", dtype=torch.float32, requires_grad=training, training=training
    )
    return [_outcome(record.module_cls, own, training) for own in spread(list(every), most)]


def _outcome(kind: Callable[..., torch.nn.Module], sample: Any, training: bool) -> Outcome:
    given, options = sample.constructor_input.args, sample.constructor_input.kwargs
    torch.manual_seed(0)
    net = kind(*given, **options).train(training)
    call = sample.forward_input.args, sample.forward_input.kwargs
    if any(isinstance(own, torch.nn.parameter.UninitializedParameter) for own in net.parameters()):
        args, keywords = _copied(call)
        net(*args, **keywords)  # the first call makes the weights
    try:
        expected = _step(net, net, call, training)
    except Exception as error:
        return Outcome(REFUSED, f"eager: {type(error).__name__}")
    found: dict[tuple[int, str], Decision] = {}

    def backend(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        def report(decisions: Sequence[Decision]) -> None:
            found.update({(len(found), own.name): own for own in decisions})

        return compiled(module, inputs, report)

    try:
        actual = _compiled_step(net, call, training, backend)
    except Exception as error:
        try:
            _compiled_step(net, call, training, "aot_eager")
        except Exception as plain:
            if type(plain) is type(error):
                return Outcome(REFUSED, f"traced: {type(plain).__name__}")
        return Outcome(RAW, f"{type(error).__name__}: {error}")
    problem = compared(actual, expected, strides=not training, atol=_ATOL)
    if problem:  # operators may be traced as others than eager's
        traced = _compiled_step(net, call, training, "aot_eager")
        problem = compared(actual, traced, strides=not training, atol=_ATOL)
    return computed(found.values(), problem)


def _compiled_step(net: torch.nn.Module, call: Any, training: bool, backend: Any) -> Found:
    torch._dynamo.reset()
    own = copy.deepcopy(net)
    return _step(torch.compile(own, backend=backend), own, call, training)


def _copied(call: Any) -> Any:
    """Arguments that nothing has changed yet."""

    def one(own: Any) -> Any:
        if not isinstance(own, torch.Tensor):
            return own
        return own.detach().clone().requires_grad_(own.requires_grad)

    return pytree.tree_map(one, call)


def _step(function: Callable[..., Any], net: torch.nn.Module, call: Any, training: bool) -> Found:
    """One call, in training with gradients of random shares of all results."""
    args, keywords = _copied(call)
    before = copy.deepcopy(net.state_dict())
    torch.manual_seed(1)
    try:
        with torch.set_grad_enabled(training):
            results = function(*args, **keywords)
        wanted = [
            own
            for own in (*pytree.tree_leaves((args, keywords)), *net.parameters())
            if isinstance(own, torch.Tensor) and own.requires_grad
        ]
        shown = [own for own in pytree.tree_leaves(results) if isinstance(own, torch.Tensor)]
        roots = [own for own in shown if own.requires_grad]
        gradients: list[Any] = []
        if training and roots and wanted:
            torch.manual_seed(2)
            shares = [torch.randn(own.shape).to(own.dtype) for own in roots]
            gradients = list(torch.autograd.grad(roots, wanted, shares, allow_unused=True))
        results = pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, results)
        return results, gradients, [own.clone() for own in net.buffers()]
    finally:
        net.load_state_dict(before)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    counts: Counter[tuple[bool, str]] = Counter()
    for name in sys.argv[1:] or modules():
        for training in (False, True):
            for number, outcome in enumerate(module_outcomes(name, training)):
                counts[training, outcome.state] += 1
                if outcome.state in (WRONG, RAW, REFUSED):
                    print(name, "training" if training else "evaluation", number, outcome)
    for (training, state), count in sorted(counts.items()):
        print("training" if training else "evaluation", state, count)
