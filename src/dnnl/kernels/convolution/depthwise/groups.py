"""Groups of a few channels: a vector of dst has the outputs of several of them.

All outputs of a group read the same channels. For each channel of a group one load and a
permutation give every lane what its group reads; with groups of four and channel 1::

    src       a0 a1 a2 a3   b0 b1 b2 b3
    spread    a1 a1 a1 a1   b1 b1 b1 b1
    weights   w0 w1 w2 w3   v0 v1 v2 v3    of channel 1, for each output

A depthwise convolution has groups of one channel.
"""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.codegen.conversion.convert import storage
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import I32, Emitter, Type, Value
from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.convolution.depthwise import factors
from dnnl.kernels.product.base.store import Columns
from dnnl.types.dtype import DataType


@dataclass(frozen=True)
class Groups:
    """Groups of ``channels`` for ``outputs`` each, a multiple. A *word* is what an instruction
    multiplies at once in a lane: ``together`` channels, whose weights are neighbours too."""

    channels: int = 1
    outputs: int = 1
    together: int = 1

    @property
    def words(self) -> int:
        """The words of a group."""
        return self.channels // self.together

    def source(self, columns: Columns) -> Columns:
        """The words of src that the outputs in ``columns`` read: the same panels and vectors."""
        if self.words == self.outputs:
            return columns
        count, lanes = (
            number // self.outputs * self.words for number in (columns.count, columns.lane.extent)
        )
        return columns.of_lanes(count, lanes)

    def element(self, data_type: DataType) -> Type:
        """The element type of a vector of words."""
        return I32 if self.together > 1 else storage(data_type).element

    def spread(self, e: Emitter, words: Value, word: int) -> Value:
        """The word number ``word`` of each group, in the lanes of all of its outputs."""
        if self.outputs == 1:
            return words
        lanes = [lane // self.outputs * self.words + word for lane in range(e.isa.lanes)]
        return vector.shuffle(e, words, words, lanes)

    def factor(self, e: Emitter, multiply: Multiply, data_type: DataType, stored: Value) -> Value:
        """A vector of words, one for each lane, as a factor."""
        if self.together > 1:
            (made,) = multiply.from_packed(e, stored)
            return made
        return factors.factor(e, multiply, data_type, stored)


DEPTHWISE = Groups()
