"""Attention: a work item is a block of query rows of a head, whose scores stay in its caches.

    pack       the queries, times the scale, with rows in lanes
    for each block of keys
        scores   keys by packed queries, on top of the mask; the largest of each row
        shares   exponentials of the distances from the largest score so far, and their sum
        sums     those before, times what the largest score has grown by, plus shares by values
    result     the sums by the sum of the shares

With a causal mask a block of rows ends its keys early.
"""

from __future__ import annotations

from math import nan

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, Module, Value, Values, i64
from dnnl.codegen.ir.kernel import Arguments, Kernel, symbol
from dnnl.codegen.ir.vector import Mask
from dnnl.codegen.isa import Isa
from dnnl.codegen.math import f32 as math
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.codegen.product.brgemm import Tile
from dnnl.kernels.attention.problem import AttentionConf, RowBlocks
from dnnl.kernels.attention.rows import Rows
from dnnl.kernels.attention.scores import BlockWriter, Place, Slots, each_block
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.size import is_known

_LEAST = -float(DataType.f32.max)
"""What the largest score of no key is: finite, since inf - inf is no number."""

_FEW = 4
"""Rows of the last block that are multiplied without the others of a vector, where only an
execution knows how many there are."""


def build(conf: AttentionConf, isa: Isa) -> Kernel:
    """One phase."""
    module, arguments = Module("attention", isa), Arguments()
    slots = {argument: (arguments.slot(argument), own) for argument, own in conf.tensors.items()}
    name = symbol("attention", [conf.query, conf.key, conf.value, conf.dst], isa)
    phase = PhaseFunction(module, name, [slot for slot, _ in slots.values()])
    blocks = RowBlocks.of(conf.rows, isa)
    count = each_block(conf, phase, blocks, lambda vectors: Forward(conf, phase, slots, vectors))
    return Kernel(module, (phase.end(count),), arguments.ids)


class Forward(BlockWriter):
    """Emits a block of query rows."""

    def __init__(
        self, conf: AttentionConf, phase: PhaseFunction, slots: Slots, vectors: int, packed: int = 0
    ) -> None:
        super().__init__(conf, phase, slots, vectors, packed=packed)
        self._sums = self.parts.take(self.lanes.count * self.sums_pitch)
        self._factors = self.parts.take(self.lanes.count)
        self._zeros = vector.splat_constant(vector.vector_type(F32, phase.e.isa.lanes), 0)

    @property
    def sums_pitch(self) -> int:
        """The columns of the sums."""
        return self.pitch(self._conf.width)

    @property
    def sums(self) -> Value:
        """The address of the sums."""
        return self.part(self._sums)

    def sum_at(self, row: Value, column: Value) -> Value:
        """The address of a vector of sums."""
        e = self.e
        return e.element(self.sums, e.add(e.mul(row, self.sums_pitch), column), F32)

    def factor(self, row: Value) -> Value:
        """What the sums of a row are to be multiplied by, in all lanes."""
        factors = Rows(self.part(self._factors), 0)
        return factors.splat(self.e, factors.element(self.e, row))

    def write(self, place: Place) -> None:
        """All of a block."""
        e, vectors = self.e, self.lanes.vectors
        self.pack_queries(place)
        self.lanes.clear(self.sums, self.lanes.count * self.sums_pitch)
        least = vector.splat_constant(self._zeros.type, _LEAST)
        first = (*[least] * vectors, *[self._zeros] * vectors)

        def block(begin: Value, *state: Value) -> Values:
            return self.block(place, begin, state[:vectors], state[vectors:])

        end = self.end(place)
        step = self.keys_of_block
        state = e.loop(i64(0), end, block, first, step=step, unroll=False, name="keys")
        self._finish(place, state[:vectors], state[vectors:])

    def block(self, place: Place, begin: Value, peaks: Values, totals: Values) -> Values:
        """A block of keys; the largest scores of the rows, and the sums of the shares."""
        e, lanes = self.e, self.lanes
        count = e.smaller(i64(self.keys_of_block), e.b.sub(self.end(place), begin))

        def tile(row: Value, tile: Tile, found: Values) -> Values:
            tile.store(e, lanes.at(self.scores, row))
            for number in range(tile.rows):
                pairs = zip(tile.row(number), found, strict=True)
                found = tuple(vector.maximum(e, *pair) for pair in pairs)
            return found

        grown = self.each_tile(place, begin, count, peaks, tile)

        def key(row: Value, *sums: Value) -> Values:
            scores = zip(lanes.load(self.scores, row), grown, strict=True)
            shares = tuple(math.exp_of_negative(e, e.b.fsub(*pair)) for pair in scores)
            lanes.store(shares, self.scores, row)
            return tuple(e.b.fadd(*pair) for pair in zip(sums, shares, strict=True))

        first = self.put_factors(peaks, grown, totals)
        totals = e.loop(i64(0), count, key, first, unroll=False, name="key")
        self._add(place, begin, count)
        return (*grown, *totals)

    def put_factors(self, peaks: Values, grown: Values, totals: Values) -> Values:
        """Store the factors of the sums before a block, in which the largest scores have grown;
        the sums of shares, times theirs."""
        e = self.e
        changes = (e.b.fsub(*pair) for pair in zip(peaks, grown, strict=True))
        factors = tuple(math.exp_of_negative(e, change) for change in changes)
        self.lanes.store(factors, self.part(self._factors))
        return tuple(e.b.fmul(*pair) for pair in zip(totals, factors, strict=True))

    def _add(self, place: Place, begin: Value, count: Value) -> None:
        """Add the products of a block of shares with values."""
        e, lanes, width = self.e, self.lanes, self._conf.width
        values = self.of_keys(Arg.SRC_2, place).from_row(e, begin)
        sums = Rows(self.sums, self.sums_pitch)

        def first(row: Value, column: Value, height: int, vectors: int) -> Tile:
            cells: Values = ()
            for number in range(height):
                at = e.add(row, i64(number))
                factor = self.factor(at)
                before = sums.vectors(e, at, column, vectors)
                cells += tuple(e.b.fmul(own, factor) for own in before)
            return Tile(vectors, cells)

        def finish(row: Value, column: Value, tile: Tile, _: Mask) -> None:
            for number in range(tile.rows):
                sums.put(e, e.add(row, i64(number)), column, tile.row(number))

        def add(rows: int) -> Values:
            steps = 1, lanes.count
            lanes.each_product(self.scores, steps, rows, values, width, count, first, finish)
            return ()

        rows = self._conf.rows
        if is_known(rows):
            add(min(rows, lanes.count))
        elif lanes.vectors > 1:
            add(lanes.count)
        else:
            are_few = e.b.icmp_signed("<=", place.count, i64(_FEW))
            e.branch(are_few, lambda: add(_FEW), lambda: add(lanes.count))

    def _finish(self, place: Place, peaks: Values, totals: Values) -> None:
        """The results, and the logarithms of the sums."""
        e, conf, lanes = self.e, self._conf, self.lanes
        one = vector.splat_constant(self._zeros.type, 1)
        without = self._zeros
        if conf.undefined:  # the sum of no values is 0
            undefined = vector.splat_constant(self._zeros.type, nan)
            is_some = e.b.icmp_signed(">", e.number(conf.keys), i64(0))
            without = e.b.select(is_some, undefined, self._zeros)

        def inverse(total: Value) -> Value:
            none = e.b.fcmp_ordered("==", total, self._zeros)
            return e.b.select(none, without, e.b.fdiv(one, total))

        lanes.store(tuple(map(inverse, totals)), self.part(self._factors))
        if self.has(Arg.DST_1):
            self._store_logarithms(place, peaks, totals)
        dst = self.tensor(Arg.DST, place.batch, place.head).from_row(e, place.row)

        def row(number: Value) -> None:
            factor, to = self.factor(number), dst.row(e, number)

            def column(at: Value, mask: Mask) -> None:
                total = vector.load(e, self.sum_at(number, at), factor.type)
                dst.store(e, to, at, e.b.fmul(total, factor), mask)

            lanes.each_vector(conf.width, column)

        e.loop(i64(0), place.count, row, unroll=False, name="row")

    def _store_logarithms(self, place: Place, peaks: Values, totals: Values) -> None:
        e, isa = self.e, self.e.isa
        rows = self.tensor(Arg.DST_1, place.batch, place.head)
        for v, (peak, total) in enumerate(zip(peaks, totals, strict=True)):
            value = e.b.fadd(peak, math.log(e, total))
            left = e.b.sub(place.count, i64(v * isa.lanes))
            at = e.add(place.row, i64(v * isa.lanes))
            mask = vector.first_lanes(e, left, isa.lanes)
            rows.store(e, rows.pointer, at, value, mask)
