"""What lowering says of a graph: where values are stored, and what is executed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dnnl.errors import Unimplemented
from dnnl.primitives.primitive_desc import PrimitiveDesc
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.shaped_layout import ShapedLayout
from dnnl.types.size import typical
from dnnl.types.typed import TYPES


@dataclass(frozen=True, slots=True)
class Tensor:
    """Where a value of the graph is stored: in an activation storage, or in a constant by name.

    ``held`` is the data type in which it is stored there, if that is not the layout's: who
    reads it converts it.
    """

    layout: ShapedLayout
    storage: int = -1
    constant: str = ""
    held: DataType | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A tensor with the axes that an operation requires, and the data type that it asks for."""

    desc: MemoryDesc
    storage: int = -1
    constant: str = ""
    held: DataType | None = None

    @property
    def stored(self) -> MemoryDesc:
        """The descriptor of what is in the storage."""
        return self.desc if self.held is None else self.desc.with_data_type(self.held)


Operands = Mapping[int, Sequence[Source]]
"""The operands of the post-ops of a node, by their places."""


@dataclass(frozen=True, slots=True)
class Factors:
    """Scales or zero points of an argument of a step: ``flag`` is Arg.SCALES or Arg.ZERO_POINTS,
    ``mask`` says along which dimensions they vary, ``groups`` for how many elements of each one is:
    those of weights that are decompressed."""

    flag: Arg
    argument: Arg
    mask: int
    values: Source
    groups: tuple[int, ...] = ()

    def set(self, attr: PrimitiveAttr) -> None:
        """Ask for them."""
        setter = attr.set_scales if self.flag is Arg.SCALES else attr.set_zero_points
        setter(self.argument, self.mask, self.groups, self.values.desc.data_type)


@dataclass(frozen=True, slots=True)
class Ref:
    """A memory that a step uses: a descriptor on a storage."""

    desc: MemoryDesc
    storage: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """A constant as its readers want it: the values seen as ``source``, stored as ``desc``."""

    value: str
    source: MemoryDesc
    desc: MemoryDesc


@dataclass(frozen=True, slots=True)
class Step:
    """One execution of a primitive; ``flops`` counts the arithmetic that cannot be avoided, and
    its indices must be within an axis of ``indexed`` elements."""

    name: str
    kind: str
    pd: PrimitiveDesc
    args: Mapping[int, Ref]
    flops: float = 0.0
    fused: tuple[str, ...] = ()
    indexed: int | None = None


@dataclass(frozen=True, slots=True)
class Counted:
    """Numbers that a run writes before its first step."""

    ref: Ref
    first: int
    step: int


def data_type(dtype: np.dtype, value: str) -> DataType:
    """The library's data type of a NumPy one, that of bytes for elements that are small and that
    nothing computes; raises Unimplemented where there is none."""
    kind = DataType.foreign(dtype)
    if kind in TYPES:
        return kind
    if dtype.itemsize == 1 and dtype.kind in "Vf":
        return DataType.u8
    rule = f"value {value!r} has data type {dtype}, which no primitive computes"
    raise Unimplemented(rule)


_ARGUMENTS = {Arg.SRC: "src", Arg.WEIGHTS: "weights", Arg.BIAS: "bias"}


def argument_name(arg: int) -> str:
    """A short name of an execution argument for the table of layers."""
    return next((name for key, name in _ARGUMENTS.items() if key == arg), "src1")


def amount(dims: Sequence[int]) -> int:
    """The number of elements of typical sizes, for tables."""
    return typical(math.prod(dims))


def volume(dims: Sequence[int]) -> int:
    """The number of elements."""
    return math.prod(dims)
