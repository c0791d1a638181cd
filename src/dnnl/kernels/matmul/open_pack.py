"""Packing of the operands of a matrix product with run-time sizes.

A work item copies its operands into scratch memory of its thread, where strides do not depend on
the sizes. An operand is *lines*, rows of src or columns of weights, of K groups::

    rows     line 0 | g0 g1 g2 ...            panels    k 0 | line 0, line 1, ...  a panel's width
             line 1 | g0 g1 g2 ...                      k 1 | line 0, line 1, ...

An operand is read by vectors along k or along the lines, whichever is contiguous, else element by
element. The other order is obtained by transposition in registers. A K group that ends behind the
last k is padded with zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from dnnl.codegen.conversion.convert import bare_core, storage
from dnnl.codegen.ir import registers, vector
from dnnl.codegen.ir.builder import I32, I64, Emitter, Type, Value, Values, i64
from dnnl.codegen.ir.transpose import transpose_registers
from dnnl.types.dtype import DataType

Across = Callable[[Value, Value, Callable[[Value, Value], Value]], None]
"""Writes K groups of a vector of lines, from a line and a K group on, which its last parameter
reads."""


class Order(IntEnum):
    """The contiguous dimension of an operand."""

    DEPTH = 0  # along k
    LINES = 1  # across lines
    NONE = 2


@dataclass(frozen=True)
class Part:
    """The part of an operand that is packed: ``lines`` lines of ``k_groups`` K groups, of which
    ``depth`` k exist. ``pointer`` is its address, strides are in elements."""

    pointer: Value
    lines: Value
    k_groups: Value
    depth: Value
    line_step: Value
    depth_step: Value


class Packer:
    """Writes the packing of an operand of type ``given`` into K groups of ``group`` elements of
    type ``held``."""

    def __init__(self, e: Emitter, given: DataType, held: DataType, group: int) -> None:
        self.e, self._given, self._held, self._group = e, given, held, group
        self._lanes = e.isa.lanes
        self._core = bare_core(given, held)
        self._stored = storage(given, self._core).element
        self._element = I32 if group > 1 else storage(held).element

    @property
    def k_group(self) -> Type:
        """The type by which K groups are addressed."""
        return self._element

    def rows(
        self, part: Part, orders: tuple[Order, ...], order: Value, to: Value, pitch: int
    ) -> None:
        """Write the lines one behind the other, ``pitch`` K groups apart. Stores are of whole
        vectors and whole squares."""

        def along_depth() -> None:
            def line(number: Value) -> None:
                start = self.e.element(to, self.e.mul(number, pitch), self._element)
                self._each_vector(part, number, start)

            self.e.loop(i64(0), part.lines, line, unroll=False, name="line")

        def square(line: Value, k_group: Value, read: Callable[[Value, Value], Value]) -> None:
            rows = [read(line, self.e.add(k_group, i64(n))) for n in range(self._lanes)]
            for number, row in enumerate(transpose_registers(self.e, rows)):
                at = self.e.add(self.e.mul(self.e.add(line, i64(number)), pitch), k_group)
                vector.store(self.e, row, self.e.element(to, at, self._element))

        def scattered(line: Value, k_group: Value, read: Callable[[Value, Value], Value]) -> None:
            for number, value in enumerate(vector.each_lane(self.e, read(line, k_group))):
                at = self.e.add(self.e.mul(self.e.add(line, i64(number)), pitch), k_group)
                self.e.b.store(value, self.e.element(to, at, self._element), align=1)

        across = {Order.LINES: (square, self._lanes), Order.NONE: (scattered, 1)}
        self._by_order(part, orders, order, along_depth, across)

    def panels(
        self,
        part: Part,
        orders: tuple[Order, ...],
        order: Value,
        to: Value,
        vectors: int,
        panel: Value,
    ) -> None:
        """Write panels of ``vectors`` vectors of lines, ``panel`` K groups apart. Stores are of
        whole squares and whole panels."""
        e, lanes = self.e, self._lanes
        width = vectors * lanes

        def start(line: Value) -> Value:
            number, rest = e.divmod(line, width)
            return e.element(to, e.add(e.b.mul(number, panel), rest), self._element)

        def along_depth() -> None:
            def square(line: Value, k_group: Value) -> None:
                last = e.b.sub(part.lines, i64(1))
                rows = [
                    self._along_depth(part, e.smaller(e.add(line, i64(n)), last), k_group)
                    for n in range(lanes)
                ]
                for number, row in enumerate(transpose_registers(e, rows)):
                    at = e.mul(e.add(k_group, i64(number)), width)
                    vector.store(e, row, e.element(start(line), at, self._element))

            self._squares(part, square)

        def row(line: Value, k_group: Value, read: Callable[[Value, Value], Value]) -> None:
            where = e.element(start(line), e.mul(k_group, width), self._element)
            vector.store(e, read(line, k_group), where)

        across = dict.fromkeys((Order.LINES, Order.NONE), (row, 1))
        self._by_order(part, orders, order, along_depth, across)

    def _by_order(
        self,
        part: Part,
        orders: tuple[Order, ...],
        order: Value,
        along_depth: Callable[[], None],
        across: Mapping[Order, tuple[Across, int]],
    ) -> None:
        """Write the code of all possible ``orders``; ``order`` selects one at run time. ``across``
        writes some K groups of a vector of lines."""

        def run(one: Order) -> Values:
            if one is Order.DEPTH:
                along_depth()
            else:
                self._across(part, one, *across[one])
            return ()

        def choose(left: tuple[Order, ...]) -> Values:
            if len(left) == 1:
                return run(left[0])
            here = self.e.b.icmp_signed("==", order, i64(left[0]))
            return self.e.branch(here, lambda: run(left[0]), lambda: choose(left[1:]))

        choose(orders)

    def _across(
        self,
        part: Part,
        order: Order,
        across: Across,
        step: int,
    ) -> None:
        """Vectors of lines, K group by K group; full ones without masks."""
        e, lanes = self.e, self._lanes
        whole_lines = e.b.and_(part.lines, i64(-lanes))
        whole_k_groups = e.b.sdiv(part.depth, i64(self._group * step))
        whole_k_groups = e.mul(whole_k_groups, step)

        def some(k_groups: tuple[Value, Value], lines: tuple[Value, Value], *, whole: bool) -> None:
            def read(line: Value, k_group: Value) -> Value:
                return self._along_lines(part, order, line, k_group, whole=whole)

            def of_k_group(k_group: Value) -> None:
                e.loop(
                    *lines,
                    lambda line: across(line, k_group, read),
                    step=lanes,
                    unroll=False,
                    name="lines",
                )

            e.loop(*k_groups, of_k_group, step=step, unroll=False, name="k_group")

        some((i64(0), whole_k_groups), (i64(0), whole_lines), whole=True)

        # The remainder: the last lines of all K groups, and the last K groups of the other lines.
        def rest(k_group: Value) -> None:
            first = e.b.select(e.b.icmp_signed("<", k_group, whole_k_groups), whole_lines, i64(0))
            some((k_group, e.add(k_group, i64(1))), (first, part.lines), whole=False)

        begin = e.b.select(e.b.icmp_signed("<", whole_lines, part.lines), i64(0), whole_k_groups)
        e.loop(begin, part.k_groups, rest, step=step, unroll=False, name="rest")

    def _squares(self, part: Part, square: Callable[[Value, Value], None]) -> None:
        def of_line(line: Value) -> None:
            self.e.loop(
                i64(0),
                part.k_groups,
                lambda k_group: square(line, k_group),
                step=self._lanes,
                unroll=False,
                name="k_group",
            )

        self.e.loop(i64(0), part.lines, of_line, step=self._lanes, unroll=False, name="lines")

    def _each_vector(self, part: Part, line: Value, to: Value) -> None:
        """The K groups of a line, vector by vector."""

        def one(k_group: Value) -> None:
            value = self._along_depth(part, line, k_group)
            vector.store(self.e, value, self.e.element(to, k_group, self._element))

        step = self._lanes
        self.e.loop(i64(0), part.k_groups, one, step=step, unroll=False, name="k_group")

    def _along_depth(self, part: Part, line: Value, k_group: Value) -> Value:
        """A vector of consecutive K groups of a line that is contiguous along k; zeros behind the
        last k."""
        most = self.e.isa.most_lanes or self._lanes * self._group
        lanes = min(self._lanes, max(1, most // self._group))
        pieces = [
            self._some_along_depth(part, line, self.e.add(k_group, i64(begin)), lanes)
            for begin in range(0, self._lanes, lanes)
        ]
        return vector.join(self.e, pieces)

    def _some_along_depth(self, part: Part, line: Value, k_group: Value, lanes: int) -> Value:
        """`_along_depth` of so many lanes."""
        e, count = self.e, lanes * self._group
        first = e.mul(k_group, self._group)
        left = e.b.sub(part.depth, first)
        place = e.add(e.b.mul(line, part.line_step), first)
        where = e.element(part.pointer, place, self._stored)
        kind = vector.vector_type(self._stored, count)

        def load(mask: vector.Mask) -> Values:
            return (registers.load(e, where, kind, mask),)

        (value,) = e.branch(
            e.b.icmp_signed(">=", left, i64(count)),
            lambda: load(None),
            lambda: load(vector.first_lanes(e, left, count)),
        )
        value = self._converted(value)
        if self._group > 1:
            return e.b.bitcast(value, vector.vector_type(I32, lanes))
        return value

    def _along_lines(
        self, part: Part, order: Order, line: Value, k_group: Value, *, whole: bool
    ) -> Value:
        """The same K group of a vector of lines. Unless they are ``whole``, lines behind the last
        one have any value, and k behind the last one are zero."""
        e, lanes = self.e, self._lanes
        mask = None if whole else vector.first_lanes(e, e.b.sub(part.lines, line), lanes)
        packed: Value = None
        for number in range(self._group):
            k = e.add(e.mul(k_group, self._group), i64(number))
            value = self._elements(part, order, line, k, mask, whole=whole)
            if self._group == 1:
                return value
            value = e.b.zext(value, vector.vector_type(I32, lanes))
            shift = number * (32 // self._group)
            if shift:
                value = e.b.shl(value, vector.splat_constant(value.type, shift))
            packed = value if packed is None else e.b.or_(packed, value)
        return packed

    def _elements(
        self, part: Part, order: Order, line: Value, k: Value, mask: vector.Mask, *, whole: bool
    ) -> Value:
        """Element k of a vector of lines, in the packed type."""
        e, lanes = self.e, self._lanes
        exists = None if whole else e.b.icmp_signed("<", k, part.depth)
        if exists is not None:  # without any k there is no K group
            k = e.smaller(k, e.b.sub(part.depth, i64(1)))
        place = e.add(e.b.mul(line, part.line_step), e.b.mul(k, part.depth_step))
        kind = vector.vector_type(self._stored, lanes)
        where = e.element(part.pointer, place, self._stored)
        if order is Order.LINES:
            value = registers.load(e, where, kind, mask)
        else:
            steps = vector.splat(e, part.line_step, lanes)
            offsets = e.b.mul(steps, vector.iota(I64, lanes))
            value = vector.gather(e, where, offsets, kind, mask)
        value = self._converted(value)
        if exists is None:
            return value
        return e.b.select(exists, value, vector.splat_constant(value.type, 0))

    def _converted(self, value: Value) -> Value:
        if self._given is self._held:
            return value
        wide = storage(self._given, self._core).to_core(self.e, value)
        return storage(self._held, self._core).from_core(self.e, wide)
