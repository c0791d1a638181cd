"""The results of lowering: where values are stored, and which steps execute."""

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

    ``held`` is the stored data type if it differs from that of the layout: readers convert it.
    """

    layout: ShapedLayout
    storage: int = -1
    constant: str = ""
    held: DataType | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A tensor with the axes and the data type that an operation requires."""

    desc: MemoryDesc
    storage: int = -1
    constant: str = ""
    held: DataType | None = None

    @property
    def stored(self) -> MemoryDesc:
        """The descriptor of the tensor as it is stored."""
        return self.desc if self.held is None else self.desc.with_data_type(self.held)


Operands = Mapping[int, Sequence[Source]]
"""The operands of the post-ops of a node, by their indices."""


@dataclass(frozen=True, slots=True)
class Factors:
    """Scales or zero points of an argument of a step.

    ``flag`` is Arg.SCALES or Arg.ZERO_POINTS, ``mask`` has the dimensions along which they vary,
    and ``groups`` the number of elements in each dimension that share one, for compressed weights.
    """

    flag: Arg
    argument: Arg
    mask: int
    values: Source
    groups: tuple[int, ...] = ()

    def set(self, attr: PrimitiveAttr) -> None:
        """Add them to the attributes of a primitive."""
        setter = attr.set_scales if self.flag is Arg.SCALES else attr.set_zero_points
        setter(self.argument, self.mask, self.groups, self.values.desc.data_type)


@dataclass(frozen=True, slots=True)
class Ref:
    """An argument of a step: a descriptor on a storage."""

    desc: MemoryDesc
    storage: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """A constant reordered for its readers: from ``source`` to ``desc``."""

    value: str
    source: MemoryDesc
    desc: MemoryDesc


@dataclass(frozen=True, slots=True)
class Step:
    """One execution of a primitive. ``flops`` counts multiplications and additions without padding.
    Its indices, if any, must be within an axis of ``indexed`` elements."""

    name: str
    kind: str
    pd: PrimitiveDesc
    args: Mapping[int, Ref]
    flops: float = 0.0
    fused: tuple[str, ...] = ()
    indexed: int | None = None


@dataclass(frozen=True, slots=True)
class Counted:
    """Expressions of sizes that a run writes to memory before its first step."""

    ref: Ref
    first: int
    step: int


def data_type(dtype: np.dtype, value: str) -> DataType:
    """The library's data type for a NumPy type, u8 for small types without arithmetic.

    Raises Unimplemented, naming ``value``, for other types.
    """
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
    """The number of elements, with typical numbers for open sizes."""
    return typical(math.prod(dims))


def volume(dims: Sequence[int]) -> int:
    """The number of elements."""
    return math.prod(dims)
