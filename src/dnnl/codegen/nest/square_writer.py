"""Emits squares: elements that are loaded in rows and transposed in registers; software
prefetch."""

from __future__ import annotations

from llvmlite import ir

from dnnl.codegen.conversion import nibbles
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Values, i64
from dnnl.codegen.isa.caches import LINE
from dnnl.codegen.memory.access import Access, Bound, Env, Operand
from dnnl.codegen.nest.point import Body, Point
from dnnl.codegen.nest.predicates import Site
from dnnl.codegen.nest.vectorize import Squares
from dnnl.types.size import typical

Known = dict[Bound, bool]


class SquareWriter:
    """Emits the body for each vector of a square.

    ``copied`` is an operand that the body stores to dst unchanged, if it does nothing else.
    """

    def __init__(self, site: Site, squares: Squares, body: Body, copied: Operand | None) -> None:
        self.e, self._site, self._plan, self._squares = site.e, site, site.plan, squares
        self._body = body
        self._dst = site.plan.space.dst
        self._loaded = [access for access in site.plan.space.reads if site.plan.transposed(access)]
        # Elements of 4 bits that are copied to a 4-bit dst stay packed.
        both = () if copied is None else (copied, self._dst.operand)
        four = all(operand.desc.data_type.bits == 4 for operand in both)
        self._pairs = next((a for a in self._loaded if four and a.operand is copied), None)

    def write(self, env: Env, masked: bool, known: Known) -> None:
        """Load, transpose, and emit the body for all columns."""
        squares = self._squares
        loaded = {access.operand: self._load(env, access, masked, known) for access in self._loaded}
        for k in range(squares.columns):
            piece, column = divmod(k, squares.tile.extent)
            here = self._site.with_lines(
                {**env, squares.pieces: i64(piece), squares.tile: i64(column)}
            )
            columns = {operand: rows[k] for operand, rows in loaded.items()}
            self._column(here, masked, columns, known)

    def _column(
        self, env: Env, masked: bool, columns: dict[Operand, ir.Value], known: Known
    ) -> None:
        """Emit the body for one column, unless nothing of it is stored."""
        space, lane = self._plan.space, self._plan.vectors.lane
        assert lane is not None
        windows = [space.accesses[output].window for output in space.outputs]
        every = [bound for bound in windows[0] if all(bound in window for window in windows)]
        gates = [bound for bound in (*space.exists, *every) if bound.form.within(env)]
        first = Point(self._site, {**env, lane: i64(0)}, masked, {}, known)
        exists = first.conditions(gates)

        def store(known: Known) -> Values:
            point = Point(self._site, env, masked, columns, known)
            self._prefetch_dst(point)
            if self._pairs is None:
                self._body(point)
            else:
                point.store_pairs(self._dst.operand, columns[self._pairs.operand])
            return ()

        if exists is None or isinstance(exists, ir.Constant):
            store(known)
        else:
            inside = {**known, **dict.fromkeys(gates, True)}
            self.e.branch(exists, lambda: store(inside), lambda: ())

    def _load(self, env: Env, access: Access, masked: bool, known: Known) -> list[ir.Value]:
        """Load a row along the tile axis for each lane, and transpose."""
        lane, lanes = self._plan.vectors.lane, self._plan.vectors.lanes
        assert lane is not None
        tile, pieces = self._squares.tile, self._squares.pieces
        self._prefetch(env, access)
        # Elements of 4 bits stay in pairs until they are transposed.
        paired = access.operand.desc.data_type.bits == 4

        def load(row: int, piece: int) -> ir.Value:
            here = self._site.with_lines({**env, lane: i64(row), pieces: i64(piece)})
            point = Point(self._site, here, masked, {}, known, along=tile)
            load = point.load_pairs if paired else point.load_stored
            return load(access.operand)

        def every_other(first: int) -> list[ir.Value]:
            def load_row(row: int, piece: int) -> ir.Value:
                return load(2 * row + first, piece)

            return vector.transpose(self.e, lanes // 2, pieces.extent, load_row)

        if self._pairs is access:
            both = zip(every_other(0), every_other(1), strict=True)
            return [pairs for two in both for pairs in nibbles.exchange(self.e, *two)]
        columns = vector.transpose(self.e, lanes, pieces.extent, load)
        if paired:
            return [codes for column in columns for codes in nibbles.halves(self.e, column)]
        return columns

    def _prefetch_dst(self, point: Point) -> None:
        """Prefetch the part of dst that a later square overwrites; not inside reductions."""
        if not self._plan.space.invariant(self._dst):
            return
        step = self._prefetch_distance(self._dst) if self._site.reads_dst else self._next_in_row()
        if step:
            point.prefetch(self._dst.operand, self.e.number(step))

    def _next_in_row(self) -> int:
        """The distance in elements to the next vector of the same row of dst; 0 if it need not be
        prefetched. It must be if dst exceeds the near cache and rows are at least two lines apart:
        squares write more rows than the hardware prefetcher follows."""
        dst, loop = self._dst, self._plan.vectors.loop
        if self._site.streamed or dst.offset is None or loop is None:
            return 0
        near = self._plan.space.step_bytes(dst, self._squares.tile) < 2 * LINE
        if near or typical(dst.operand.desc.size) <= self.e.isa.caches.near:
            return 0
        return dst.offset.stride(loop)

    def _prefetch_distance(self, access: Access) -> int:
        """The distance in elements at which an operand is prefetched; 0 if it is not."""
        axis, size = self._plan.prefetch_axis, typical(access.operand.desc.size)
        if axis is None or access.offset is None or size <= self.e.isa.caches.near:
            return 0
        return access.offset.stride(axis)

    def _prefetch(self, env: Env, access: Access) -> None:
        """Prefetch the rows of a later square.

        If that square is next in the same rows, one line holds the parts of several squares. They
        share the work: each prefetches the lines of some rows.
        """
        plan, squares, step = self._plan, self._squares, self._prefetch_distance(access)
        lane, lanes = plan.vectors.lane, plan.vectors.lanes
        assert access.offset is not None
        assert lane is not None
        period, further = 1, self.e.number(step)
        if squares.along is plan.prefetch_axis and step and not plan.space.lines:
            length = squares.columns * access.operand.desc.data_type.bits // 8
            period = max(1, min(lanes, LINE // length))
            _, phase = self.e.divmod(env[squares.along], period)
            further = self.e.mul(phase, access.offset.stride(lane))
            further = self.e.add(further, self.e.number(step * period))
        for row in range(0, lanes if step else 0, period):
            here = {**env, lane: i64(row), squares.pieces: i64(squares.pieces.extent - 1)}
            point = Point(
                self._site, self._site.with_lines(here), False, {}, {}, along=squares.tile
            )
            point.prefetch(access.operand, further)
