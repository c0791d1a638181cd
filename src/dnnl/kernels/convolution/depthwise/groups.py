"""Groups of a few channels: a vector of dst has the outputs of several of them.

All outputs of a group read the same channels. For each channel of a group one load and a
permutation give every lane what its group reads; with groups of four and channel 1::

    src       a0 a1 a2 a3   b0 b1 b2 b3
    permuted  a1 a1 a1 a1   b1 b1 b1 b1
    weights   w0 w1 w2 w3   v0 v1 v2 v3    of channel 1, for each output

With more channels a vector has one group or two, whose elements are broadcast. An instruction that
sums pairs takes two channels at once, a K group. A depthwise convolution has groups of one channel.
"""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.codegen.conversion.convert import storage
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import I32, Emitter, Type, Value, i64
from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.convolution.depthwise import factors
from dnnl.kernels.product.base.store import Columns
from dnnl.types.dtype import DataType

_UNROLLED = 4  # K groups


@dataclass(frozen=True)
class Groups:
    """Groups of ``channels`` for ``outputs`` each, a multiple. A K group has ``k_group`` channels,
    whose weights are neighbours too."""

    channels: int = 1
    outputs: int = 1
    k_group: int = 1

    @property
    def k_groups(self) -> int:
        """The K groups of a group."""
        return self.channels // self.k_group

    @property
    def looped(self) -> bool:
        """Whether a loop goes through the K groups, and broadcasts them: code for each of them
        would be long."""
        return self.k_groups > _UNROLLED

    def source(self, columns: Columns) -> Columns:
        """The K groups of src that the outputs in ``columns`` read: the same panels and vectors."""
        if self.k_groups == self.outputs:
            return columns
        sizes = columns.count, columns.lane.extent
        count, lanes = (size // self.outputs * self.k_groups for size in sizes)
        return columns.of_lanes(count, lanes)

    def element(self, data_type: DataType) -> Type:
        """The type of a K group."""
        return I32 if self.k_group > 1 else storage(data_type).element

    def load(
        self, e: Emitter, data_type: DataType, place: Value, mask: vector.Mask, k: int
    ) -> Value:
        """K group ``k`` of each group, in the lanes of all of its outputs. ``mask`` says which K
        groups there are from ``place`` on."""
        element, count = self.element(data_type), e.isa.lanes // self.outputs
        if self.looped:
            there = [True] * count if mask is None else vector.flags(mask)[:: self.k_groups]
            return self._broadcast(e, data_type, place, k, sum(there))
        stored = vector.load(e, place, vector.vector_type(element, count * self.k_groups), mask)
        if self.outputs == 1:
            return stored
        lanes = [lane // self.outputs * self.k_groups + k for lane in range(e.isa.lanes)]
        return vector.shuffle(e, stored, stored, lanes)

    def _broadcast(
        self, e: Emitter, data_type: DataType, start: Value, k: int, count: int
    ) -> Value:
        """The same of ``count`` groups, at most two."""
        element, width = self.element(data_type), e.isa.lanes
        if not count:
            return vector.splat_constant(vector.vector_type(element, width), 0)
        found = []
        for group in range(count):
            at = i64((group * self.k_groups + k) * self.k_group)
            place = e.element(start, at, storage(data_type).element)
            one = e.b.load(place, typ=element, align=data_type.size)
            found.append(vector.splat(e, one, width))
        lanes = [lane + lane // self.outputs * width for lane in range(width)]
        return found[0] if count == 1 else vector.shuffle(e, found[0], found[1], lanes)

    def factor(self, e: Emitter, multiply: Multiply, data_type: DataType, stored: Value) -> Value:
        """A vector of K groups, one in each lane, as a factor."""
        if self.k_group > 1:
            (made,) = multiply.from_packed(e, stored)
            return made
        return factors.factor(e, multiply, data_type, stored)


DEPTHWISE = Groups()
