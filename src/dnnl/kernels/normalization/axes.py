"""Which elements a normalization reduces to statistics, and which of them share a scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from math import prod
from typing import NamedTuple

from dnnl.codegen.ir.builder import Value
from dnnl.codegen.memory.address import Affine, Axis
from dnnl.codegen.nest.point import Body, Point
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import larger

Index = tuple[Affine, ...]


class Row(NamedTuple):
    """The index of an element, and of the statistics of its row: the elements that share them."""

    element: Index
    statistics: Index


@dataclass(frozen=True, eq=False)
class Block:
    """Rows that one point of a nest normalizes: the ``parallel`` axes, those along a row, which are
    ``channels`` and ``space``, and the index ``channel`` of scale and shift.

    Of several rows, neighbours differ in the index of the dimension ``dim``, if they are dense.
    """

    parallel: tuple[Axis, ...]
    channels: tuple[Axis, ...]
    space: tuple[Axis, ...]
    rows: tuple[Row, ...]
    channel: Index
    dim: int | None = None

    @property
    def reduced(self) -> tuple[Axis, ...]:
        """The axes along a row."""
        return (*self.channels, *self.space)

    @property
    def direct(self) -> bool:
        """Whether a row has one scale and one shift."""
        return not self.channels

    def count(self, point: Point) -> Value:
        """How many elements a row has, at least 1."""
        return point.real(larger(1, prod(axis.extent for axis in self.reduced)))

    def each_channel(self, point: Point, body: Body) -> None:
        """Run ``body`` for each channel of a row in a nest whose reduced axes these are."""
        if self.channels:
            point.each(body)
        else:
            body(point)

    def next_block(self, desc: MemoryDesc) -> int | None:
        """How many elements behind each row of ``desc`` that of the next block is; None if rows are
        not dense."""
        return None if self.dim is None else desc.strides[self.dim] * len(self.rows)


@dataclass(frozen=True)
class NormalizationAxes:
    """The dimensions along which ``statistics`` vary; a row goes over all others. Scale and shift
    vary along the dimension ``channels``, which ``groups`` of neighbours divide, each a row of
    its own, unless that is 0."""

    statistics: tuple[int, ...]
    channels: int
    groups: int = 0

    @staticmethod
    @cache
    def of_batch() -> NormalizationAxes:
        """A row is a channel of all images."""
        return NormalizationAxes((1,), 1)

    @staticmethod
    @lru_cache(64)
    def of_groups(groups: int, channels: int) -> NormalizationAxes:
        """A row is a group of channels of one image."""
        if groups == channels:
            return NormalizationAxes((0, 1), 1)
        return NormalizationAxes((0,), 1, groups)

    @staticmethod
    @cache
    def of_layer(ndims: int) -> NormalizationAxes:
        """A row goes along the last dimension."""
        return NormalizationAxes(tuple(range(ndims - 1)), ndims - 1)

    @property
    def direct(self) -> bool:
        """Whether a row has one scale and one shift."""
        return self.channels in self.statistics

    @property
    def along_channels(self) -> bool:
        """Whether a row goes along the channels alone."""
        return not (self.direct or self.groups)

    @property
    def coefficients(self) -> tuple[int, ...]:
        """The dimensions along which statistics, scales or both vary."""
        return tuple(sorted({*self.statistics, self.channels}))

    @property
    def of_channels(self) -> NormalizationAxes:
        """The axes where each channel is a row of its own."""
        return NormalizationAxes(self.coefficients, self.channels)

    def block(self, axes: Sequence[Axis]) -> Block:
        """Blocks of one row; ``axes`` are those of the dimensions."""
        index = tuple(map(Affine.of, axes))
        outer = tuple(axes[dim] for dim in self.statistics)
        statistics = tuple(index[dim] for dim in self.statistics)
        inner = {*range(len(axes))} - {*self.statistics, self.channels}
        space = tuple(axes[dim] for dim in sorted(inner))
        channels: tuple[Axis, ...] = () if self.direct else (axes[self.channels],)
        if self.groups:
            group = Axis(self.groups, "g")
            channel = Axis(axes[self.channels].extent // self.groups, "b")
            # An axis over the channels alone may be cut at the blocks of a layout.
            form = Affine.of(channel)
            if self.groups > 1:
                form = Affine.of(group, channel.extent) + form
            outer, channels = (*outer, group), (channel,)
            statistics = (*statistics, Affine.of(group))
            index = (*index[: self.channels], form, *index[self.channels + 1 :])
        rows = (Row(index, statistics),)
        return Block(outer, channels, space, rows, (index[self.channels],))

    def separable(self, *descs: MemoryDesc) -> bool:
        """Whether rows of these tensors had better be done one by one: they are one channel, or all
        channels, or no layout has the channels of several groups side by side or in a block."""
        if self.groups <= 1:
            return True
        return not any(desc.inner_blocks or desc.strides[self.channels] == 1 for desc in descs)
