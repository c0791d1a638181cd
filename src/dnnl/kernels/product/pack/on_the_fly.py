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
class PanelPacking(ABC):
    """How threads make panels of ``weights``, of so many ``terms``."""

    weights: Argument
    terms: int

    @property
    def row_bytes(self) -> int:
        """How far the rows lie apart that panels are made of, 0 where they are made of others."""
        return 0

    @abstractmethod
    def bound(self, arguments: Arguments, at: IndexOf) -> BoundPacking:
        """The same, bound to the arguments of a kernel."""


class BoundPacking(ABC):
    """A `PanelPacking` bound to a kernel."""

    plan: PanelPacking

    @property
    @abstractmethod
    def operands(self) -> tuple[Operand, ...]:
        """What is read."""

    @abstractmethod
    def least_k_groups(self, dot: Multiply) -> int:
        """How many words of a ``dot`` are made at least, unless a panel ends before."""

    @abstractmethod
    def writer(self, buffer: PanelBuffer) -> Writer:
        """What writes the code that fills a room."""

    def k_groups(self, dot: Multiply) -> int:
        """How many words a column has that is multiplied in a ``dot``."""
        return -(-self.plan.terms // dot.group)


@dataclass(frozen=True, eq=False)
class PanelBuffer:
    """Where the words of a ``dot`` are written for some ``columns``: ``steps`` at a time and, at
    the end of a panel, as many behind them at most, or a whole panel where ``steps`` is 0; of so
    many ``panels`` at a time."""

    e: Emitter
    packing: BoundPacking
    pointers: Mapping[Operand, Value]
    columns: Columns
    dot: Multiply
    steps: int
    panels: int

    @property
    def k_group_bytes(self) -> int:
        """The bytes of a word of all columns."""
        return self.columns.width * self.dot.group * self.dot.b.size

    @property
    def panel_bytes(self) -> int:
        """How far a panel is from the one before."""
        whole = self.packing.k_groups(self.dot)
        return (min(whole, 2 * self.steps) if self.steps else whole) * self.k_group_bytes

    @property
    def nbytes(self) -> int:
        """What has to be there."""
        return self.panels * self.panel_bytes

    def panel(self, start: Value, number: Value) -> Value:
        """Where word 0 of a panel is, if that of number 0 is at ``start``."""
        return self.e.element(start, self.e.mul(number, self.panel_bytes), I8)

    def row(self, start: Value, k_group: Value, v: int) -> Value:
        """Where a word of vector ``v`` of the columns is, if word 0 is at ``start``."""
        size = self.columns.lane.extent * self.dot.group * self.dot.b.size
        row = self.e.element(start, self.e.mul(k_group, self.k_group_bytes), I8)
        return self.e.element(row, i64(v * size), I8)


Span = tuple[Value, Value]
"""The first number, and the one behind the last."""


class Writer(ABC):
    """Writes words into a ``buffer``."""

    def __init__(self, buffer: PanelBuffer) -> None:
        self.e, self.buffer = buffer.e, buffer

    def write(self, env: Env, panels: Span, k_groups: Span, start: Value) -> None:
        """Write some words of some panels to which ``env`` leads; word 0 of the first of these
        would be at ``start``."""
        axis, (low, high) = self.buffer.columns.panel, panels
        if self.buffer.panels == 1:
            self.write_panel({**env, axis: low}, k_groups, start)
            return

        def one(number: Value) -> None:
            here = self.buffer.panel(start, self.e.b.sub(number, low))
            self.write_panel({**env, axis: number}, k_groups, here)

        self.e.loop(low, high, one, unroll=False, name="made")

    @abstractmethod
    def write_panel(self, env: Env, k_groups: Span, start: Value) -> None:
        """Write some words of the panel to which ``env`` leads; word 0 would be at ``start``."""


class PanelPacker:
    """Makes panels in a ``buffer`` at ``begin``."""

    def __init__(self, buffer: PanelBuffer, begin: Value) -> None:
        self.buffer, self._begin, self._writer = buffer, begin, buffer.packing.writer(buffer)

    def pack(self, env: Env, panels: Span, block: Value, blocks: int) -> Value:
        """Make what one of so many blocks of the sums reads of some panels to which ``env`` leads.
        Returns where word 0 of the first of them would be."""
        buffer, e = self.buffer, self.buffer.e
        begin, k_groups = e.mul(block, buffer.steps), i64(buffer.packing.k_groups(buffer.dot))
        last = e.b.icmp_signed("==", block, i64(blocks - 1))
        end = (
            e.b.select(last, k_groups, e.add(begin, i64(buffer.steps))) if blocks > 1 else k_groups
        )
        start = e.element(self._begin, e.mul(begin, -buffer.k_group_bytes), I8)
        self._writer.write(env, panels, (begin, end), start)
        return start
