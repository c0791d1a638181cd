"""Arguments and results of calls: arrays of NumPy or tensors of PyTorch, positional or by name."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dnnl.errors import InvalidArguments
from dnnl.graph.graph import Array, TensorType
from dnnl.runtime.memory import Memory
from dnnl.runtime.wrap import ArrayLike, array_of


def named(
    arrays: Sequence[Any], keywords: Mapping[str, Any], inputs: Mapping[str, TensorType]
) -> Mapping[str, ArrayLike]:
    """The arguments of a call by input name: a single mapping, or positional and keyword arguments.

    Raises InvalidArguments for too many arguments and for an input that is given twice.
    """
    if len(arrays) == 1 and isinstance(arrays[0], Mapping):
        if keywords:
            given = ", ".join(keywords)
            raise InvalidArguments(
                "input", given, "expected one mapping, or arguments by keyword, not both"
            )
        return arrays[0]
    first = dict(zip(inputs, arrays, strict=False))
    if len(arrays) > len(inputs) or (len(arrays) < len(inputs) and not keywords):
        rule = f"expected {len(inputs)} arrays for {', '.join(inputs)}, or one mapping by name"
        raise InvalidArguments("number of arrays", len(arrays), rule)
    for name in first.keys() & keywords.keys():
        raise InvalidArguments(
            "input", name, f"is given twice: array {list(first).index(name)} too"
        )
    return {**first, **keywords}


def arrays_of(feeds: Mapping[str, ArrayLike], inputs: Mapping[str, TensorType]) -> dict[str, Array]:
    """A NumPy array for each input.

    Raises InvalidArguments for a missing or unknown name, and for what is no array.
    """
    if not isinstance(feeds, Mapping):
        hint = "session(x) takes arrays in the order of the inputs"
        given = type(feeds).__name__
        raise InvalidArguments("feeds", given, "expected a mapping from names to arrays", hint)
    for name in feeds.keys() - inputs.keys():
        raise InvalidArguments("input", name, f"no such input; there are {', '.join(inputs)}")
    arrays = {}
    for name, expected in inputs.items():
        if name not in feeds:
            rule = f"missing: the model expects {expected}"
            raise InvalidArguments(f"input {name!r}", None, rule)
        arrays[name] = _array(name, feeds[name], expected)
    return arrays


def _array(name: str, value: object, expected: TensorType) -> Array:
    try:
        return array_of(value, f"input {name!r}")  # type: ignore[arg-type]
    except InvalidArguments as error:  # ragged lists, tensors with a gradient or of a device
        raise InvalidArguments(
            f"input {name!r}", type(value).__name__, f"the model expects {expected}: {error.rule}"
        ) from error


def check_input(name: str, array: np.ndarray, expected: TensorType) -> None:
    """Raise InvalidArguments if an array does not have the type and rank of input ``name``."""
    given = TensorType(array.dtype, array.shape)
    if given.dtype != expected.dtype:
        rule = f"wrong data type: the model expects {expected}"
        hint = f"array.astype({expected.dtype.name!r}) converts it"
        raise InvalidArguments(f"input {name!r}", str(given), rule, hint)
    sizes = zip(given.shape, expected.shape, strict=False)
    known = all(isinstance(wanted, str) or size == wanted for size, wanted in sizes)
    if len(given.shape) != len(expected.shape) or not known:
        rule = f"wrong shape: the model expects {expected}"
        raise InvalidArguments(f"input {name!r}", str(given), rule)


def as_given(results: Mapping[str, Any], given: Iterable[object]) -> Any:
    """The only result, or a dict of all: tensors of PyTorch if an argument of ``given`` is one."""
    torch = _torch_of(given)
    found = results if torch is None else {n: _tensor(torch, own) for n, own in results.items()}
    return found if len(found) > 1 else next(iter(found.values()))


def _torch_of(given: Iterable[object]) -> Any:
    """The module torch if an argument is one of its tensors or a list of them, else None."""
    torch = sys.modules.get("torch")  # a tensor implies that it is imported
    kind = getattr(torch, "Tensor", None)
    if kind is None:
        return None
    firsts = (own[0] if isinstance(own, list) and own else own for own in given)
    return torch if any(isinstance(own, kind) for own in firsts) else None


def _tensor(torch: Any, result: Array | list[Array]) -> Any:
    """A result as a tensor that shares its memory; itself where PyTorch has no such elements, as
    integers below 8 bits."""
    if isinstance(result, list):
        return [_tensor(torch, own) for own in result]
    if result.dtype.isbuiltin == 1:
        return torch.from_numpy(result)
    try:
        return torch.from_dlpack(Memory.from_numpy(result))  # NumPy cannot export bf16
    except (BufferError, InvalidArguments):
        return result
