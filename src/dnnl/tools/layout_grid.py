"""Memory as rows of neighbouring elements, for pictures of layouts.

A layout is a nest of loops over memory, outermost first. The innermost loops make a row, as many
of them as fit into ``CELLS`` elements, and within a block a part of the next one; a row shows the
coordinates that its elements share once, and those that vary in each cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from dnnl.errors import InvalidArguments
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.tag import FormatTag

CELLS = 16


@dataclass(frozen=True)
class GridAxis:
    """One loop over memory: position p adds ``p * weight`` to the index of dimension ``dim``."""

    dim: int
    extent: int
    weight: int
    stride: int


@dataclass(frozen=True)
class Row:
    """Neighbours in memory: the offset of the first, and the index of each."""

    offset: int
    cells: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Grid:
    """The memory of a dense layout, in rows.

    ``name`` is the tag as it was spelled and ``letters`` are its letters, by logical dimension.
    """

    name: str
    desc: MemoryDesc
    axes: tuple[GridAxis, ...]
    letters: tuple[str, ...]

    @staticmethod
    def of(name: str, dims: Sequence[int], data_type: str = "f32") -> Grid:
        """The grid of a tensor of ``dims``; InvalidArguments where the tag does not fit them."""
        tag = FormatTag(name)
        if not tag.ndims:
            rule = "there is no layout to draw"
            raise InvalidArguments("tag", name, rule, "nchw or nChw16c are layouts")
        desc = MemoryDesc(dims, data_type, name)
        return Grid(name, desc, tuple(axes_of(desc, tag)), tuple(_letters_of(name, tag)))

    @property
    def title(self) -> str:
        """The layout and the tensor."""
        dims = "x".join(map(str, self.desc.dims))
        data_type, size = self.desc.data_type, self.desc.size
        return f"{self.name} = {FormatTag(self.name)}, {dims} {data_type}, {size} bytes"

    def offset_text(self, index: Sequence[int]) -> str:
        """The offset of one element, as an equation."""
        return f"offset({', '.join(map(str, index))}) = {self.desc.offset(index)}"

    @cached_property
    def loops(self) -> tuple[tuple[GridAxis, ...], tuple[GridAxis, ...]]:
        """The loops over rows and those within a row, outermost first."""
        outer = list(self.axes)
        inner: list[GridAxis] = []
        free = CELLS
        while outer and (not inner or outer[-1].extent <= free):
            inner.insert(0, outer.pop())
            free //= max(1, inner[0].extent)
        block = prod(size for _, size in self.desc.inner_blocks)
        if outer and outer[-1].stride < block:
            axis = outer[-1]
            part = max(k for k in range(1, free + 1) if axis.extent % k == 0)
            if part > 1:
                rest = axis.extent // part
                weight, stride = axis.weight * part, axis.stride * part
                outer[-1] = replace(axis, extent=rest, weight=weight, stride=stride)
                inner.insert(0, replace(axis, extent=part))
        return tuple(outer), tuple(inner)

    @cached_property
    def run(self) -> int:
        """How many elements the loops within a row have; above ``CELLS`` they take several rows."""
        return prod(axis.extent for axis in self.loops[1])

    @cached_property
    def varying(self) -> list[int]:
        """The dimensions that differ within a row."""
        inner = self.loops[1]
        return sorted({axis.dim for axis in inner if axis.extent > 1}) or [inner[-1].dim]

    @cached_property
    def shared(self) -> list[int]:
        """The dimensions of which a row has one index."""
        return [dim for dim in range(self.desc.ndims) if dim not in self.varying]

    @property
    def row_count(self) -> int:
        """How many rows there are."""
        if self.desc.has_zero_dim:
            return 0
        return self.desc.nelems(padded=True) // self.run * -(-self.run // CELLS)

    def rows(self) -> Iterator[Row]:
        """Every row, in the order of memory."""
        for start in range(0, self.desc.nelems(padded=True), self.run):
            for column in range(0, self.run, CELLS):
                begin = start + column
                places = range(begin, begin + min(CELLS, self.run - column))
                yield Row(begin, tuple(self._index(place) for place in places))

    def exists(self, index: Sequence[int]) -> bool:
        """Whether this is an element of the tensor, and not padding."""
        return all(i < extent for i, extent in zip(index, self.desc.dims, strict=True))

    def _index(self, place: int) -> tuple[int, ...]:
        """The coordinates of the element ``place`` elements after the first."""
        index = [0] * self.desc.ndims
        for axis in reversed(self.axes):
            place, position = divmod(place, axis.extent)
            index[axis.dim] += axis.weight * position
        return tuple(index)


def axes_of(desc: MemoryDesc, tag: FormatTag) -> list[GridAxis]:
    """The loops over a dense layout from the outermost to the innermost."""
    weights = list(desc.blocks)
    axes = [GridAxis(d, desc.outer_dims[d], weights[d], desc.strides[d]) for d in tag.order]
    stride = prod(size for _, size in desc.inner_blocks)
    for dim, size in desc.inner_blocks:
        stride //= size
        weights[dim] //= size
        axes.append(GridAxis(dim, size, weights[dim], stride))
    return axes


def _letters_of(name: str, tag: FormatTag) -> list[str]:
    """The letter of each logical dimension, as ``name`` spells it."""
    letters = [""] * tag.ndims
    for letter, dim in zip(name, tag.order, strict=False):
        letters[dim] = letter.lower()
    return letters


def terms_of(axes: Sequence[GridAxis], letters: Sequence[str]) -> list[str]:
    """What each axis counts, as arithmetic on the coordinates: ``c/16`` and ``c%16``."""
    seen: set[int] = set()
    terms = []
    for axis in axes:
        term = letters[axis.dim]
        if axis.weight > 1:
            term = f"{term}/{axis.weight}"
        if axis.dim in seen:
            term = f"({term})%{axis.extent}" if axis.weight > 1 else f"{term}%{axis.extent}"
        seen.add(axis.dim)
        terms.append(term)
    return terms


def formula(axes: Sequence[GridAxis], letters: Sequence[str]) -> str:
    """The offset of an element as arithmetic on its coordinates; ``/`` drops the remainder."""
    terms = []
    for axis, term in zip(axes, terms_of(axes, letters), strict=True):
        whole = f"({term})" if "/" in term and "%" not in term else term
        terms.append(whole if axis.stride == 1 else f"{whole}*{axis.stride}")
    return f"offset({', '.join(letters)}) = {' + '.join(terms)}"
