"""A backward pass to compute, and how its scratchpad is divided.

Gradients of the sums of gates are rows of ``slots`` vectors for each block of units. They are those
of the gates; a cell that is linear before the reset has that of its inner product besides, and the
one of o at the front, so that both products read neighbours::

    weights_layer   o  u  r
    slots           o  u  r  inner
    weights_iter       u  r  inner

Where products are of pairs of bf16, what they sum over is contiguous: for gradients of states and
inputs the slots of a row, one behind the other, for those of weights all rows of all steps, the
terms.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from dnnl.kernels.rnn.problem import RnnConf, along_units
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.kinds import Alg
from dnnl.types.memory_desc import MemoryDesc

_MOST_BLOCKS = 4
"""Blocks of inputs whose gradients a tile has at most."""
_MOST_NARROW = 2
"""The same of narrower vectors than those of 16 lanes: x86 has 16 registers of them, which hold six
rows of two blocks, but only two rows of four."""
_FEW_BLOCKS = 8
"""From so many blocks of states on a tile has two of them: gradients of gates are read half as
often, and there are work items enough."""


def most_blocks(blocks: int, lanes: int) -> int:
    """The blocks of inputs of a tile, out of so many."""
    most = _MOST_BLOCKS if lanes > 8 else _MOST_NARROW
    return max(n for n in range(1, most + 1) if blocks % n == 0)


@dataclass(frozen=True, kw_only=True)
class GradientConf(RnnConf):
    """The gradient of a forward pass in training. ``overwrites`` says that gradients of weights
    replace what memory holds, rather than being added to it. ``activation`` is that of vanilla
    cells, ``alpha`` the slope of its relu below 0. Absent tensors are None."""

    activation: Alg
    alpha: float
    overwrites: bool
    diff_src_layer: MemoryDesc | None
    diff_src_iter: MemoryDesc | None
    diff_src_iter_c: MemoryDesc | None
    diff_attention: MemoryDesc | None
    diff_weights_layer: MemoryDesc
    diff_weights_iter: MemoryDesc
    diff_peephole: MemoryDesc | None
    diff_projection: MemoryDesc | None
    diff_bias: MemoryDesc | None
    diff_dst_layer: MemoryDesc
    diff_dst_iter: MemoryDesc | None
    diff_dst_iter_c: MemoryDesc | None

    @property
    def tensors(self) -> dict[int, MemoryDesc]:
        """The tensors that are there, by argument: those of the forward pass too, though it is in
        the workspace what a gradient needs of its results, first states and biases."""
        every = {
            Arg.DIFF_SRC_LAYER: self.diff_src_layer, Arg.DIFF_SRC_ITER: self.diff_src_iter,
            Arg.DIFF_SRC_ITER_C: self.diff_src_iter_c,
            Arg.DIFF_AUGRU_ATTENTION: self.diff_attention,
            Arg.DIFF_WEIGHTS_LAYER: self.diff_weights_layer,
            Arg.DIFF_WEIGHTS_ITER: self.diff_weights_iter,
            Arg.DIFF_WEIGHTS_PEEPHOLE: self.diff_peephole,
            Arg.DIFF_WEIGHTS_PROJECTION: self.diff_projection, Arg.DIFF_BIAS: self.diff_bias,
            Arg.DIFF_DST_LAYER: self.diff_dst_layer, Arg.DIFF_DST_ITER: self.diff_dst_iter,
            Arg.DIFF_DST_ITER_C: self.diff_dst_iter_c,
        }  # fmt: skip
        return super().tensors | {
            argument: desc for argument, desc in every.items() if desc is not None
        }

    @property
    def is_gru(self) -> bool:
        """Whether the reset gate multiplies the state before a product."""
        return self.alg in (Alg.vanilla_gru, Alg.vanilla_augru)

    @property
    def slots(self) -> int:
        """The gradients of a unit in a step."""
        return self.gates + self.is_lbr

    @property
    def layer_slots(self) -> tuple[int, ...]:
        """The slot of each gate of weights_layer."""
        return (1, 2, 0) if self.is_lbr else tuple(range(self.gates))

    @property
    def iter_slots(self) -> tuple[int, ...]:
        """The slot of each gate of weights_iter."""
        return (1, 2, 3) if self.is_lbr else tuple(range(self.gates))

    @property
    def bias_slots(self) -> tuple[int, ...]:
        """The slot of each bias."""
        return (1, 2, 0, 3) if self.is_lbr else tuple(range(self.gates))

    @property
    def group(self) -> int:
        """The blocks of inputs whose gradients a tile has."""
        return most_blocks(self.blocks(self.inputs), self.lanes)

    @property
    def pair(self) -> int:
        """The blocks of states, or of units, whose gradients a tile of a step has."""
        blocks = set(map(self.blocks, (self.before, self.outputs, self.channels)))
        return 2 if all(own >= _FEW_BLOCKS and own % 2 == 0 for own in blocks) else 1

    @property
    def in_pairs(self) -> bool:
        """Whether products are of pairs of bf16."""
        return self.operands.group > 1

    @property
    def terms(self) -> int:
        """The terms of gradients of weights with those that pad them, where they are pairs."""
        return self.pitch(self.steps * self.rows)

    def along_units(self, panel: str) -> bool:
        """Whether units are contiguous of the gradient that a panel of inputs is multiplied for."""
        desc = {
            "inputs": self.diff_weights_layer,
            "before": self.diff_weights_iter,
            "second": self.diff_projection or self.diff_weights_iter,
        }[panel]
        return along_units(desc)

    def has(self, panel: str) -> bool:
        """Whether a panel is there, where there are pairs."""
        shape, _ = self._shapes()[panel]
        return prod(shape) > 0

    def is_rows(self, panel: str) -> bool:
        """Whether a panel has rows of terms, rather than columns, where there are pairs."""
        named = panel.endswith(("_rows", "_pairs"))
        return panel.endswith("_rows") if named else self.along_units(panel)

    def _shapes(self) -> dict[str, tuple[tuple[int, ...], DataType]]:
        """The shapes of the parts of the scratchpad."""
        return self._shapes_of_pairs() if self.in_pairs else self._shapes_of_singles()

    def _shapes_of_pairs(self) -> dict[str, tuple[tuple[int, ...], DataType]]:
        """Gradients of gates are [direction, step, row, slot and unit]; weights whose inputs are
        columns [direction, group of blocks, K block, block, group, lane, k]; panels rows of terms
        [direction, channel, term], or as columns [direction, block, K block, slot, group, lane, k];
        the gradients of inputs that directions add up [step, row, channel]. The rest is as where
        there are no pairs."""
        t, n, d, lanes, kind = self.steps, self.rows, self.directions, self.lanes, DataType.bf16
        inputs, units = map(self.blocks, (self.inputs, self.channels))
        of_units, of_outputs = self.pitch(self.channels), self.pitch(self.outputs)
        before, pair, block = self.blocks(self.before), self.pair, self.operands.block
        projects, cell = self.projection is not None, (self.operands.groups, lanes, 2)
        second = units * (self.is_gru or projects)
        per_slot = of_units // block
        blocks = {"inputs": inputs, "before": before, "second": second}
        panels = {
            name: (d, count * lanes, self.terms) if self.along_units(name)
            else (d, count, self.terms // block, 1, *cell)
            for name, count in blocks.items()
        }  # fmt: skip
        forms = {self.along_units(name) for name in ("inputs", "before")}
        projected = projects and self.along_units("second")
        wide = of_units // lanes
        narrow: dict[str, tuple[int, ...]] = {
            "gate_diffs": (d, t, n, self.slots * of_units),
            "projected": (d, t, n, of_outputs * projects),
            "layer_back": (
                d, inputs // self.group, self.gates * per_slot, self.group, *cell
            ),
            "iter_back": (d, before // pair, self.gates * per_slot, pair, *cell),
            "projection_back": (d, units // pair * projects, of_outputs // block, pair, *cell),
            **panels,
            "gate_rows": (d, self.slots * of_units * (False in forms), self.terms),
            "gate_pairs": (
                d, wide * (True in forms), self.terms // block, self.slots, *cell
            ),
            "projected_rows": (d, of_outputs * (projects and not projected), self.terms),
            "projected_pairs": (
                d, of_outputs // lanes * projected, self.terms // block, 1, *cell
            ),
        }  # fmt: skip
        own = {name: (shape, kind) for name, shape in narrow.items()}
        singles = self._shapes_of_singles()
        return singles | own

    def _shapes_of_singles(self) -> dict[str, tuple[tuple[int, ...], DataType]]:
        """The shapes of the parts of the scratchpad: the number of the step; what the gradients of
        states and of cells have gathered [direction, row, channel]; the gradients of gates
        [direction, block, step, row, slot, lane]; weights whose inputs are columns [direction,
        group of blocks, block of units, slot, unit, block, lane]; for the gradients of weights, by
        blocks [direction, block, step, row, lane], the inputs, the states before steps, what a
        second product of a step multiplies, and the gradients of what a projection gives; the
        gradients of the results of the layer below [direction, step, row, channel], what those of
        the attention are added up of, and what those of inputs of one direction are added to."""
        t, n, d, lanes = self.steps, self.rows, self.directions, self.lanes
        inputs, outputs, units = map(self.blocks, (self.inputs, self.outputs, self.channels))
        before = self.blocks(self.before)
        pair = self.pair
        second = units * (self.is_gru or self.projection is not None)
        projected = outputs * (self.projection is not None)
        shapes = {
            "step": (16,),
            "gathered": (d, n, outputs * lanes),
            "gathered_cells": (d, n, units * lanes * self.is_lstm),
            "gate_diffs": (d, units, t, n, self.slots, lanes),
            "layer_back": (d, inputs // self.group, units, self.gates, lanes, self.group, lanes),
            "iter_back": (d, before // pair, units, self.gates, lanes, pair, lanes),
            "projection_back": (d, units // pair, projected, 1, lanes, pair, lanes),
            "inputs": (d, inputs, t, n, lanes),
            "before": (d, before, t, n, lanes),
            "second": (d, second, t, n, lanes),
            "projected": (d, projected, t, n, lanes),
            "below": (d, t, n, outputs * lanes * (self.layers > 1)),
            "attended": (d, t, n, units * lanes * (self.attention is not None)),
            "added": (t, n, inputs * lanes * (d > 1)),
        }
        return {name: (shape, DataType.f32) for name, shape in shapes.items()}
