"""Panels of weights that each thread packs just before it multiplies them.

A packed copy of all weights would be written to memory and read again. Instead a thread packs one
panel, or the K block of one or several panels, into a buffer of its own that stays in a cache while
the rows of src stream past. `repacked` packs from rows or columns, `decompressed` and `unpacked`
from compressed weights, `sparse_decoded` from weights without their zeros.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass

from dnnl.codegen.ir.builder import I8, Emitter, Value, i64
from dnnl.codegen.ir.kernel import Arguments
from dnnl.codegen.isa.caches import LINE
from dnnl.codegen.memory.access import Env, Operand
from dnnl.codegen.memory.address import Affine
from dnnl.codegen.product.brgemm import Stream
from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.product.base.store import Columns
from dnnl.kernels.shared.scratchpad import Argument
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import bounds, is_known, smaller, typical

IndexOf = Callable[[Affine], tuple[Affine, ...]]
"""The index of a weight in the column of a lane, from its position along K."""


def in_one_stream(panels: MemoryDesc, summed: Container[int]) -> bool:
    """Whether the K groups of a panel are contiguous: the panels are not blocked like src, whose
    last block may contain padding."""
    blocks = panels.inner_blocks
    return bool(blocks) and blocks[0][0] not in summed


@dataclass(frozen=True)
class PanelPacking(ABC):
    """The plan for packing panels of ``weights`` with ``terms`` elements along K on the fly."""

    weights: Argument
    terms: int

    @property
    def row_bytes(self) -> int:
        """The stride in bytes of the rows that panels are packed from; 0 if the source is no
        rows."""
        return 0

    @abstractmethod
    def bound(self, arguments: Arguments, at: IndexOf) -> BoundPacking:
        """The packing, bound to the arguments of a kernel."""


class BoundPacking(ABC):
    """A `PanelPacking` bound to a kernel."""

    plan: PanelPacking

    @property
    @abstractmethod
    def operands(self) -> tuple[Operand, ...]:
        """The operands that are read."""

    @abstractmethod
    def least_k_groups(self, dot: Multiply) -> int:
        """The granularity of packing in K groups of ``dot``; the end of a panel may be shorter."""

    @abstractmethod
    def writer(self, buffer: PanelBuffer) -> Writer:
        """The writer of the code that fills a buffer."""

    def k_groups(self, dot: Multiply) -> int:
        """The number of K groups of ``dot`` in a column."""
        return -(-self.plan.terms // dot.group)


@dataclass(frozen=True, eq=False)
class PanelBuffer:
    """The buffer for packed K groups of ``dot`` and some ``columns``.

    It holds ``panels`` panels at a time, with ``steps`` K groups of each, and at the end of a panel
    up to as many more; or whole panels if ``steps`` is 0. These have at most ``most`` K groups if
    only an execution knows how many.
    """

    e: Emitter
    packing: BoundPacking
    pointers: Mapping[Operand, Value]
    columns: Columns
    dot: Multiply
    steps: int
    panels: int
    most: int = 0

    @property
    def k_group_bytes(self) -> int:
        """The bytes of a K group of all columns of a panel."""
        return self.columns.width * self.dot.group * self.dot.b.size

    @property
    def k_group_lines(self) -> int:
        """The cache lines of a K group of all columns of all panels that it holds."""
        return typical(self.panels) * self.k_group_bytes // LINE

    @property
    def panel_bytes(self) -> int:
        """The stride of panels in bytes."""
        whole = self.packing.k_groups(self.dot)
        if self.steps or not is_known(whole):
            whole = smaller(whole, 2 * (self.steps or self.most))
        return int(bounds(whole)[1]) * self.k_group_bytes

    @property
    def nbytes(self) -> int:
        """The size of the buffer in bytes."""
        return int(bounds(self.panels)[1]) * self.panel_bytes

    def panel(self, start: Value, number: Value) -> Value:
        """The address of K group 0 of a panel, if that of panel 0 is at ``start``."""
        return self.e.element(start, self.e.mul(number, self.panel_bytes), I8)

    def row(self, start: Value, k_group: Value, v: int) -> Value:
        """The address of a K group of vector ``v`` of the columns, if K group 0 is at ``start``."""
        size = self.columns.lane.extent * self.dot.group * self.dot.b.size
        row = self.e.element(start, self.e.mul(k_group, self.k_group_bytes), I8)
        return self.e.element(row, i64(v * size), I8)


_MOST_EVERY = 8
"""The most steps from a line that a tile prefetches to the next one. With a line in each step all
fill buffers would be taken, and the panel, which the second-level cache holds, would wait."""

Span = tuple[Value, Value]
"""A half-open range: the first number, and the one behind the last."""


class Writer(ABC):
    """Writes packed K groups into a ``buffer``."""

    def __init__(self, buffer: PanelBuffer) -> None:
        self.e, self.buffer = buffer.e, buffer

    def write(self, env: Env, panels: Span, k_groups: Span, start: Value) -> None:
        """Pack some K groups of some panels at ``env``. ``start`` is the address of K group 0 of
        the first panel."""
        axis, (low, high) = self.buffer.columns.panel, panels
        if self.buffer.panels == 1:
            self.write_panel({**env, axis: low}, k_groups, start)
            return

        def one(number: Value) -> None:
            here = self.buffer.panel(start, self.e.b.sub(number, low))
            self.write_panel({**env, axis: number}, k_groups, here)

        self.e.loop(low, high, one, unroll=False, name="packed")

    @abstractmethod
    def write_panel(self, env: Env, k_groups: Span, start: Value) -> None:
        """Pack some K groups of the panel at ``env``. ``start`` is the address of K group 0."""

    @property
    def streams(self) -> int:
        """In how many streams, each of a line for every K group, tiles can prefetch what `write`
        reads. 0 if it is read in another way."""
        return 0

    def stream(self, env: Env, k_group: Value, number: Value) -> tuple[Value, Value]:
        """The first line of stream ``number`` for the panels that begin at ``env``, and the
        distance of its lines in bytes."""
        raise NotImplementedError


class PanelPacker:
    """Packs panels into a ``buffer`` at ``begin``."""

    def __init__(self, buffer: PanelBuffer, begin: Value) -> None:
        self.buffer, self._begin, self._writer = buffer, begin, buffer.packing.writer(buffer)
        self._ahead: tuple[Env, Value] | None = None

    @property
    def streams(self) -> int:
        """How many streams of lines tiles share out; 0 if they can prefetch none."""
        return self._writer.streams

    def look_ahead(self, env: Env, k_groups: Span) -> None:
        """Let tiles prefetch what `pack` reads next: these K groups of the panels at ``env``."""
        self._ahead = env, k_groups[0]

    def stream(self, tile: Value, tiles: int) -> Stream | None:
        """What tile number ``tile`` of a block of ``tiles`` prefetches. Packing would wait for
        memory, while multiplication leaves its bandwidth unused."""
        if self._ahead is None:
            return None
        e, every = self.buffer.e, min(_MOST_EVERY, 1 << (tiles // self.streams).bit_length() - 1)
        number, part = e.divmod(tile, every)
        inside = e.b.icmp_unsigned("<", number, i64(self.streams))
        number = e.b.select(inside, number, i64(0))
        start, step = self._writer.stream(*self._ahead, number)
        start = e.element(start, e.mul(e.mul(part, step), e.number(self._k_groups // every)), I8)
        return Stream(start, e.b.select(inside, step, i64(0)), every)

    @property
    def _k_groups(self) -> int:
        """The K groups of a block."""
        return self.buffer.steps or self.buffer.packing.k_groups(self.buffer.dot)

    def pack(self, env: Env, panels: Span, k_groups: Span) -> Value:
        """Pack these K groups of some panels at ``env``. Returns the address that K group 0 of the
        first panel would have."""
        buffer, e = self.buffer, self.buffer.e
        start = e.element(self._begin, e.mul(k_groups[0], -buffer.k_group_bytes), I8)
        self._writer.write(env, panels, k_groups, start)
        return start
