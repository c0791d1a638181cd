"""The gradients of an attention: a work item is a head of keys, with the queries that it serves.

    rows       of each query row the logarithm of its sum, and its result times its gradient
    for each block of keys, each head of queries, each block of rows
        pack       queries and gradients of results, with rows in lanes
        shares     exponentials of the scores less the logarithm
        slopes     shares times what values by gradients of results exceed the row's number by
        values     shares by gradients of results are added to the gradients of values
        keys       slopes by queries are added to the gradients of keys
        queries    slopes by keys are added to the gradients of queries
    result     gradients of keys and values of each block, of queries at the end

Sums over blocks are f32: those of keys and values in scratch memory, those of queries in the
scratchpad. Scores are computed again, so that no memory grows with queries times keys.
"""

from __future__ import annotations

from math import inf

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, Emitter, Module, Value, Values, i64
from dnnl.codegen.ir.horizontal import reduce_lanes
from dnnl.codegen.ir.kernel import Arguments, Kernel, symbol
from dnnl.codegen.ir.vector import Mask
from dnnl.codegen.isa import Isa
from dnnl.codegen.math import f32 as math
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.codegen.product.brgemm import Tile
from dnnl.kernels.attention.problem import GradientConf, halves, keys_of_block, tile_height
from dnnl.kernels.attention.rows import Rows
from dnnl.kernels.attention.scores import Parts, Place, ScoreWriter, Slots, rows_of
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import is_known

SHARES_BYTES = 32 * 2**10
"""The bytes of a block of shares; one of slopes is as large."""
_FLOAT = 4


def build(conf: GradientConf, isa: Isa) -> Kernel:
    """One phase."""
    module, arguments = Module("attention", isa), Arguments()
    slots = {argument: (arguments.slot(argument), own) for argument, own in conf.tensors.items()}
    scratchpad = arguments.slot(Arg.SCRATCHPAD)
    name = symbol("attention_gradient", [conf.query, conf.key, conf.value, conf.dst], isa)
    phase = PhaseFunction(module, name, [*(slot for slot, _ in slots.values()), scratchpad])
    return Kernel(module, (Gradient(conf, phase, slots, scratchpad).write(),), arguments.ids)


class Gradient:
    """Emits the phase."""

    def __init__(
        self, conf: GradientConf, phase: PhaseFunction, slots: Slots, scratchpad: int
    ) -> None:
        self._conf, self._phase, self.e = conf, phase, phase.e
        isa, parts = phase.e.isa, Parts()
        self._keys = self.keys_of_block(isa)
        self._block = conf.vectors * isa.lanes
        columns = conf.sums.dims[3]
        self._key_sums = self._take(parts, columns)
        self._value_sums = self._take(parts, self.value_columns(isa))
        self._sums_size = parts.size
        self._sizes = self.rest_sizes(isa)
        self._writers = {
            vectors: self.make(phase, slots, vectors, parts.size, scratchpad)
            for vectors in {conf.vectors, *self._sizes}
        }
        self._main = self._writers[conf.vectors]
        self._base = phase.scratch(max(own.parts.size for own in self._writers.values()))
        for writer in self._writers.values():
            writer.begin(self._base)
        self._lanes = self._main.lanes

    def keys_of_block(self, isa: Isa) -> int:
        """The keys of a block."""
        conf = self._conf
        height = tile_height(conf.keys, isa, conf.vectors)
        return keys_of_block(conf.keys, isa, conf.vectors, height, SHARES_BYTES)

    def value_columns(self, isa: Isa) -> int:
        """The columns of sums of gradients of values, whole vectors."""
        return -(-self._conf.width // isa.lanes) * isa.lanes

    def rest_sizes(self, isa: Isa) -> tuple[int, ...]:
        """The vectors that the last block of rows may have, the largest first; none where all are
        whole."""
        conf = self._conf
        if not is_known(conf.rows):
            return halves(conf.vectors)
        rest = conf.rows % self._block
        return (-(-rest // isa.lanes),) if rest else ()

    def make(
        self, phase: PhaseFunction, slots: Slots, vectors: int, before: int, scratchpad: int
    ) -> GradientBlock:
        """What writes blocks of so many vectors, with so many bytes of scratch memory in front."""
        return GradientBlock(self._conf, phase, slots, vectors, self._keys, before, scratchpad)

    def _take(self, parts: Parts, pitch: int) -> tuple[int, int]:
        """The first byte and the pitch of a part for the gradients of a block of keys, behind which
        the last tile may have more."""
        return parts.take((self._keys + self.e.isa.registers) * pitch), pitch

    def write(self) -> Phase:
        """All work items."""
        conf, e, groups = self._conf, self.e, self._conf.groups
        served = conf.key.dims[1]

        def item(number: Value) -> None:
            batch, head = e.divmod(number, served)
            for writer in self._writers.values():
                writer.clear()
            first = e.mul(head, groups)
            end = e.add(first, e.number(groups))
            e.loop(first, end, lambda own: self._begin(batch, own), unroll=False, name="head")

            def block(key: Value) -> None:
                self._block_of_keys(batch, head, first, end, key)

            keys = e.number(conf.keys)
            e.loop(i64(0), keys, block, step=self._keys, unroll=False, name="keys")
            e.loop(first, end, lambda own: self._end(batch, own), unroll=False, name="head")

        count = conf.query.dims[0] * served
        self._phase.each_item(count, item)
        self.finish()
        return self._phase.end(count)

    def finish(self) -> None:
        """Emit what is done behind all items."""

    def _begin(self, batch: Value, head: Value) -> None:
        """The numbers of the rows of a head, and no gradients yet."""
        conf, e, lanes = self._conf, self.e, self.e.isa.lanes
        own = self._main.part_of(conf.sums, batch, head)
        zero = vector.splat_constant(vector.vector_type(F32, lanes), 0)
        _, _, rows, pitch = conf.sums.dims
        self._lanes.clear(own.pointer, rows * pitch)
        numbers = self._main.part_of(conf.numbers, batch, head)
        logsum = self._main.tensor(Arg.DST_1, batch, head)
        infinite = vector.splat_constant(zero.type, inf)
        products = numbers.row(e, i64(1))

        def logarithm(at: Value) -> None:
            present = vector.first_lanes(e, e.b.sub(e.number(conf.rows), at), lanes)
            value = logsum.load(e, logsum.pointer, at, present)
            # Rows without keys, and rows that are none, have no shares.
            finite = e.b.and_(present, e.b.fcmp_unordered(">", value, e.b.fneg(infinite)))
            numbers.store(e, numbers.pointer, at, e.b.select(finite, value, infinite), None)
            numbers.store(e, products, at, zero, None)

        e.loop(i64(0), e.number(rows), logarithm, step=lanes, unroll=False, name="row")
        pair = [self._main.tensor(arg, batch, head) for arg in (Arg.DST, Arg.DIFF_DST)]

        def product(row: Value) -> None:
            starts = [tensor.row(e, row) for tensor in pair]

            def add(at: Value, mask: Mask, total: Value) -> Value:
                one, other = (
                    tensor.load(e, start, at, mask)
                    for tensor, start in zip(pair, starts, strict=True)
                )
                return vector.multiply_add(e, one, other, total)

            total = self._lanes.fold(conf.width, add, zero)
            (total,) = reduce_lanes(e, (total,), _added)
            # The result of a row without keys may be NaN.
            value = e.b.load(e.element(numbers.pointer, row, F32), typ=F32, align=_FLOAT)
            none = e.b.fcmp_ordered("==", value, F32(inf))
            product = e.b.select(none, F32(0.0), vector.lane(e, total, 0))
            e.b.store(product, e.element(products, row, F32), align=_FLOAT)

        e.loop(i64(0), e.number(conf.rows), product, unroll=False, name="row")

    def _block_of_keys(
        self, batch: Value, head: Value, first: Value, end: Value, key: Value
    ) -> None:
        """The gradients of a block of keys and of its values, and what they add to queries."""
        conf, e = self._conf, self.e
        count = e.smaller(i64(self._keys), e.b.sub(e.number(conf.keys), key))
        sums = [self._sums_at(*own) for own in (self._key_sums, self._value_sums)]
        self._lanes.clear(self._base, self._sums_size // _FLOAT)

        def each(own: Value) -> None:
            self._each_row_block(batch, own, key, count, sums)

        e.loop(first, end, each, unroll=False, name="head")
        for rows, argument, columns, factor in (
            (sums[0], Arg.DIFF_SRC_1, conf.depth, conf.scale),
            (sums[1], Arg.DIFF_SRC_2, conf.width, 1.0),
        ):
            result = self._main.tensor(argument, batch, head).from_row(e, key)
            self._lanes.copy(rows, result, count, columns, factor)

    def _each_row_block(
        self, batch: Value, head: Value, key: Value, count: Value, sums: list[Rows]
    ) -> None:
        """All blocks of query rows that take one of the keys."""
        conf, e = self._conf, self.e
        whole = conf.rows // self._block
        begin = i64(0)
        if conf.masking != "none":
            row = e.larger(e.b.sub(key, e.number(conf.offset)), i64(0))
            begin, _ = e.divmod(row, self._block)

        def block(number: Value) -> None:
            place = Place(batch, head, e.mul(number, self._block), i64(self._block))
            self._main.write(place, key, count, *sums)

        e.loop(begin, e.number(whole), block, unroll=False, name="block")
        first = e.mul(e.number(whole), self._block)
        left = e.b.sub(e.number(conf.rows), first)

        def rest(sizes: tuple[int, ...]) -> Values:
            vectors, *smaller = sizes
            if not smaller:
                self._writers[vectors].write(Place(batch, head, first, left), key, count, *sums)
                return ()
            most = i64(smaller[0] * e.isa.lanes)
            is_large = e.b.icmp_signed(">", left, most)
            return e.branch(is_large, lambda: rest((vectors,)), lambda: rest(tuple(smaller)))

        if is_known(conf.rows):
            if self._sizes:
                rest(self._sizes)
        else:
            some = e.b.icmp_signed(">", left, i64(0))
            e.branch(some, lambda: rest(self._sizes), lambda: ())

    def _sums_at(self, begin: int, pitch: int) -> Rows:
        return Rows(self._main.part(begin), pitch)

    def _end(self, batch: Value, head: Value) -> None:
        """The gradients of the queries of a head."""
        conf = self._conf
        sums = self._main.part_of(conf.sums, batch, head)
        result = self._main.tensor(Arg.DIFF_SRC_0, batch, head)
        self._lanes.copy(sums, result, self.e.number(conf.rows), conf.depth, conf.scale)


class GradientBlock(ScoreWriter):
    """Emits what a block of query rows and one of keys add to all gradients."""

    _conf: GradientConf

    def __init__(
        self,
        conf: GradientConf,
        phase: PhaseFunction,
        slots: Slots,
        vectors: int,
        keys: int,
        before: int,
        scratchpad: int,
        packed: int = 0,
    ) -> None:
        super().__init__(conf, phase, slots, vectors, keys, before, packed=packed)
        self.scratchpad = scratchpad
        self.gradients = self.parts.take(self.pitch(conf.width) * self.lanes.count)
        self.slopes = self.take_block()
        if not packed:
            self.copied(Arg.SRC_2)

    def clear(self) -> None:
        """No shares and slopes: tiles read rows behind the last key, where denormal numbers would
        cost as much as all others."""
        for part in (self.part(begin) for begin in (self._scores, self.slopes)):
            rows = self.keys_of_block + self._behind
            self.lanes.clear(part, rows * self.lanes.count)

    def part_of(self, desc: MemoryDesc, batch: Value, head: Value) -> Rows:
        """The rows of a head of a part of the scratchpad."""
        return rows_of(self.phase, self.scratchpad, desc, batch, head)

    def write(
        self, place: Place, key: Value, count: Value, key_sums: Rows, value_sums: Rows
    ) -> None:
        """Add to the sums of the gradients of ``count`` keys and values from ``key`` on, and to
        those of the queries."""
        conf, e, lanes = self._conf, self.e, self.lanes
        queries = self.tensor(Arg.SRC_0, place.batch, place.head).from_row(e, place.row)
        gradients = self.tensor(Arg.DIFF_DST, place.batch, place.head).from_row(e, place.row)
        self.pack_queries(place)
        lanes.pack(gradients, place.count, conf.width, self.part(self.gradients), 1.0)
        slopes = self.part(self.slopes)
        self._put_shares(place, key, count, slopes)
        by_key = lanes.count, 1
        added = lanes.add_product
        added(self.scores, by_key, count, gradients, conf.width, place.count, value_sums)
        added(slopes, by_key, count, queries, conf.depth, place.count, key_sums)
        keys = self.of_keys(Arg.SRC_1, place).from_row(e, key)
        sums = self.part_of(conf.sums, place.batch, place.head).from_row(e, place.row)
        added(slopes, (1, lanes.count), lanes.count, keys, conf.depth, count, sums)

    def _put_shares(self, place: Place, key: Value, count: Value, slopes: Value) -> None:
        """The shares, where the scores were, and the slopes."""
        conf, e, lanes = self._conf, self.e, self.lanes
        numbers = self.part_of(conf.numbers, place.batch, place.head)
        pair = (numbers.vectors(e, i64(n), place.row, lanes.vectors) for n in range(2))
        logarithms, products = pair
        values = self.in_f32(Arg.SRC_2, place, key, count)

        def tile(row: Value, scores: Tile, _: Values) -> Values:
            shares = scores.map(
                lambda _r, v, own: math.exp_of_negative(e, e.b.fsub(own, logarithms[v]))
            )
            shares.store(e, lanes.at(self.scores, row))
            own = values.from_row(e, row)
            found = lanes.scores(own, conf.width, self.part(self.gradients), scores.rows)
            for number in range(scores.rows):
                at = e.add(row, i64(number))
                before = lanes.load(self.scores, at)
                triples = zip(before, found.row(number), products, strict=True)
                slope = tuple(
                    e.b.fmul(share, e.b.fsub(weight, product)) for share, weight, product in triples
                )
                lanes.store(slope, slopes, at)
            return ()

        self.each_tile(place, key, count, (), tile)


def _added(e: Emitter, one: Values, other: Values) -> Values:
    return (e.b.fadd(one[0], other[0]),)
