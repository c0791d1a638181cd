"""Attention of bf16 on a matrix unit: as `forward`, with both products by tiles of 16 x 16.

    keys       of each head, in whole K blocks, zeros behind them
    values     pairs of rows side by side, zeros behind them

and for each block of 32 query rows

    pack       pairs of elements of queries, with rows in lanes
    scores     16 keys by 16 rows, to scratch memory
    shares     in lanes, as in f32; then pairs of keys are transposed to rows
    sums       16 rows by 16 columns, added to those before
"""

from __future__ import annotations

from math import inf

from dnnl.codegen.conversion.convert import storage
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, I16, I32, Emitter, Module, Value, Values, i64
from dnnl.codegen.ir.kernel import Arguments, Kernel, symbol
from dnnl.codegen.ir.transpose import transpose_registers
from dnnl.codegen.isa import Isa
from dnnl.codegen.math import f32 as math
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.codegen.product.brgemm import Factors, Level, Tile
from dnnl.codegen.product.multiply import multiply
from dnnl.codegen.product.tiles import Shape, Tiles
from dnnl.kernels.attention.forward import Forward
from dnnl.kernels.attention.packing import pack_columns, pack_heads
from dnnl.kernels.attention.problem import GROUP, K_BLOCK, RowBlocks, UnitConf
from dnnl.kernels.attention.scores import Place, Slots, each_block, rows_of
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType

VECTORS = 2
TILE = 16
"""The rows of a tile, and its columns of f32."""
SQUARE = 2 * TILE
"""The rows and columns that are multiplied at once."""
SHAPE = Shape((TILE, TILE), VECTORS, K_BLOCK // GROUP)
_BYTES = 2


def configured(e: Emitter) -> Tiles:
    """The unit, whose tiles are whole."""
    dot = multiply(e.isa, DataType.bf16, DataType.bf16, tiled=True)
    assert dot is not None, "only where there is a unit"
    tiles = Tiles(e, dot)
    tiles.configure(SHAPE)
    return tiles


def build(conf: UnitConf, isa: Isa) -> Kernel:
    """Packing of keys and values, and the blocks of rows."""
    module, arguments = Module("attention", isa), Arguments()
    slots = {argument: (arguments.slot(argument), own) for argument, own in conf.tensors.items()}
    scratchpad = arguments.slot(Arg.SCRATCHPAD)
    name = symbol("attention", [conf.query, conf.dst], isa)
    every = [*(slot for slot, _ in slots.values()), scratchpad]
    packing = PhaseFunction(module, name.replace("attention", "attention_pack", 1), every)
    jobs = (
        (int(Arg.SRC_1), conf.packed_keys, False),
        (int(Arg.SRC_2), conf.packed_values, True),
    )
    packed = pack_heads(conf, packing, slots, scratchpad, jobs)
    phase = PhaseFunction(module, name, every)
    tiles = configured(phase.e)
    blocks = RowBlocks.of_vectors(conf.rows, isa, VECTORS)
    writer = _UnitForward(conf, phase, slots, scratchpad, tiles)
    count = each_block(conf, phase, blocks, lambda _: writer)
    tiles.release()
    return Kernel(module, (packed, phase.end(count)), arguments.ids)


class _UnitForward(Forward):
    """Emits a block of query rows."""

    _conf: UnitConf

    def __init__(
        self, conf: UnitConf, phase: PhaseFunction, slots: Slots, scratchpad: int, tiles: Tiles
    ) -> None:
        super().__init__(conf, phase, slots, VECTORS, packed=SQUARE)
        self._scratchpad, self._tiles = scratchpad, tiles
        self._shares = self.parts.take(self.lanes.count * self.keys_of_block * _BYTES // 4)

    @property
    def sums_pitch(self) -> int:
        """Sums are squares, one for each SQUARE columns."""
        return self._conf.packed_values.dims[3] // GROUP

    def sum_at(self, row: Value, column: Value) -> Value:
        """The address of a vector of sums."""
        e = self.e
        square, own = e.divmod(column, SQUARE)
        terms = [e.mul(square, SQUARE * SQUARE), e.mul(row, SQUARE), own]
        return e.element(self.sums, e.total(0, terms), F32)

    def pack_queries(self, place: Place) -> None:
        """Pairs of elements, with rows in lanes."""
        queries = self.tensor(Arg.SRC_0, place.batch, place.head).from_row(self.e, place.row)
        pack_columns(self.lanes, queries, place.count, self._conf.depth, self.queries)

    def block(self, place: Place, begin: Value, peaks: Values, totals: Values) -> Values:
        """A block of keys; the largest scores of the rows, and the sums of the shares."""
        e, conf = self.e, self._conf
        count = e.smaller(i64(self.keys_of_block), e.b.sub(self.end(place), begin))
        blocks, _ = e.divmod(e.add(count, i64(K_BLOCK - 1)), K_BLOCK)
        whole = e.mul(blocks, K_BLOCK)
        self._multiply_keys(place, begin, whole)
        if self.has(Arg.SRC_3):
            self.put_mask(place, begin, count)
        scale = vector.splat_constant(peaks[0].type, conf.scale)

        def score(row: Value, *found: Value) -> Values:
            cells = tuple(e.b.fmul(own, scale) for own in self.lanes.load(self.scores, row))
            if self.has(Arg.SRC_3):
                added = self.lanes.load(self.mask, row)
                cells = tuple(e.b.fadd(*pair) for pair in zip(cells, added, strict=True))
            cells = self.causal(place, e.add(begin, row), Tile(VECTORS, cells)).cells
            self.lanes.store(cells, self.scores, row)
            return tuple(vector.maximum(e, *pair) for pair in zip(cells, found, strict=True))

        grown = e.loop(i64(0), count, score, peaks, unroll=False, name="key")
        none = vector.splat_constant(peaks[0].type, -inf)
        e.loop(
            count, whole, lambda row: self.lanes.store((none,) * VECTORS, self.scores, row),
            unroll=False, name="none",
        )  # fmt: skip
        first = self.put_factors(peaks, grown, totals)
        found = e.loop(
            i64(0), whole, lambda key, *sums: self._share(key, grown, sums), first,
            step=K_BLOCK, unroll=False, name="key",
        )  # fmt: skip
        self._multiply_values(place, begin, blocks)
        return (*grown, *found)

    def _multiply_keys(self, place: Place, begin: Value, whole: Value) -> None:
        """The products of keys and queries, in f32."""
        e, tiles = self.e, self._tiles
        head, _ = e.divmod(place.head, self._conf.groups)
        desc = self._conf.packed_keys
        keys = rows_of(self.phase, self._scratchpad, desc, place.batch, head).from_row(e, begin)
        pitch = GROUP * self.lanes.count
        levels = [
            Level.over(desc.dims[3] // K_BLOCK, K_BLOCK, K_BLOCK // GROUP * pitch),
            Level.over(K_BLOCK // GROUP, GROUP, pitch),
        ]

        def square(row: Value) -> None:
            factors = Factors(
                keys.row(e, row), self.queries,
                tuple(r * keys.stride for r in range(SQUARE)), (0, GROUP * TILE), tiles.multiply,
            )  # fmt: skip
            tiles.begin(SHAPE)
            tiles.accumulate(SHAPE, factors, levels)
            tiles.store(SHAPE, self.lanes.at(self.scores, row))

        e.loop(i64(0), whole, square, step=SQUARE, unroll=False, name="square")

    def _share(self, key: Value, peaks: Values, sums: Values) -> Values:
        """The shares of a K block of keys, as rows of bf16; the sums with them added."""
        e, narrow = self.e, storage(DataType.bf16)
        wide = vector.vector_type(I32, TILE)
        half = vector.splat_constant(wide, 8 * _BYTES)
        totals = list(sums)
        for v in range(VECTORS):
            pairs = []
            for number in range(0, K_BLOCK, GROUP):
                codes = []
                for n in range(GROUP):
                    at = self.lanes.at(self.scores, e.add(key, i64(number + n)), v)
                    score = vector.load(e, at, peaks[v].type)
                    share = math.exp_of_negative(e, e.b.fsub(score, peaks[v]))
                    totals[v] = e.b.fadd(totals[v], share)
                    codes.append(e.b.zext(narrow.from_core(e, share), wide))
                pairs.append(e.b.or_(codes[0], e.b.shl(codes[1], half)))
            for lane, row in enumerate(transpose_registers(e, pairs)):
                at = e.add(key, i64((v * TILE + lane) * self.keys_of_block))
                vector.store(e, row, e.element(self.part(self._shares), at, I16))
        return tuple(totals)

    def _multiply_values(self, place: Place, begin: Value, blocks: Value) -> None:
        """Add the products of shares and values to the sums, times their factors."""
        e, tiles, desc = self.e, self._tiles, self._conf.packed_values
        head, _ = e.divmod(place.head, self._conf.groups)
        first, _ = e.divmod(begin, GROUP)
        rows = rows_of(self.phase, self._scratchpad, desc, place.batch, head).from_row(e, first)
        levels = [
            Level(i64(0), blocks, K_BLOCK, K_BLOCK // GROUP * rows.stride),
            Level.over(K_BLOCK // GROUP, GROUP, rows.stride),
        ]

        def square(column: Value) -> None:
            sums = self.sum_at(i64(0), column)

            def row(number: Value) -> None:
                factor = self.factor(number)
                for v in range(VECTORS):
                    at = self.sum_at(number, e.add(column, i64(v * TILE)))
                    before = vector.load(e, at, factor.type)
                    vector.store(e, e.b.fmul(before, factor), at)

            e.loop(i64(0), i64(SQUARE), row, unroll=False, name="row")
            values = e.element(rows.pointer, e.mul(column, GROUP), I16)
            factors = Factors(
                self.part(self._shares), values,
                tuple(r * self.keys_of_block for r in range(SQUARE)), (0, GROUP * TILE),
                tiles.multiply,
            )  # fmt: skip
            tiles.load(SHAPE, sums)
            tiles.accumulate(SHAPE, factors, levels)
            tiles.store(SHAPE, sums)

        e.loop(i64(0), i64(self.sums_pitch), square, step=SQUARE, unroll=False, name="square")
