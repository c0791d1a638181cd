"""The compute phase of matrix products: register tiles of rows times panels of columns.

Matmul and inner product are both ``dst[row, column] = sum_k src[row, k] * weights[k, column]``;
they differ in what the row and the summed dimensions of their tensors are called. A
:class:`Product` names them by their index forms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from dnnl.codegen.access import Access, Bound, Env, Operand, Place
from dnnl.codegen.address import Affine, Axis, decode, linear_offset
from dnnl.codegen.brgemm import Level, Panels, Tile, accumulate, merge_levels
from dnnl.codegen.builder import F32, Module, Value, Values, i64
from dnnl.codegen.epilogue import Epilogue
from dnnl.codegen.phase import PhaseFunction
from dnnl.runtime.image import Phase


@dataclass(frozen=True, eq=False)
class Product:
    """A product whose operands are affine in all axes.

    ``batch`` are looped over, ``summed`` are the reduction, outermost first. ``columns`` is how
    many columns there are; ``column`` is the form ``panel * width + vector * lanes + lane`` over
    the axes ``panel``, ``vector`` and ``lane``. ``keep_weights`` lets one panel of weights meet
    all rows before the next one.
    """

    batch: tuple[Axis, ...]
    row: Axis
    summed: tuple[Axis, ...]
    columns: int
    panel: Axis
    vector: Axis
    lane: Axis
    column: Affine
    src: Operand
    weights: Operand
    dst: Operand
    bias: Operand | None
    epilogue: Epilogue
    tile: Tile
    keep_weights: bool

    @property
    def written(self) -> tuple[Operand, ...]:
        """What is touched where the results are: dst, bias and the operands of post-ops."""
        bias = () if self.bias is None else (self.bias,)
        return (self.dst, *self.epilogue.operands, *bias)

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Everything that the product touches."""
        return (self.src, self.weights, *self.written)


def column_axes(columns: int, tile: Tile, lanes: int) -> tuple[Axis, Axis, Axis, Affine]:
    """The axes panel, vector and lane, and the form of the column."""
    width = tile.vectors * lanes
    panel, vector = Axis(-(-columns // width), "panel"), Axis(tile.vectors, "vector")
    lane = Axis(lanes, "lane")
    form = Affine.of(panel, width) + Affine.of(vector, lanes) + Affine.of(lane)
    return panel, vector, lane, form


def emit_product(module: Module, symbol: str, problem: Product) -> Phase:
    """Write the phase ``symbol``."""
    phase = PhaseFunction.of(module, symbol, problem.operands)
    writer = _Writer(phase, problem)
    phase.each_item(writer.items, writer.item)
    return phase.end(writer.items)


class _Writer:
    """Writes one product."""

    def __init__(self, phase: PhaseFunction, problem: Product) -> None:
        self.e, self.problem = phase.e, problem
        self.pointers = phase.pointers(problem.operands)
        a_form = linear_offset(problem.src.desc, problem.src.index)
        b_form = linear_offset(problem.weights.desc, problem.weights.index)
        assert a_form is not None, "configure admits only affine layouts"
        assert b_form is not None, "panels are affine"
        self.a_form, self.b_form = a_form, b_form
        self.accesses = {operand: Access.of(operand, operand.index) for operand in problem.written}
        inside = Bound(problem.column, problem.columns)
        self.domain = [inside] if inside.needed else []
        self._share_out()

    def _share_out(self) -> None:
        """Cut the rows into tiles, even in size, and these into work items."""
        problem = self.problem
        rows = problem.row.extent
        self.tiles = -(-rows // problem.tile.rows)
        self.base, self.wide = divmod(rows, self.tiles)  # the first `wide` tiles have a row more
        outer = prod(axis.extent for axis in problem.batch)
        outer *= problem.panel.extent if problem.keep_weights else 1
        chunks = self.tiles
        if self.e.isa.device is None:
            chunks = min(self.tiles, max(1, 128 // outer))
        self.chunk = -(-self.tiles // chunks)
        self.chunks = Axis(-(-self.tiles // self.chunk), "chunk")
        kept = [problem.panel] if problem.keep_weights else []
        self.loops = [*problem.batch, *kept, self.chunks]
        self.items = prod(axis.extent for axis in self.loops)

    def item(self, item: Value) -> None:
        """One work item: decode its number, walk its tiles."""
        e = self.e
        env = decode(e, item, self.loops)
        low = e.mul(env[self.chunks], self.chunk)
        high = e.smaller(e.add(low, i64(self.chunk)), i64(self.tiles))
        split = i64(self.wide)
        if self.wide:
            body = self._tile_body(env, self.base + 1, 0)
            e.loop(low, e.smaller(high, split), body, unroll=False, name="tile")
        if self.wide < self.tiles:
            body = self._tile_body(env, self.base, self.wide)
            e.loop(e.larger(low, split), high, body, unroll=False, name="tile")

    def _tile_body(self, env: Env, rows: int, wide: int) -> Callable[[Value], None]:
        problem = self.problem

        def body(number: Value) -> None:
            row = self.e.add(self.e.mul(number, rows), i64(wide))
            here = {**env, problem.row: row}
            if problem.panel in here:
                self._tile(here, rows)
                return
            self.e.loop(
                i64(0), i64(problem.panel.extent),
                lambda panel: self._tile({**here, problem.panel: panel}, rows),
                unroll=False, name="panel",
            )  # fmt: skip

        return body

    def _tile(self, env: Env, rows: int) -> None:
        """One register tile: bias, the sum, post-ops, store."""
        e, problem = self.e, self.problem
        step = self.a_form.stride(problem.row)
        panels = Panels(
            e.element(self.pointers[problem.src], self.a_form.along(env).emit(e, env), F32),
            e.element(self.pointers[problem.weights], self.b_form.along(env).emit(e, env), F32),
            tuple(row * step for row in range(rows)),
            tuple(self.b_form.stride(problem.vector) * v for v in range(problem.vector.extent)),
        )
        levels = [
            Level.over(axis.extent, self.a_form.stride(axis), self.b_form.stride(axis))
            for axis in problem.summed
        ]
        acc = accumulate(e, self._start(env, rows), panels, merge_levels(levels))
        self._store(env, acc)

    def _place(self, env: Env, number: Value, masked: bool) -> Place:
        """The place of one vector of the tile."""
        problem = self.problem
        row, v = self.e.divmod(number, problem.vector.extent)
        here = {**env, problem.row: self.e.add(env[problem.row], row), problem.vector: v}
        return Place(
            self.e, self.pointers, self.accesses, here, problem.lane, problem.lane.extent,
            masked=masked, domain=self.domain,
        )  # fmt: skip

    def _start(self, env: Env, rows: int) -> Values:
        """The accumulators before the first product: the bias."""
        bias, vectors = self.problem.bias, self.problem.vector.extent
        if bias is None:
            return (self._place(env, i64(0), False).constant(0.0),) * (rows * vectors)
        if not self.accesses[bias].index or not _varies(self.accesses[bias], self.problem.row):
            return self._load(env, bias, vectors) * rows
        return self._load(env, bias, rows * vectors)

    def _load(self, env: Env, operand: Operand, results: int) -> Values:
        """The operand where the first ``results`` of the tile are."""
        return tuple(self._place(env, i64(number), True).load(operand) for number in range(results))

    def _store(self, env: Env, acc: Values) -> None:
        problem = self.problem

        def store(masked: bool) -> Values:
            def one(number: Value, value: Value) -> None:
                place = self._place(env, number, masked)
                place.store(problem.dst, problem.epilogue.apply(place, value))

            problem.epilogue.each(self.e, acc, one)
            return ()

        if not (self.domain or any(access.window for access in self.accesses.values())):
            store(masked=False)
            return
        last = i64(problem.panel.extent - 1)
        inside = self.e.b.icmp_signed("<", env[problem.panel], last)
        self.e.branch(inside, lambda: store(False), lambda: store(True))


def _varies(access: Access, axis: Axis) -> bool:
    return any(form.stride(axis) for form in access.index)
