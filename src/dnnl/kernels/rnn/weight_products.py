"""The gradients of weights: products of inputs and of the gradients of gates, over all steps.

Terms are steps and rows. Vectors are along the axis of the gradient that is contiguous, rows of a
tile along the other one; both factors are read from one term to the next::

    ldigo            rows: inputs    vectors: units, of all gates
    ldgoi            rows: units     vectors: inputs, of some blocks; gate by gate
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, Value, i64
from dnnl.codegen.ir.vector import Mask
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.kernels.rnn.gradient_problem import most_blocks
from dnnl.kernels.rnn.memory import Place, Product
from dnnl.kernels.rnn.panels import Panels
from dnnl.kernels.rnn.problem import along_units, rows_of_tile
from dnnl.kernels.rnn.product import Factor, Tile, multiply
from dnnl.runtime.image import Phase
from dnnl.types.arg import GRADIENT, Arg

_BLOCKS_OF_ITEM = 4
_COLUMNS_OF_ITEM = 8
"""Blocks of rows, and of vectors, of a work item: rows stay in the caches for as many blocks of
vectors, and those for as many blocks of rows."""


_Column = Callable[[Value, Value, Value, Value], None]


@dataclass(frozen=True)
class _Gradient:
    """Of weights: the ``argument`` of the gradient, of whose gates from the ``first`` on the
    ``slots`` are the gradients; the parts that inputs and these are in."""

    argument: int
    panel: str
    columns: str
    slots: Sequence[int]
    first: int

    @property
    def side(self) -> str:
        """What the panels of its columns are named by."""
        return "projected" if self.columns == "projected" else "gate"


class WeightProducts(Panels):
    """Writes the phases that compute gradients of weights."""

    def _weights(
        self, argument: int, panel: str, slots: Sequence[int], *, first: int = 0
    ) -> list[Phase]:
        """Gradients of weights: of gates from the ``first`` on, whose slots are these, or of a
        projection."""
        conf = self._conf
        columns = "projected" if argument == Arg.WEIGHTS_PROJECTION else "gate_diffs"
        own = _Gradient(argument + GRADIENT, panel, columns, slots, first)
        name = f"weights{argument}_{first}"
        if along_units(conf.tensors[own.argument]):
            write = self._pairs_of_units if conf.in_pairs else self._of_units
            return [write(self._phase(name), own)]
        if not conf.in_pairs:
            return [self._of_inputs(self._phase(name), own)]
        return [
            self._pairs_of_inputs(self._phase(f"{name}_{number}"), own, number)
            for number in range(len(slots))
        ]

    def _of_units(self, phase: PhaseFunction, own: _Gradient) -> Phase:
        """Work items are some blocks of inputs for some blocks of units."""
        conf, e, lanes = self._conf, phase.e, self._lanes
        desc = conf.tensors[own.argument]
        inputs, units = desc.dims[2], desc.dims[-1]
        per_row = conf.parts[own.columns].strides[3]

        def tile(d: Value, block: Value, row: Value, count: int, mask: Mask) -> None:
            factor = Factor(
                self._slots_of(phase, own, d, block, 0, i64(0)), self._dot(phase), per_row,
                tuple(slot * lanes for slot in own.slots), None,
            )  # fmt: skip
            source, lane = e.divmod(row, lanes)
            pointer = self._part(phase, own.panel, [d, source, i64(0), i64(0), lane])
            rows = [e.element(pointer, i64(r), F32) for r in range(count)]
            unit = e.mul(block, lanes)
            places = [
                [self._index(own, d, e.add(row, i64(r)), n, unit) for n in range(len(own.slots))]
                for r in range(count)
            ]
            masks = [mask] * len(own.slots)
            self._add_up(phase, own, rows, factor, lanes, places, masks)

        def column(d: Value, block: Value, begin: Value, end: Value) -> None:
            height = self._height(phase, len(own.slots))
            self._each_block(e, block, units, lambda mask: self._each_row(
                e, begin, end, inputs, height,
                lambda row, count: tile(d, block, row, count, mask),
            ))  # fmt: skip

        return self._each_share(phase, inputs, conf.blocks(units), column)

    def _of_inputs(self, phase: PhaseFunction, own: _Gradient) -> Phase:
        """Work items are some blocks of units for some blocks of inputs."""
        conf, e, lanes = self._conf, phase.e, self._lanes
        desc = conf.tensors[own.argument]
        inputs, units = desc.dims[2], desc.dims[-1]
        width = most_blocks(conf.blocks(inputs))
        per_row, apart = (conf.parts[name].strides[n] for name, n in
                          ((own.columns, 3), (own.panel, 1)))  # fmt: skip

        def tile(d: Value, group: Value, number: int, mask: Mask, row: Value, count: int) -> None:
            start = e.mul(group, width)
            factor = Factor(
                self._part(phase, own.panel, [d, start, *[i64(0)] * 3]), self._dot(phase), lanes,
                tuple(n * apart for n in range(width)), None,
            )  # fmt: skip
            block, lane = e.divmod(row, lanes)
            pointer = self._slots_of(phase, own, d, block, own.slots[number], lane)
            rows = [e.element(pointer, i64(r), F32) for r in range(count)]
            places = [
                [self._index(own, d, e.mul(e.add(start, i64(n)), lanes), number, e.add(row, i64(r)))
                 for n in range(width)]
                for r in range(count)
            ]  # fmt: skip
            masks = [*[None] * (width - 1), mask]
            self._add_up(phase, own, rows, factor, per_row, places, masks)

        def column(d: Value, group: Value, begin: Value, end: Value) -> None:
            height = self._height(phase, width)
            last = e.add(e.mul(group, width), i64(width - 1))

            def each(mask: Mask) -> None:
                for number in range(len(own.slots)):
                    own_tile = partial(tile, d, group, number, mask)
                    self._each_row(e, begin, end, units, height, own_tile)

            self._each_block(e, last, inputs, each)

        return self._each_share(phase, units, conf.blocks(inputs) // width, column)

    def _pairs_of_units(self, phase: PhaseFunction, own: _Gradient) -> Phase:
        """Rows of inputs by a block of units, all gates at once."""
        conf, e = self._conf, phase.e
        inputs, units = conf.tensors[own.argument].dims[2], conf.tensors[own.argument].dims[-1]
        columns = f"{own.side}_pairs"

        def factor(place: Place) -> Factor:
            index = [i64(place.direction), place.block, *[i64(0)] * 5]
            strides = conf.parts[columns].strides
            beside = tuple(slot * strides[3] for slot in own.slots)
            pointer = self._part(phase, columns, index)
            return Factor(pointer, self._dot(phase), strides[2], beside, None)

        def source(place: Place, row: Value) -> Value:
            return self._part(phase, own.panel, [i64(place.direction), row, i64(0)])

        def at(place: Place, row: Value) -> list[tuple[list[Value], Mask]]:
            unit, d = e.mul(place.block, self._lanes), i64(place.direction)
            return [(self._index(own, d, row, n, unit), place.mask) for n in range(len(own.slots))]

        product = self._of_pairs(phase, own, own.panel, source, at, factor, len(own.slots))
        return self._each_product(phase, units, inputs, product)

    def _pairs_of_inputs(self, phase: PhaseFunction, own: _Gradient, number: int) -> Phase:
        """Rows of units of a gate by some blocks of inputs."""
        conf, e, lanes = self._conf, phase.e, self._lanes
        inputs, units = conf.tensors[own.argument].dims[2], conf.tensors[own.argument].dims[-1]
        width, rows = most_blocks(conf.blocks(inputs)), f"{own.side}_rows"
        before = own.slots[number] * conf.pitch(units)

        def factor(place: Place) -> Factor:
            index = [i64(place.direction), e.mul(place.block, width), *[i64(0)] * 5]
            strides = conf.parts[own.panel].strides
            beside = tuple(n * strides[1] for n in range(width))
            pointer = self._part(phase, own.panel, index)
            return Factor(pointer, self._dot(phase), strides[2], beside, None)

        def source(place: Place, row: Value) -> Value:
            return self._part(phase, rows, [i64(place.direction), e.add(row, i64(before)), i64(0)])

        def at(place: Place, row: Value) -> list[tuple[list[Value], Mask]]:
            first, d = e.mul(place.block, width), i64(place.direction)
            starts = [e.mul(e.add(first, i64(n)), lanes) for n in range(width)]
            masks = [*[None] * (width - 1), place.mask]
            return [
                (self._index(own, d, start, number, row), mask)
                for start, mask in zip(starts, masks, strict=True)
            ]

        product = self._of_pairs(phase, own, rows, source, at, factor, width, width=width)
        return self._each_product(phase, inputs, units, product)

    def _of_pairs(
        self,
        phase: PhaseFunction,
        own: _Gradient,
        part: str,
        source: Callable[[Place, Value], Value],
        at: Callable[[Place, Value], list[tuple[list[Value], Mask]]],
        factor: Callable[[Place], Factor],
        vectors: int,
        *,
        width: int = 1,
    ) -> Product:
        """What adds the products of all terms to a gradient, whose vectors of a row are ``at``."""

        def first(place: Place, row: Value) -> list[Value]:
            return [self._held(phase, own.argument, *each) for each in at(place, row)]

        def finish(place: Place, tile: Tile) -> None:
            for r, values in enumerate(tile):
                row = phase.e.add(place.row, i64(r))
                for (index, mask), value in zip(at(place, row), values, strict=True):
                    self._store(phase, own.argument, index, value, mask)

        weights, terms = own.argument - GRADIENT, self._conf.terms
        return Product(weights, range(vectors), terms, part, source, first, finish, factor, width)

    def _height(self, phase: PhaseFunction, vectors: int) -> int:
        """The rows of a tile, none of which reaches into another block."""
        height = self._lanes
        while height > rows_of_tile(phase.e.isa, vectors):
            height //= 2
        return height

    def _each_share(self, phase: PhaseFunction, rows: int, columns: int, column: _Column) -> Phase:
        """All work items: some blocks of rows for some columns, in one direction. ``column`` has
        the direction, its number, the first row and the one behind the last."""
        e, share = phase.e, _BLOCKS_OF_ITEM * self._lanes
        parts, shares = -(-columns // _COLUMNS_OF_ITEM), -(-rows // share)

        def item(number: Value) -> None:
            rest, part = e.divmod(number, parts)
            d, own = e.divmod(rest, shares)
            begin, start = e.mul(own, share), e.mul(part, _COLUMNS_OF_ITEM)
            end = e.smaller(e.add(begin, i64(share)), i64(rows))
            last = e.smaller(e.add(start, i64(_COLUMNS_OF_ITEM)), i64(columns))
            e.loop(start, last, lambda at: column(d, at, begin, end), unroll=False, name="column")

        count = self._conf.directions * shares * parts
        phase.each_item(count, item)
        return phase.end(count)

    def _slots_of(
        self, phase: PhaseFunction, own: _Gradient, d: Value, block: Value, slot: int, lane: Value
    ) -> Value:
        """The gradients that weights get, of a unit in the first step and row."""
        slots = [] if own.columns == "projected" else [i64(slot)]
        return self._part(phase, own.columns, [d, block, i64(0), i64(0), *slots, lane])

    def _index(self, own: _Gradient, d: Value, row: Value, number: int, unit: Value) -> list[Value]:
        gates = [i64(own.first + number)] if self._conf.tensors[own.argument].ndims > 4 else []
        return [i64(self._layer), d, row, *gates, unit]

    def _add_up(
        self,
        phase: PhaseFunction,
        own: _Gradient,
        rows: Sequence[Value],
        factor: Factor,
        apart: int,
        places: Sequence[Sequence[list[Value]]],
        masks: Sequence[Mask],
    ) -> None:
        """Add the products of all terms to a tile of the gradient."""
        before = [
            [
                self._held(phase, own.argument, at, mask)
                for at, mask in zip(line, masks, strict=True)
            ]
            for line in places
        ]
        terms = self._conf.steps * self._conf.rows
        sums = multiply(phase.e, before, rows, factor, terms, apart=apart)
        for line, values in zip(places, sums, strict=True):
            for at, mask, value in zip(line, masks, values, strict=True):
                self._store(phase, own.argument, at, value, mask)

    def _held(
        self, phase: PhaseFunction, argument: int, index: Sequence[Value], mask: Mask
    ) -> Value:
        """What gradients of weights are added to."""
        if self._conf.overwrites:
            return vector.splat_constant(vector.vector_type(F32, self._lanes), 0)
        return self._load(phase, argument, index, mask)
