"""Panels of weights that each thread makes just before it multiplies them.

A copy of all weights would be written to memory and read again. So a thread makes one panel at a
time, or what a block of the sums takes of one or of several side by side, in memory of its own,
which stays in a cache while the rows of src pass by. `product_moved` makes them of weights in rows
or columns, `product_decompressed` and `product_unpacked` of weights of few bits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass

from dnnl.codegen.ir.builder import I8, Emitter, Value, i64
from dnnl.codegen.ir.kernel import Arguments
from dnnl.codegen.memory.access import Env, Operand
from dnnl.codegen.memory.address import Affine
from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.product.base.store import Columns
from dnnl.kernels.shared.scratchpad import Argument
from dnnl.types.memory_desc import MemoryDesc

IndexOf = Callable[[Affine], tuple[Affine, ...]]
"""The index of a weight in the column of a lane, from its place along K."""


def in_one_stream(panels: MemoryDesc, summed: Container[int]) -> bool:
    """Whether panels have all words of their columns behind each other: they are not cut as blocks
    of src are, the last of which has words of padding."""
    blocks = panels.inner_blocks
    return bool(blocks) and blocks[0][0] not in summed


@dataclass(frozen=True)
class Making(ABC):
    """How threads make panels of ``weights``, of so many ``terms``."""

    weights: Argument
    terms: int

    @property
    def row_bytes(self) -> int:
        """How far the rows lie apart that panels are made of, 0 where they are made of others."""
        return 0

    @abstractmethod
    def bound(self, arguments: Arguments, at: IndexOf) -> Made:
        """The same, bound to the arguments of a kernel."""


class Made(ABC):
    """A `Making` bound to a kernel."""

    making: Making

    @property
    @abstractmethod
    def operands(self) -> tuple[Operand, ...]:
        """What is read."""

    @abstractmethod
    def least(self, way: Multiply) -> int:
        """How many words of a ``way`` are made at least, unless a panel ends before."""

    @abstractmethod
    def writer(self, room: Room) -> Writer:
        """What writes the code that fills a room."""

    def words(self, way: Multiply) -> int:
        """How many words a column has that is multiplied in a ``way``."""
        return -(-self.making.terms // way.group)


@dataclass(frozen=True, eq=False)
class Room:
    """Where the words of a ``way`` are written for some ``columns``: ``steps`` at a time and, at
    the end of a panel, as many behind them at most, or a whole panel where ``steps`` is 0; of so
    many ``panels`` at a time."""

    e: Emitter
    made: Made
    pointers: Mapping[Operand, Value]
    columns: Columns
    way: Multiply
    steps: int
    panels: int

    @property
    def word_bytes(self) -> int:
        """The bytes of a word of all columns."""
        return self.columns.width * self.way.group * self.way.b.size

    @property
    def panel_bytes(self) -> int:
        """How far a panel is from the one before."""
        whole = self.made.words(self.way)
        return (min(whole, 2 * self.steps) if self.steps else whole) * self.word_bytes

    @property
    def nbytes(self) -> int:
        """What has to be there."""
        return self.panels * self.panel_bytes

    def panel(self, start: Value, number: Value) -> Value:
        """Where word 0 of a panel is, if that of number 0 is at ``start``."""
        return self.e.element(start, self.e.mul(number, self.panel_bytes), I8)

    def row(self, start: Value, word: Value, v: int) -> Value:
        """Where a word of vector ``v`` of the columns is, if word 0 is at ``start``."""
        size = self.columns.lane.extent * self.way.group * self.way.b.size
        row = self.e.element(start, self.e.mul(word, self.word_bytes), I8)
        return self.e.element(row, i64(v * size), I8)


Span = tuple[Value, Value]
"""The first number, and the one behind the last."""


class Writer(ABC):
    """Writes words into a ``room``."""

    def __init__(self, room: Room) -> None:
        self.e, self.room = room.e, room

    def write(self, env: Env, panels: Span, words: Span, start: Value) -> None:
        """Write some words of some panels to which ``env`` leads; word 0 of the first of these
        would be at ``start``."""
        axis, (low, high) = self.room.columns.panel, panels
        if self.room.panels == 1:
            self.write_panel({**env, axis: low}, words, start)
            return

        def one(number: Value) -> None:
            here = self.room.panel(start, self.e.b.sub(number, low))
            self.write_panel({**env, axis: number}, words, here)

        self.e.loop(low, high, one, unroll=False, name="made")

    @abstractmethod
    def write_panel(self, env: Env, words: Span, start: Value) -> None:
        """Write some words of the panel to which ``env`` leads; word 0 would be at ``start``."""


class PanelMaker:
    """Makes panels in a ``room`` at ``begin``."""

    def __init__(self, room: Room, begin: Value) -> None:
        self.room, self._begin, self._writer = room, begin, room.made.writer(room)

    def make(self, env: Env, panels: Span, block: Value, blocks: int) -> Value:
        """Make what one of so many blocks of the sums reads of some panels to which ``env`` leads.
        Returns where word 0 of the first of them would be."""
        room, e = self.room, self.room.e
        begin, words = e.mul(block, room.steps), i64(room.made.words(room.way))
        last = e.b.icmp_signed("==", block, i64(blocks - 1))
        end = e.b.select(last, words, e.add(begin, i64(room.steps))) if blocks > 1 else words
        start = e.element(self._begin, e.mul(begin, -room.word_bytes), I8)
        self._writer.write(env, panels, (begin, end), start)
        return start
