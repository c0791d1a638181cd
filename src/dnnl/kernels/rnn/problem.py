"""A recurrent network to compute, and how its scratchpad is divided.

Steps are counted in the order in which a direction takes them. The states of a layer are rows
``states[step + 1]``, ``states[0]`` the first ones, so that a layer finds what it reads where the
one below has left it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

from dnnl.codegen.epilogue.quantization import Quantization
from dnnl.codegen.isa import Isa
from dnnl.codegen.product.multiply import Multiply, WidenedPairs, multiply
from dnnl.types.arg import Arg
from dnnl.types.cell_functions import GATE_LETTERS, CellFunctions
from dnnl.types.dtype import DataType
from dnnl.types.kinds import Alg
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.rnn_qparams import RnnQparams, WeightsScales
from dnnl.types.size import separates, surely_equal

GATES = {alg: len(letters) for alg, letters in GATE_LETTERS.items()}
"""The number of gates of each cell."""

_LINE = 64
_PACKED_ROWS = 16
"""From so many rows of all steps on, weights that are row-major are copied into blocks first: their
rows are so far apart that caches hold few of them."""


_GROUPS = 16
"""The K groups of a row of the matrix unit's tiles, which weights are padded to."""
TILE_ROWS = 16
"""The rows of a tile of the matrix unit."""
_GROUP_BYTES = 4
_TO_UNSIGNED = 128
"""What an s8 is more as u8."""


@dataclass(frozen=True)
class Part:
    """A part of the scratchpad, or of another ``argument``: where it begins, in bytes, the strides
    of its axes in elements, and their type. Where only executions know steps or rows, these are
    expressions."""

    begin: int
    strides: tuple[int, ...]
    data_type: DataType = DataType.f32
    argument: int = Arg.SCRATCHPAD


@dataclass(frozen=True)
class Operands:
    """What products multiply: inputs and states of the type ``data``, with ``weights``.

    Those of f32 are multiplied one k at a time, and weights become f32 as they are loaded, bytes
    among them; where all are bf16, they do so two k at a time. Others have K groups of 4 bytes, and
    weights K blocks: on the matrix ``unit`` of so many groups as a row of its tiles has, else of
    one group. Integers are u8 by s8, and stand for other numbers; as ``byte_pairs`` two of them,
    which may be s8, are one number.
    """

    data: DataType = DataType.f32
    weights: DataType = DataType.f32
    unit: bool = False
    byte_pairs: bool = False

    @property
    def is_integer(self) -> bool:
        """Whether integers are multiplied."""
        return self.data.is_integer

    @property
    def group(self) -> int:
        """The k of a K group."""
        if self.data is DataType.f32:
            return 2 if self.widens else 1
        return _GROUP_BYTES // self.data.size

    @property
    def widens(self) -> bool:
        """Whether pairs of weights become f32 as they are loaded."""
        return self.data is DataType.f32 and self.weights is DataType.bf16

    @property
    def groups(self) -> int:
        """The K groups of a K block."""
        return _GROUPS if self.unit else 1

    @property
    def block(self) -> int:
        """The k of a K block."""
        return self.group * self.groups

    def k_blocks(self, inputs: int) -> int:
        """The K blocks that so many inputs are."""
        return -(-inputs // self.block)

    def tag(self, ndims: int, lanes: int) -> str:
        """The layout of weights in blocks of ``lanes`` units, in which the gates of a K block are
        side by side: that of [layers, directions, inputs, gates, units], or of a projection, which
        has no gates."""
        gates, units = ("d", "e") if ndims == 5 else ("", "d")
        if self.group == 1:
            return f"ab{units.upper()}c{gates}{lanes}{units}"
        groups = f"{self.groups}c" if self.groups > 1 else ""
        return f"ab{units.upper()}C{gates}{groups}{lanes}{units}{self.group}c"

    def multiply(self, isa: Isa, weights: DataType) -> Multiply:
        """The dot-product kind for weights of a type in memory."""
        if self.widens:
            return WidenedPairs.of_bf16()
        found = multiply(isa, self.data, weights, grouped=self.group > 1, tiled=self.unit)
        assert found is not None, "the types of operands are those that can be multiplied"
        return found


@dataclass(frozen=True)
class RnnConf:
    """A forward pass. Absent tensors are None; ``functions`` are those of each direction,
    ``reverse`` says of each whether it goes from the last step to the first, ``added`` whether the
    results of both are added up rather than one behind the other. ``lanes`` are the units of a
    block, ``operands`` what is multiplied, ``qparams`` how numbers become integers,
    ``quantization`` what weights that are bytes mean beside inputs that are floats. With a
    ``workspace`` it is a pass in training, which leaves gates, states and cells of all steps there
    (`workspace_shapes`), all in f32. Weights and biases have gates in the ``gate_order``, if there
    is one, else in the cell's."""

    alg: Alg
    functions: tuple[CellFunctions, ...]
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
    operands: Operands = field(default_factory=Operands)
    qparams: RnnQparams = field(default_factory=RnnQparams)
    quantization: Quantization = field(default_factory=Quantization)
    workspace: MemoryDesc | None = None
    gate_order: str = ""

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
            Arg.WORKSPACE: self.workspace,
        }  # fmt: skip
        return {argument: desc for argument, desc in every.items() if desc is not None}

    @property
    def parameters(self) -> dict[int, MemoryDesc]:
        """The scales and zero points of weights, by argument."""
        own = self.quantization
        kinds = ((Arg.SCALES, own.scales), (Arg.ZERO_POINTS, own.zero_points))
        return {
            flag | argument: spec.desc(self.tensors[argument].dims)
            for flag, specs in kinds
            for argument, spec in specs
        }

    @property
    def converts(self) -> bool:
        """Whether inputs are converted to operands before the first layer."""
        return {self.src_layer.data_type, self.operands.data} != {DataType.f32}

    def scales(self, weights: int) -> WeightsScales:
        """Those of some weights."""
        projected = weights == Arg.WEIGHTS_PROJECTION
        return self.qparams.projection if projected else self.qparams.weights

    @property
    def shift(self) -> float:
        """That of operands which are integers: s8 becomes u8. Byte pairs may stay s8."""
        if self.operands.byte_pairs:
            return _TO_UNSIGNED * (self.operands.data is DataType.u8)
        return self.qparams.shift + _TO_UNSIGNED * (self.src_layer.data_type is DataType.s8)

    @property
    def compensates(self) -> bool:
        """Whether products are too large, by the shift times the sums of the weights' columns."""
        return self.operands.is_integer and self.shift != 0

    def sums_apart(self, weights: int) -> bool:
        """Whether a phase of its own makes the sums of the columns of weights: of those that many
        steps read. Work items of other products make those of their units."""
        if not self.compensates:
            return False
        single = surely_equal(self.steps, 1)
        return self.operands.unit or not (single or weights == Arg.WEIGHTS_LAYER)

    def packs(self, weights: MemoryDesc | None) -> bool:
        """Whether weights are copied into blocks of units."""
        if weights is None or weights.inner_blocks:
            return False
        return self.operands.group > 1 or not along_units(weights) or self.many_rows

    @property
    def steps(self) -> int:
        """The number of time steps."""
        return self.src_layer.dims[0]

    @property
    def rows(self) -> int:
        """The batch."""
        return self.src_layer.dims[1]

    @property
    def many_rows(self) -> bool:
        """Whether it is worth while to copy row-major weights into blocks. Executions of few rows
        and of many have kernels of their own where that is so for some."""
        return not separates(self.steps * self.rows, _PACKED_ROWS)

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

    def place_of(self, gate: int) -> int:
        """Where weights and biases have a gate of the cell; what biases have besides is last."""
        if not self.gate_order or gate >= self.gates:
            return gate
        return self.gate_order.index(GATE_LETTERS[self.alg][gate])

    @property
    def channels(self) -> int:
        """The channels of the cells."""
        return self.weights_layer.dims[4]

    @property
    def outputs(self) -> int:
        """The channels of the states: those of the cells, or of the projection."""
        return self.channels if self.projection is None else self.projection.dims[3]

    @property
    def before(self) -> int:
        """The channels of the states before a step: those behind it, unless there is one step."""
        return self.weights_iter.dims[2]

    @property
    def widest(self) -> int:
        """The channels that the states of a row take in memory, before a step or behind it."""
        return max(self.before, self.outputs)

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
        """Those of the scratchpad, and of the workspace. Products read the ``states``, and other
        phases what is ``left`` of them, which is the same unless `states_apart`."""
        own = {name: part for name, part, _ in self._divided()}
        if self.workspace is not None:
            left = workspace_parts(self._sizes)
            own |= {"left": left.pop("states"), **left}
            return {"states": own["left"], **own}
        return {"left": own["states"], **own}

    @property
    def states_apart(self) -> bool:
        """Whether what products read of states is not what is left of them: a pass in training
        leaves f32, and so does one by byte pairs, whose roundings are not added up by a GRU."""
        trains = self.workspace is not None
        narrow = self.operands.data is not DataType.f32
        return self.operands.byte_pairs or (trains and narrow)

    @property
    def _sizes(self) -> WorkspaceSizes:
        return WorkspaceSizes(
            self.alg, self.layers, self.directions, self.steps, self.rows, self.channels,
            self.widest,
        )  # fmt: skip

    @property
    def scratchpad(self) -> int:
        """The bytes of the scratchpad."""
        *_, (_, _, end) = self._divided()
        return end

    def _divided(self) -> Iterator[tuple[str, Part, int]]:
        """Name, part and end of each part, in bytes."""
        begin = 0
        for name, (shape, kind) in self._shapes().items():
            elements, strides = _dense(shape)
            if self.operands.unit and name in _OF_ROWS:
                elements += (TILE_ROWS - 1) * shape[-1]
            end = begin + -(-kind.size * elements // _LINE) * _LINE
            yield name, Part(begin, strides, kind), end
            begin = end

    def _shapes(self) -> dict[str, tuple[tuple[int, ...], DataType]]:
        """The shapes of the parts and their types: the number of the step, the inputs [step
        and row, channel] if they are converted, the layer's weights [direction, block, K
        block, gate, group, lane, k] if they are packed, the products of the layer's input
        [direction, step and row, block, gate, lane], the states of the layers in turn [2,
        direction, step + 1, row, channel], the cells [direction, row, channel], and what
        the first product of a step leaves: operands of the second, and the update gates of
        a GRU.

        Where products are compensated there are the sums of the weights' columns besides
        [direction, block, gate, lane]. Operands are padded to whole K blocks, and the unit reads
        whole tiles of rows.
        """
        t, n, d, operand = self.steps, self.rows, self.directions, self.operands.data
        wide, blocks = self.lanes * self.blocks(self.channels), self.blocks(self.channels)
        row = {name: self._row(name) for name in self.channels_of_rows}
        parts: dict[str, tuple[tuple[int, ...], DataType]] = {
            "step": ((_LINE // 4,), DataType.f32),
            "inputs": ((t * n, row["inputs"] * self.converts), operand),
            "layer_weights": self._panels(self.weights_layer, self.gates),
            "iter_weights": self._panels(self.weights_iter, self.gates),
            "projection_weights": self._panels(self.projection, 1),
            "products": ((d, t * n, blocks, self.gates, self.lanes), DataType.f32),
            "states": ((2, d, t + 1, n, row["states"]), operand),
            "cells": ((d, n, wide), DataType.f32),
            "between": ((d, n, row["between"] * self.in_two), operand),
            **self._sums(),
            "updates": ((d, n, wide * (self.in_two and not self.is_lstm)), DataType.f32),
        }
        if self.operands.byte_pairs:
            left = self.lanes * self.blocks(self.widest)
            parts["left"] = ((2, d, t + 1, n, left), DataType.f32)
        if self.workspace is not None:
            del parts["cells"]
            if not self.states_apart:
                del parts["states"]
        return parts

    def _panels(self, weights: MemoryDesc | None, gates: int) -> tuple[tuple[int, ...], DataType]:
        """The shape and the type of weights that are packed."""
        inputs, units = (0, 0) if weights is None else (weights.dims[2], weights.dims[-1])
        blocks = self.operands.k_blocks(inputs) * self.packs(weights)
        shape = self.operands.groups, self.lanes, self.operands.group
        return (self.directions, self.blocks(units), blocks, gates, *shape), self.operands.weights

    def _sums(self) -> dict[str, tuple[tuple[int, ...], DataType]]:
        """The shapes of the sums of columns."""
        columns = {
            "layer_sums": (Arg.WEIGHTS_LAYER, self.channels, self.gates),
            "iter_sums": (Arg.WEIGHTS_ITER, self.channels, self.gates),
        }
        if self.projection is not None:
            columns["projection_sums"] = Arg.WEIGHTS_PROJECTION, self.outputs, 1
        return {
            name: ((self.directions, self.blocks(units), gates, self.lanes), DataType.s32)
            for name, (argument, units, gates) in columns.items()
            if self.sums_apart(argument)
        }

    def pitch(self, channels: int) -> int:
        """The elements that so many channels take as operands: whole vectors and whole K blocks."""
        step = max(self.lanes, self.operands.block)
        return -(-channels // step) * step

    @property
    def channels_of_rows(self) -> dict[str, int]:
        """The channels that rows of operands have at most, by the parts that have them."""
        return {"inputs": self.inputs, "states": self.widest, "between": self.channels}

    def _row(self, name: str) -> int:
        """The elements from one row of a part to the next. Byte pairs are two halves, with a byte
        for each vector, or some numbers, behind either."""
        pitch = self.pitch(self.channels_of_rows[name])
        if not self.operands.byte_pairs:
            return pitch
        return 2 * (pitch + -(-pitch // (self.lanes * _LINE)) * _LINE)


def along_units(weights: MemoryDesc) -> bool:
    """Whether units, and not inputs, are the contiguous axis of weights."""
    return bool(weights.inner_blocks) or weights.strides[-1] == 1 or weights.dims[-1] == 1


def k_of_blocks(weights: MemoryDesc) -> int:
    """The inputs of a K block, where weights are in blocks; 1 where these are of units alone."""
    return prod(size for axis, size in weights.inner_blocks if axis == 2)


_OF_ROWS = (
    "inputs", "states", "between", "before", "second", "gate_diffs", "projected", "gate_rows",
    "projected_rows",
)  # fmt: skip
"""Parts whose rows are operands: the unit reads whole tiles of them."""


def rows_of_tile(isa: Isa, vectors: int) -> int:
    """The rows of a register tile whose rows are so many vectors: accumulators, a row of weights
    and a broadcast fit into the registers."""
    return max(1, min(8, (isa.registers - vectors - 1) // vectors))


@dataclass(frozen=True)
class WorkspaceSizes:
    """The sizes that a workspace follows from: those of a network."""

    alg: Alg
    layers: int
    directions: int
    steps: int
    rows: int
    channels: int
    states: int


def workspace_shapes(sizes: WorkspaceSizes) -> dict[str, tuple[int, ...]]:
    """The parts of a workspace, one behind the other and without gaps, whatever the vectors of the
    processor: the gates behind their functions [layer, direction, step, row, gate, channel], of an
    lbr cell also its inner product, of a vanilla one none; the states, and the cells of an LSTM,
    [layer, direction, step + 1, row, channel], the first ones at 0. Steps are those of a direction.
    Where states before a step have other channels than those behind it, zeros follow the fewer.
    """
    held = {Alg.vanilla_rnn: 0, Alg.lbr_gru: 4, Alg.lbr_augru: 4}.get(sizes.alg, GATES[sizes.alg])
    axes, steps, rows = (sizes.layers, sizes.directions), sizes.steps, sizes.rows
    cells = sizes.channels if sizes.alg is Alg.vanilla_lstm else 0
    return {
        "gates": (*axes, steps, rows, held, sizes.channels),
        "states": (*axes, steps + 1, rows, sizes.states),
        "cells": (*axes, steps + 1, rows, cells),
    }


def workspace_parts(sizes: WorkspaceSizes) -> dict[str, Part]:
    """Where they are."""
    begin, made = 0, dict[str, Part]()
    for name, shape in workspace_shapes(sizes).items():
        elements, strides = _dense(shape)
        made[name] = Part(begin, strides, argument=Arg.WORKSPACE)
        begin = begin + 4 * elements
    return made


def _dense(shape: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    """The elements of a shape, and the strides of its axes."""
    strides = [1]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * size)
    return strides[-1] * shape[0], tuple(reversed(strides))
