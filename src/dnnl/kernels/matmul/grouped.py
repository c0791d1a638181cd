"""Grouped matrix products whose group sizes are known at execution only: mixtures of experts.

    groups of rows    dst[rows of g] = src[rows of g] x weights[g]
    groups of terms   dst[g] = src[columns of g] x weights[rows of g]

One kernel serves all group sizes. A work item is a panel of columns of one group: it reads the two
offsets of the group, and computes its rows in tiles of decreasing height.

Offsets are not validated. They are clamped to the tensors, and a group that ends before it begins
is empty: wrong ones give wrong results and access nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dnnl.codegen.epilogue.product_epilogue import Depth, ProductEpilogue
from dnnl.codegen.ir.builder import I32, I64, Module, Value, i64
from dnnl.codegen.ir.kernel import Arguments, Kernel, Reason, Refusal
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Env, Operand
from dnnl.codegen.memory.address import ZERO, Affine, Axis, decode
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.codegen.product.brgemm import (
    PREFETCH_DISTANCE,
    Factors,
    Level,
    Prefetch,
    Tile,
    accumulate,
    max_rows,
    registers,
)
from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.matmul.problem import MatmulProblem, panels_for
from dnnl.kernels.product.base.problem import Panels
from dnnl.kernels.product.base.store import Columns, Store
from dnnl.kernels.product.loops import phases as product_phases
from dnnl.kernels.product.plan import plan as planner
from dnnl.kernels.product.plan.conf import ProductConf
from dnnl.kernels.product.plan.plan import plan
from dnnl.kernels.product.plan.refusals import refuse_matrices
from dnnl.kernels.shared.copies import emit_copies
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True, kw_only=True)
class GroupedProblem(MatmulProblem):
    """A product whose rows, or terms, belong to ``groups``. src, weights, bias and dst have three
    dimensions; the first is 1 if groups are stored one behind the other."""

    groups: int

    @property
    def simple(self) -> bool:
        """The loops have no work inside of a sum."""
        return True

    def takes_unit(self, isa: Isa) -> bool:
        """Groups of any number of rows are multiplied by vectors, not by a matrix unit."""
        return False

    def panels(
        self, isa: Isa, src: MemoryDesc, weights: MemoryDesc, dot: Multiply, *, ones: bool = False
    ) -> Panels:
        """Row-major weights are read in place if they consist of whole panels and most groups are
        one tile: each row of a panel is in a cache line of its own, and few of these stay in a
        cache."""
        shared = weights.dims[0] == 1
        average = src.dims[-2] if shared else -(-src.dims[-2] // self.groups)
        vectors = max(2, dot.group)
        _, k, n = weights.dims
        whole = k % dot.group == 0 and n % (vectors * isa.lanes) == 0 and isa.lanes > 1
        plain = weights.is_plain and weights.data_type is dot.b and weights.strides[-1] == 1
        lowest = registers(1, vectors, dot.parts, ones=ones)
        few = average <= max_rows(isa, vectors, dot.parts, ones=ones) and dot.span == 1
        if whole and plain and few and lowest <= isa.registers:
            return Panels(weights, vectors)
        rows = MemoryDesc((1, max(1, average), k), src.data_type)
        return panels_for(isa, rows, weights, dot, ones=ones)


@dataclass(frozen=True)
class GroupedMatmulConf:
    """``product`` is of matrices with three dimensions, of which the first is 1 for tensors that
    all groups share. ``groups`` is the number of groups: of rows, or of terms of the sums if
    ``of_terms``."""

    product: ProductConf[GroupedProblem]
    groups: int
    of_terms: bool

    @property
    def scratchpad(self) -> int:
        """Temporary memory in bytes."""
        return self.product.scratchpad


def resolve(problem: GroupedProblem, isa: Isa) -> GroupedProblem:
    """Decide the layouts that are ``any``: weights in panels."""
    return planner.resolve(problem, isa)


def configure(problem: GroupedProblem, isa: Isa, *, of_terms: bool) -> GroupedMatmulConf | Refusal:
    """Plan a product whose layouts are all decided."""
    refusal = refuse_matrices(problem)
    if refusal is not None:
        return refusal
    src, weights = (Arg.SRC, problem.src), (Arg.WEIGHTS, problem.weights)
    if of_terms:
        if problem.src.data_type.is_integer or problem.weights.data_type.is_integer:
            return Refusal(Reason.DATA_TYPE, "integers in groups of terms; it takes floats")
        if problem.src.data_type is not DataType.f64:  # a group may begin within a K group
            wide = {n: getattr(problem, n).with_data_type("f32") for n in ("src", "weights")}
            problem = replace(problem, **wide, narrow=DataType.f32)
    product = plan(problem, isa, src=src, weights=weights, whole=False)
    if product.copy_out is not None:
        return Refusal(Reason.LAYOUT, f"dst {problem.dst}; it takes rows of whole bytes")
    return GroupedMatmulConf(product, problem.groups, of_terms)


def build(conf: GroupedMatmulConf, isa: Isa) -> Kernel:
    """The copies in, the sums that compensate bytes, the products."""
    arguments, module, product = Arguments(), Module("matmul", isa), conf.product
    phases = emit_copies(module, "matmul", product.copies_in, arguments, product.dequantized)
    phases.extend(product.compensation.emit(module, arguments))
    phases.append(_GroupedWriter(module, conf, arguments).phase())
    return Kernel(module, tuple(phases), arguments.ids)


class _GroupedWriter:
    """Writes the phase of the products."""

    def __init__(self, module: Module, conf: GroupedMatmulConf, arguments: Arguments) -> None:
        isa, product = module.isa, conf.product
        self.conf, self.multiply = conf, product.multiply
        rows, columns = product.dst[1].dims[-2:]
        terms, group = product.src[1].dims[-1], self.multiply.group
        self.tile = product.blocking.tile
        self.columns = Columns.of(columns, self.tile, isa.lanes)
        self.group, self.row = Axis(conf.groups, "group"), Axis(rows, "row")
        self.k = Axis(max(1, -(-terms // group)), "k")
        self.places = Axis(1, "depth"), Axis(1, "height"), self.row
        own, row = Affine.of(self.group), Affine.of(self.row)
        depth, column = Affine.of(self.k, group), self.columns.form

        def operand(given: tuple[int, MemoryDesc], *index: Affine) -> Operand:
            first = own if given[1].dims[0] > 1 else ZERO
            return Operand(arguments.slot(given[0]), given[1], (first, *index))

        self.src = operand(product.src, row, depth)
        self.weights = operand(product.weights, depth, column)
        self.dst = operand(product.dst, row, column)
        at = product_phases.Indices(
            (own, row, column),
            (*self.src.index[:2], ZERO),
            (self.weights.index[0], ZERO, column),
            row_sums=self.src.index[:2],
        )
        depths = Depth(terms, self.k.extent * group)
        self.end: ProductEpilogue = product_phases.finish(product, arguments, self.dst, at, depths)
        self.terms, self.rows = terms, rows
        operands = (self.src, self.weights, *self.end.operands)
        self.offsets = arguments.slot(Arg.part(Arg.SRC, 1))
        types = "_".join(str(d.data_type) for d in (product.src[1], product.weights[1]))
        shape = f"{self.tile.rows}x{self.columns.width}"
        slots = (*(operand.slot for operand in operands), self.offsets)
        self.function = PhaseFunction(
            module, f"matmul_grouped__{types}__{shape}__{isa.name}", slots
        )
        self.e, self.pointers = self.function.e, self.function.pointers(operands)
        domain = (self.columns.inside,) if self.columns.inside.needed else ()
        self.store = Store(
            self.e, self.pointers, self.end, self.places, self.columns, domain, (), False
        )
        src_form, weights_form = (own.offset(own.index) for own in (self.src, self.weights))
        assert src_form is not None, "configure admits only affine layouts"
        assert weights_form is not None, "panels are affine"
        self.src_form, self.weights_form = src_form, weights_form
        plain = not product.weights[1].inner_blocks and group > 1
        self.k_stride = product.weights[1].strides[-2] if plain else 0

    def phase(self) -> Phase:
        """Write it."""
        loops = (self.group, self.columns.panel)
        count = self.group.extent * self.columns.panel.extent
        self.function.each_item(count, lambda number: self._item(decode(self.e, number, loops)))
        return self.function.end(count)

    def _item(self, env: Env) -> None:
        """One panel of one group."""
        first, last = self._ends(env[self.group])
        if self.conf.of_terms:
            self._rows(env, i64(0), i64(self.rows), self._level(first, last))
        else:
            whole = i64(self.k.extent if self.terms else 0)
            self._rows(env, first, last, self._level(i64(0), whole))

    def _level(self, first: Value, last: Value) -> Level:
        """The loop over K."""
        steps = self.src_form.stride(self.k), self.weights_form.stride(self.k)
        return Level(first, last, *steps)

    def _ends(self, group: Value) -> tuple[Value, Value]:
        """The begin and the end of a group, clamped to the tensor."""
        e = self.e
        most = i64(self.terms if self.conf.of_terms else self.rows)

        def offset(number: Value) -> Value:
            where = e.element(self.function.arguments[self.offsets], number, I32)
            value = e.b.sext(e.b.load(where, typ=I32, align=4), I64)
            return e.larger(i64(0), e.smaller(value, most))

        before = offset(e.larger(i64(0), e.add(group, i64(-1))))
        first = e.b.select(e.b.icmp_signed("==", group, i64(0)), i64(0), before)
        return first, offset(group)

    def _heights(self) -> Iterator[int]:
        """The heights of tiles: the most that registers hold, and the powers of two below."""
        highest = self.tile.rows
        yield highest
        for power in reversed(range((highest - 1).bit_length())):
            yield 1 << power

    def _rows(self, env: Env, begin: Value, end: Value, level: Level) -> None:
        """The tiles of rows ``begin`` .. ``end - 1``."""
        e = self.e
        for height in self._heights():
            left = e.larger(i64(0), e.add(end, e.mul(begin, -1)))
            tiles, _ = e.divmod(left, height)
            whole = e.add(begin, e.mul(tiles, height))

            def one(row: Value, height: int = height) -> None:
                self._tile({**env, self.row: row}, height, level)

            e.loop(begin, whole, one, step=height, unroll=False, name="tile")
            begin = whole

    def _prefetch(self) -> Prefetch | None:
        """The software prefetch of a tile, if panels are stored one behind the other."""
        form, bits = self.weights_form, self.multiply.b.bits
        step = form.stride(self.k) * bits // 8
        if form.stride(self.columns.panel) * bits // 8 != step * self.k.extent:
            return None
        return Prefetch(i64(PREFETCH_DISTANCE), step)

    def _tile(self, env: Env, height: int, level: Level) -> None:
        """One register tile: all products, then its epilogue."""
        e, vectors = self.e, self.columns.vector
        env = {**env, self.places[0]: i64(0), self.places[1]: i64(0)}
        step = self.src_form.stride(self.row)
        rows: list[int | None] = [number * step for number in range(height)]
        if self.end.needs_column_sums:
            rows.append(None)
        src, weights = (
            e.element(self.pointers[operand], form.along(env).emit(e, env), element)
            for operand, form, element in zip(
                (self.src, self.weights),
                (self.src_form, self.weights_form),
                self.multiply.element,
                strict=True,
            )
        )
        steps = tuple(self.weights_form.stride(vectors) * v for v in range(vectors.extent))
        factors = Factors(
            src, weights, tuple(rows), steps, self.multiply, self.k_stride, self._prefetch()
        )
        zero = Tile.of(self.multiply.zero(e), len(rows), vectors.extent)
        at = self.store.at(env, height, height)
        at.finish(accumulate(e, zero, factors, [level]))
