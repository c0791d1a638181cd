"""Offsets of elements as affine forms of loop indices.

A logical index is an :class:`Affine` form over the :class:`Axis` objects of a loop nest, such as
``h = 2 * oh + kh - 1`` or ``c = 16 * cb + ci``. If every blocked dimension is split at its blocks,
the offset of an element is affine too: each axis then has one constant stride in each operand, and
schedules are computed from these strides.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from llvmlite import ir

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import I64, Emitter, i64
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import (
    is_known,
    is_one,
    surely_at_most,
    surely_below,
    surely_divides,
    surely_equal,
    typical,
)


class Axis:
    """A loop: its extent, and its name in the generated code. Axes compare by identity."""

    __slots__ = ("extent", "name")

    def __init__(self, extent: int, name: str) -> None:
        self.extent, self.name = extent, name

    def __repr__(self) -> str:
        return f"{self.name}<{self.extent!r}"

    @property
    def single(self) -> bool:
        """Whether the loop has at most one iteration."""
        return surely_at_most(self.extent, 1)

    @property
    def typical(self) -> int:
        """The extent that heuristics decide by, at least 1."""
        return typical(self.extent) or 1


@dataclass(frozen=True)
class Affine:
    """``const + sum(stride * axis)``. Strides of 0 are omitted; axes of one iteration may occur."""

    strides: Mapping[Axis, int]
    const: int = 0

    @staticmethod
    def of(axis: Axis, stride: int = 1) -> Affine:
        """``stride * axis``."""
        return Affine({axis: stride} if stride else {})

    def __hash__(self) -> int:
        return hash((frozenset(self.strides.items()), self.const))

    def __add__(self, other: Affine | int) -> Affine:
        if not isinstance(other, Affine):
            return Affine(self.strides, self.const + other)
        strides = dict(self.strides)
        for axis, stride in other.strides.items():
            total = strides.pop(axis, 0) + stride
            if total:
                strides[axis] = total
        return Affine(strides, self.const + other.const)

    def __mul__(self, factor: int) -> Affine:
        if factor == 0:
            return ZERO
        strides = {axis: stride * factor for axis, stride in self.strides.items()}
        return Affine(strides, self.const * factor)

    @property
    def low(self) -> int:
        """The minimum over all iterations."""
        return self.const + sum(s * (a.extent - 1) for a, s in self.strides.items() if s < 0)

    @property
    def high(self) -> int:
        """The maximum over all iterations."""
        return self.const + sum(s * (a.extent - 1) for a, s in self.strides.items() if s > 0)

    def stride(self, axis: Axis) -> int:
        """The step of the form along ``axis``."""
        return self.strides.get(axis, 0)

    def without(self, *axes: Axis) -> Affine:
        """The form with ``axes`` fixed at zero."""
        return Affine({a: s for a, s in self.strides.items() if a not in axes}, self.const)

    def along(self, axes: Container[Axis]) -> Affine:
        """The form with all axes but ``axes`` fixed at zero."""
        return Affine({a: s for a, s in self.strides.items() if a in axes}, self.const)

    def within(self, axes: Container[Axis]) -> bool:
        """Whether the value depends on these axes only."""
        return all(axis in axes or axis.single for axis in self.strides)

    def in_units(self, size: int) -> Affine:
        """The form divided by ``size``, which divides all strides."""
        strides = {axis: stride // size for axis, stride in self.strides.items()}
        return Affine(strides, self.const // size)

    def substitute(self, axis: Axis, form: Affine) -> Affine:
        """This form with ``axis`` replaced by ``form``."""
        stride = self.stride(axis)
        return self.without(axis) + form * stride if stride else self

    def joined(self, outer: Axis, inner: Axis, line: Axis) -> Affine:
        """The form with two axes merged into ``line``; a step of ``outer`` spans all of
        ``inner``."""
        return self.without(outer, inner) + Affine.of(line, self.stride(inner))

    def divmod(self, divisor: int) -> tuple[Affine, Affine] | None:
        """(self // divisor, self % divisor) if both are affine, else None."""
        whole = {a for a, s in self.strides.items() if surely_divides(divisor, s)}
        outer = {a: s // divisor for a, s in self.strides.items() if a in whole}
        inner = {a: s for a, s in self.strides.items() if a not in whole}
        rest = Affine(inner, self.const % divisor)
        if not (surely_at_most(0, rest.low) and surely_below(rest.high, divisor)):
            return None
        return Affine(outer, self.const // divisor), rest

    def emit(self, e: Emitter, values: Mapping[Axis, ir.Value]) -> ir.Value:
        """Emit the value of the form from the values of its axes. Axes of one iteration may be
        missing."""
        for axis in self.strides.keys() - values.keys():
            assert axis.single, f"{axis!r} has no value here"
        terms = (e.mul(values[a], step) for a, step in self.strides.items() if a in values)
        return e.total(self.const, terms)


ZERO = Affine({})


def linear_offset(desc: MemoryDesc, index: Sequence[Affine]) -> Affine | None:
    """The element offset of ``index`` in ``desc`` as an affine form, or None if it is not affine.

    It is not affine if a block boundary falls inside an axis, as when the step of an axis does not
    divide a block of 16.
    """
    position = list(index)
    offset = Affine({}, desc.offset0)
    inner_stride = 1
    for dim, block in reversed(desc.inner_blocks):
        split = position[dim].divmod(block)
        if split is None:
            return None
        position[dim], inner = split
        offset = offset + inner * inner_stride
        inner_stride *= block
    for form, stride in zip(position, desc.strides, strict=True):
        offset = offset + form * stride
    return offset


def emit_offset(e: Emitter, desc: MemoryDesc, index: Sequence[ir.Value]) -> ir.Value:
    """Emit the element offset of ``index`` in ``desc`` by divisions. It serves any layout.

    ``index`` holds i64 scalars, or i64 vectors of one length for several elements at once.
    """
    position = list(index)
    kind = position[0].type if position else I64

    def constant(value: int) -> ir.Value:
        return e.number(value) if kind == I64 else vector.splat(e, e.number(value), kind.count)

    offset = constant(desc.offset0)
    inner_stride = 1
    for dim, block in reversed(desc.inner_blocks):
        inner = e.b.urem(position[dim], constant(block))
        position[dim] = e.b.udiv(position[dim], constant(block))
        offset = e.b.add(offset, e.b.mul(inner, constant(inner_stride)))
        inner_stride *= block
    for value, stride in zip(position, desc.strides, strict=True):
        offset = e.b.add(offset, e.b.mul(value, constant(stride)))
    return offset


def decode(e: Emitter, item: ir.Value, axes: Sequence[Axis]) -> dict[Axis, ir.Value]:
    """The values of ``axes`` in iteration ``item`` of their product; the last axis varies
    fastest."""
    values: dict[Axis, ir.Value] = {}
    for axis in reversed(axes):
        if axis.single:
            values[axis] = i64(0)
            continue
        values[axis] = e.b.urem(item, e.number(axis.extent))
        item = e.b.udiv(item, e.number(axis.extent))
    return values


def block_boundaries(desc: MemoryDesc, dim: int) -> tuple[int, ...]:
    """The sizes of the nested blocks of ``dim``, smallest first: (4, 16) for dimension b of
    ABcd4b16a4b."""
    sizes = []
    size = 1
    for blocked, block in reversed(desc.inner_blocks):
        if blocked == dim:
            size *= block
            sizes.append(size)
    return tuple(sizes)


def letters(dims: Sequence[int]) -> tuple[Axis, ...]:
    """One axis for each dimension, named with the letters of format tags."""
    return tuple(Axis(extent, chr(ord("a") + dim)) for dim, extent in enumerate(dims))


def broadcast(
    desc: MemoryDesc, index: Sequence[Affine], extents: Sequence[int] = ()
) -> tuple[Affine, ...]:
    """The index of an operand that is broadcast along its dimensions of size 1; not along those of
    the same open size as the ``extents`` of the index."""
    same = map(_is_same_open, desc.dims, extents) if extents else [False] * desc.ndims
    return tuple(
        form if known or not is_one(extent) else ZERO
        for extent, form, known in zip(desc.dims, index, same, strict=True)
    )


def _is_same_open(size: int, extent: int) -> bool:
    return not is_known(size) and surely_equal(size, extent)
