"""Gradients of PyTorch's operator database through the backend, beside eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from functorch.compile import (
    aot_function,
    make_boxed_func,
    min_cut_rematerialization_partition,
)
from torch.utils import _pytree as pytree

from dnnl.torch import private
from dnnl.torch.aten.table import TRANSLATIONS
from dnnl.torch.partition import partitioned
from dnnl.torch.randomness import draw_apart
from tests.torch.operator_cases import (
    RAW,
    REFUSED,
    Case,
    Outcome,
    compared,
    computed,
    farther,
    operators,
    samples,
    unlike,
    wide,
)

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
Compile = Callable[[torch.fx.GraphModule], Callable[..., Any]]


def gradient_outcomes(name: str, dtype: torch.dtype) -> list[Outcome]:
    """What becomes of the gradients of samples of an operator."""
    record = operators()[name]
    if dtype not in record.backward_dtypes or not record.supports_autograd:
        return []
    found = [_Case(record.op, own) for own in samples(record, dtype, requires_grad=True)]
    return [own.outcome() for own in found if own.is_differentiable]


class _Case(Case):
    """The gradients of one sample."""

    @property
    def is_differentiable(self) -> bool:
        """Whether anything has a gradient."""
        return any(self._wanted)

    def outcome(self) -> Outcome:
        """Who computes the result and the gradients."""
        try:
            expected = self._gradients(self._call)
        except Exception as error:  # PyTorch has no such kernel
            return Outcome(REFUSED, f"eager: {type(error).__name__}")
        try:
            actual = self._differentiated(lambda module: partitioned(module, (), self._report))
        except Exception as error:
            if not self._found:
                return Outcome(REFUSED, f"traced: {type(error).__name__}")
            return Outcome(RAW, f"{type(error).__name__}: {error}")
        try:
            problem = compared(actual, expected, strides=False)
            plain = self._differentiated(lambda module: module) if problem else expected
            problem = problem and compared(actual, plain)
            if problem and not unlike(actual, plain):
                # Functions that are computed at once round less often than eager.
                exact = self._gradients(self._call, wide)
                problem = compared(actual, exact, types=False)
                problem = problem and farther(actual, (expected, plain), exact)
        except Exception as error:  # results that PyTorch does not compare
            return Outcome(REFUSED, f"compared: {type(error).__name__}: {error}")
        return computed(self._found.values(), problem)

    @property
    def _wanted(self) -> list[bool]:
        """Which tensors of the sample have gradients."""
        return [self._leaves[place].requires_grad for place in self._places]

    def _gradients(
        self,
        function: Callable[..., Any],
        copied: Callable[[torch.Tensor], torch.Tensor] = torch.clone,
    ) -> list[torch.Tensor | None]:
        """Those of random shares of all results, which bf16 holds; of ``copied`` tensors."""
        torch.manual_seed(0)
        own = list(map(copied, self._tensors))
        wanted = [x.requires_grad_() for x, has in zip(own, self._wanted, strict=True) if has]
        results = [
            one
            for one in pytree.tree_leaves(function(*own))
            if isinstance(one, torch.Tensor) and one.requires_grad
        ]
        torch.manual_seed(1)
        shares = [torch.randn(one.shape).bfloat16().to(one.dtype) for one in results]
        return list(torch.autograd.grad(results, wanted, shares, allow_unused=True))

    def _differentiated(self, compile_one: Compile) -> list[torch.Tensor | None]:
        def boxed(module: torch.fx.GraphModule, _: Sequence[Any]) -> Any:
            draw_apart(module)
            return make_boxed_func(compile_one(module))

        function = aot_function(
            self._call,
            fw_compiler=boxed,
            bw_compiler=boxed,
            partition_fn=min_cut_rematerialization_partition,
            decompositions=private.decompositions(TRANSLATIONS),
        )
        return self._gradients(function)
