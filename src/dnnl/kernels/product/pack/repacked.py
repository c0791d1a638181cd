"""Panels of K groups from row-major or column-major weights.

A K group has 32 bits: an f32, two bf16 or four bytes that are consecutive along K. Columns contain
K groups as they are, so that squares of them are transposed in registers. Rows are interleaved, as
many as a K group has elements::

    row 0   | a0 a1 a2 a3 |
    row 1   | b0 b1 b2 b3 |   ->   | a0 b0 | a1 b1 | a2 b2 | a3 b3 |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import I8, I16, I32, Emitter, Value, Values, i64
from dnnl.codegen.ir.kernel import Arguments
from dnnl.codegen.ir.vector import Mask
from dnnl.codegen.isa import Isa
from dnnl.codegen.isa.caches import LINE
from dnnl.codegen.memory.access import Env, Operand
from dnnl.codegen.memory.address import Affine, Axis
from dnnl.codegen.product.multiply import Multiply
from dnnl.codegen.product.pairs import Pairs
from dnnl.kernels.product.base.problem import Panels, ProductProblem
from dnnl.kernels.product.pack.on_the_fly import (
    BoundPacking,
    IndexOf,
    PanelBuffer,
    PanelPacking,
    Span,
    Writer,
    in_one_stream,
)
from dnnl.kernels.shared.scratchpad import Argument
from dnnl.types.kinds import FormatKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import is_known, surely_equal, typical

_GROUP_BITS = 32
_ELEMENTS = {1: I32, 2: I16, 4: I8}  # elements of a K group, by their number
_MOST_ROWS = 384
"""The M from which a separate pass that packs all weights takes no longer."""
_MOST_TERMS = 2048
"""About the most terms of a K block."""
_PIECE = 4  # K groups that are loaded of a column at a time
_PREFETCH_ROWS = 8  # distance of the software prefetch


@dataclass(frozen=True)
class RepackedPacking(PanelPacking):
    """Weights are packed from columns that are contiguous along K, which is dimension ``summed``,
    in squares of ``square`` K groups; or from rows if ``square`` is 0."""

    summed: int
    square: int

    @property
    def row_bytes(self) -> int:
        """The stride of rows in bytes, 0 for columns."""
        desc = self.weights[1]
        return 0 if self.square else desc.strides[self.summed] * desc.data_type.size

    def bound(self, arguments: Arguments, at: IndexOf) -> BoundPacking:
        argument, desc = self.weights
        terms = Axis(self.terms, "k")
        weights = Operand(arguments.slot(argument), desc, at(Affine.of(terms)))
        return BoundRepacked(self, weights, terms)


def plan_repacked(
    isa: Isa,
    src: MemoryDesc,
    weights: Argument,
    dot: Multiply,
    wanted: Panels,
    problem: ProductProblem,
) -> RepackedPacking | None:
    """How threads pack the ``wanted`` panels of weights for a product of ``src``. None if the
    weights are neither row-major nor column-major, K groups have no 32 bits, panels are examined
    before (`pairs`) or are blocked like src, or src does not stay in a cache so that panels would
    be packed several times."""
    _, desc = weights
    summed = range(desc.ndims)[problem.summed[1]]
    rows, terms = problem.planned_rows(isa), problem.terms
    block = rows * min(typical(terms), _MOST_TERMS) * src.data_type.size
    if rows > _MOST_ROWS or block > isa.caches.l2 // 2:
        return None
    if problem.simple or terms == 0 or isa.lanes < _PIECE:
        return None
    if dot.b.bits < 8 or dot.group * dot.b.bits != _GROUP_BITS:
        return None
    plain = desc.format_kind is FormatKind.blocked and not desc.inner_blocks
    plain &= desc.dims == desc.padded_dims and desc.data_type is dot.b
    if not plain or len(summed) != 1 or terms % dot.group:
        return None
    if not in_one_stream(wanted.desc, summed):
        return None
    if Pairs.of(isa, dot) is not None:
        return None
    column, _ = wanted.desc.inner_blocks[0]
    if desc.strides[summed[0]] == 1 and desc.strides[column] != 1:
        return RepackedPacking(weights, terms, summed[0], isa.lanes)
    return RepackedPacking(weights, terms, summed[0], 0) if desc.strides[column] == 1 else None


@dataclass(frozen=True, eq=False)
class BoundRepacked(BoundPacking):
    """The stored weights along all ``terms``."""

    plan: RepackedPacking
    weights: Operand
    terms: Axis

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (self.weights,)

    def least_k_groups(self, dot: Multiply) -> int:
        return max(1, self.plan.square)

    def writer(self, buffer: PanelBuffer) -> Writer:
        return _ColumnsWriter(self, buffer) if self.plan.square else _RowsWriter(self, buffer)


class _RepackedWriter(Writer):
    """Locates the weights."""

    def __init__(self, packing: BoundRepacked, buffer: PanelBuffer) -> None:
        super().__init__(buffer)
        self._packing = packing
        form = packing.weights.offset(packing.weights.index)
        assert form is not None, "rows and columns are affine"
        self._form, columns = form, buffer.columns
        self._rest = columns.count - (columns.panel.extent - 1) * columns.width
        """How many columns the last panel has."""

    def _at(
        self, env: Env, k_group: Value, v: int, lane: int = 0, last: int | None = None
    ) -> Value:
        """The address of the first weight of a K group in a column, which is at most the ``last``
        one."""
        e, buffer = self.e, self.buffer
        step = self._form.stride(self._packing.terms)
        apart = self._form.stride(buffer.columns.lane)
        place = v * buffer.columns.lane.extent + lane
        if last is None or is_known(last):
            column = e.number(apart * (place if last is None else min(place, last)))
        else:
            column = e.mul(e.smaller(i64(place), e.number(last)), apart)
        begin = e.add(self._form.along(env).emit(e, env), column)
        begin = e.add(begin, e.mul(k_group, step * buffer.dot.group))
        return e.element(self.buffer.pointers[self._packing.weights], begin, buffer.dot.element[1])

    def _of_columns(self, env: Env, write: Callable[[int], None]) -> None:
        """Call ``write(columns)`` with the number of columns of the panel, which is a `Size` in
        the last one if only an execution knows it."""
        e, columns = self.e, self.buffer.columns

        def some(count: int) -> Values:
            write(count)
            return ()

        if surely_equal(self._rest, columns.width):
            some(columns.width)
            return
        before = e.b.icmp_signed("<", env[columns.panel], e.number(columns.panel.extent - 1))
        e.branch(before, lambda: some(columns.width), lambda: some(self._rest))


class _RowsWriter(_RepackedWriter):
    @property
    def streams(self) -> int:
        """The lines of a K group of all panels."""
        return self.buffer.k_group_lines

    def stream(self, env: Env, k_group: Value, number: Value) -> tuple[Value, Value]:
        """One line of each K group."""
        e, group = self.e, self.buffer.dot.group
        line, member = e.divmod(number, group)
        step = e.mul(e.number(self._form.stride(self._packing.terms)), self.buffer.dot.b.size)
        start = e.element(self._at(env, k_group, 0), e.mul(member, step), I8)
        return e.element(start, e.mul(line, LINE), I8), e.mul(step, group)

    def write(self, env: Env, panels: Span, k_groups: Span, start: Value) -> None:
        """Row by row, through all panels, so that pages are visited once."""

        def of_row(k_group: Value) -> None:
            super(_RowsWriter, self).write(
                env, panels, (k_group, self.e.add(k_group, i64(1))), start
            )

        self.e.loop(*k_groups, of_row, unroll=False, name="k_group")

    def write_panel(self, env: Env, k_groups: Span, start: Value) -> None:
        number, _ = k_groups

        def k_group(count: int) -> None:
            for v in range(self.buffer.columns.vector.extent):
                vector.store(
                    self.e, self._k_groups(env, number, v, count), self.buffer.row(start, number, v)
                )

        self._of_columns(env, k_group)

    def _k_groups(self, env: Env, number: Value, v: int, count: int) -> Value:
        """The K groups of a vector of columns; zero behind column ``count``."""
        e, dot, lanes = self.e, self.buffer.dot, self.buffer.columns.lane.extent
        kind = vector.vector_type(_ELEMENTS[dot.group], lanes)
        mask = _first_lanes(e, count - v * lanes, lanes)
        first = self._at(env, number, v)
        step = self._form.stride(self._packing.terms)
        starts = [e.element(first, e.number(step * k), kind.element) for k in range(dot.group)]
        if self.buffer.panels > 1:
            following = e.element(first, e.number(step * _PREFETCH_ROWS), kind.element)
            vector.prefetch(e, following)
        rows = [vector.load(e, start, kind, mask) for start in starts]
        while len(rows) > 1:
            rows = [_interleaved(e, a, b) for a, b in zip(rows[::2], rows[1::2], strict=True)]
        return rows[0]


class _ColumnsWriter(_RepackedWriter):
    @property
    def streams(self) -> int:
        """Those of a whole panel whose columns are contiguous."""
        dense = self._form.stride(self.buffer.columns.lane) == self._packing.terms.extent
        return self.buffer.k_group_lines if dense and not self.buffer.steps else 0

    def stream(self, env: Env, k_group: Value, number: Value) -> tuple[Value, Value]:
        """One of the parts of a panel that have as many lines as it has K groups."""
        e, k_groups = self.e, self._packing.k_groups(self.buffer.dot)
        first = e.mul(e.mul(number, k_groups), LINE)
        return e.element(self._at(env, k_group, 0), first, I8), i64(LINE)

    def write_panel(self, env: Env, k_groups: Span, start: Value) -> None:
        """One vector of columns after the other, which limits the number of memory streams."""
        e, square = self.e, self._packing.plan.square
        (first, _), (last, rest) = (e.divmod(k_group, square) for k_group in k_groups)
        left, lanes = (
            int(self._packing.k_groups(self.buffer.dot) % square),
            self.buffer.columns.lane.extent,
        )
        there = e.b.select(e.b.icmp_signed("!=", rest, i64(0)), i64(1), i64(0))
        spans = [(first, last, square), (last, e.add(last, there), left)]

        def transpose(number: Value, size: int, count: int, v: int) -> None:
            self._transpose(env, e.mul(number, square), size, count, start, v)

        def columns(count: int) -> None:
            vectors = -(-count // lanes) if is_known(count) else self.buffer.columns.vector.extent
            for v in range(vectors):
                for begin, end, size in spans[: 2 if left else 1]:
                    each = partial(transpose, size=size, count=count, v=v)
                    e.loop(begin, end, each, unroll=False, name="k_group")

        self._of_columns(env, columns)

    def _transpose(
        self, env: Env, k_group: Value, k_groups: int, count: int, start: Value, v: int
    ) -> None:
        """Transpose ``k_groups`` K groups of vector ``v`` of a panel with ``count`` columns; the
        last column is repeated beyond them."""
        e, lanes, square = self.e, self.buffer.columns.lane.extent, self._packing.plan.square
        kind = vector.vector_type(I32, _PIECE)

        def load(lane: int, piece: int) -> Value:
            there = [piece * _PIECE + number < k_groups for number in range(_PIECE)]
            column = self._at(env, k_group, v, lane, count - 1)
            at = e.element(column, i64(piece * _PIECE), I32)
            return vector.load(e, at, kind, vector.known_lanes(there))

        rows = vector.transpose(e, lanes, square // _PIECE, load)
        for number, row in enumerate(rows[:k_groups]):
            vector.store(e, row, self.buffer.row(start, e.add(k_group, i64(number)), v))


def _first_lanes(e: Emitter, count: int, lanes: int) -> Mask:
    """The mask of the lanes below ``count``."""
    if is_known(count):
        return vector.known_lanes([lane < count for lane in range(lanes)])
    return vector.first_lanes(e, e.number(count), lanes)


def _interleaved(e: Emitter, a: Value, b: Value) -> Value:
    """The elements of two vectors interleaved, as elements of twice the size."""
    lanes = a.type.count
    order = [lane + side for lane in range(lanes) for side in (0, lanes)]
    kind = vector.vector_type(I16 if a.type.element == I8 else I32, lanes)
    return e.b.bitcast(vector.shuffle(e, a, b, order), kind)
