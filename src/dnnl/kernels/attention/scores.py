"""Scores of a block of query rows and a block of keys: products, a mask, and causal ends."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import I8, I32, Value, Values, i64
from dnnl.codegen.ir.vector import Mask
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.codegen.product.brgemm import Tile
from dnnl.kernels.attention.problem import AttentionConf, RowBlocks, keys_of_block, tile_height
from dnnl.kernels.attention.rows import Lanes, Rows
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import is_known

Slots: TypeAlias = Mapping[int, tuple[int, MemoryDesc]]
"""The slot and the descriptor of each tensor, by argument."""
_LINE = 64
_FLOAT = 4


class Parts:
    """Parts of a thread's scratch memory, in f32, each aligned to a cache line, behind ``size``
    bytes."""

    def __init__(self, size: int = 0) -> None:
        self.size = size

    def take(self, count: int) -> int:
        """The first byte of a part of so many numbers."""
        begin = self.size
        self.size += -(-count * _FLOAT // _LINE) * _LINE
        return begin


@dataclass(frozen=True)
class Place:
    """A block of query rows of a head: batch, head, the first row, and how many there are."""

    batch: Value
    head: Value
    row: Value
    count: Value


def rows_of(phase: PhaseFunction, slot: int, desc: MemoryDesc, batch: Value, head: Value) -> Rows:
    """The rows of a head of the tensor in a slot, [batch, heads, rows, elements]."""
    e = phase.e
    steps = [0 if own == 1 else step for own, step in zip(desc.dims, desc.strides, strict=True)]
    terms = [e.mul(own, step) for own, step in zip((batch, head), steps, strict=False)]
    start = Rows(phase.arguments[slot], 1, desc.data_type)
    return Rows(start.row(e, e.total(desc.offset0, terms)), steps[2], desc.data_type)


class ScoreWriter:
    """Emits the scores of blocks of ``vectors`` vectors of query rows of a phase."""

    def __init__(
        self,
        conf: AttentionConf,
        phase: PhaseFunction,
        slots: Slots,
        vectors: int,
        keys: int = 0,
        before: int = 0,
        packed: int = 0,
    ) -> None:
        """Blocks of as many keys as are best, or of ``keys``; ``before`` are the bytes of scratch
        memory in front. Where keys are ``packed``, as many make a tile, and are read elsewhere."""
        self.parts = Parts(before)
        self._conf, self.phase, self._slots, self.e = conf, phase, slots, phase.e
        self.lanes = Lanes(self.e, vectors)
        isa = self.e.isa
        self.height = packed or tile_height(conf.keys, isa, vectors)
        self.keys_of_block = keys or keys_of_block(conf.keys, isa, vectors, self.height)
        # The last tile of a block may begin before it, and tiles end behind it: those of scores, of
        # masks, and of products that have a block of scores as rows.
        self._front = self.height
        self._behind = max(self.height + isa.lanes, isa.registers)
        self._queries = self.parts.take(self.pitch(conf.depth) * self.lanes.count)
        self._scores = self.take_block()
        self._mask = self.take_block() if self.has(Arg.SRC_3) else 0
        self._copies: dict[int, int] = {}
        if not packed:
            self.copied(Arg.SRC_1)
        self._base: Value = None

    @property
    def mask(self) -> Value:
        """The address of the mask of a block."""
        return self.part(self._mask)

    def pitch(self, columns: int) -> int:
        """So many columns, in whole vectors."""
        return -(-columns // self.e.isa.lanes) * self.e.isa.lanes

    def take_block(self) -> int:
        """A part for a block of scores."""
        before = self._front * self.lanes.count
        rows = self.keys_of_block + self._behind
        return self.parts.take(before + rows * self.lanes.count) + before * _FLOAT

    def copied(self, argument: int) -> None:
        """Let rows of keys or values be copied by blocks, if they are not f32."""
        desc = self._slots[argument][1]
        if desc.data_type is not DataType.f32:
            pitch = self.pitch(desc.dims[3])
            rows = self._front + self.keys_of_block + self._behind
            begin = self.parts.take(rows * pitch)
            self._copies[argument] = begin + self._front * pitch * _FLOAT

    def begin(self, base: Value) -> None:
        """Set the address of the scratch memory."""
        self._base = base

    def part(self, begin: int) -> Value:
        """The address of a part."""
        return self.e.element(self._base, i64(begin), I8)

    @property
    def queries(self) -> Value:
        """The address of the packed queries."""
        return self.part(self._queries)

    @property
    def scores(self) -> Value:
        """The address of the block of scores: [key, query row]."""
        return self.part(self._scores)

    # Tensors.

    def has(self, argument: int) -> bool:
        """Whether there is such a tensor."""
        return argument in self._slots

    def tensor(self, argument: int, batch: Value, head: Value) -> Rows:
        """The rows of a head of a tensor [batch, heads, rows, elements], broadcast where it has
        one."""
        return rows_of(self.phase, *self._slots[argument], batch, head)

    def of_keys(self, argument: int, place: Place) -> Rows:
        """The rows of keys, or of values, that serve a head."""
        head, _ = self.e.divmod(place.head, self._conf.groups)
        return self.tensor(argument, place.batch, head)

    def in_f32(self, argument: int, place: Place, begin: Value, count: Value) -> Rows:
        """The rows of keys or values from ``begin`` on, in f32; there are those of all tiles."""
        e = self.e
        rows = self.of_keys(argument, place)
        if argument not in self._copies:
            return rows.from_row(e, begin)
        columns = self._slots[argument][1].dims[3]
        copy = Rows(self.part(self._copies[argument]), self.pitch(columns))
        first, end = self._keys_of_tiles(begin, count)
        to = copy.from_row(e, e.b.sub(first, begin))
        self.lanes.copy(rows.from_row(e, first), to, e.b.sub(end, first), columns, 1.0)
        return copy

    def _keys_of_tiles(self, begin: Value, count: Value) -> tuple[Value, Value]:
        """The first key of the tiles of a block, and the one behind the last."""
        e, keys = self.e, self.e.number(self._conf.keys)
        last = e.larger(e.number(self._conf.keys - self.height), i64(0))
        return e.smaller(begin, last), e.smaller(e.total(self.height, [begin, count]), keys)

    # Scores.

    def pack_queries(self, place: Place) -> None:
        """The queries times the scale, with rows in lanes."""
        rows = self.tensor(Arg.SRC_0, place.batch, place.head).from_row(self.e, place.row)
        conf = self._conf
        self.lanes.pack(rows, place.count, conf.depth, self.queries, conf.scale)

    def end(self, place: Place) -> Value:
        """How many keys the block of rows takes."""
        conf, e = self._conf, self.e
        keys = e.number(conf.keys)
        if conf.masking == "none":
            return keys
        last = e.total(conf.offset, [place.row, place.count])
        return e.larger(e.smaller(last, keys), i64(0))

    def each_tile(
        self, place: Place, begin: Value, count: Value, carried: Values,
        body: Callable[[Value, Tile, Values], Values],
    ) -> Values:  # fmt: skip
        """``body(row, tile, carried)`` for all tiles of scores of ``count`` keys from ``begin`` on;
        ``row`` is the first row of the tile in the block of scores. A tile before the first row, or
        behind the last one, has scores too: the last keys have tiles of the same height."""
        conf, e = self._conf, self.e
        if self.has(Arg.SRC_3):
            self.put_mask(place, begin, count)
        mask, keys = self.mask, self.in_f32(Arg.SRC_1, place, begin, count)

        def tiles(height: int) -> Values:
            last = e.number(conf.keys - height)

            def one(at: Value, *carried: Value) -> Values:
                key = e.smaller(e.add(begin, at), last)
                row = e.b.sub(key, begin)
                first = None
                if self.has(Arg.SRC_3):
                    every = (self.lanes.load(mask, e.add(row, i64(r))) for r in range(height))
                    cells = tuple(cell for cells in every for cell in cells)
                    first = Tile(self.lanes.vectors, cells)
                packed, own = self.queries, keys.from_row(e, row)
                tile = self.lanes.scores(own, conf.depth, packed, height, first)
                return body(row, self.causal(place, key, tile), carried)

            return e.loop(i64(0), count, one, carried, step=height, unroll=False, name="tile")

        if is_known(conf.keys):
            return tiles(self.height)
        suffices = e.b.icmp_signed(">=", e.number(conf.keys), i64(self.height))
        return e.branch(suffices, lambda: tiles(self.height), lambda: tiles(1))

    def causal(self, place: Place, key: Value, tile: Tile) -> Tile:
        """The tile without the scores of keys that a row does not take."""
        conf, e = self._conf, self.e
        if conf.masking == "none":
            return tile
        # Row r takes keys up to r + offset.
        first = e.total(conf.offset, [place.row])

        def masked() -> Values:
            least = vector.splat_constant(tile.cells[0].type, float("-inf"))
            ahead = e.b.trunc(e.b.sub(key, first), I32)
            distance = vector.splat(e, ahead, e.isa.lanes)

            def cell(r: int, v: int, value: Value) -> Value:
                rows = vector.numbers(
                    I32, tuple(v * e.isa.lanes + lane - r for lane in range(e.isa.lanes))
                )
                return e.b.select(e.b.icmp_signed(">", distance, rows), least, value)

            return tile.map(cell).cells

        beyond = e.b.icmp_signed(">", e.add(key, i64(tile.rows - 1)), first)
        return Tile(tile.vectors, e.branch(beyond, masked, lambda: tile.cells))

    def put_mask(self, place: Place, begin: Value, count: Value) -> None:
        """The mask of a block, of all keys that tiles have."""
        e = self.e
        mask = self.tensor(Arg.SRC_3, place.batch, place.head)
        _, _, rows, columns = self._slots[Arg.SRC_3][1].dims
        first, end = self._keys_of_tiles(begin, count)
        above = e.b.sub(first, begin)
        if rows == 1 and columns != 1:
            self._put_key_mask(mask, first, end, above)
            return
        start = mask.from_row(e, place.row)

        def read(row: Value, column: Value, present: Mask) -> Value:
            if columns != 1:
                return start.load(e, start.row(e, row), e.add(first, column), present)
            return start.splat(e, start.row(e, row))

        def write(v: int, column: Value, transposed: list[Value]) -> None:
            row = e.add(above, column)
            for number, value in enumerate(transposed):
                vector.store(e, value, self.lanes.at(self.mask, e.add(row, i64(number)), v))

        self.lanes.transpose(read, place.count, e.b.sub(end, first), write)

    def _put_key_mask(self, mask: Rows, first: Value, end: Value, above: Value) -> None:
        """A mask that is the same for all query rows."""
        e = self.e

        def one(key: Value) -> None:
            value = mask.splat(e, mask.element(e, key))
            row = e.add(above, e.b.sub(key, first))
            self.lanes.store((value,) * self.lanes.vectors, self.mask, row)

        e.loop(first, end, one, unroll=False, name="key")


class BlockWriter(ScoreWriter):
    """Emits all that is done with a block of query rows."""

    @abstractmethod
    def write(self, place: Place) -> None:
        """Emit it."""


def each_block(
    conf: AttentionConf,
    phase: PhaseFunction,
    blocks: RowBlocks,
    make: Callable[[int], BlockWriter],
) -> int:
    """Emit all blocks of query rows as work items, by a writer for each number of vectors that a
    block may have. Returns their number."""
    e, lanes = phase.e, phase.e.isa.lanes
    writers = {vectors: make(vectors) for vectors in blocks.sizes}
    base = phase.scratch(max(writer.parts.size for writer in writers.values()))
    for writer in writers.values():
        writer.begin(base)
    heads = conf.query.dims[1]

    def item(number: Value) -> None:
        pair, block = e.divmod(number, blocks.count)
        batch, head = e.divmod(pair, heads)
        before = e.mul(block, blocks.vectors)
        if blocks.longer:
            before = e.add(before, e.smaller(block, i64(blocks.longer)))
        row = e.mul(before, lanes)
        left = e.b.sub(e.number(conf.rows), row)

        def write(sizes: tuple[int, ...]) -> Values:
            vectors, *smaller = sizes
            count = e.smaller(left, i64(vectors * lanes))
            if not smaller:
                writers[vectors].write(Place(batch, head, row, count))
                return ()
            if blocks.longer:
                is_large = e.b.icmp_signed("<", block, i64(blocks.longer))
            else:
                is_large = e.b.icmp_signed(">", left, i64(smaller[0] * lanes))
            return e.branch(is_large, lambda: write((vectors,)), lambda: write(tuple(smaller)))

        write(blocks.sizes)

    count = conf.query.dims[0] * heads * blocks.count
    phase.each_item(count, item)
    return count
