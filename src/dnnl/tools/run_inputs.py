"""The inputs of ``dnnl run``: shapes and contents, given or random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

from dnnl.errors import InvalidArguments
from dnnl.framework import Session
from dnnl.graph.graph import UNRANKED, Array, Shape, TensorType
from dnnl.onnx.read import read_tensor
from dnnl.runtime.storage import check_capacity

INPUT_SEED = 0
_RANDOM_BYTES = 12
"""The memory of a random element in bytes: it is drawn as f64, then converted."""


def read_sizes(texts: Sequence[str]) -> dict[str, int]:
    """The open sizes by name, from texts ``NAME=N``.

    Raises InvalidArguments for other texts, and for a name with two values.
    """
    found: dict[str, int] = {}
    for text in texts:
        name, separator, number = text.rpartition("=")
        if not (separator and name and number.isdecimal()):
            raise InvalidArguments("--shape", text, "must be NAME=N", "--shape seq=16")
        if found.setdefault(name, int(number)) != int(number):
            raise InvalidArguments("--shape", text, f"{name} is {found[name]} as well")
    return found


def shapes_of(
    inputs: Mapping[str, TensorType], given: Mapping[str, Array], sizes_given: Mapping[str, int]
) -> tuple[dict[str, Shape], list[str]]:
    """The shapes of all inputs, and notes on defaults.

    A named size is that in ``sizes_given`` or in the given arrays. An open first size is 1 by
    default, with a note. Raises InvalidArguments for other open sizes, and for unknown names.
    """
    names = {size for kind in inputs.values() for size in kind.shape if isinstance(size, str)}
    for name in sizes_given:
        if name not in names:
            there = ", ".join(sorted(names)) or "none"
            raise InvalidArguments(
                "--shape", name, f"no open size has this name; there are {there}"
            )
    known: dict[Any, int] = dict(sizes_given)
    for name, array in given.items():
        known.update(zip(inputs[name].shape, array.shape, strict=False))
    shapes, notes = {name: array.shape for name, array in given.items()}, []
    for name, kind in inputs.items():
        if name in given:
            continue
        sizes = tuple(known.get(n, n) if isinstance(n, str) else n for n in kind.shape)
        if sizes and isinstance(sizes[0], str) and sizes != UNRANKED:
            taken = f"input {name!r}: 1 is taken for {sizes[0]} of {kind}"
            notes.append(f"{taken}; --shape {sizes[0]}=N or --input {name}=FILE gives it")
            sizes = (1, *sizes[1:])
        left = [size for size in sizes if isinstance(size, str)]
        if left:
            rule = f"the model leaves {', '.join(dict.fromkeys(left))} of {kind} open"
            hint = " ".join(f"--shape {size}=N" for size in dict.fromkeys(left))
            raise InvalidArguments(f"input {name!r}", None, rule, f"{hint} gives them")
        shapes[name] = tuple(int(size) for size in sizes)
    return shapes, notes


def filled(
    session: Session,
    given: Mapping[str, Array],
    extents: Mapping[str, int],
    seed: int = INPUT_SEED,
    scale: float = 1.0,
) -> dict[str, Array]:
    """All inputs; those that are not in ``given`` are random with ``seed``.

    Floats are normally distributed with standard deviation ``scale``. Integers are below the number
    in ``extents`` if they are indices, else 0 and 1. Raises OutOfMemory if they do not fit.
    """
    inputs = session.inputs
    elements = sum(prod(kind.sizes) for name, kind in inputs.items() if name not in given)
    check_capacity(session.nbytes + elements * _RANDOM_BYTES)
    rng = np.random.default_rng(seed)
    return {
        name: given[name] if name in given else _random(rng, kind, extents.get(name, 2), scale)
        for name, kind in inputs.items()
    }


def read_inputs(texts: Sequence[str], inputs: Mapping[str, TensorType]) -> dict[str, Array]:
    """The array of each ``NAME=FILE``.

    Raises InvalidArguments for another text, an unknown name and one that is given twice.
    """
    arrays = {}
    for text in texts:
        name, separator, file = text.rpartition("=")
        if not separator:
            raise InvalidArguments("--input", text, "must be NAME=FILE")
        if name not in inputs:
            rule = f"no such input; there are {', '.join(inputs)}"
            raise InvalidArguments("--input", name, rule)
        if name in arrays:
            raise InvalidArguments("--input", text, f"the input {name} is given twice")
        arrays[name] = read_tensor(file)
    return arrays


def _random(rng: np.random.Generator, kind: TensorType, count: int, scale: float) -> Array:
    """Normal floats, or integers below ``count``."""
    if not kind.dtype.name.startswith(("bool", "int", "uint")):
        return np.asarray(scale * rng.standard_normal(kind.sizes)).astype(kind.dtype)
    most = 1
    if kind.dtype != np.bool_:
        most = int(ml_dtypes.iinfo(kind.dtype).max)  # type: ignore[no-untyped-call]
    return rng.integers(0, min(count - 1, most), kind.sizes, endpoint=True).astype(kind.dtype)
