"""Emits squares that a work-group transposes in shared memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

from llvmlite import ir

from dnnl.codegen.conversion.convert import storage
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import I64, Values, i64
from dnnl.codegen.memory.access import Bound, Env, Operand
from dnnl.codegen.memory.address import Axis
from dnnl.codegen.memory.deferred_store import DeferredStores
from dnnl.codegen.nest.point import Body, Point
from dnnl.codegen.nest.predicates import Site
from dnnl.codegen.nest.shared_squares import SharedSquares, wide


class SharedSquareWriter:
    """Emits the body for each element of a square; the items of a group share them.

    A group does one square, so its memory is free at the start.
    """

    def __init__(self, site: Site, squares: SharedSquares, body: Body) -> None:
        assert site.group is not None
        space, lane = site.plan.space, site.plan.vectors.lane
        assert lane is not None
        self.e, self._site, self._group, self._body = site.e, site, site.group, body
        self._tile, self._lane = squares.tile, lane
        self._arrays: dict[Operand, ir.Value] = {}
        self._pitches: dict[Operand, int] = {}
        self._wide: dict[Operand, int] = {}
        for number, access in enumerate(own for own in space.reads if site.plan.transposed(own)):
            operand = access.operand
            pitch = self._pitches[operand] = squares.pitch(self._group.groups, access)
            nelems = lane.extent * pitch
            self._arrays[operand] = self._group.array(number, self._element(operand), nelems)
            self._wide[operand] = wide(access, self._tile)
        for output in space.outputs:
            self._wide[output] = wide(space.accesses[output], lane)

    def write(self, env: Env, masked: bool, known: dict[Bound, bool]) -> None:
        """Load, transpose, and emit the body for all elements. Accesses are wide where no element
        of the square is outside bounds and the operands are aligned."""
        narrow = dict.fromkeys(self._wide, 1)

        def transpose(counts: dict[Operand, int]) -> Values:
            self._load(env, masked, known, counts)
            self._group.barrier()
            self._compute(env, masked, known, counts)
            return ()

        if masked or self._wide == narrow:
            transpose(narrow)
        else:
            aligned = reduce(self.e.b.and_, self._aligned())
            self.e.branch(aligned, lambda: transpose(self._wide), lambda: transpose(narrow))

    def _aligned(self) -> Iterator[ir.Value]:
        """Whether each operand with wide accesses is aligned to them."""
        b = self.e.b
        for operand, count in self._wide.items():
            if count > 1:
                address = b.ptrtoint(self._site.pointers[operand], I64)
                rest = b.and_(address, i64(count * operand.desc.data_type.size - 1))
                yield b.icmp_signed("==", rest, i64(0))

    def _places(self, inner: Axis, outer: Axis, count: int) -> Iterator[tuple[ir.Value, ir.Value]]:
        """The elements of a square that this item has: the place along ``inner`` of the first of
        each ``count`` neighbours, and that along ``outer``. Neighbouring items have neighbours."""
        runs = inner.extent // count
        line, run = self.e.divmod(self._group.member, runs)
        at_once = self._group.size // runs
        for first in range(0, outer.extent, at_once):
            yield self.e.mul(run, count), self.e.add(line, i64(first))

    def _load(
        self, env: Env, masked: bool, known: dict[Bound, bool], counts: dict[Operand, int]
    ) -> None:
        """Copy the rows of all operands to shared memory. All loads come first, so that many are in
        flight."""
        loaded = []
        for operand in self._arrays:
            count = counts[operand]
            for column, row in self._places(self._tile, self._lane, count):
                here = self._site.with_lines({**env, self._tile: column, self._lane: row})
                point = Point(self._site, here, masked, {}, known)
                several = count > 1
                value = point.load_run(operand, count) if several else point.load_stored(operand)
                loaded.append((self._shared(operand, row, column), value, operand))
        for where, value, operand in loaded:
            size = operand.desc.data_type.size
            align = max(size, min(self._group.groups.bank, counts[operand] * size))
            self.e.b.store(vector.only(self.e, value), where, align=align)

    def _compute(
        self, env: Env, masked: bool, known: dict[Bound, bool], counts: dict[Operand, int]
    ) -> None:
        """Emit the body for the elements of this item, with the operands from shared memory."""
        outputs = self._site.plan.space.outputs
        count = counts[outputs[0]]
        together = [output for output in outputs if counts[output] == count > 1]
        for first, column in self._places(self._lane, self._tile, count):
            deferred = DeferredStores(count, together, aligned=True)
            for number in range(count):
                row = self.e.add(first, i64(number))
                here = self._site.with_lines({**env, self._tile: column, self._lane: row})
                loaded = {operand: self._read(operand, row, column) for operand in self._arrays}
                point = Point(self._site, here, masked, loaded, known, deferred=deferred)
                self._body(point)
            deferred.flush()

    def _read(self, operand: Operand, row: ir.Value, column: ir.Value) -> ir.Value:
        kind = vector.vector_type(self._element(operand), 1)
        return vector.load(self.e, self._shared(operand, row, column), kind)

    def _shared(self, operand: Operand, row: ir.Value, column: ir.Value) -> ir.Value:
        """The address of an element in shared memory."""
        index = self.e.add(self.e.mul(row, self._pitches[operand]), column)
        return self._group.place(self._arrays[operand], index)

    def _element(self, operand: Operand) -> ir.Type:
        return storage(operand.data_type, self._site.core).element
