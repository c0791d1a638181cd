"""What we and a peer have in common when both do the same operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dnnl import Arg
from dnnl.tools.bench.measure import Contender

Values = NDArray[np.float32]


class Operation(Protocol):
    """An operation with memory for its tensors; arguments have the numbers of :class:`dnnl.Arg`."""

    @property
    def impl_info(self) -> str:
        """The implementation that was chosen."""

    def load(self, argument: int, array: Values) -> None:
        """Give a tensor the values of a row-major array."""

    def read(self, argument: int) -> Values:
        """A tensor's values, row-major."""

    def bind(self) -> Callable[[], object]:
        """One execution per call."""


def enter(
    name: str, operation: Operation, tensors: Mapping[Arg, Values], work: float
) -> tuple[Contender, Values]:
    """The operation, filled, as a contender; and what it makes of the tensors."""
    for argument, array in tensors.items():
        operation.load(argument, array)
    run = operation.bind()
    run()
    return Contender(name, run, work), operation.read(Arg.DST)
