"""Which element of a tensor belongs to an iteration of a loop nest, whatever the layout.

An :class:`Operand` is a tensor with the element that belongs to each iteration, an
:class:`Access` knows its affine offset and the bounds within which it may be touched.
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

Env = dict[Axis, ir.Value]


@dataclass(frozen=True, eq=False)
class Number:
    """A number that follows from the iteration alone, which a body may ask for: ``form``, below
    2^24, such as that of a tap in its window."""

    form: Affine


@dataclass(frozen=True)
class Bound:
    """``0 <= form < limit`` must hold."""

    form: Affine
    limit: int

    @property
    def below_zero(self) -> bool:
        """Whether some iteration lies below zero."""
        return self.form.low < 0

    @property
    def above(self) -> bool:
        """Whether some iteration lies at the limit or above."""
        return self.form.high >= self.limit

    @property
    def needed(self) -> bool:
        """Whether any iteration can break the bound."""
        return self.below_zero or self.above

    def substitute(self, axis: Axis, form: Affine) -> Bound:
        """The bound with ``axis`` replaced by ``form``."""
        return Bound(self.form.substitute(axis, form), self.limit)


@dataclass(frozen=True, eq=False)
class Operand:
    """A tensor of a kernel: its place in the argument list, its descriptor, and which element of
    it belongs to an iteration: one affine form over the axes per dimension.

    ``groups``, for plain tensors only, is what the index of each dimension is divided by. An index
    behind a dimension finds the zeros of its padding, and nothing there if ``bare`` names it.
    ``codes`` is the 4-bit type of the values where the elements are bytes with codes of it. Outside
    the bounds ``inside`` an iteration has no element here: it reads zero, and a fold leaves it
    out. One with ``contents`` is a row-major table in the code, which no argument holds."""

    slot: int
    desc: MemoryDesc
    index: tuple[Affine, ...]
    groups: tuple[int, ...] = ()
    bare: frozenset[int] = frozenset()
    codes: DataType | None = None
    inside: tuple[Bound, ...] = ()
    contents: npt.NDArray[Any] | None = None

    @property
    def data_type(self) -> DataType:
        """The type of the values."""
        return self.codes or self.desc.data_type

    def boundaries(self, dim: int) -> tuple[int, ...]:
        """The sizes of the nested blocks of a dimension or of its groups, smallest first."""
        return self.groups[dim : dim + 1] if self.groups else block_boundaries(self.desc, dim)

    def limit(self, dim: int) -> int:
        """The index at which a dimension ends, padding included if that may be read."""
        if dim in self.bare:
            return self.desc.dims[dim]
        return self.desc.padded_dims[dim] * (self.groups[dim] if self.groups else 1)

    def offset(self, index: Sequence[Affine]) -> Affine | None:
        """The element offset of ``index``, or None if it is not affine."""
        if not self.groups:
            return linear_offset(self.desc, index)
        cut = [form.divmod(size) for form, size in zip(index, self.groups, strict=True)]
        whole = [pair[0] for pair in cut if pair is not None]
        return linear_offset(self.desc, whole) if len(whole) == len(cut) else None


@dataclass(frozen=True, eq=False)
class Access:
    """An operand under a schedule.

    ``offset`` is its affine element offset, or None where only ``index`` can say it. It may be
    touched before the ``ends`` of its dimensions and ``inside`` the bounds that the operand has
    itself; if ``contained``, vectors are read whole all the same, since processors fetch nothing
    ahead of loads under masks.
    """

    operand: Operand
    index: tuple[Affine, ...]
    offset: Affine | None
    ends: tuple[Bound, ...] = ()
    inside: tuple[Bound, ...] = ()
    contained: bool = False

    @staticmethod
    def of(operand: Operand, index: tuple[Affine, ...], inside: tuple[Bound, ...] = ()) -> Access:
        """The access of ``operand`` at ``index``, ``inside`` these bounds and those of its padded
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
        """The access with two axes that are contiguous in the operand walked as one ``line``."""
        assert self.offset is not None
        return replace(self, offset=self.offset.joined(outer, inner, line), index=())

    def displaced(self, number: Affine) -> Access:
        """The access with each tensor of a row of them in the place of the one: which of them is
        the ``number`` of an iteration."""
        assert self.offset is not None
        return replace(self, offset=self.offset + number * self.operand.desc.nelems(padded=True))

    @property
    def window(self) -> tuple[Bound, ...]:
        """All bounds inside which it may be touched."""
        return (*self.ends, *self.inside)

    @property
    def stays_in_buffer(self) -> bool:
        """Whether even the iterations outside of all bounds find elements of the buffer."""
        if self.offset is None or self.offset.low < 0:
            return False
        desc = self.operand.desc
        return (self.offset.high + 1) * desc.data_type.bits <= 8 * desc.size

    def byte_offset(self, lane: Axis | None, lanes: int) -> Affine | None:
        """Where a vector of 4-bit neighbours along ``lane`` begins, in bytes; None if that is not
        always at the first half of a byte."""
        if self.offset is None or lane is None or lanes % 2 or self.offset.stride(lane) != 1:
            return None
        start = self.offset.without(lane)
        if start.const % 2 or any(stride % 2 for stride in start.strides.values()):
            return None
        return Affine(
            {axis: stride // 2 for axis, stride in start.strides.items()}, start.const // 2
        )
