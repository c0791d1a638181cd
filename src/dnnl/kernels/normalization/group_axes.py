"""What both passes of a group normalization share: the axes of groups of channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, Axis, letters
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True, eq=False)
class GroupAxes:
    """The axes of images and groups, ``kept``, of the ``channels`` of one group and of ``space``;
    ``index`` is that of an element, ``statistics`` that of what its group has."""

    kept: tuple[Axis, Axis]
    channels: tuple[Axis, ...]
    space: tuple[Axis, ...]
    index: tuple[Affine, ...]
    statistics: tuple[Affine, Affine]

    @staticmethod
    def of(dims: Sequence[int], groups: int) -> GroupAxes:
        """The axes of a tensor with these dims."""
        images, _, *space = letters(dims)
        size = dims[1] // groups
        group, channel = Axis(groups, "g"), Axis(size, "b")
        # An axis that walks the channels by itself may be cut at the blocks of a layout.
        form = Affine.of(channel)
        if groups > 1:
            form = Affine.of(group) if size == 1 else Affine.of(group, size) + form
        return GroupAxes(
            (images, group),
            (channel,),
            tuple(space),
            (Affine.of(images), form, *map(Affine.of, space)),
            (Affine.of(images), Affine.of(group)),
        )

    @property
    def reduced(self) -> tuple[Axis, ...]:
        """The axes along a group."""
        return (*self.channels, *self.space)

    @property
    def size(self) -> int:
        """How many channels a group has."""
        return self.channels[0].extent

    def lie_well(self, *descs: MemoryDesc) -> bool:
        """Whether groups of these tensors had better be walked one by one: they are one channel, or
        all channels, or no layout has the channels of several groups in a row or in a block."""
        if self.size == 1 or self.kept[1].extent == 1:
            return True
        return not any(desc.inner_blocks or desc.strides[1] == 1 for desc in descs)


def layers(data: MemoryDesc, count: int, data_type: DataType) -> MemoryDesc:
    """The descriptor of ``count`` values for each channel of each image of ``data``."""
    return MemoryDesc((count, *data.dims[:2]), data_type)


def layered(slot: int, desc: MemoryDesc, index: tuple[Affine, ...]) -> tuple[Operand, ...]:
    """Each of the :func:`layers` of ``desc``, with this index."""
    return tuple(
        Operand(slot, desc, (Affine({}, number), *index)) for number in range(desc.dims[0])
    )
