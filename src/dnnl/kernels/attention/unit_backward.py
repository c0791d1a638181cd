"""Gradients of an attention of bf16 on a matrix unit: as `backward`, with all products by tiles.

    keys, values    of each head, in whole K blocks; keys also as pairs of rows

and for each block of 32 query rows and each 32 keys

    scores, weights   keys by queries and values by gradients, which are packed with rows in lanes
    shares, slopes    in lanes, as in f32; rows of bf16
    keys, values      these rows by pairs of rows of queries and of gradients
    queries           slopes, transposed, by pairs of keys: once for all keys of a block

Products are added to sums in f32 by vectors.
"""

from __future__ import annotations

from dnnl.codegen.conversion.convert import storage
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, I16, I32, Module, Value, Values, i64
from dnnl.codegen.ir.kernel import Arguments, Kernel, symbol
from dnnl.codegen.ir.transpose import interleave_registers, transpose_registers
from dnnl.codegen.isa import Isa
from dnnl.codegen.math import f32 as math
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.codegen.product.brgemm import Factors, Level, Tile
from dnnl.codegen.product.tiles import Tiles
from dnnl.kernels.attention.backward import SHARES_BYTES, Gradient, GradientBlock
from dnnl.kernels.attention.packing import Packer, pack_columns, pack_heads
from dnnl.kernels.attention.problem import GROUP, K_BLOCK, UnitGradientConf, keys_of_block
from dnnl.kernels.attention.rows import Rows
from dnnl.kernels.attention.scores import Place, Slots, rows_of
from dnnl.kernels.attention.unit import SHAPE, SQUARE, TILE, VECTORS, configured
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.size import is_known

_HALF = 2


def build(conf: UnitGradientConf, isa: Isa) -> Kernel:
    """Packing of keys and values, and the heads."""
    module, arguments = Module("attention", isa), Arguments()
    slots = {argument: (arguments.slot(argument), own) for argument, own in conf.tensors.items()}
    scratchpad = arguments.slot(Arg.SCRATCHPAD)
    name = symbol("attention_gradient", [conf.query, conf.dst], isa)
    every = [*(slot for slot, _ in slots.values()), scratchpad]
    packing = PhaseFunction(module, name.replace("gradient", "gradient_pack", 1), every)
    jobs = (
        (int(Arg.SRC_1), conf.packed_keys, False),
        (int(Arg.SRC_1), conf.paired_keys, True),
        (int(Arg.SRC_2), conf.packed_values, False),
    )
    packed = pack_heads(conf, packing, slots, scratchpad, jobs)
    phase = PhaseFunction(module, name, every)
    gradient = _UnitGradient(conf, phase, slots, scratchpad)
    return Kernel(module, (packed, gradient.write()), arguments.ids)


class _UnitGradient(Gradient):
    """Emits the phase of the heads."""

    _conf: UnitGradientConf

    def __init__(
        self, conf: UnitGradientConf, phase: PhaseFunction, slots: Slots, scratchpad: int
    ) -> None:
        self._tiles = configured(phase.e)
        super().__init__(conf, phase, slots, scratchpad)

    def keys_of_block(self, isa: Isa) -> int:
        """Whole K blocks."""
        return keys_of_block(self._conf.keys, isa, VECTORS, K_BLOCK, SHARES_BYTES)

    def value_columns(self, isa: Isa) -> int:
        """Whole squares."""
        return self._conf.packed_values.dims[3]

    def rest_sizes(self, isa: Isa) -> tuple[int, ...]:
        """All blocks of rows have the same code."""
        rows = self._conf.rows
        return () if is_known(rows) and rows % SQUARE == 0 else (VECTORS,)

    def make(
        self, phase: PhaseFunction, slots: Slots, vectors: int, before: int, scratchpad: int
    ) -> GradientBlock:
        """What writes blocks of rows."""
        conf = self._conf
        return _UnitBlock(conf, phase, slots, self._keys, before, scratchpad, self._tiles)

    def finish(self) -> None:
        """Return the unit."""
        self._tiles.release()


class _UnitBlock(GradientBlock):
    """Emits what a block of query rows and one of keys add to all gradients."""

    _conf: UnitGradientConf

    def __init__(
        self,
        conf: UnitGradientConf,
        phase: PhaseFunction,
        slots: Slots,
        keys: int,
        before: int,
        scratchpad: int,
        tiles: Tiles,
    ) -> None:
        super().__init__(conf, phase, slots, VECTORS, keys, before, scratchpad, packed=SQUARE)
        self._tiles = tiles
        depth, width = conf.packed_keys.dims[3], conf.packed_values.dims[3]
        self._paired_queries = self._take(SQUARE, depth)
        self._paired_gradients = self._take(SQUARE, width)
        self._share_rows, self._slope_rows = (self._take(K_BLOCK, SQUARE) for _ in range(2))
        self._slope_columns = self._take(SQUARE, keys)
        self._square, self._weights = (self.parts.take(SQUARE * SQUARE) for _ in range(2))

    def _take(self, rows: int, columns: int) -> int:
        """A part of rows of bf16."""
        return self.parts.take(rows * columns // _HALF)

    def clear(self) -> None:
        """Tiles read nothing that a block has not written."""

    def write(
        self, place: Place, key: Value, count: Value, key_sums: Rows, value_sums: Rows
    ) -> None:
        """Add to the sums of the gradients of ``count`` keys and values from ``key`` on, and to
        those of the queries."""
        conf, e = self._conf, self.e
        self._pack(place)
        if self.has(Arg.SRC_3):
            self.put_mask(place, key, count)
        numbers = self.part_of(conf.numbers, place.batch, place.head)
        logarithms, products = (
            numbers.vectors(e, i64(n), place.row, VECTORS) for n in range(GROUP)
        )
        head, _ = e.divmod(place.head, conf.groups)
        keys, pairs, values = (
            rows_of(self.phase, self.scratchpad, desc, place.batch, head)
            for desc in (conf.packed_keys, conf.paired_keys, conf.packed_values)
        )
        in_pairs = (
            (self._share_rows, self._paired_gradients, conf.packed_values.dims[3], value_sums),
            (self._slope_rows, self._paired_queries, conf.packed_keys.dims[3], key_sums),
        )

        def square(row: Value) -> None:
            first = e.add(key, row)
            for source, packed, to in (
                (keys, self.queries, self._square),
                (values, self.part(self.gradients), self._weights),
            ):
                self._multiply_columns(source.from_row(e, first), packed, self.part(to))

            def one(number: Value) -> None:
                self._put_row(place, key, count, e.add(row, number), number, logarithms, products)

            e.loop(i64(0), i64(K_BLOCK), one, unroll=False, name="key")
            self._transpose_slopes(row)
            for rows, packed_rows, columns, sums in in_pairs:
                left = Rows(self.part(rows), SQUARE, DataType.bf16)
                right = Rows(self.part(packed_rows), GROUP * columns, DataType.bf16)
                self._add(left, right, columns, i64(1), sums.from_row(e, row))

        e.loop(i64(0), count, square, step=K_BLOCK, unroll=False, name="square")
        slopes = Rows(self.part(self._slope_columns), self.keys_of_block, DataType.bf16)
        half, _ = e.divmod(key, GROUP)
        blocks, _ = e.divmod(e.add(count, i64(K_BLOCK - 1)), K_BLOCK)
        sums = self.part_of(conf.sums, place.batch, place.head).from_row(e, place.row)
        self._add(slopes, pairs.from_row(e, half), conf.sums.dims[3], blocks, sums)

    def _pack(self, place: Place) -> None:
        """Queries and gradients, with rows in lanes and as pairs of rows."""
        conf, e = self._conf, self.e
        for argument, columns, in_lanes, in_pairs, pitch in (
            (Arg.SRC_0, conf.depth, self.queries, self._paired_queries,
             conf.packed_keys.dims[3]),
            (Arg.DIFF_DST, conf.width, self.part(self.gradients), self._paired_gradients,
             conf.packed_values.dims[3]),
        ):  # fmt: skip
            rows = self.tensor(argument, place.batch, place.head).from_row(e, place.row)
            pack_columns(self.lanes, rows, place.count, columns, in_lanes)
            packer, to = Packer(e, rows, place.count, columns), self.part(in_pairs)
            for number in range(SQUARE // GROUP):
                at = e.element(to, i64(number * GROUP * pitch), I16)
                packer.pair(i64(number), at, pitch)

    def _multiply_columns(self, rows: Rows, packed: Value, to: Value) -> None:
        """A square of products of rows with what is packed with rows in lanes."""
        tiles, pitch = self._tiles, GROUP * SQUARE
        factors = Factors(
            rows.pointer, packed, tuple(r * rows.stride for r in range(SQUARE)), (0, GROUP * TILE),
            tiles.multiply,
        )  # fmt: skip
        levels = [
            Level.over(rows.stride // K_BLOCK, K_BLOCK, K_BLOCK // GROUP * pitch),
            Level.over(K_BLOCK // GROUP, GROUP, pitch),
        ]
        tiles.begin(SHAPE)
        tiles.accumulate(SHAPE, factors, levels)
        tiles.store(SHAPE, to)

    def _put_row(
        self,
        place: Place,
        key: Value,
        count: Value,
        row: Value,
        number: Value,
        logarithms: Values,
        products: Values,
    ) -> None:
        """The shares and the slopes of a key as rows of bf16; zeros behind the last key."""
        e, conf, lanes = self.e, self._conf, self.lanes
        scale = vector.splat_constant(logarithms[0].type, conf.scale)
        none = vector.splat_constant(logarithms[0].type, float("-inf"))
        cells = tuple(e.b.fmul(own, scale) for own in lanes.load(self.part(self._square), number))
        if self.has(Arg.SRC_3):
            added = lanes.load(self.mask, row)
            cells = tuple(e.b.fadd(*pair) for pair in zip(cells, added, strict=True))
        cells = self.causal(place, e.add(key, row), Tile(VECTORS, cells)).cells
        present = e.b.icmp_signed("<", row, count)
        weights = lanes.load(self.part(self._weights), number)
        narrow = storage(DataType.bf16)
        for v, (cell, logarithm, weight, product) in enumerate(
            zip(cells, logarithms, weights, products, strict=True)
        ):
            own = e.b.select(present, cell, none)
            share = math.exp_of_negative(e, e.b.fsub(own, logarithm))
            slope = e.b.fmul(share, e.b.fsub(weight, product))
            at = e.add(e.mul(number, SQUARE), i64(v * TILE))
            for value, rows in ((share, self._share_rows), (slope, self._slope_rows)):
                vector.store(e, narrow.from_core(e, value), e.element(self.part(rows), at, I16))

    def _transpose_slopes(self, row: Value) -> None:
        """The slopes of a K block, as columns of the rows of queries."""
        e, kind = self.e, vector.vector_type(I16, SQUARE)
        packed = vector.vector_type(I32, TILE)
        halves: list[list[Value]] = [[] for _ in range(VECTORS)]
        for number in range(0, K_BLOCK, GROUP):
            pair = [
                vector.load(
                    e, e.element(self.part(self._slope_rows), i64((number + n) * SQUARE), I16), kind
                )
                for n in range(GROUP)
            ]
            for half, own in zip(halves, interleave_registers(e, pair), strict=True):
                half.append(e.b.bitcast(own, packed))
        for v, half in enumerate(halves):
            for lane, own in enumerate(transpose_registers(e, half)):
                at = e.add(row, i64((v * TILE + lane) * self.keys_of_block))
                vector.store(e, own, e.element(self.part(self._slope_columns), at, I16))

    def _add(self, rows: Rows, pairs: Rows, columns: int, blocks: Value, sums: Rows) -> None:
        """Add the products of 32 rows of so many K blocks with pairs of rows to sums."""
        e, tiles = self.e, self._tiles
        levels = [
            Level(i64(0), blocks, K_BLOCK, K_BLOCK // GROUP * pairs.stride),
            Level.over(K_BLOCK // GROUP, GROUP, pairs.stride),
        ]
        products = self.part(self._square)

        def square(column: Value) -> None:
            factors = Factors(
                rows.pointer, e.element(pairs.pointer, e.mul(column, GROUP), I16),
                tuple(r * rows.stride for r in range(SQUARE)), (0, GROUP * TILE), tiles.multiply,
            )  # fmt: skip
            tiles.begin(SHAPE)
            tiles.accumulate(SHAPE, factors, levels)
            tiles.store(SHAPE, products)

            def row(number: Value) -> None:
                start = sums.row(e, number)
                for v, own in enumerate(self.lanes.load(products, number)):
                    at = e.element(start, e.add(column, i64(v * TILE)), F32)
                    total = e.b.fadd(vector.load(e, at, own.type), own)
                    vector.store(e, total, at)

            e.loop(i64(0), i64(SQUARE), row, unroll=False, name="row")

        e.loop(i64(0), i64(columns), square, step=SQUARE, unroll=False, name="square")
