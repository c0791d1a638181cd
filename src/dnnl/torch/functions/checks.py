"""What the differentiable functions ask of their arguments, and how results are laid out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd.forward_ad import unpack_dual

from dnnl.errors import InvalidArguments, Unimplemented
from dnnl.types.layout_input import read_int

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
Sizes = int | Sequence[int]
_dual: Any = unpack_dual


def check_source(name: str, x: object, types: Sequence[torch.dtype] = FLOATS) -> torch.Tensor:
    """A tensor on the processor, of one of the types; raises InvalidArguments otherwise, and
    Unimplemented for one with a forward-mode derivative, which PyTorch would take for zero."""
    if not isinstance(x, torch.Tensor):
        raise InvalidArguments(name, type(x).__name__, "expected a torch.Tensor")
    if x.device.type not in ("cpu", "meta") or x.layout is not torch.strided:
        rule = "expected a strided tensor on the processor"
        raise InvalidArguments(name, f"{x.layout} on {x.device}", rule)
    if x.dtype not in types:
        expected = ", ".join(map(str, types))
        raise InvalidArguments(name, str(x.dtype), f"expected elements of {expected}")
    if not torch.compiler.is_compiling() and _dual(x).tangent is not None:
        raise refuse(name, "a dual tensor", "functions of dnnl.torch have backward derivatives")
    return x


def check_like(name: str, own: object, x: torch.Tensor, shape: Sequence[int]) -> None:
    """A tensor of these sizes, of the type of ``x``; raises InvalidArguments otherwise."""
    own = check_source(name, own)
    check_shape(name, own, shape)
    if own.dtype != x.dtype:
        rule = f"expected the type of x, {x.dtype}"
        raise InvalidArguments(name, str(own.dtype), rule, f"convert it by .to({x.dtype})")


def check_shape(name: str, own: torch.Tensor, shape: Sequence[int]) -> None:
    """Raise InvalidArguments unless a tensor has these sizes."""
    if tuple(own.shape) != tuple(shape):
        raise InvalidArguments(name, tuple(own.shape), f"expected the shape {tuple(shape)}")


def read_sizes(name: str, value: Sizes, count: int, least: int) -> list[int]:
    """One number for each spatial dimension; one number is that of all."""
    given = value if isinstance(value, list | tuple) else [value]
    numbers = [read_integer(name, own) for own in given]
    if len(numbers) == 1:
        numbers *= count
    if len(numbers) != count or any(number < least for number in numbers):
        rule = f"expected one integer or {count}, from {least} on"
        raise InvalidArguments(name, value, rule)
    return numbers


def read_integer(name: str, value: Any) -> Any:
    """An integer of any kind; PyTorch's symbols of open sizes stay symbols."""
    return value if isinstance(value, int | torch.SymInt) else read_int(name, value)


def packed(x: torch.Tensor) -> torch.Tensor:
    """The tensor row-major or channels-last, whichever it is in memory; a copy of any other."""
    return x if x.is_contiguous() or _is_last(x) else x.contiguous()


def empty_like(x: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """A new tensor of these sizes, row-major or channels-last as ``x`` is."""
    return torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=format_of(x))


def laid_like(x: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """A new tensor of these sizes, whose heads and rows are in memory in the order of those of
    ``x``: what is split into heads is joined again without a copy."""
    strides, last = x.stride(), x.dim() - 1
    order = sorted(range(last), key=lambda dim: -strides[dim])
    return torch.empty_permuted(shape, (*order, last), dtype=x.dtype, device=x.device)


def format_of(x: torch.Tensor) -> torch.memory_format:
    """What `packed` makes of a tensor."""
    if x.is_contiguous() or not _is_last(x):
        return torch.contiguous_format
    return _LAST[x.dim()]


_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def _is_last(x: torch.Tensor) -> bool:
    return x.dim() in _LAST and x.is_contiguous(memory_format=_LAST[x.dim()])


def refuse(name: str, value: object, rule: str) -> Unimplemented:
    """The error for an argument of PyTorch's that the library does not take."""
    return Unimplemented(f"{name} = {value!r}: {rule}; torch.nn.functional takes it")
