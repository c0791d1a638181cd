"""What the check of an operation needs besides its function: contents that make errors visible,
and what is accepted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from dnnl.reference.arrays import Array
from dnnl.reference.rule import Rule
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc

Description: TypeAlias = Any
"""The frozen description of an operation: a `Desc` of the primitives, which are a layer above."""

Attributes: TypeAlias = Any
"""A `dnnl.PrimitiveAttr`."""

Values = Mapping[int, Array]
"""The elements of tensors by execution argument."""


class Specification(ABC):
    """An operation that can be checked. ``desc`` is always its frozen description.

    ``direct`` says that elements are converted from one type to the other without passing f32.
    """

    direct = False

    @abstractmethod
    def fill(self, desc: Description) -> dict[int, Array]:
        """The elements of every input.

        Of a backward pass also those that its forward pass alone reads, where peers have to run
        that first since what it leaves in a workspace is their own business.
        """

    @abstractmethod
    def compute(self, desc: Description, values: Values) -> dict[int, Array]:
        """Every output in float64, before post-ops; inputs come dequantized."""

    def under(self, attr: Attributes) -> Specification:
        """The operation under attributes that change more than inputs, results and post-ops."""
        return self

    @abstractmethod
    def rule(
        self, desc: Description, argument: int, values: Values, post_ops: Sequence[object] = ()
    ) -> Rule:
        """What is accepted of one output, of which ``post_ops`` may be made as well."""


def inputs(desc: Description) -> Iterator[tuple[int, MemoryDesc]]:
    """Argument and descriptor of every input of a description."""
    for tensor in desc.tensors:
        if not tensor.output:
            yield tensor.argument, tensor.desc


def zero_limit(data_type: DataType, plain: float = 30) -> float:
    """The percentage of zeros that is no reason for mistrust."""
    return max(plain, 65) if data_type in (DataType.u8, DataType.boolean) else plain
