"""The gradients of weights: products of inputs and of the gradients of gates, over all steps.

Terms are steps and rows. Vectors are along the axis of the gradient that is contiguous, rows of a
tile along the other one; both factors are read from one term to the next::

    ldigo            rows: inputs    vectors: units, of all gates
    ldgoi            rows: units     vectors: inputs, of some blocks; gate by gate
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, Emitter, Value, i64
from dnnl.codegen.ir.vector import Mask
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.kernels.rnn.gradient_problem import most_blocks
from dnnl.kernels.rnn.memory import Place, Product
from dnnl.kernels.rnn.panels import Panels
from dnnl.kernels.rnn.problem import along_units, rows_of_tile
from dnnl.kernels.rnn.product import Factor, Tile, multiply
from dnnl.runtime.image import Phase
from dnnl.types.arg import GRADIENT, Arg
from dnnl.types.dtype import DataType
from dnnl.types.size import is_known, surely_at_most, typical

_BLOCKS_OF_ITEM = 4
_BLOCKS_OF_MANY_TERMS = 16
"""Blocks of rows of a work item: more of them where panels of other terms replace those in the
caches."""
_MOST_COLUMNS = 8
"""Columns of a work item: lines of one row of the gradient follow each other."""
_LEAST_TERMS = 64
_PART_OF_PANEL = 8
"""The part of the second-level cache that the terms of a column take that are multiplied at a
time."""
_PART_OF_PANELS = 4
"""The part that those of all columns of an item take."""


@dataclass(frozen=True)
class _Terms:
    """Terms that are multiplied at a time: the ``first`` one, None if they are all, and how many;
    ``begins`` is whether there are none before."""

    first: Value | None
    count: int | Value
    begins: Value | None

    def start(self, e: Emitter, pointer: Value, apart: int) -> Value:
        """The address of the first one, ``apart`` elements from one to the next."""
        if self.first is None:
            return pointer
        return e.element(pointer, e.mul(self.first, apart), F32)


_Write = Callable[[Value, Value, Value, int, _Terms], None]


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
        units = conf.tensors[own.argument].dims[-1]
        per_row = conf.parts[own.columns].strides[3]
        every_gate = range(len(own.slots))
        # Four gates of two rows would leave registers empty.
        width = len(own.slots) if rows_of_tile(e.isa, len(own.slots)) > 2 else 2
        parts = [every_gate[at : at + width] for at in every_gate[::width]]

        def write(d: Value, block: Value, row: Value, count: int, terms: _Terms) -> None:
            first = self._slots_of(phase, own, d, block, 0, i64(0))
            pointer = terms.start(e, first, per_row)
            every = [e.add(row, i64(r)) for r in range(count)]
            places = [e.divmod(each, lanes) for each in every]
            rows = [
                terms.start(e, self._part(phase, own.panel, [d, at, i64(0), i64(0), lane]), lanes)
                for at, lane in places
            ]
            unit = e.mul(block, lanes)

            def each(mask: Mask) -> None:
                for gates in parts:
                    beside = tuple(own.slots[n] * lanes for n in gates)
                    factor = Factor(pointer, self._dot(phase), per_row, beside, None)
                    to = [[self._index(own, d, row, n, unit) for n in gates] for row in every]
                    self._add_up(phase, own, rows, factor, lanes, to, [mask] * len(gates), terms)

            self._each_block(e, block, units, each)

        return self._each_share(phase, own, conf.blocks(units), width, write)

    def _of_inputs(self, phase: PhaseFunction, own: _Gradient) -> Phase:
        """Work items are some blocks of units for some blocks of inputs."""
        conf, e, lanes = self._conf, phase.e, self._lanes
        inputs = conf.tensors[own.argument].dims[2]
        width = most_blocks(conf.blocks(inputs), lanes)
        per_row, apart = (conf.parts[name].strides[n] for name, n in
                          ((own.columns, 3), (own.panel, 1)))  # fmt: skip

        def write(d: Value, group: Value, row: Value, count: int, terms: _Terms) -> None:
            start = e.mul(group, width)
            first = self._part(phase, own.panel, [d, start, *[i64(0)] * 3])
            factor = Factor(
                terms.start(e, first, lanes), self._dot(phase), lanes,
                tuple(n * apart for n in range(width)), None,
            )  # fmt: skip
            every = [e.add(row, i64(r)) for r in range(count)]
            places = [e.divmod(each, lanes) for each in every]
            blocks = [e.mul(e.add(start, i64(n)), lanes) for n in range(width)]

            def each(mask: Mask) -> None:
                masks = [*[None] * (width - 1), mask]
                for number, slot in enumerate(own.slots):
                    rows = [
                        terms.start(e, self._slots_of(phase, own, d, at, slot, lane), per_row)
                        for at, lane in places
                    ]
                    to = [[self._index(own, d, n, number, unit) for n in blocks] for unit in every]
                    self._add_up(phase, own, rows, factor, per_row, to, masks, terms)

            self._each_block(e, e.add(start, i64(width - 1)), inputs, each)

        return self._each_share(phase, own, conf.blocks(inputs) // width, width, write)

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
        width, rows = most_blocks(conf.blocks(inputs), lanes), f"{own.side}_rows"
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

    def _each_share(
        self, phase: PhaseFunction, own: _Gradient, columns: int, vectors: int, write: _Write
    ) -> Phase:
        """All work items: some blocks of rows for some columns of so many ``vectors``, in one
        direction. ``write`` has the direction, the number of a column, the first row of a tile,
        its rows and its terms."""
        e, l2, desc = phase.e, phase.e.isa.caches.l2, self._conf.tensors[own.argument]
        rows = desc.dims[2] if along_units(desc) else desc.dims[-1]
        total = self._conf.steps * self._conf.rows
        terms, term = typical(total), vectors * self._lanes * 4
        most = max(_LEAST_TERMS, l2 // _PART_OF_PANEL // term)
        if desc.data_type is not DataType.f32:  # sums of parts would be rounded
            most = total
        at_once, height = min(typical(most), terms), rows_of_tile(e.isa, vectors)
        blocks = _BLOCKS_OF_MANY_TERMS if terms > at_once else _BLOCKS_OF_ITEM
        share = -(-blocks * self._lanes // height) * height
        some = max(1, min(_MOST_COLUMNS, l2 // _PART_OF_PANELS // (term * max(1, at_once))))
        parts, shares = -(-columns // some), -(-rows // share)

        def item(number: Value) -> None:
            rest, part = e.divmod(number, parts)
            d, number_of_share = e.divmod(rest, shares)
            begin, start = e.mul(number_of_share, share), e.mul(part, some)
            end = e.smaller(e.add(begin, i64(share)), i64(rows))
            last = e.smaller(e.add(start, i64(some)), i64(columns))

            def of(terms: _Terms) -> None:
                def tiles(row: Value, count: int) -> None:
                    def one(column: Value) -> None:
                        write(d, column, row, count, terms)

                    e.loop(start, last, one, unroll=False, name="column")

                self._each_row(e, begin, end, rows, height, tiles)

            self._each_terms(e, most, of)

        count = self._conf.directions * shares * parts
        phase.each_item(count, item)
        return phase.end(count)

    def _each_terms(self, e: Emitter, most: int, of: Callable[[_Terms], None]) -> None:
        """All terms, at most so many at a time: panels of them stay in the caches. ``of`` is called
        for no terms too, since gradients may overwrite."""
        total = self._conf.steps * self._conf.rows
        if surely_at_most(total, most):
            of(_Terms(None, total, None))
            return
        step = most
        if is_known(total):  # of the same size
            step = -(-total // -(-total // most))
        end = e.number(total)

        def some(first: Value) -> None:
            count = e.smaller(i64(step), e.b.sub(end, first))
            of(_Terms(first, count, e.b.icmp_signed("==", first, i64(0))))

        e.loop(i64(0), e.larger(end, i64(1)), some, step=step, unroll=False, name="terms")

    def _slots_of(
        self, phase: PhaseFunction, own: _Gradient, d: Value, block: Value, slot: int, lane: Value
    ) -> Value:
        """The gradients that weights get, of a unit in the first step and row."""
        slots = [] if own.columns == "projected" else [i64(slot)]
        return self._part(phase, own.columns, [d, block, i64(0), i64(0), *slots, lane])

    def _index(self, own: _Gradient, d: Value, row: Value, number: int, unit: Value) -> list[Value]:
        place = i64(self._conf.place_of(own.first + number))
        gates = [place] if self._conf.tensors[own.argument].ndims > 4 else []
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
        terms: _Terms,
    ) -> None:
        """Add the products of terms to a tile of the gradient."""
        before = [
            [
                self._held(phase, own.argument, at, mask, terms.begins)
                for at, mask in zip(line, masks, strict=True)
            ]
            for line in places
        ]
        sums = multiply(phase.e, before, rows, factor, terms.count, apart=apart)
        for line, values in zip(places, sums, strict=True):
            for at, mask, value in zip(line, masks, values, strict=True):
                self._store(phase, own.argument, at, value, mask)

    def _held(
        self,
        phase: PhaseFunction,
        argument: int,
        index: Sequence[Value],
        mask: Mask,
        begins: Value | None = None,
    ) -> Value:
        """What gradients of weights are added to: where they overwrite, and this ``begins`` them,
        zeros."""
        zero = vector.splat_constant(vector.vector_type(F32, self._lanes), 0)
        if self._conf.overwrites and begins is None:
            return zero
        before = self._load(phase, argument, index, mask)
        return phase.e.b.select(begins, zero, before) if self._conf.overwrites else before
