"""A recurrent network to compute, and how its scratchpad is divided.

Steps are counted in the order in which a direction takes them. The states of a layer are rows
``states[step + 1]``, ``states[0]`` the first ones, so that a layer finds what it reads where the
one below has left it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dnnl.codegen.isa import Isa
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.kinds import Alg
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import separates

GATES = {
    Alg.vanilla_rnn: 1,
    Alg.vanilla_lstm: 4,
    Alg.vanilla_gru: 3,
    Alg.lbr_gru: 3,
    Alg.vanilla_augru: 3,
    Alg.lbr_augru: 3,
}
"""The number of gates of each cell."""

_LINE = 64
_PACKED_ROWS = 16
"""From so many rows of all steps on, weights that are row-major are copied into blocks first: their
rows are so far apart that caches hold few of them."""


@dataclass(frozen=True)
class Part:
    """A part of the scratchpad: where it begins, in bytes, and the strides of its axes in f32.
    Where only executions know steps or rows, these are expressions."""

    begin: int
    strides: tuple[int, ...]


@dataclass(frozen=True)
class RnnConf:
    """A forward pass. Absent tensors are None; ``reverse`` says of each direction whether it goes
    from the last step to the first, ``added`` whether the results of both are added up rather than
    one behind the other. ``lanes`` are the units of a block."""

    alg: Alg
    activation: Alg
    alpha: float
    reverse: tuple[bool, ...]
    added: bool
    lanes: int
    src_layer: MemoryDesc
    src_iter: MemoryDesc | None
    src_iter_c: MemoryDesc | None
    attention: MemoryDesc | None
    weights_layer: MemoryDesc
    weights_iter: MemoryDesc
    peephole: MemoryDesc | None
    projection: MemoryDesc | None
    bias: MemoryDesc | None
    dst_layer: MemoryDesc
    dst_iter: MemoryDesc | None
    dst_iter_c: MemoryDesc | None
    lengths: MemoryDesc | None = None

    @property
    def tensors(self) -> dict[int, MemoryDesc]:
        """The tensors that are there, by argument."""
        every = {
            Arg.SRC_LAYER: self.src_layer, Arg.SRC_ITER: self.src_iter,
            Arg.SRC_ITER_C: self.src_iter_c, Arg.AUGRU_ATTENTION: self.attention,
            Arg.WEIGHTS_LAYER: self.weights_layer, Arg.WEIGHTS_ITER: self.weights_iter,
            Arg.WEIGHTS_PEEPHOLE: self.peephole, Arg.WEIGHTS_PROJECTION: self.projection,
            Arg.BIAS: self.bias, Arg.DST_LAYER: self.dst_layer, Arg.DST_ITER: self.dst_iter,
            Arg.DST_ITER_C: self.dst_iter_c, Arg.SEQUENCE_LENGTHS: self.lengths,
        }  # fmt: skip
        return {argument: desc for argument, desc in every.items() if desc is not None}

    @property
    def converts(self) -> bool:
        """Whether inputs are converted to f32 before the first layer."""
        return self.src_layer.data_type is not DataType.f32

    def packs(self, weights: MemoryDesc) -> bool:
        """Whether weights are copied into blocks of units, in f32. Executions of few rows and of
        many have kernels of their own where that is so for some."""
        row_major = self.lanes > 1 and not weights.inner_blocks
        return row_major and not separates(self.steps * self.rows, _PACKED_ROWS)

    @property
    def steps(self) -> int:
        """The number of time steps."""
        return self.src_layer.dims[0]

    @property
    def rows(self) -> int:
        """The batch."""
        return self.src_layer.dims[1]

    @property
    def layers(self) -> int:
        """The number of layers."""
        return self.weights_layer.dims[0]

    @property
    def directions(self) -> int:
        """The number of directions."""
        return len(self.reverse)

    @property
    def inputs(self) -> int:
        """The channels of src_layer, and of what the layers above read."""
        return self.weights_layer.dims[2]

    @property
    def gates(self) -> int:
        """The gates of a cell."""
        return GATES[self.alg]

    @property
    def channels(self) -> int:
        """The channels of the cells."""
        return self.weights_layer.dims[4]

    @property
    def outputs(self) -> int:
        """The channels of the states: those of the cells, or of the projection."""
        return self.channels if self.projection is None else self.projection.dims[3]

    @property
    def is_lstm(self) -> bool:
        """Whether cells have a state of their own."""
        return self.alg is Alg.vanilla_lstm

    @property
    def is_lbr(self) -> bool:
        """Whether the reset gate multiplies a product of the state."""
        return self.alg in (Alg.lbr_gru, Alg.lbr_augru)

    @property
    def in_two(self) -> bool:
        """Whether a step takes two products, one after the other."""
        return self.projection is not None or self.alg in (Alg.vanilla_gru, Alg.vanilla_augru)

    def blocks(self, channels: int) -> int:
        """The blocks of units that so many channels are."""
        return -(-channels // self.lanes)

    @property
    def parts(self) -> dict[str, Part]:
        """The scratchpad."""
        return {name: part for name, part, _ in self._divided()}

    @property
    def scratchpad(self) -> int:
        """Its size in bytes."""
        *_, (_, _, end) = self._divided()
        return end

    def _divided(self) -> Iterator[tuple[str, Part, int]]:
        """Name, part and end of each part: the number of the step, the inputs [step and row,
        channel] if they are converted, the layer's weights [direction, block, input, gate, lane] if
        they are packed, the products of the layer's input [direction, step and row, block, gate,
        lane], the states of the layers in turn [2, direction, step + 1, row, channel], the cells
        [direction, row, channel], and what the first product of a step leaves to the second, twice
        the cells."""
        t, n, d = self.steps, self.rows, self.directions
        wide, narrow = (self.lanes * self.blocks(c) for c in (self.channels, self.outputs))
        blocks, panel = self.blocks(self.channels), (self.gates, self.lanes)
        shapes = {
            "step": (_LINE // 4,),
            "inputs": (t * n, self.lanes * self.blocks(self.inputs) * self.converts),
            "layer_weights": (d, blocks, self.inputs * self.packs(self.weights_layer), *panel),
            "iter_weights": (d, blocks, self.outputs * self.packs(self.weights_iter), *panel),
            "products": (d, t * n, blocks, *panel),
            "states": (2, d, t + 1, n, narrow),
            "cells": (d, n, wide),
            "between": (2, d, n, wide),
        }
        begin = 0
        for name, shape in shapes.items():
            strides = [1]
            for size in reversed(shape[1:]):
                strides.append(strides[-1] * size)
            nbytes = 4 * strides[-1] * shape[0]
            end = begin + -(-nbytes // _LINE) * _LINE
            yield name, Part(begin, tuple(reversed(strides))), end
            begin = end


def rows_of_tile(isa: Isa, vectors: int) -> int:
    """The rows of a register tile whose rows are so many vectors: accumulators, a row of weights
    and a broadcast fit into the registers."""
    return max(1, min(8, (isa.registers - vectors - 1) // (vectors + (isa.registers > 16))))
