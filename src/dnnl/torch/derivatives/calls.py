"""Functions on arrays as nodes of PyTorch's graphs of gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from inspect import signature
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
import torch

from dnnl import ops
from dnnl.errors import InvalidArguments
from dnnl.torch.derivatives import elementwise, images, products, reductions
from dnnl.torch.derivatives.rules import Counterpart, Gradients, Rule
from dnnl.torch.tensors import tensor_of

Function: TypeAlias = Callable[..., Any]
_Where: TypeAlias = tuple[str, int | None]
"""The name of an argument, and the place in it where that is a sequence."""

TABLE: Mapping[str, Gradients] = {
    **elementwise.TABLE,
    **images.TABLE,
    **products.TABLE,
    **reductions.TABLE,
}


def derived(
    function: Function,
    given: Sequence[Any],
    named: Mapping[str, Any],
    refusal: InvalidArguments,
) -> Any:
    """Call a function of `dnnl.ops` on tensors, some of which require gradients.

    ``refusal`` is how the function itself refused one. Raises InvalidArguments for functions
    without gradients, and for an ``out``.
    """
    bound = _signature(function).bind(*given, **named)
    bound.apply_defaults()
    arguments = dict(bound.arguments)
    if arguments.pop("out", None) is not None:
        rule = "a result with gradients is a new tensor"
        hint = "leave it out, or call under torch.no_grad()"
        raise InvalidArguments("out", "a tensor", rule, hint)
    name = function.__name__
    found = TABLE.get(name)
    if found is None:
        raise _without(refusal.argument, name)
    if isinstance(found, Counterpart):
        return found.function(**_alike(arguments, found.alike))
    wheres = list(_tensors(arguments))
    tensors = [_at(arguments, where) for where in wheres]
    for (argument, place), own in zip(wheres, tensors, strict=True):
        if own.requires_grad and argument not in found:
            raise _without(argument, name)
        if own.requires_grad and place is not None and argument != "arrays":
            rule, hint = "a list of tensors has no gradient", f"pass torch.stack({argument})"
            raise InvalidArguments(argument, "a list", rule, hint)
    recorded: Callable[..., Any] = _Recorded.apply
    return recorded(function, found, arguments, wheres, *tensors)


_signature = lru_cache(len(TABLE))(signature)


def _without(argument: str, name: str) -> InvalidArguments:
    rule = f"requires a gradient, which dnnl.ops.{name} does not have"
    hint = f"pass {argument}.detach(), or use PyTorch's function"
    return InvalidArguments(argument, "a tensor", rule, hint)


def _not_a_tensor(argument: str) -> InvalidArguments:
    rule = "an array of NumPy comes first, and so the result would be one, without gradients"
    return InvalidArguments(argument, "an array", rule, "make a tensor of it: torch.from_numpy")


class _Recorded(torch.autograd.Function):
    """A call, with the rules for its arguments."""

    @staticmethod
    def forward(
        ctx: Any,
        function: Function,
        rules: Mapping[str, Rule],
        arguments: dict[str, Any],
        wheres: Sequence[_Where],
        *tensors: torch.Tensor,
    ) -> torch.Tensor:
        result = function(**arguments)
        if not isinstance(result, torch.Tensor):
            raise _not_a_tensor(next(each for each in arguments if each != "condition"))
        reads = {
            read
            for need, (argument, _) in zip(ctx.needs_input_grad[4:], wheres, strict=True)
            if need
            for read in rules[argument].reads
        }
        saved = [
            own if argument in reads else None
            for (argument, _), own in zip(wheres, tensors, strict=True)
        ]
        ctx.save_for_backward(*saved, result if "result" in reads else None)
        ctx.rules, ctx.wheres = rules, wheres
        sizes = _filled(arguments, wheres, [own.to("meta") for own in tensors])
        ctx.arguments = sizes | {read: _as_tensors(sizes[read]) for read in reads - {"result"}}
        return result

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        *saved, result = ctx.saved_tensors
        sizes = [_at(ctx.arguments, where) for where in ctx.wheres]
        pairs = zip(saved, sizes, strict=True)
        tensors = [size if own is None else own for own, size in pairs]
        arguments = SimpleNamespace(**_filled(ctx.arguments, ctx.wheres, tensors), result=result)
        gradients: list[torch.Tensor | None] = []
        needs = ctx.needs_input_grad[4:]
        for need, (argument, place), like in zip(needs, ctx.wheres, sizes, strict=True):
            if not need:
                gradients.append(None)
                continue
            arguments.place = place
            found = ctx.rules[argument].function(gradient, arguments)
            gradients.append(_summed(found, like.shape).to(like.dtype))
        return None, None, None, None, *gradients


def _summed(gradient: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """The gradient of what was broadcast."""
    if gradient.shape == shape:
        return gradient
    more = gradient.dim() - len(shape)
    whole = (*(1,) * more, *shape)
    pairs = enumerate(zip(whole, gradient.shape, strict=True))
    axes = [axis for axis, (own, size) in pairs if axis < more or own != size]
    result: torch.Tensor = ops.sum(gradient, axes, keepdims=True).reshape(shape)
    return result


def _tensors(arguments: Mapping[str, Any]) -> Iterator[_Where]:
    """Where tensors are."""
    for name, value in arguments.items():
        if isinstance(value, torch.Tensor):
            yield name, None
        elif isinstance(value, list | tuple):
            for place, own in enumerate(value):
                if isinstance(own, torch.Tensor):
                    yield name, place


def _at(arguments: Mapping[str, Any], where: _Where) -> Any:
    name, place = where
    return arguments[name] if place is None else arguments[name][place]


def _filled(
    arguments: Mapping[str, Any], wheres: Sequence[_Where], tensors: Sequence[torch.Tensor]
) -> dict[str, Any]:
    """The arguments with other tensors."""
    result = {
        name: list(value) if isinstance(value, list | tuple) else value
        for name, value in arguments.items()
    }
    for (name, place), own in zip(wheres, tensors, strict=True):
        if place is None:
            result[name] = own
        else:
            result[name][place] = own
    return result


def _alike(arguments: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The arguments with arrays of NumPy as tensors, and with one type where names say so."""
    first = next(iter(arguments))
    if isinstance(arguments[first], np.ndarray | np.generic):
        raise _not_a_tensor(first)
    result = {name: _as_tensors(value) for name, value in arguments.items()}
    found = [
        _at(result, where)
        for name in names
        if name in result
        for where in _tensors({name: result[name]})
    ]
    common = found[0].dtype if found else torch.float32
    for own in found[1:]:
        common = torch.promote_types(common, own.dtype)
    for name in names:
        if name in result:
            wheres = list(_tensors({name: result[name]}))
            changed = [_at(result, where).to(common) for where in wheres]
            result |= _filled({name: result[name]}, wheres, changed)
    return result


def _as_tensors(value: Any) -> Any:
    """Arrays of NumPy as tensors of their own, as their memory may change before the gradient."""
    if isinstance(value, np.ndarray):
        return tensor_of(np.array(value))
    if isinstance(value, list | tuple) and any(isinstance(own, np.ndarray) for own in value):
        return [_as_tensors(own) for own in value]
    return value
