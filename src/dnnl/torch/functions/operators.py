"""Operators of PyTorch's dispatcher that take little time beside what they compute.

They behave as those of `torch.library.custom_op`, which runs 60 us of Python for a call and its
gradient (100 us where an argument is a list): they trace, export, and have fake results and
derivatives. These take a fifth of that. Results never share memory with arguments or with each
other; nothing checks it at each call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_library: Any = torch.library.Library
_LIBRARY: Any = _library("dnnl", "FRAGMENT")
_below_autograd: Any = torch._C._AutoDispatchBelowAutograd
_any_requires_grad = torch._C._any_requires_grad


WITHOUT_GRADIENTS: dict[Any, Callable[..., Any]] = {}
"""What computes a call of each operator where nothing is traced or differentiated: the dispatcher
takes as long as 5 us of Python for it."""


class Operator:
    """An operator ``dnnl::name``; a call is one of the dispatcher."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        schema = torch.library.infer_schema(function, mutates_args=())
        _LIBRARY.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
        _LIBRARY.impl(name, function, "CPU")
        self._name, self._call = name, getattr(torch.ops.dnnl, name).default
        WITHOUT_GRADIENTS[self._call] = function
        lists = [number for number, own in enumerate(self._call._schema.arguments)
                 if own.type.isSubtypeOf(_TENSORS)]  # fmt: skip
        self._list = lists[0] if lists else None

    def __call__(self, *args: Any) -> Any:
        """The results of a call."""
        return self._call(*args)

    def register_fake(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Say which sizes and types results have."""
        torch.library.register_fake(f"dnnl::{self._name}", function, lib=_LIBRARY)
        return function

    def register_autograd(
        self,
        backward: Callable[..., Any],
        /,
        *,
        setup_context: Callable[..., None] | None = None,
    ) -> None:
        """Say how gradients are computed, as `torch.library.register_autograd` does: ``backward``
        of a context and the gradients of the results gives those of the arguments, and
        ``setup_context`` of a context, ``inputs`` and ``output`` saves what it needs."""
        call, place = self._call, self._list

        class Gradient(torch.autograd.Function):
            """Has the tensors of a list one by one, and their number behind all arguments."""

            @staticmethod
            def forward(ctx: Any, *flat: Any) -> Any:
                args, count = flat[:-1], flat[-1]
                if place is not None:
                    args = (*args[:place], args[place : place + count], *args[place + count :])
                with _below_autograd():
                    output = call(*args)
                if setup_context is not None:
                    setup_context(ctx, args, output)
                return tuple(output) if isinstance(output, list) else output

            @staticmethod
            def backward(ctx: Any, *gradients: Any) -> Any:
                made = backward(ctx, *gradients)
                if place is not None:
                    made = *made[:place], *made[place], *made[place + 1 :]
                return *(made if isinstance(made, tuple) else (made,)), None

        apply: Any = Gradient.apply

        def differentiable(*args: Any) -> Any:
            if not (torch.is_grad_enabled() and _any_requires_grad(*args)):
                with _below_autograd():
                    return call(*args)
            if place is None:
                return apply(*args, 0)
            own = args[place]
            flat = *args[:place], *own, *args[place + 1 :], len(own)
            return apply(*flat)

        _LIBRARY.impl(self._name, differentiable, "Autograd")


_TENSORS = torch._C.ListType(torch._C.TensorType.get())


def operator(name: str) -> Callable[[Callable[..., Any]], Operator]:
    """Make a function of tensors and numbers, with their types, an operator ``dnnl::name``."""
    return lambda function: Operator(name, function)
