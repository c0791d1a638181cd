"""Work items: a block of units in one direction, for some rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, I1, I8, I32, Emitter, Value, Values, i64
from dnnl.codegen.ir.vector import Mask
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.kernels.rnn.byte_pairs import BytePairs, joined
from dnnl.kernels.rnn.memory import SUMS, Place, Product
from dnnl.kernels.rnn.problem import rows_of_tile
from dnnl.kernels.rnn.product import Ahead, Factor, Tile, multiply, widened
from dnnl.kernels.rnn.unit import UnitProduct
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import is_known, typical

_ROWS_OF_ITEM = 48
"""Rows that a work item does at most, so that large batches have more items than blocks."""
_ROWS_OF_CHUNKS = 64
"""The same on the matrix unit, which multiplies 32 at once."""
MOST_TILES = 16
"""Tiles of rows that prefetch weights: those of more tiles wait for a small part of their time."""
_CONVERSIONS = 8
"""Instructions that tiles of a work item would take to convert a vector of narrow weights, from
which on it becomes f32 once for all of them."""
_ROWS = 4
"""Rows that a tile has at most for each such instruction: with more, they take a small part."""
_ROWS_OF_CELLS = 4
"""Rows whose cells are computed together behind the unit."""


class LayerTiles(BytePairs):
    """Writes the loops of a phase: over work items, their rows, and tiles of these."""

    # Tiles.

    def _each_product(
        self, phase: PhaseFunction, channels: int, rows: int, product: Product
    ) -> Phase:
        """All work items of a product."""
        e, gates = phase.e, product.gates
        blocks = self._conf.operands.k_blocks(product.inputs)
        if self._conf.operands.unit:
            return self._each_chunk(phase, channels, rows, product)

        parts = self._parts_of_row
        height = rows_of_tile(e.isa, parts * len(gates))
        size = self._panel_bytes(e, rows, height, product)
        panel = phase.scratch(size) if size else None
        beside = self._sums_beside(product, rows, height)

        def item(place: Place) -> Callable[[Place], None]:
            factor = self._factor_of(phase, product, place)
            own = factor if panel is None else widened(e, factor, blocks, panel)
            columns = () if beside else self._columns(phase, place, product, factor)
            return partial(write, factor, own, columns)

        def write(factor: Factor, own: Factor, columns: Sequence[Value], place: Place) -> None:
            every = [e.add(place.row, i64(r)) for r in range(place.rows)]
            first = [one for row in every
                     for one in self._before(phase, place, product, row, columns)]  # fmt: skip
            first += [[factor.multiply.zero(e)] * len(gates)] * beside
            sources = self._sources(e, product, [product.source(place, row) for row in every])
            count = blocks * factor.multiply.group // own.multiply.group
            ahead = self._next_block(phase, place, product, factor, rows, height, count)
            number: int | Value = count
            if product.nothing is not None:
                number = e.b.select(product.nothing, i64(0), i64(count))
            tile = multiply(e, first, sources, own, number, ahead=ahead)
            if beside:
                tile, columns = self._compensated(e, tile[:-1], tile[-1]), tile[-1]
            product.finish(
                place,
                [
                    self._behind(
                        phase, place, product, row, tile[r * parts : (r + 1) * parts], columns
                    )
                    for r, row in enumerate(every)
                ],
            )

        return self._each_tile(
            phase, channels, rows, parts * len(gates), item,
            width=product.width, joined=product.joined,
        )  # fmt: skip

    def _sums_beside(self, product: Product, rows: int, height: int) -> bool:
        """Whether a tile makes the sums of the columns itself, as a row more: one that has all
        rows, and registers for another."""
        conf = self._conf
        own = conf.compensates and not conf.sums_apart(product.weights)
        alone = is_known(rows) and rows < height and product.nothing is None
        return own and alone and not conf.operands.byte_pairs

    def _compensated(self, e: Emitter, tile: Tile, columns: Sequence[Value]) -> Tile:
        """Sums of integers without what the shift has too much."""
        factor = vector.splat_constant(columns[0].type, round(self._conf.shift))
        less = [e.b.mul(own, factor) for own in columns]
        return [[e.b.sub(*own) for own in zip(row, less, strict=True)] for row in tile]

    def _panel_bytes(self, e: Emitter, rows: int, height: int, product: Product) -> int:
        """The bytes of the weights of a block of units in f32, where tiles of a ``height`` would
        convert them again and again, and the second-level cache holds a block. Else 0."""
        operands, desc = self._conf.operands, self._tensors[product.weights][1]
        kind = operands.weights if self._conf.packs(desc) else desc.data_type
        if operands.data is not DataType.f32 or kind is DataType.f32:
            return 0
        inputs = operands.block * operands.k_blocks(product.inputs)
        size = inputs * len(product.gates) * self._lanes * DataType.f32.size
        instructions = 1 if operands.widens else 2
        tiles = -(-rows // height) if is_known(rows) else 0
        worthwhile = tiles * instructions >= _CONVERSIONS and height <= _ROWS * instructions
        return size if worthwhile and size <= e.isa.caches.l2 // 2 else 0

    def _next_block(
        self,
        phase: PhaseFunction,
        place: Place,
        product: Product,
        factor: Factor,
        rows: int,
        height: int,
        steps: int,
    ) -> Ahead | None:
        """The share of a tile of so many ``steps`` in the weights of the next block of units, where
        these come from beyond the second-level cache: tiles of a block do not wait for the first
        one then."""
        e, desc = phase.e, self._tensors[product.weights][1]
        whole = len(factor.gates) * self._lanes * factor.multiply.group
        beside = product.factor is None and factor.per_block == whole
        few = is_known(rows) and height < rows <= MOST_TILES * height
        if not (beside and few and self._is_far(e, desc)):
            return None
        blocks = self._conf.operands.k_blocks(product.inputs)
        size = whole * factor.multiply.b.bits // 8 * blocks
        share = -(-size // (steps * -(-rows // height)))
        tile, _ = e.divmod(place.row, height)
        behind = e.add(i64(size), e.mul(tile, share * steps))
        return Ahead(factor.pointer, share).behind(e, behind)

    @staticmethod
    def _is_far(e: Emitter, weights: MemoryDesc) -> bool:
        """Whether the second-level cache does not hold weights from step to step."""
        return typical(weights.size) > e.isa.caches.l2 // 2

    def _factor_of(self, phase: PhaseFunction, product: Product, place: Place) -> Factor:
        """What is multiplied with operands."""
        if product.factor is not None:
            return product.factor(place)
        return self._factor(phase, product.weights, place, product.gates)

    def _each_chunk(
        self, phase: PhaseFunction, channels: int, rows: int, product: Product
    ) -> Phase:
        """All work items of a product on the matrix unit."""
        conf, e, gates = self._conf, phase.e, product.gates
        dot = conf.operands.multiply(e.isa, conf.operands.weights)
        parts = self._parts_of_row
        unit = UnitProduct(e, dot, len(gates), parts * rows)
        add = e.b.add if dot.is_integer else e.b.fadd
        buffer = phase.scratch(unit.scratch)
        blocks = conf.operands.k_blocks(product.inputs)
        pitch, chunk = conf.parts[product.part].strides[-2] // parts, unit.chunk // parts

        def some(place: Place, first: Value, end: Value) -> None:
            """A chunk, and what becomes of it."""
            here = replace(place, row=first)
            factor = self._factor_of(phase, product, here)
            columns = self._columns(phase, here, product, factor)
            source, count = product.source(here, first), e.mul(e.b.sub(end, first), parts)

            def compute() -> None:
                unit.compute(source, pitch, factor, blocks, count, buffer)

            if product.nothing is None:
                compute()
            else:
                self._either(e, product.nothing, lambda: unit.clear(buffer), compute)

            def finish(row: Value, count: int) -> None:
                tile: Tile = []
                own = replace(here, row=row, rows=count)
                for r in range(count):
                    at = e.add(row, i64(r))
                    start = e.mul(e.b.sub(at, first), parts)
                    sums = [unit.sums(buffer, e.add(start, i64(n))) for n in range(parts)]
                    before = self._before(phase, own, product, at, columns)
                    totals = [
                        [add(one, other) for one, other in zip(*part, strict=True)]
                        for part in zip(before, sums, strict=True)
                    ]
                    tile.append(self._behind(phase, own, product, at, totals, columns))
                product.finish(own, tile)

            self._each_row(e, first, end, rows, _ROWS_OF_CELLS, finish)

        def item(place: Place, begin: Value, end: Value) -> None:
            e.loop(
                begin, end,
                lambda first: some(place, first, e.smaller(e.add(first, i64(chunk)), end)),
                step=chunk, unroll=False, name="chunk",
            )  # fmt: skip

        unit.configure()
        count = self._each_item(
            phase, channels, rows, _ROWS_OF_CHUNKS, item,
            width=product.width, joined=product.joined,
        )  # fmt: skip
        unit.release()
        return phase.end(count)

    def _columns(
        self, phase: PhaseFunction, place: Place, product: Product, factor: Factor
    ) -> Sequence[Value]:
        """The sums of the columns of weights, for each gate, where products are compensated: those
        of a phase before, or of a work item."""
        conf, e = self._conf, phase.e
        if not conf.compensates:
            return ()
        if not conf.sums_apart(product.weights):
            return self._column_sums(e, factor, product.inputs)
        kind, found = vector.vector_type(I32, self._lanes), list[Value]()
        for gate in product.gates:
            index = [i64(place.direction), place.block, i64(gate), i64(0)]
            found.append(vector.load(e, self._part(phase, SUMS[product.weights], index), kind))
        return found

    def _column_sums(self, e: Emitter, factor: Factor, inputs: int) -> Sequence[Value]:
        """The sums of the columns of the weights of a block of units."""
        operands, dot = self._conf.operands, factor.multiply

        def block(number: Value, *totals: Value) -> Values:
            start = e.element(factor.pointer, e.mul(number, factor.per_block), I8)
            apart = self._lanes * operands.group

            def group(number: Value, *totals: Value) -> Values:
                columns = factor.columns(e, e.element(start, e.mul(number, apart), I8))
                pairs = zip(columns, totals, strict=True)
                return tuple(dot.add(e, dot.ones(e), own, total) for own, total in pairs)

            return tuple(e.loop(i64(0), i64(operands.groups), group, totals, unroll=False))

        zeros = (dot.zero(e),) * len(factor.gates)
        return e.loop(i64(0), i64(operands.k_blocks(inputs)), block, zeros, unroll=False)

    def _before(
        self,
        phase: PhaseFunction,
        place: Place,
        product: Product,
        row: Value,
        columns: Sequence[Value],
    ) -> Tile:
        """What the sums of a row are added to, or of each byte of its pairs: of integers, what a
        shift of theirs has too much; nothing where scales multiply them."""
        conf, e = self._conf, phase.e
        if not conf.operands.is_integer:
            if Arg.SCALES | product.weights not in self._tensors:
                return [product.first(place, row)]
            zero = vector.splat_constant(vector.vector_type(F32, self._lanes), 0)
            return [[zero] * len(product.gates)]
        zero = vector.splat_constant(vector.vector_type(I32, self._lanes), 0)
        first = [zero] * len(product.gates)
        if columns:
            factor = vector.splat_constant(zero.type, -round(conf.shift))
            first = [e.b.mul(own, factor) for own in columns]
        return [first] * self._parts_of_row

    def _behind(
        self,
        phase: PhaseFunction,
        place: Place,
        product: Product,
        row: Value,
        sums: Tile,
        columns: Sequence[Value],
    ) -> list[Value]:
        """The sums of a row in f32: of integers, by what these stand for."""
        conf, e = self._conf, phase.e
        if conf.operands.byte_pairs:
            return self._behind_pairs(phase, place, product, row, joined(e, *sums))
        (own_sums,) = sums
        if not conf.operands.is_integer:
            scales = self._parameters(phase, Arg.SCALES | product.weights, place, product.gates)
            if not scales:
                return own_sums
            return self._scaled(phase, place, product, row, own_sums, scales)
        kind, part = vector.vector_type(F32, self._lanes), conf.shift - round(conf.shift)
        totals = [e.b.sitofp(own, kind) for own in own_sums]
        if part:
            less = vector.splat_constant(kind, -part)
            totals = [
                vector.multiply_add(e, e.b.sitofp(own, kind), less, total)
                for own, total in zip(columns, totals, strict=True)
            ]
        scales = self._weights_scales(phase, place, product)
        return self._scaled(phase, place, product, row, totals, scales)

    def _behind_pairs(
        self, phase: PhaseFunction, place: Place, product: Product, row: Value, totals: list[Value]
    ) -> list[Value]:
        """The sums of a row of byte pairs, by the scales of the row and of the weights. What zero
        points and the shift of weights have too much is a multiple of the sum of the row."""
        e, start, weights = phase.e, product.source(place, row), product.weights
        zeros = self._parameters(phase, Arg.ZERO_POINTS | weights, place, product.gates)
        shift = self._conf.operands.multiply(e.isa, self._tensors[weights][1].data_type).shift
        if shift:
            more = vector.splat_constant(vector.vector_type(F32, self._lanes), shift)
            zeros = [e.b.fadd(own, more) for own in zeros] or [more] * len(totals)
        if zeros:
            less = e.b.fneg(self._row_sum(e, product, start))
            both = zip(zeros, totals, strict=True)
            totals = [vector.multiply_add(e, zero, less, total) for zero, total in both]
        scales = [self._row_scale(e, product, start)] * len(totals)
        of_weights = self._parameters(phase, Arg.SCALES | weights, place, product.gates)
        if of_weights:
            scales = [e.b.fmul(*own) for own in zip(scales, of_weights, strict=True)]
        return self._scaled(phase, place, product, row, totals, scales)

    @staticmethod
    def _scaled(
        phase: PhaseFunction,
        place: Place,
        product: Product,
        row: Value,
        sums: list[Value],
        scales: list[Value],
    ) -> list[Value]:
        """Sums by the scales of their gates, added to what is first."""
        return [
            vector.multiply_add(phase.e, total, scale, first)
            for total, scale, first in zip(sums, scales, product.first(place, row), strict=True)
        ]

    def _each_tile(
        self,
        phase: PhaseFunction,
        channels: int,
        rows: int,
        vectors: int,
        item: Callable[[Place], Callable[[Place], None]],
        *,
        width: int = 1,
        joined: bool = False,
    ) -> Phase:
        """All work items, by tiles whose rows are so many vectors: ``item`` begins a work item, and
        gives what writes its tiles."""
        height = rows_of_tile(phase.e.isa, vectors)
        most = max(1, min(rows, _ROWS_OF_ITEM)) if is_known(rows) else _ROWS_OF_ITEM
        share = -(-most // height) * height

        def some(place: Place, begin: Value, end: Value) -> None:
            write = item(place)

            def tile(row: Value, count: int) -> None:
                write(replace(place, row=row, rows=count))

            self._each_row(phase.e, begin, end, rows, height, tile)

        return phase.end(
            self._each_item(phase, channels, rows, share, some, width=width, joined=joined)
        )

    def _each_item(
        self,
        phase: PhaseFunction,
        channels: int,
        rows: int,
        share: int,
        write: Callable[[Place, Value, Value], None],
        *,
        width: int = 1,
        joined: bool = False,
    ) -> int:
        """All work items, each ``width`` blocks of units in one direction for ``share`` rows from a
        first to the one behind the last; the mask is that of the last block. Where directions are
        ``joined``, there is one item for both, which has the direction 0. Returns their number."""
        e, conf = phase.e, self._conf
        blocks, parts = conf.blocks(channels) // width, -(-rows // share)

        def item(number: Value) -> None:
            rest, part = e.divmod(number, parts)
            direction, block = e.divmod(rest, blocks)
            begin = e.mul(part, share)
            end = e.smaller(e.add(begin, i64(share)), e.number(rows))
            last = e.add(e.mul(block, width), i64(width - 1))

            def of(d: int) -> None:
                self._each_block(
                    e, last, channels,
                    lambda mask: write(Place(d, block, begin, 0, mask), begin, end),
                )  # fmt: skip

            if joined:
                of(0)
            else:
                self._each_direction(e, direction, of)

        count = (1 if joined else conf.directions) * blocks * parts
        phase.each_item(count, item)
        return count

    def _each_direction(self, e: Emitter, number: Value, body: Callable[[int], None]) -> None:
        if self._conf.directions == 1:
            body(0)
            return
        self._either(e, e.b.icmp_signed("==", number, i64(0)), lambda: body(0), lambda: body(1))

    def _each_block(
        self, e: Emitter, block: Value, channels: int, body: Callable[[Mask], None]
    ) -> None:
        """The last block may have fewer units."""
        rest, blocks = channels % self._lanes, self._conf.blocks(channels)
        if not rest:
            body(None)
            return
        mask = vector.known_lanes([lane < rest for lane in range(self._lanes)])
        if blocks == 1:
            body(mask)
            return
        last = e.b.icmp_signed("==", block, i64(blocks - 1))
        if e.isa.masked_bytes:  # what takes a mask is as fast, and one body is half the code
            body(e.b.select(last, mask, vector.numbers(I1, (1,) * self._lanes)))
            return
        self._either(e, last, lambda: body(mask), lambda: body(None))

    @staticmethod
    def _either(
        e: Emitter, condition: Value, yes: Callable[[], object], no: Callable[[], object]
    ) -> None:
        def of(body: Callable[[], object]) -> Callable[[], tuple[Value, ...]]:
            def run() -> tuple[Value, ...]:
                body()
                return ()

            return run

        e.branch(condition, of(yes), of(no))

    def _each_row(
        self,
        e: Emitter,
        begin: Value,
        end: Value,
        rows: int,
        height: int,
        body: Callable[[Value, int], None],
    ) -> None:
        """Tiles of ``height`` rows, and one of what is left of all rows."""
        if not is_known(rows):
            self._each_row_of_any(e, begin, end, height, body)
            return
        rest = rows % height
        whole = e.smaller(end, i64(rows - rest)) if rest else end
        if rows >= height:
            e.loop(begin, whole, lambda row: body(row, height), step=height, unroll=False, name="m")
        if not rest:
            return
        if rows < height:
            body(begin, rest)
            return
        last = e.b.icmp_signed("==", end, i64(rows))
        self._either(e, last, lambda: body(i64(rows - rest), rest), lambda: None)

    def _each_row_of_any(
        self, e: Emitter, begin: Value, end: Value, height: int, body: Callable[[Value, int], None]
    ) -> None:
        """Where only executions know the rows, what is left has a tile of its own height, since
        weights are read again for each tile."""
        _, left = e.divmod(e.b.sub(end, begin), height)
        whole = e.b.sub(end, left)
        e.loop(begin, whole, lambda row: body(row, height), step=height, unroll=False, name="m")
        for count in range(1, height):
            has_so_many = e.b.icmp_signed("==", left, i64(count))
            self._either(e, has_so_many, partial(body, whole, count), lambda: None)
