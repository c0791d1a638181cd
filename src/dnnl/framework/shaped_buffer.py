"""What a framework sees of a memory: a shape, whatever the order and the blocks beneath it.

A framework numbers the axes of a tensor in its own order, an operation in another one. The
*permutation* of a shaped layout says which framework axis each descriptor axis is. Activations
that a framework calls (batch, height, width, channels) have descriptor axes (batch, channels,
height, width), hence::

    descriptor axis    0  1  2  3
    framework axis     0  3  1  2       permutation (0, 3, 1, 2)

An operation that reads the same buffer as weights (height, width, in, out) requires permutation
(3, 2, 0, 1); :meth:`ShapedLayout.view` renames the descriptor's axes to fit it. Transposition
changes the permutation and reshape the descriptor; data moves only where no descriptor can tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from dnnl.errors import InvalidArguments
from dnnl.graph.graph import Array, Shape
from dnnl.runtime.engine import Engine
from dnnl.runtime.memory import Memory
from dnnl.types.dtype import DataType
from dnnl.types.kinds import FormatKind, coerce
from dnnl.types.memory_desc import MemoryDesc

Level = tuple[int, int]
"""Stride and extent of one step through a dimension."""


@dataclass(frozen=True, slots=True)
class ShapedLayout:
    """A memory descriptor and the framework axis that each of its axes is."""

    desc: MemoryDesc
    permutation: tuple[int, ...]

    def __post_init__(self) -> None:
        check_permutation("permutation", self.permutation, self.desc.ndims)

    @classmethod
    def of(cls, desc: MemoryDesc) -> ShapedLayout:
        """The layout of a descriptor that has its axes in the framework's order."""
        return cls(desc, tuple(range(desc.ndims)))

    @property
    def shape(self) -> Shape:
        """The framework's shape."""
        return tuple(self.desc.dims[d] for d in inverse(self.permutation))

    def view(self, permutation: Sequence[int] | None = None) -> MemoryDesc:
        """The descriptor of the same data for an operation that requires ``permutation``.

        Without one its axes are in the framework's order.
        """
        required = range(self.desc.ndims) if permutation is None else permutation
        check_permutation("permutation", required, self.desc.ndims)
        place = inverse(required)
        return self.desc.permute_axes([place[axis] for axis in self.permutation])

    def transpose(self, axes: Sequence[int]) -> ShapedLayout:
        """The layout whose framework axis ``i`` is axis ``axes[i]`` of this one; no data moves."""
        check_permutation("axes", axes, self.desc.ndims)
        place = inverse(axes)
        return ShapedLayout(self.desc, tuple(place[axis] for axis in self.permutation))

    def reshape(self, shape: Sequence[int]) -> ShapedLayout | None:
        """The layout of another framework shape on the same data, None where data has to move.

        Raises InvalidArguments where ``shape`` has another number of elements.
        """
        if prod(shape) != prod(self.shape):
            rule = f"a shape of {prod(self.shape)} elements, as {self.shape} is, must be given"
            raise InvalidArguments("shape", tuple(shape), rule)
        try:
            return ShapedLayout.of(unblocked(self.view()).reshape(shape))
        except InvalidArguments:
            return None

    def part(self, axis: int, first: int, count: int, step: int = 1) -> ShapedLayout | None:
        """The layout of ``count`` slices along a framework axis, ``step`` apart, on the same data.

        None where blocks are across.
        """
        place, step = self.permutation.index(axis), step if count > 1 else 1
        dims = list(self.desc.dims)
        dims[place] = (count - 1) * step + 1 if count else 0
        offsets = [first if dim == place else 0 for dim in range(len(dims))]
        try:
            region = unblocked(self.desc).submemory(dims, offsets)
        except InvalidArguments:
            return None
        if step > 1:
            if region.inner_blocks:
                return None
            dims[place] = count
            strides = list(region.strides)
            strides[place] *= step
            region = MemoryDesc(dims, region.data_type, strides, offset0=region.offset0)
        return ShapedLayout(region, self.permutation)

    def movable(self, shape: Sequence[int]) -> MemoryDesc:
        """A dense descriptor in the framework's order that can be reshaped to ``shape``.

        Axes that ``shape`` merges or splits are row-major and adjacent; otherwise the order
        in memory is unchanged.
        """
        desc = self.view()
        groups = _merged_axes(desc.dims, tuple(shape))
        groups.sort(key=lambda group: -max(desc.strides[axis] for axis in group))
        strides = [0] * desc.ndims
        step = 1
        for axis in reversed([axis for group in groups for axis in group]):
            strides[axis] = step
            step *= desc.dims[axis]
        return MemoryDesc(desc.dims, desc.data_type, strides)


@dataclass(frozen=True, slots=True)
class ShapedBuffer:
    """A memory with its layout in the framework's eyes."""

    memory: Memory
    permutation: tuple[int, ...]

    @classmethod
    def from_numpy(
        cls,
        array: Array,
        permutation: Sequence[int] | None = None,
        engine: Engine | None = None,
    ) -> ShapedBuffer:
        """A buffer of the array's shape, whose descriptor axes follow ``permutation``."""
        order = tuple(range(array.ndim) if permutation is None else permutation)
        check_permutation("permutation", order, array.ndim)
        return cls(Memory.from_numpy(array.transpose(order), engine=engine), order)

    @property
    def layout(self) -> ShapedLayout:
        """Descriptor and permutation."""
        return ShapedLayout(self.memory.desc, self.permutation)

    @property
    def shape(self) -> Shape:
        """The framework's shape."""
        return self.layout.shape

    def view(self, permutation: Sequence[int] | None = None) -> Memory:
        """The data under the descriptor axes that an operation requires; nothing is copied."""
        return self._over(self.layout.view(permutation))

    def transpose(self, axes: Sequence[int]) -> ShapedBuffer:
        """The buffer with its framework axes reordered; no data moves."""
        return ShapedBuffer(self.memory, self.layout.transpose(axes).permutation)

    def reshape(
        self, shape: Sequence[int], data_type: DataType | str | None = None
    ) -> ShapedBuffer:
        """The buffer of another shape, and of another data type if one is given; data moves, by a
        reorder, only where the layout or the type has to change."""
        own = self.memory.desc.data_type
        same = data_type is None or coerce(DataType, data_type, "data_type") is own
        layout = self.layout.reshape(shape)
        if layout is not None and same:
            return ShapedBuffer(self._over(layout.desc), layout.permutation)
        moved = self.view().reorder_to(self.layout.movable(shape), data_type)
        return ShapedBuffer.of(moved).reshape(shape)

    @classmethod
    def of(cls, memory: Memory) -> ShapedBuffer:
        """A memory whose axes are in the framework's order."""
        return cls(memory, tuple(range(memory.desc.ndims)))

    def numpy(self) -> Array:
        """The tensor in the framework's order of axes; no copy where strides can say it."""
        return self.view().numpy()

    def _over(self, desc: MemoryDesc) -> Memory:
        return self.memory.part(desc)


def check_permutation(argument: str, axes: Sequence[int], count: int) -> None:
    """Raise InvalidArguments unless ``axes`` has each of 0..count-1 once."""
    if sorted(axes) != list(range(count)):
        raise InvalidArguments(argument, tuple(axes), f"expected each of 0..{count - 1} once")


def inverse(axes: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes ``axes``."""
    return tuple(sorted(range(len(axes)), key=lambda d: axes[d]))


def same_places(a: MemoryDesc, b: MemoryDesc) -> bool:
    """Whether two descriptors put the same elements in the same places, padding included.

    Blocks that change nothing, as those of 16 channels in a tensor of one pixel, do not count.
    """
    if a == b:
        return True
    if a.dims != b.dims or a.data_type != b.data_type or a.offset0 != b.offset0:
        return False
    if FormatKind.any in (a.format_kind, b.format_kind) or a.padded_dims != b.padded_dims:
        return False
    return [_levels(a, d) for d in range(a.ndims)] == [_levels(b, d) for d in range(b.ndims)]


def unblocked(desc: MemoryDesc) -> MemoryDesc:
    """``desc`` by strides alone where its blocks change nothing, else ``desc`` itself."""
    if not desc.inner_blocks or desc.padded_dims != desc.dims:
        return desc
    levels = [_levels(desc, d) for d in range(desc.ndims)]
    if any(len(steps) > 1 for steps in levels):
        return desc
    strides = [steps[0][0] if steps else 0 for steps in levels]
    return MemoryDesc(desc.dims, desc.data_type, strides, offset0=desc.offset0)


def _levels(desc: MemoryDesc, dim: int) -> list[Level]:
    """The steps through a dimension, outermost first: merged where they are one, without units."""
    levels: list[Level] = []
    inner = 1
    for block_dim, size in reversed(desc.inner_blocks):
        if block_dim == dim:
            _grow(levels, (inner, size))
        inner *= size
    _grow(levels, (desc.strides[dim], desc.padded_dims[dim] // desc.blocks[dim]))
    return levels[::-1]


def _grow(levels: list[Level], level: Level) -> None:
    """Add a step outside of the others."""
    stride, extent = level
    if extent == 1:
        return
    if levels and stride == levels[-1][0] * levels[-1][1]:
        levels[-1] = (levels[-1][0], levels[-1][1] * extent)
    else:
        levels.append(level)


def _merged_axes(old: Shape, new: Shape) -> list[list[int]]:
    """Runs of axes of ``old``, in order, each with the volume of a run of ``new``.

    Axes of size 1 may be anywhere: each is a run of its own.
    """
    if 0 in old:
        return [list(range(len(old)))]
    groups = [[axis] for axis, size in enumerate(old) if size == 1]
    axes = ((axis, size) for axis, size in enumerate(old) if size != 1)
    sizes = (size for size in new if size != 1)
    for axis, size in axes:
        group, volume, target = [axis], size, next(sizes)
        while volume != target:
            if target < volume:
                target *= next(sizes)
            else:
                more, size_of_more = next(axes)
                group.append(more)
                volume *= size_of_more
        groups.append(group)
    return groups
