"""Which element of a tensor an iteration of a loop nest touches, in any layout.

An :class:`Operand` is a tensor with the index that belongs to each iteration. An :class:`Access` is
an operand under a schedule: its affine offset and the bounds within which it may be touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy.typing as npt
from llvmlite import ir

from dnnl.codegen.memory.address import Affine, Axis, block_boundaries, linear_offset
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import surely_at_most, surely_below, surely_divides

Env = dict[Axis, ir.Value]


@dataclass(frozen=True, eq=False)
class Number:
    """An integer that a body may ask for: the affine ``form`` of the iteration, below 2^24. An
    example is the number of a tap in its window."""

    form: Affine


@dataclass(frozen=True)
class Bound:
    """The condition ``0 <= form < limit``."""

    form: Affine
    limit: int

    @property
    def below_zero(self) -> bool:
        """Whether the form is negative in some iteration."""
        return not surely_at_most(0, self.form.low)

    @property
    def above(self) -> bool:
        """Whether the form reaches the limit in some iteration."""
        return not surely_below(self.form.high, self.limit)

    @property
    def needed(self) -> bool:
        """Whether some iteration violates the bound."""
        return self.below_zero or self.above

    def substitute(self, axis: Axis, form: Affine) -> Bound:
        """The bound with ``axis`` replaced by ``form``."""
        return Bound(self.form.substitute(axis, form), self.limit)


@dataclass(frozen=True)
class Half(Bound):
    """One half of a bound, which may be known to hold where the other one is not: what is ``upper``
    is ``form < limit``, else ``0 <= form``."""

    upper: bool

    @staticmethod
    def of(bound: Bound, upper: bool) -> Half:
        """A half of a bound."""
        return Half(bound.form, bound.limit, upper)


@dataclass(frozen=True, eq=False)
class Operand:
    """A tensor of a kernel, and the element of it that each iteration touches.

    ``slot`` is its position in the argument list. ``index`` has an affine form for each dimension.
    ``groups``, for plain tensors only, divides the index of each dimension. An index past the end
    of a dimension reads the zeros of the padding, or nothing if the dimension is in ``bare``.
    ``codes`` is the 4-bit type of the values where the elements are bytes that hold its codes.
    Outside the bounds ``inside`` an iteration has no element: it reads zero, and folds skip it.
    With ``contents`` the operand is a row-major table in the code, not an argument. What is
    ``settled`` shares no memory with an output of the phase, so that loads may leave loops.
    """

    slot: int
    desc: MemoryDesc
    index: tuple[Affine, ...]
    groups: tuple[int, ...] = ()
    bare: frozenset[int] = frozenset()
    codes: DataType | None = None
    inside: tuple[Bound, ...] = ()
    contents: npt.NDArray[Any] | None = None
    settled: bool = False

    @property
    def data_type(self) -> DataType:
        """The type of the values."""
        return self.codes or self.desc.data_type

    def boundaries(self, dim: int) -> tuple[int, ...]:
        """The sizes of the nested blocks of a dimension, or of its groups, smallest first."""
        return self.groups[dim : dim + 1] if self.groups else block_boundaries(self.desc, dim)

    def limit(self, dim: int) -> int:
        """The end of a dimension, including padding that may be read."""
        if dim in self.bare:
            return self.desc.dims[dim]
        return self.desc.padded_dims[dim] * (self.groups[dim] if self.groups else 1)

    def offset(self, index: Sequence[Affine]) -> Affine | None:
        """The offset of ``index`` in elements, or None if it is not affine."""
        if not self.groups:
            return linear_offset(self.desc, index)
        cut = [form.divmod(size) for form, size in zip(index, self.groups, strict=True)]
        whole = [pair[0] for pair in cut if pair is not None]
        return linear_offset(self.desc, whole) if len(whole) == len(cut) else None


@dataclass(frozen=True, eq=False)
class Access:
    """An operand under a schedule.

    ``offset`` is the affine element offset; None if only ``index`` determines it. The operand may
    be touched within the ``ends`` of its dimensions and the bounds ``inside`` of its own. If
    ``contained``, vectors outside these bounds still lie within the buffer and are loaded without
    masks: the hardware prefetcher ignores masked loads.
    """

    operand: Operand
    index: tuple[Affine, ...]
    offset: Affine | None
    ends: tuple[Bound, ...] = ()
    inside: tuple[Bound, ...] = ()
    contained: bool = False

    @staticmethod
    def of(operand: Operand, index: tuple[Affine, ...], inside: tuple[Bound, ...] = ()) -> Access:
        """The access of ``operand`` at ``index``, limited by ``inside`` and by its padded
        dimensions."""
        ends = (Bound(form, operand.limit(dim)) for dim, form in enumerate(index))
        ends = (end for end in ends if end.needed and end not in inside)
        return Access(operand, index, operand.offset(index), tuple(ends), inside)

    def substitute(self, axis: Axis, form: Affine) -> Access:
        """The access with ``axis`` replaced by ``form``."""
        offset = None if self.offset is None else self.offset.substitute(axis, form)
        return replace(
            self,
            offset=offset,
            index=tuple(index.substitute(axis, form) for index in self.index),
            ends=tuple(bound.substitute(axis, form) for bound in self.ends),
            inside=tuple(bound.substitute(axis, form) for bound in self.inside),
        )

    def joined(self, outer: Axis, inner: Axis, line: Axis) -> Access:
        """The access with two axes that are contiguous in the operand merged into one ``line``."""
        assert self.offset is not None
        return replace(self, offset=self.offset.joined(outer, inner, line), index=())

    def displaced(self, number: Affine) -> Access:
        """The access to tensor ``number`` of an array of tensors that begins with this one."""
        assert self.offset is not None
        return replace(self, offset=self.offset + number * self.operand.desc.nelems(padded=True))

    @property
    def window(self) -> tuple[Bound, ...]:
        """All bounds within which the operand may be touched."""
        return (*self.ends, *self.inside)

    @property
    def stays_in_buffer(self) -> bool:
        """Whether iterations outside all bounds still address elements of the buffer."""
        if self.offset is None or not surely_at_most(0, self.offset.low):
            return False
        desc = self.operand.desc
        return surely_at_most((self.offset.high + 1) * desc.data_type.bits, 8 * desc.size)

    @property
    def packed(self) -> bool:
        """Whether a byte has two elements."""
        return self.operand.desc.data_type.bits < 8

    def byte_offset(self, lane: Axis | None, lanes: int) -> Affine | None:
        """The offset in bytes of a vector of 4-bit elements that are consecutive along ``lane``;
        None if the vector may start in the middle of a byte."""
        if self.offset is None or lane is None or lanes % 2 or self.offset.stride(lane) != 1:
            return None
        start = self.offset.without(lane)
        if not all(surely_divides(2, step) for step in (start.const, *start.strides.values())):
            return None
        return Affine(
            {axis: stride // 2 for axis, stride in start.strides.items()}, start.const // 2
        )
