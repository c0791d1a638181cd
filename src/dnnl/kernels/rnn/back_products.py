"""Gradients by weights: packed weights whose inputs are columns, and products of rows with them.

f32      a row has its slots block by block of units; weights are [block, slot, unit] the same
pairs    a row has all units of a slot side by side, in bf16; weights are K blocks of pairs
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from dnnl.codegen.conversion.convert import storage
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, I16, I32, Value, Values, i64
from dnnl.codegen.ir.transpose import transpose_registers
from dnnl.codegen.ir.vector import Mask
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.rnn.backward_memory import BackwardMemory
from dnnl.kernels.rnn.memory import Place, Product
from dnnl.kernels.rnn.problem import along_units, rows_of_tile
from dnnl.kernels.rnn.product import Ahead, Factor, Tile, multiply, shaped
from dnnl.kernels.rnn.tiles import MOST_TILES
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.size import is_known

_BYTES = DataType.f32.size
_BACK = {
    int(Arg.WEIGHTS_LAYER): "layer_back",
    int(Arg.WEIGHTS_ITER): "iter_back",
    int(Arg.WEIGHTS_PROJECTION): "projection_back",
}


@dataclass(frozen=True)
class BackProduct:
    """What a phase multiplies: rows of gradients by some ``slots`` of ``weights``, counted among
    those that these have, for so many ``channels`` in groups of ``width`` blocks. Rows are those
    of a ``part``, the first slot of each at its ``source``. The sums are added to the vectors that
    are ``first``, one for each block, and ``finish`` is what becomes of them. Where ``nothing`` is
    true there are no products. A ``direction`` is the only one."""

    weights: int
    slots: range
    channels: int
    width: int
    part: str
    source: Callable[[Place, Value], Value]
    first: Callable[[Place, Value], list[Value]]
    finish: Callable[[Place, Tile], None]
    nothing: Value | None = None
    direction: int | None = None


class BackProducts(BackwardMemory):
    """Writes the phases that multiply gradients with weights."""

    def _each_back(self, phase: PhaseFunction, rows: int, product: BackProduct) -> Phase:
        """All work items: a group of blocks for some rows."""
        conf, joined = self._conf, product.direction is not None
        if conf.in_pairs:
            of_slots = product.part == "gate_diffs"
            per_slot = conf.pitch(conf.channels if of_slots else conf.outputs)
            return self._each_product(phase, product.channels, rows, Product(
                product.weights, range(product.width), len(product.slots) * per_slot, product.part,
                product.source, product.first, product.finish,
                lambda place: self._back(phase, product, place), product.width, joined,
                product.nothing,
            ))  # fmt: skip

        height = rows_of_tile(phase.e.isa, product.width)

        def item(place: Place) -> Callable[[Place], None]:
            return partial(write, self._back(phase, product, place))

        def write(factor: Factor, place: Place) -> None:
            every = [phase.e.add(place.row, i64(r)) for r in range(place.rows)]
            first = [product.first(place, row) for row in every]
            sources = [product.source(place, row) for row in every]
            ahead = (
                self._next_rows(phase, product, sources[0], height)
                if product.weights == Arg.WEIGHTS_LAYER
                else self._next_group(phase, place, product, factor, rows, height)
            )
            tile = self._through(phase, product, first, sources, factor, ahead)
            product.finish(place, tile)

        width = product.width
        return self._each_tile(
            phase, product.channels, rows, width, item, width=width, joined=joined
        )

    def _back(self, phase: PhaseFunction, product: BackProduct, place: Place) -> Factor:
        """The packed weights of a group of blocks of inputs, from the first slot on."""
        conf, name = self._conf, _BACK[product.weights]
        strides, start = conf.parts[name].strides, product.slots.start
        direction = place.direction if product.direction is None else product.direction
        index = [i64(direction), place.block, i64(0), i64(start), *[i64(0)] * 3]
        if conf.in_pairs:
            first = start * conf.pitch(conf.channels) // conf.operands.block
            index = [i64(direction), place.block, i64(first), *[i64(0)] * 4]
        pointer = self._part(phase, name, index)
        per_row, apart = (2, 3) if conf.in_pairs else (4, 5)
        beside = tuple(n * strides[apart] for n in range(product.width))
        return Factor(pointer, self._dot(phase), strides[per_row], beside, None)

    def _dot(self, phase: PhaseFunction) -> Multiply:
        """What is multiplied has one type."""
        operands = self._conf.operands
        return operands.multiply(phase.e.isa, operands.data)

    def _through(
        self,
        phase: PhaseFunction,
        product: BackProduct,
        first: Tile,
        rows: Sequence[Value],
        factor: Factor,
        ahead: Ahead | None,
    ) -> Tile:
        """``first`` plus the products of rows of f32, block by block of units; ``ahead`` is what
        those of the first block prefetch."""
        conf, e, height, width = self._conf, phase.e, len(rows), len(factor.gates)
        units = conf.blocks(conf.tensors[product.weights].dims[-1])
        blocks: Value = i64(units)
        if product.nothing is not None:
            blocks = e.b.select(product.nothing, i64(0), blocks)
        per_block = conf.parts[_BACK[product.weights]].strides[2]
        along = conf.parts[product.part].strides[1]
        count = len(product.slots) * self._lanes
        apart = along if product.weights == Arg.WEIGHTS_LAYER else per_block

        def one(block: Value, weights: Value, *carried: Value) -> Values:
            pointers, flat = carried[:height], carried[height:]
            own = Factor(weights, factor.multiply, factor.per_block, factor.gates, None)
            asked = None if ahead is None else ahead.behind(e, e.mul(block, apart * _BYTES))
            tile = multiply(
                e, shaped(flat, 0, height, width), pointers, own, count, ahead=asked
            )  # fmt: skip
            following = [e.b.gep(p, [e.number(along)], source_etype=F32) for p in pointers]
            behind = e.b.gep(weights, [i64(per_block)], source_etype=F32)
            return behind, *following, *(value for row in tile for value in row)

        flat = [value for row in first for value in row]
        carried = e.loop(
            i64(0), blocks, one, (factor.pointer, *rows, *flat), unroll=False, name="block"
        )
        return shaped(carried[1 + height :], 0, height, width)

    def _next_group(
        self,
        phase: PhaseFunction,
        place: Place,
        product: BackProduct,
        factor: Factor,
        rows: int,
        height: int,
    ) -> Ahead | None:
        """The share of a tile in the weights of the next group of blocks, of one block of units,
        where they come from beyond the second-level cache."""
        e, desc = phase.e, self._tensors[product.weights][1]
        few = is_known(rows) and height < rows <= MOST_TILES * height
        if not (few and self._is_far(e, desc)):
            return None
        per_group = self._conf.parts[_BACK[product.weights]].strides[1]
        size = product.width * self._lanes * _BYTES
        step = -(-size // -(-rows // height))
        tile, _ = e.divmod(place.row, height)
        share = step * len(product.slots) * self._lanes
        behind = e.add(i64(per_group * _BYTES), e.mul(tile, share))
        return Ahead(factor.pointer, step).behind(e, behind)

    def _next_rows(
        self, phase: PhaseFunction, product: BackProduct, first: Value, height: int
    ) -> Ahead:
        """The slots of the rows of the next tile, of one block of units: a tile has lines from far
        apart, which no hardware prefetcher follows."""
        size = height * self._conf.slots * self._lanes * _BYTES
        step = -(-size // (len(product.slots) * self._lanes))
        return Ahead(first, step).behind(phase.e, i64(size))

    # Packed weights.

    def _pack_back(self, argument: int) -> Phase:
        """Weights with the inputs as columns: rows of all units, slot by slot."""
        conf, name = self._conf, _BACK[argument]
        desc = conf.tensors[argument]
        columns, units = desc.dims[2], desc.dims[-1]
        gates = [0]
        if desc.ndims > 4:
            slots = conf.layer_slots if argument == Arg.WEIGHTS_LAYER else conf.iter_slots
            gates = sorted(range(len(slots)), key=lambda gate: slots[gate])
        phase = self._phase(f"pack_{name}")
        blocks = conf.blocks(units)
        if conf.in_pairs:  # with those of zeros behind the last units
            blocks = conf.pitch(units) // self._lanes
        e, width = phase.e, conf.group if argument == Arg.WEIGHTS_LAYER else conf.pair

        def item(number: Value) -> None:
            rest, block = e.divmod(number, blocks)
            d, column = e.divmod(rest, conf.blocks(columns))
            group, beside = e.divmod(column, width)

            def square(inputs: Mask, mask: Mask) -> None:
                for slot, gate in enumerate(gates):
                    rows = self._square(phase, argument, (d, column, gate, block), inputs, mask)
                    if along_units(desc) and self._lanes > 1:
                        rows = transpose_registers(e, rows)
                    self._store_back(phase, name, (d, group, block, beside), slot, rows)

            def zeros() -> None:
                zero = vector.splat_constant(vector.vector_type(F32, self._lanes), 0)
                for slot in range(len(gates)):
                    rows = [zero] * self._lanes
                    self._store_back(phase, name, (d, group, block, beside), slot, rows)

            def there() -> None:
                self._each_block(e, column, columns, lambda inputs: self._each_block(
                    e, block, units, lambda mask: square(inputs, mask),
                ))  # fmt: skip

            if blocks == conf.blocks(units):
                there()
            else:
                beyond = e.b.icmp_signed(">=", block, i64(conf.blocks(units)))
                self._either(e, beyond, zeros, there)

        count = conf.directions * conf.blocks(columns) * blocks
        phase.each_item(count, item)
        return phase.end(count)

    def _store_back(
        self,
        phase: PhaseFunction,
        name: str,
        place: tuple[Value, Value, Value, Value],
        slot: int,
        rows: Sequence[Value],
    ) -> None:
        """Store the inputs of each unit of a block; ``place`` is direction, group of blocks, block
        of units and the block of the group."""
        conf, e, (d, group, block, beside) = self._conf, phase.e, place
        if not conf.in_pairs:
            for lane, value in enumerate(rows):
                index = [d, group, block, i64(slot), i64(lane), beside, i64(0)]
                vector.store(e, value, self._part(phase, name, index))
            return
        of_slot = 0 if name == "projection_back" else slot * conf.pitch(conf.channels)
        first = e.add(e.mul(block, self._lanes), i64(of_slot))
        for lane in range(0, self._lanes, 2):
            number, _ = e.divmod(e.add(first, i64(lane)), 2)
            k_block, k_group = e.divmod(number, conf.operands.groups)
            index = [d, group, k_block, beside, k_group, i64(0), i64(0)]
            both = self._in_pairs(phase, rows[lane], rows[lane + 1])
            vector.store(e, both, self._part(phase, name, index))

    def _in_pairs(self, phase: PhaseFunction, first: Value, second: Value) -> Value:
        """Two vectors as bf16, side by side in each lane."""
        e, form = phase.e, storage(self._conf.operands.data)
        words = vector.vector_type(I32, self._lanes)
        low, high = (
            e.b.zext(
                e.b.bitcast(form.from_core(e, own), vector.vector_type(I16, self._lanes)), words
            )
            for own in (first, second)
        )
        return e.b.or_(low, e.b.shl(high, vector.splat_constant(words, 16)))
