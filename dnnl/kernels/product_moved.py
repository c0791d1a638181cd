"""Panels of words out of weights that lie in rows or columns.

A word has 32 bits: an f32, two bf16 or four bytes, of neighbours along K. In columns they lie as
they are wanted, so that squares of them are turned in registers; of rows, as many as a word has
elements are put side by side::

    row 0   | a0 a1 a2 a3 |
    row 1   | b0 b1 b2 b3 |   ->   | a0 b0 | a1 b1 | a2 b2 | a3 b3 |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dnnl.codegen import vector
from dnnl.codegen.access import Env, Operand
from dnnl.codegen.address import Affine, Axis
from dnnl.codegen.builder import I8, I16, I32, Emitter, Value, Values, i64
from dnnl.codegen.epilogue import Arguments
from dnnl.codegen.isa import Isa
from dnnl.codegen.multiply import Multiply
from dnnl.codegen.pairs import Pairs
from dnnl.kernels.product_made import IndexOf, Made, Making, Room, Writer, in_one_stream
from dnnl.kernels.product_problem import Panels, Shape
from dnnl.kernels.scratchpad import Argument
from dnnl.types.kinds import FormatKind
from dnnl.types.memory_desc import MemoryDesc

_WORD = 32  # bits
_ELEMENTS = {1: I32, 2: I16, 4: I8}  # of a word
_MOST_ROWS = 256
"""Rows beside which a copy of all weights, made once, takes no longer."""
_PIECE = 4  # words that are loaded of a column at a time


@dataclass(frozen=True)
class Moving(Making):
    """Words are moved: of weights whose columns have all of K side by side in squares of so many
    words, or of rows if that is 0."""

    square: int

    def bound(self, arguments: Arguments, at: IndexOf) -> Made:
        argument, desc = self.weights
        terms = Axis(self.terms, "k")
        weights = Operand(arguments.slot(argument), desc, at(Affine.of(terms)))
        return Moved(self, weights, terms)


def moving(
    isa: Isa, src: MemoryDesc, weights: Argument, way: Multiply, wanted: Panels, terms: int,
    shape: Shape,
) -> Moving | None:  # fmt: skip
    """How threads make the ``wanted`` panels of weights for a product of ``src``, or None where
    these do not lie in rows or columns, words have another size, panels are looked at before
    (`product_pairs`) or lie in blocks of src, or would be made several times since no cache keeps
    src."""
    _, desc = weights
    summed = range(desc.ndims)[shape.summed[1]]
    rows = src.dims[-2]
    if rows > _MOST_ROWS or rows * terms * src.data_type.size > isa.caches.l2 // 2:
        return None
    if shape.simple or terms == 0 or isa.lanes < _PIECE:
        return None
    if way.b.bits < 8 or way.group * way.b.bits != _WORD:
        return None
    plain = desc.format_kind is FormatKind.blocked and not desc.inner_blocks
    plain &= desc.dims == desc.padded_dims and desc.data_type is way.b
    if not plain or len(summed) != 1 or terms % way.group:
        return None
    if not in_one_stream(wanted.desc, summed):
        return None
    if Pairs.of(isa, way) is not None:
        return None
    column, _ = wanted.desc.inner_blocks[0]
    if desc.strides[summed[0]] == 1 and desc.strides[column] != 1:
        return Moving(weights, terms, isa.lanes)
    return Moving(weights, terms, 0) if desc.strides[column] == 1 else None


@dataclass(frozen=True, eq=False)
class Moved(Made):
    """Weights as they lie, along all ``terms``."""

    making: Moving
    weights: Operand
    terms: Axis

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (self.weights,)

    def least(self, way: Multiply) -> int:
        return max(1, self.making.square)

    def writer(self, room: Room) -> Writer:
        return _Turned(self, room) if self.making.square else _InRows(self, room)


class _Writer(Writer):
    """Where the weights are."""

    def __init__(self, made: Moved, room: Room) -> None:
        self.e, self._room, self._made = room.e, room, made
        form = made.weights.offset(made.weights.index)
        assert form is not None, "what lies in rows or columns is affine"
        self._form, columns = form, room.columns
        self._last = columns.count - (columns.panel.extent - 1) * columns.width
        """How many columns the last panel has."""

    def _at(self, env: Env, word: Value, v: int, lane: int = 0) -> Value:
        """The first weight of a word in a column."""
        e, room = self.e, self._room
        step = self._form.stride(self._made.terms)
        lanes = self._form.stride(room.columns.lane) * (v * room.columns.lane.extent + lane)
        begin = e.add(self._form.along(env).emit(e, env), i64(lanes))
        begin = e.add(begin, e.mul(word, step * room.way.group))
        return e.element(self._room.pointers[self._made.weights], begin, room.way.element[1])

    def _each(
        self, env: Env, begin: Value, end: Value, write: Callable[[Value, int], None]
    ) -> None:
        """``write(number, columns)`` for all numbers, in the last panel with as many columns as it
        has."""
        e, columns = self.e, self._room.columns

        def loop(count: int) -> Values:
            e.loop(begin, end, lambda number: write(number, count), unroll=False, name="words")
            return ()

        if self._last == columns.width:
            loop(columns.width)
            return
        before = e.b.icmp_signed("<", env[columns.panel], i64(columns.panel.extent - 1))
        e.branch(before, lambda: loop(columns.width), lambda: loop(self._last))


class _InRows(_Writer):
    def write(self, env: Env, begin: Value, end: Value, start: Value) -> None:
        def word(number: Value, count: int) -> None:
            for v in range(self._room.columns.vector.extent):
                words = self._words(env, number, v, count)
                vector.store(self.e, words, self._room.row(start, number, v))

        self._each(env, begin, end, word)

    def _words(self, env: Env, number: Value, v: int, count: int) -> Value:
        """The words of a vector of columns; zero behind the ``count`` that there are."""
        e, way, lanes = self.e, self._room.way, self._room.columns.lane.extent
        kind = vector.vector_type(_ELEMENTS[way.group], lanes)
        mask = vector.known_lanes([v * lanes + lane < count for lane in range(lanes)])
        first = self._at(env, number, v)
        step = self._form.stride(self._made.terms)
        starts = [e.element(first, i64(step * k), kind.element) for k in range(way.group)]
        rows = [vector.load(e, start, kind, mask) for start in starts]
        while len(rows) > 1:
            rows = [_in_turns(e, a, b) for a, b in zip(rows[::2], rows[1::2], strict=True)]
        return rows[0]


class _Turned(_Writer):
    def write(self, env: Env, begin: Value, end: Value, start: Value) -> None:
        e, square = self.e, self._made.making.square
        first, _ = e.divmod(begin, square)
        last, rest = e.divmod(end, square)

        def words(number: Value, count: int) -> None:
            self._turn(env, e.mul(number, square), square, count, start)

        self._each(env, first, last, words)
        left = self._made.words(self._room.way) % square
        if left:
            there = e.b.select(e.b.icmp_signed("!=", rest, i64(0)), i64(1), i64(0))
            further = e.add(last, there)

            def some(number: Value, count: int) -> None:
                self._turn(env, e.mul(number, square), left, count, start)

            self._each(env, last, further, some)

    def _turn(self, env: Env, word: Value, words: int, count: int, start: Value) -> None:
        """Turn so many words of a panel of ``count`` columns, the last of which stands for those
        behind it."""
        e, lanes, square = self.e, self._room.columns.lane.extent, self._made.making.square
        kind = vector.vector_type(I32, _PIECE)
        for v in range(-(-count // lanes)):

            def load(lane: int, piece: int, v: int = v) -> Value:
                there = [piece * _PIECE + number < words for number in range(_PIECE)]
                column = self._at(env, word, v, min(lane, count - 1 - v * lanes))
                at = e.element(column, i64(piece * _PIECE), I32)
                return vector.load(e, at, kind, vector.known_lanes(there))

            rows = vector.transpose(e, lanes, square // _PIECE, load)
            for number, row in enumerate(rows[:words]):
                vector.store(e, row, self._room.row(start, e.add(word, i64(number)), v))


def _in_turns(e: Emitter, a: Value, b: Value) -> Value:
    """The elements of two vectors in turns, as elements of twice the size."""
    lanes = a.type.count
    turns = [lane + side for lane in range(lanes) for side in (0, lanes)]
    kind = vector.vector_type(I16 if a.type.element == I8 else I32, lanes)
    return e.b.bitcast(vector.shuffle(e, a, b, turns), kind)
