"""A plan of a part of a model, and the contents that it serves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dnnl.framework.plan import Compiled
from dnnl.graph.expressions import OpenInputs
from dnnl.graph.graph import JOINT, Array, Shape, TensorType
from dnnl.types.symbols import LEAST

HUGE = 2**31
"""Numbers from here on mean the end of an axis (in Slice), not a size."""
_INT64 = np.dtype(np.int64)


@dataclass(frozen=True)
class Pattern:
    """Contents that a plan serves: exact bytes, or numbers with a sign in place of each symbol."""

    dtype: np.dtype[Any]
    shape: Shape
    elements: bytes | tuple[int | str, ...]

    @classmethod
    def of(cls, array: Array) -> Pattern:
        """The pattern that matches this array alone."""
        return cls(array.dtype, array.shape, array.tobytes())

    def numbers(self, array: Array) -> Shape | None:
        """The magnitudes of the symbols in an array; None if the array does not match."""
        if (array.dtype, array.shape) != (self.dtype, self.shape):
            return None
        if isinstance(self.elements, bytes):
            return () if array.tobytes() == self.elements else None
        found = []
        for own, number in zip(self.elements, map(int, array.flat), strict=True):
            if isinstance(own, str):
                found.append(number if own == "+" else -number)
                if not LEAST <= found[-1] < HUGE:
                    return None
            elif own != number:
                return None
        return tuple(found)


@dataclass(frozen=True)
class PartPlan:
    """A plan for contents that match ``patterns``. ``numbers`` has the symbols among the elements
    of each, which the plan treats as sizes of inputs."""

    compiled: Compiled
    patterns: Mapping[str, Pattern]
    numbers: Mapping[str, tuple[int | str, ...]]

    @cached_property
    def sizes(self) -> OpenInputs:
        """The values of the symbols, from shapes and contents."""
        listed = {as_shape(name): TensorType(_INT64, own) for name, own in self.numbers.items()}
        return OpenInputs({**self.compiled.plan.inputs, **listed})


def as_shape(name: str) -> str:
    """The name under which the symbols of contents are sizes."""
    return f"{name}{JOINT}shape"
