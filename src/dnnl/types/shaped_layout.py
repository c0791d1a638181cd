"""What a framework sees of a memory descriptor: a shape, whatever order and blocks are beneath it.

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
from dnnl.types.kinds import FormatKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import is_one, order

Shape = tuple[int, ...]
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
        axes = self.axes_for(permutation)
        # What has an encoding or a compensation can be seen as it is, and in no other way.
        return self.desc if axes == tuple(range(len(axes))) else self.desc.permute_axes(axes)

    def axes_for(self, permutation: Sequence[int] | None = None) -> tuple[int, ...]:
        """The axis that each descriptor axis becomes for an operation that requires
        ``permutation``: this permutation, followed by the inverse of the required one."""
        required = range(self.desc.ndims) if permutation is None else permutation
        check_permutation("permutation", required, self.desc.ndims)
        place = inverse(required)
        return tuple(place[axis] for axis in self.permutation)

    def transpose(self, axes: Sequence[int]) -> ShapedLayout:
        """The layout whose framework axis ``i`` is axis ``axes[i]`` of this one; no data moves."""
        check_permutation("axes", axes, self.desc.ndims)
        place = inverse(axes)
        return ShapedLayout(self.desc, tuple(place[axis] for axis in self.permutation))

    def reshape(self, shape: Sequence[int]) -> ShapedLayout | None:
        """The layout of another framework shape on the same data, None where data has to move.

        Raises InvalidArguments where ``shape`` has another number of elements.
        """
        count = prod(self.shape)
        if prod(shape) != count:
            rule = f"a shape of {count} elements, as {self.shape} is, must be given"
            raise InvalidArguments("shape", tuple(shape), rule, _nearest_shape(shape, count))
        try:
            return ShapedLayout.of(unblocked(self.view()).reshape(shape))
        except InvalidArguments:
            return None

    def part(self, axis: int, first: int, count: int, step: int = 1) -> ShapedLayout | None:
        """The layout of ``count`` slices along a framework axis, ``step`` apart, on the same data.

        None where blocks are across.
        """
        place, step = self.permutation.index(axis), step if step != 1 and count > 1 else 1
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


def check_permutation(argument: str, axes: Sequence[int], count: int) -> None:
    """Raise InvalidArguments unless ``axes`` has each of 0..count-1 once."""
    if sorted(axes) != list(range(count)):
        rule = f"expected each of 0..{count - 1} once"
        raise InvalidArguments(argument, tuple(axes), rule, f"such as {_nearest(axes, count)}")


def _nearest(axes: Sequence[int], count: int) -> tuple[int, ...]:
    """A permutation with the given axes, as far as each is one that is not there before."""
    wanted = [*axes[:count], *(-1 for _ in range(count - len(axes)))]
    absent = iter(sorted(set(range(count)) - set(wanted)))
    return tuple(
        axis if axis in range(count) and axis not in wanted[:place] else next(absent)
        for place, axis in enumerate(wanted)
    )


def _nearest_shape(shape: Sequence[int], count: int) -> str:
    """A shape of ``count`` elements in which one size of ``shape``, the first if it can be, is
    another one."""
    for place in range(len(shape)):
        others = prod(size for other, size in enumerate(shape) if other != place)
        if others and count % others == 0:
            sizes = (*shape[:place], count // others, *shape[place + 1 :])
            return f"{sizes} is one"
    return f"{(count,)} is one"


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
    if not a.format_kind is b.format_kind is FormatKind.blocked or a.padded_dims != b.padded_dims:
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
    if is_one(extent):
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
    groups = [[axis] for axis, size in enumerate(old) if is_one(size)]
    axes = ((axis, size) for axis, size in enumerate(old) if not is_one(size))
    sizes = (size for size in new if not is_one(size))
    for axis, size in axes:
        group, volume, target = [axis], size, next(sizes)
        while (place := order(target, volume)) != 0:
            if place < 0:
                target *= next(sizes)
            else:
                more, size_of_more = next(axes)
                group.append(more)
                volume *= size_of_more
        groups.append(group)
    return groups
