"""Reads those arguments of functions on arrays that are no arrays, each in its own name."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from dnnl.errors import InvalidArguments
from dnnl.ops.promotion import NUMPY, TORCH, Rules
from dnnl.primitives.parameters import Spatial
from dnnl.types.layout_input import read_int, read_sequence
from dnnl.types.memory_desc import MemoryDesc

T = TypeVar("T")

_TOO_FAR = 2**31


def many(name: str, value: object, read: Callable[[str, object], T]) -> tuple[T, ...]:
    """One value or a sequence of them as a tuple, each as ``read`` has it."""
    # The type first: asking whether it is iterable takes half a microsecond.
    if type(value) in (int, float) or not isinstance(value, Iterable) or _is_index(value):
        return (read(name, value),)
    given = read_sequence(name, value, "expected a number or a sequence of them")
    return tuple(read(name, each) for each in given)


def spread(name: str, values: Sequence[T], count: int) -> tuple[T, ...]:
    """One value for each of ``count`` dimensions, of one for all of them or one for each."""
    if len(values) not in (1, count):
        raise InvalidArguments(name, values, f"expected a number, or {count} of them")
    return tuple(values) * count if len(values) == 1 else tuple(values)


def read_sizes(name: str, value: object, count: int, low: int) -> tuple[int, ...]:
    """An integer of at least ``low`` for each of ``count`` dimensions, of one or a sequence."""
    plain: Any = (value,) * count if type(value) is int else value
    usual = type(plain) is tuple and len(plain) == count
    if usual and all(type(number) is int and low <= number < _TOO_FAR for number in plain):
        result: tuple[int, ...] = plain  # in a tenth of the time
        return result
    return Spatial(low).read(name, spread(name, many(name, value, read_int), count), count + 2)


class Axes(NamedTuple):
    """Axes as a user gave them, None for all, and how errors call the argument."""

    numbers: tuple[int, ...] | None
    name: str = "axis"

    def of(self, ndims: int, rules: Rules = NUMPY) -> tuple[int, ...]:
        """Nonnegative axes of ``ndims`` dimensions; negative ones count from the last. Without
        dimensions PyTorch takes axis 0, of which none is left."""
        if self.numbers is None:
            return tuple(range(ndims))
        if not ndims and rules is TORCH:
            return self.of(1)[1:]
        found = tuple(self._one(number, ndims) for number in self.numbers)
        if len(set(found)) < len(found):
            raise InvalidArguments(self.name, self.numbers, "expected each axis once")
        return found

    def _one(self, number: int, ndims: int) -> int:
        if not ndims:
            raise InvalidArguments(self.name, number, "x has no dimensions, so it has no axis")
        if not -ndims <= number < ndims:
            raise InvalidArguments(self.name, number, f"expected one of {-ndims}..{ndims - 1}")
        return number % ndims


def either(name: str, value: T | None, torch_name: str, torch_value: T | None) -> T | None:
    """An argument that NumPy and PyTorch call differently; None where neither is given.

    Raises `InvalidArguments` where both are.
    """
    if torch_value is None:
        return value
    if value is not None:
        rule = f"{name} = {value!r} is given as well, and both are one argument"
        raise InvalidArguments(torch_name, torch_value, rule, f"pass {name} or {torch_name}")
    return torch_value


def read_axes(axis: object, dim: object) -> Axes:
    """One axis or several by either name; without any, and of no ``dim`` as in PyTorch, all."""
    if dim is None:
        return Axes(None if axis is None else many("axis", axis, read_int))
    return Axes(many("dim", either("axis", axis, "dim", dim), read_int) or None, "dim")


def read_axis(axis: object, dim: object, default: int) -> Axes:
    """One axis by either name."""
    name = "axis" if dim is None else "dim"
    given = either("axis", axis, "dim", dim)
    return Axes((default if given is None else read_int(name, given),), name)


def _is_index(value: object) -> bool:
    """Whether it is an integer, as an array without dimensions may be."""
    try:
        operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def check_window(name: str, window: Sequence[int], x: MemoryDesc, spatial: Sequence[int]) -> None:
    """Raise where a window does not fit into x, so that its results would be less than one."""
    if min(spatial) < 1:
        rule = f"reaches over x, which has the shape {x.dims}, with its padding"
        raise InvalidArguments(name, tuple(window), rule)


def batched(x: MemoryDesc, count: int) -> MemoryDesc:
    """An image of so many spatial dimensions with its batch, of size 1 where it has none."""
    if x.ndims == count + 1:
        return x.reshape((1, *x.dims))
    if x.ndims != count + 2:
        rule = f"expected {count + 2} dimensions, or {count + 1} without a batch"
        raise InvalidArguments("x", x.dims, rule)
    return x


def check_weight(count: int, weight: MemoryDesc) -> None:
    """Raise unless it has two dimensions and so many spatial ones."""
    if weight.ndims != count + 2:
        raise InvalidArguments("weight", weight.dims, f"expected {count + 2} dimensions")


def check_bias(bias: Sequence[MemoryDesc], channels: int) -> None:
    """Raise unless the bias, where there is one, has a number for each channel of the result."""
    if bias and bias[0].dims != (channels,):
        raise InvalidArguments("bias", bias[0].dims, f"expected the shape {(channels,)}")
