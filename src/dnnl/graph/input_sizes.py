"""Binding of declared input shapes to given ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import numpy as np

from dnnl.errors import InvalidArguments
from dnnl.graph.graph import UNRANKED, Shape, TensorType
from dnnl.graph.sizes import known_int
from dnnl.types import arithmetic
from dnnl.types.arithmetic import NoArithmetic
from dnnl.types.layout_input import read_sequence
from dnnl.types.size import Size

_NAME = re.compile(r"[a-z]+[0-9]+")
"""A size of PyTorch's."""
_ARITHMETIC = re.compile(r"[a-z0-9()+\-*/% ]*")


def ones_for_open(inputs: Mapping[str, TensorType]) -> dict[str, Shape]:
    """The declared shapes, with 1 for each open size."""
    return {
        name: tuple(1 if isinstance(n, str) else n for n in kind.shape)
        for name, kind in inputs.items()
    }


def bound(inputs: Mapping[str, TensorType], shapes: Mapping[str, Shape]) -> dict[str, TensorType]:
    """The inputs with the given shapes, so that every size is known.

    Raises InvalidArguments for shapes that are open or contradict the declared ones.
    """
    if not isinstance(shapes, Mapping):
        rule = "expected a mapping from the names of inputs to their sizes"
        raise InvalidArguments("input_shapes", shapes, rule)
    for name in shapes.keys() - inputs.keys():
        rule = f"no such input; there are {', '.join(inputs)}"
        raise InvalidArguments("input", name, rule)
    sizes: dict[str, tuple[int | str, ...]] = {
        name: read_sequence(f"input {name!r}", given, "expected a sequence of sizes")
        for name, given in shapes.items()
    }
    for name, given in sizes.items():
        check_shape(name, inputs[name], given, inputs)
    named = _named_sizes(inputs, sizes)
    for name, kind in inputs.items():
        if name not in sizes:
            sizes[name] = tuple(named.get(n, n) if isinstance(n, str) else n for n in kind.shape)
            check_shape(name, kind, sizes[name], inputs)
    return {
        name: TensorType(kind.dtype, tuple(map(known_int, sizes[name])))
        for name, kind in inputs.items()
    }


def _named_sizes(
    inputs: Mapping[str, TensorType], sizes: Mapping[str, tuple[int | str, ...]]
) -> dict[str, int]:
    """The value of each named size of the declared shapes.

    Raises InvalidArguments if a name would have two values.
    """
    named: dict[str, tuple[int, str]] = {}
    for name, given in sizes.items():
        declared = inputs[name].shape
        for size, value in zip(declared, given, strict=declared != UNRANKED):
            if isinstance(size, int) or declared == UNRANKED:
                continue
            before, where = named.setdefault(size, (known_int(value), name))
            if before != value:
                found = f"it is {before} in input {where!r} and {value} here"
                rule = f"{size} of {inputs[name]} must be one size: {found}"
                raise InvalidArguments(f"input {name!r}", given, rule)
    return {size: value for size, (value, _) in named.items()}


def check_shape(
    name: str, kind: TensorType, sizes: tuple[int | str, ...], inputs: Mapping[str, TensorType]
) -> None:
    """Raise InvalidArguments where ``sizes`` do not fit what input ``name`` of ``inputs``
    declares."""
    argument = f"input {name!r}"
    unknown = [size for size in sizes if isinstance(size, str)]
    if unknown:
        rule = f"the model leaves {', '.join(dict.fromkeys(unknown))} of {kind} open"
        opened = {key: kind for key, kind in inputs.items() if _open(kind.shape)}
        hint = f"for example model.with_shapes({ones_for_open(opened)})"
        if not any(map(needs_shape, opened.values())):
            hint += ", or compile(batch=1)"
        raise InvalidArguments(argument, sizes, rule, hint)
    if not all(is_size(size) and known_int(size) >= 0 for size in sizes):
        raise InvalidArguments(argument, sizes, "sizes must be integers of at least 0")
    fits = len(sizes) == len(kind.shape) and all(
        isinstance(n, str) or n == size for n, size in zip(kind.shape, sizes, strict=True)
    )
    if not fits and kind.shape != UNRANKED:
        raise InvalidArguments(argument, sizes, f"wrong shape: the model expects {kind}")


def _open(shape: tuple[int | str, ...]) -> bool:
    return any(isinstance(size, str) for size in shape)


def needs_shape(kind: TensorType) -> bool:
    """Whether an input has open sizes beside its first."""
    return kind.shape == UNRANKED or _open(kind.shape[1:])


def is_size(value: object) -> bool:
    """Whether ``value`` is an integer or an expression of open sizes."""
    return isinstance(value, int | np.integer | Size) and not isinstance(value, bool)


def derived_size(
    name: str, extent: int, extents: Mapping[str, int]
) -> tuple[list[str], Callable[..., int]] | None:
    """The names of other sizes that a name is an expression of, as PyTorch has them for what
    strides leave, and that expression. None for other names, and where ``extents`` differ."""
    others = sorted(set(_NAME.findall(name)))
    known = others and _ARITHMETIC.fullmatch(name) and extents.keys() >= set(others)
    if not known or name in others:
        return None
    try:
        function = arithmetic.function(others, name)
        same = function(*(extents[other] for other in others)) == extent
    except (NoArithmetic, TypeError, ZeroDivisionError):
        return None
    return (others, function) if same else None
