"""What a normalization is: the configurations that all kinds of it fill in."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

from dnnl.codegen.epilogue.attributes import Attributes
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Type, Value, Values
from dnnl.codegen.ir.kernel import Arguments
from dnnl.codegen.math import f32
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine
from dnnl.codegen.memory.place import Place
from dnnl.kernels.normalization.axes import Index, NormalizationAxes, Row
from dnnl.kernels.normalization.blocks import Chunks
from dnnl.kernels.shared.types import computed_in, core_of
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc

NONE = MemoryDesc.zero()
DECISIONS = 256
"""How many decisions are remembered for descriptions that come again."""


@dataclass(frozen=True, kw_only=True)
class Normalization:
    """What both directions of an operation ``kind`` have.

    Statistics have the layout ``stat``, and are ``given``, or functions of src; of the root mean
    square kind (``rms``) there is no mean. ``scale`` is the zero descriptor where there is none. A
    second source may be ``added``, and the ``workspace`` may say what a relu has passed.

    The kernel takes ``scratchpad`` bytes of temporary memory.
    """

    kind: str
    axes: NormalizationAxes
    src: MemoryDesc
    stat: MemoryDesc
    scale: MemoryDesc
    epsilon: float
    given: bool
    rms: bool = False
    added: bool = False
    workspace: MemoryDesc = NONE
    partial: MemoryDesc = NONE
    scratchpad: int = 0

    @property
    def data(self) -> tuple[MemoryDesc, ...]:
        """What is of the size of src."""
        raise NotImplementedError

    @property
    def statistics_args(self) -> tuple[Arg, ...]:
        """The arguments that are statistics."""
        return (Arg.VARIANCE,) if self.rms else (Arg.MEAN, Arg.VARIANCE)

    @property
    def held(self) -> DataType:
        """What is computed in, and stored between phases."""
        return computed_in(*self.data)

    @property
    def core(self) -> Type:
        """The type of the vectors that are computed in."""
        return core_of(*self.data)

    @property
    def sizes(self) -> tuple[int, int]:
        """How many channels have coefficients of their own, and how many elements each has."""
        dims, own = self.src.dims, self.axes.coefficients
        rest = prod(extent for dim, extent in enumerate(dims) if dim not in own)
        return prod(dims[dim] for dim in own), rest

    def layers(self, count: int) -> MemoryDesc:
        """The descriptor of ``count`` values for each of these channels."""
        dims = (self.src.dims[dim] for dim in self.axes.coefficients)
        return MemoryDesc((count, *dims), self.held)

    def layered(self, arguments: Arguments, layers: MemoryDesc, element: Index) -> Operands:
        """Each of the ``layers`` in the scratchpad, for the channel of an element."""
        slot, index = arguments.slot(Arg.SCRATCHPAD), [element[d] for d in self.axes.coefficients]
        return tuple(
            Operand(slot, layers, (Affine({}, number), *index)) for number in range(layers.dims[0])
        )


@dataclass(frozen=True, kw_only=True)
class NormalizationConf(Normalization):
    """dst = relu(scale * (src - mean) / sqrt(variance + epsilon) + shift + src_1) with
    ``attributes``, of which the scale of src may come ``late``: it multiplies all that.

    Statistics that are not given may be ``stored``. ``shift`` is the zero descriptor where there
    is none.

    Rows that a cache holds are done one by one, ``resident``. Otherwise the mean and the factor of
    each channel are in the scratchpad, ``coefficients``, behind the ``moments`` that they are made
    of where several channels share statistics; moments are made of ``partial`` ones.
    """

    dst: MemoryDesc
    shift: MemoryDesc
    stored: bool
    attributes: Attributes
    late: bool = False
    relu: bool = False
    resident: bool = False
    coefficients: MemoryDesc = NONE
    moments: MemoryDesc = NONE

    @property
    def data(self) -> tuple[MemoryDesc, ...]:
        """What is of the size of src."""
        return self.src, self.dst

    @property
    def statistics_args(self) -> tuple[Arg, ...]:
        """The arguments that are statistics: none where nobody wants them."""
        return super().statistics_args if self.given or self.stored else ()

    @property
    def sources(self) -> dict[int, MemoryDesc]:
        """What is normalized, and what is added to that."""
        added = {int(Arg.SRC_1): self.dst} if self.added else {}
        return {int(Arg.SRC): self.src, **added}


@dataclass(frozen=True, kw_only=True)
class NormalizationBackwardConf(Normalization):
    """With g the gradient that the relu passes, times the scale, and M the size of a row:

        along    = sum of g * (src - mean) / (variance + epsilon)
        diff_src = (g - sum of g / M - (src - mean) * along / M) / sqrt(variance + epsilon)

    The terms of the sums are there where statistics are functions of src. ``diff_scale`` and
    ``diff_shift`` are the zero descriptor where they are not wanted.

    Rows that a cache holds are done one by one, ``resident``. Otherwise the ``coefficients`` of
    each channel are in the scratchpad, and what these are made of: its ``sums``, of ``partial``
    ones, and the ``statistics`` of its row where channels share them. Rows along channels have
    partial sums over ``chunks`` where they are dense, else over parts of all, with the inverse
    deviation of each row as ``statistics``, if sizes are known.
    """

    diff_dst: MemoryDesc
    diff_src: MemoryDesc
    diff_scale: MemoryDesc
    diff_shift: MemoryDesc
    resident: bool = False
    coefficients: MemoryDesc = NONE
    sums: MemoryDesc = NONE
    statistics: MemoryDesc = NONE
    chunks: Chunks | None = None

    @property
    def data(self) -> tuple[MemoryDesc, ...]:
        """What is of the size of src."""
        return self.src, self.diff_dst, self.diff_src

    @property
    def learned(self) -> dict[Arg, MemoryDesc]:
        """The gradients of scale and shift that are wanted."""
        every = {Arg.DIFF_SCALE: self.diff_scale, Arg.DIFF_SHIFT: self.diff_shift}
        return {arg: desc for arg, desc in every.items() if not desc.is_zero}

    def learned_at(self, arguments: Arguments, channel: Index) -> Operands:
        """These gradients for a channel."""
        return tuple(
            Operand(arguments.slot(arg), desc, channel) for arg, desc in self.learned.items()
        )


Operands = tuple[Operand, ...]


class RowTensors:
    """The ``data`` of one row, by argument as far as there is such, and its statistics. All of them
    have slots, used or not: an execution is given as many memories as the kernel takes."""

    def __init__(
        self, conf: Normalization, arguments: Arguments, row: Row, data: dict[Arg, MemoryDesc]
    ) -> None:
        self._row, self._stat = row, conf.stat
        self._data = {
            arg: Operand(arguments.slot(arg), desc, row.element)
            for arg, desc in data.items()
            if not desc.is_zero
        }
        self._slots = {arg: arguments.slot(arg) for arg in conf.statistics_args}

    @cached_property
    def statistics(self) -> dict[Arg, Operand]:
        """The statistics that are in memory."""
        index = self._row.statistics
        return {arg: Operand(slot, self._stat, index) for arg, slot in self._slots.items()}


def present(*operands: Operand | None) -> Operands:
    """Those that there are."""
    return tuple(operand for operand in operands if operand is not None)


def store(operands: Operands, point: Place, values: Values) -> None:
    """Store a value to each operand."""
    for operand, value in zip(operands, values, strict=True):
        point.store(operand, value)


def inverse_deviation(
    place: Place, variance: Value, epsilon: float, scale: Operand | None = None
) -> Value:
    """1 / sqrt(variance + epsilon), or ``scale`` in the place of 1."""
    e = place.e
    above = place.constant(1.0) if scale is None else place.load(scale)
    deviation = f32.square_root(e, e.b.fadd(variance, place.constant(epsilon)))
    return e.b.fdiv(above, deviation)


def affine(place: Place, value: Value, factor: Value, shift: Value | None) -> Value:
    """value * factor + shift."""
    if shift is None:
        return place.e.b.fmul(value, factor)
    return vector.multiply_add(place.e, value, factor, shift)
