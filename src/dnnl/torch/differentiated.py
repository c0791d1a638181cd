"""Graphs with operators of PyTorch or with gradients, with little of what AOTAutograd has around
them."""

from __future__ import annotations

from typing import Any

import torch

from dnnl.torch import private
from dnnl.torch.private import Compute


class Divided:
    """A graph that no gradients are asked of, and of which PyTorch computes a part; ``wrapped`` is
    what AOTAutograd makes of it. A call takes 5 us less without its wrapper."""

    def __init__(self, compute: Compute, open_axes: private.OpenAxes) -> None:
        is_autocast = private.is_autocast()
        self._compute = _without_autocast(compute) if is_autocast else compute
        self._open_axes = open_axes
        self.wrapped: Compute = compute

    def __call__(self, *arguments: Any) -> Any:
        """What the graph returns."""
        with torch.no_grad():
            results = self._compute(*arguments)
        for place, axes in self._open_axes:
            private.mark(results[place], axes)
        return results


class Trained:
    """A graph that gradients are asked of; ``wrapped`` is what AOTAutograd makes of it.

    Its wrapper and its `autograd.Function` take 28 us of a call, for aliases, subclasses of tensors
    and arguments that a graph changes, which few graphs have. The Function here is derived from
    AOTAutograd's and saves the same on the same context, so that it can leave a backward pass to
    it: the first one, which compiles the graph, those that are differentiated again, and those of
    `torch.func`. The first call is AOTAutograd's.
    """

    def __init__(self, forward: Compute, form: private.Differentiated) -> None:
        self._forward, self._form = forward, form
        self._open_axes = private.open_axes(form.metadata)
        self._apply: Compute | None = None
        self._backward: Compute | None = None
        self.wrapped: Compute = forward

    def __call__(self, *arguments: Any) -> Any:
        """What the graph returns."""
        apply = self._apply
        if apply is None:
            results = self.wrapped(*arguments)
            function = self._form.function(results)
            self._apply = self.wrapped if function is None else self._derived(function)
            return results
        if private.is_transforming() or not torch.is_grad_enabled():
            return self.wrapped(*arguments)
        results = apply(*arguments)
        for place, axes in self._open_axes:
            private.mark(results[place], axes)
        return results

    @property
    def is_derived(self) -> bool:
        """Whether calls are those of a Function that is derived from AOTAutograd's."""
        return self._apply not in (None, self.wrapped)

    def differentiate(self, backward: Compute) -> None:
        """Compute gradients by this graph, which AOTAutograd has compiled."""
        self._backward = self._alone(backward)

    def _alone(self, compute: Compute) -> Compute:
        """A graph that is called without the caller's autocast, if it has been traced with it."""
        return _without_autocast(compute) if self._form.is_autocast else compute

    def _derived(self, parent: Any) -> Compute:
        """What calls a Function that computes by the graphs themselves."""
        graphs, form, tangents = self, self._form, self._form.tangents
        compute = self._alone(self._forward)

        class CompiledFunction(parent):  # type: ignore[misc]
            """Messages have the name of AOTAutograd's."""

            @staticmethod
            def forward(ctx: Any, *arguments: Any) -> Any:
                found = compute(*arguments)
                return form.saved(ctx, found if isinstance(found, list | tuple) else (found,))

            @staticmethod
            @private.untraced  # also within another compiled function
            def backward(ctx: Any, gradients: list[Any]) -> Any:
                differentiate = graphs._backward
                given = [gradients[place] for place, _ in tangents]
                if (
                    differentiate is None
                    or torch.is_grad_enabled()
                    or private.is_transforming()
                    or torch.are_deterministic_algorithms_enabled()
                    or any(type(own) is not torch.Tensor for own in given)
                ):
                    return parent.backward(ctx, gradients)
                gradients.clear()
                given = [
                    private.laid_out(own, kind)
                    for own, (_, kind) in zip(given, tangents, strict=True)
                ]
                saved = *ctx.symints, *ctx.saved_tensors, *ctx._tensors_no_vc_check
                found = differentiate(*saved, *given)
                return tuple(found) if isinstance(found, list | tuple) else found

        return private.applied(CompiledFunction)


def _without_autocast(compute: Compute) -> Compute:
    """A function that is called without the caller's autocast."""

    def run(*arguments: Any) -> Any:
        with private.no_autocast():
            return compute(*arguments)

    return run
