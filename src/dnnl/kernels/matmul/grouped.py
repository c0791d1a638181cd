"""Grouped matrix products whose group sizes are known at execution only: mixtures of experts.

    groups of rows    dst[rows of g] = src[rows of g] x weights[g]
    groups of terms   dst[g] = src[columns of g] x weights[rows of g]

One kernel serves all group sizes: a product for each group, whose rows or terms are a range that is
known at execution only. A work item is some columns of one group, and reads its two offsets.

Offsets are not validated. They are clamped to the tensors, and a group that ends before it begins
is empty: wrong ones give wrong results and access nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from dnnl.codegen.ir.builder import I32, I64, Emitter, Value, i64
from dnnl.codegen.ir.kernel import Arguments, Kernel, Reason, Refusal
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Env, Operand
from dnnl.codegen.memory.address import Affine, Axis
from dnnl.codegen.nest import work_items
from dnnl.codegen.product.brgemm import max_rows, registers
from dnnl.codegen.product.decompress import PackedMultiply
from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.matmul import matmul
from dnnl.kernels.matmul.problem import MatmulProblem, panels_for
from dnnl.kernels.product.base.blocking import Blocking, even_rows
from dnnl.kernels.product.base.problem import Panels
from dnnl.kernels.product.loops import phases
from dnnl.kernels.product.loops.form import Product
from dnnl.kernels.product.loops.run_time import RunTimeRange
from dnnl.kernels.product.pack.on_the_fly import PanelPacking, Span
from dnnl.kernels.product.plan import plan as planner
from dnnl.kernels.product.plan.conf import ProductConf
from dnnl.kernels.product.plan.plan import plan
from dnnl.kernels.product.plan.refusals import refuse_matrices
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc

_LEAST_ROWS = 4
"""The rows for which the width of tiles is chosen at least, where weights have 4 bits."""
_LEAST_STEPS = 4
"""The least K groups of a block for which the partial sums are worth their loads and stores."""


@dataclass(frozen=True, kw_only=True)
class GroupedProblem(MatmulProblem):
    """A product whose rows, or terms if ``of_terms``, belong to ``groups``. src, weights, bias and
    dst have three dimensions; the first is 1 if groups are stored one behind the other.

    Plans are made for groups of the same size.
    """

    groups: int
    of_terms: bool

    @property
    def rows(self) -> int:
        """The rows of a group of average size."""
        rows = self.dst.dims[-2]
        return rows if self.of_terms else -(-rows // self.groups)

    @property
    def varies(self) -> bool:
        """Groups of rows are of any size."""
        return not self.of_terms

    @property
    def depth(self) -> int:
        """The terms of a sum of average size, for which blocks are chosen."""
        return -(-self.terms // self.groups) if self.of_terms else self.terms

    def takes_unit(self, isa: Isa) -> bool:
        """Groups of any number of rows are multiplied by vectors, not by a matrix unit."""
        return False

    def panels(
        self, isa: Isa, src: MemoryDesc, weights: MemoryDesc, dot: Multiply, *, ones: bool = False
    ) -> Panels:
        """Row-major weights are read in place if they consist of whole panels and most groups are
        one tile: each row of a panel is in a cache line of its own, and few of these stay in a
        cache."""
        packed = isinstance(dot, PackedMultiply)
        # Few rows make wide tiles, which read the weights again for each row of a larger group.
        rows = max(_LEAST_ROWS if packed else 1, self.rows)
        vectors = max(2, dot.group)
        _, k, n = weights.dims
        whole = k % dot.group == 0 and n % (vectors * isa.lanes) == 0 and isa.lanes > 1
        plain = weights.is_plain and weights.data_type is dot.b and weights.strides[-1] == 1
        lowest = registers(1, vectors, dot.parts, ones=ones)
        few = rows <= max_rows(isa, vectors, dot.parts, ones=ones) and dot.span == 1
        if whole and plain and few and not packed and lowest <= isa.registers:
            return Panels(weights, vectors)
        typical = MemoryDesc((1, rows, src.dims[-1]), src.data_type)
        return panels_for(isa, typical, weights, dot, ones=ones)

    def tile_rows(self, isa: Isa, dot: Multiply, vectors: int, *, ones: bool) -> int:
        """As many as registers hold. Where a K group is many instructions, each height of tiles is
        long code, and no tile is higher than most groups."""
        most = even_rows(self.dst.dims[-2], max_rows(isa, vectors * dot.span, dot.parts, ones=ones))
        return most if dot.steps == 1 else min(most, 1 << max(0, self.rows - 1).bit_length())

    def blocking(
        self,
        isa: Isa,
        dot: Multiply,
        src: MemoryDesc,
        panels: Panels,
        *,
        ones: bool,
        packing: PanelPacking | None,
    ) -> Blocking:
        """A work item has some panels of a group, few enough to keep threads busy, and all rows of
        it. Where sums are computed in K blocks, it takes some rows at a time, whose partial sums
        fill a part of the second-level cache."""
        _, rows, _ = self.src.dims
        typical = replace(self, src=MemoryDesc((1, rows, self.depth), self.src.data_type))
        given = isa, dot, src, panels
        blocking = super(GroupedProblem, typical).blocking(*given, ones=ones, packing=packing)
        if self.of_terms:
            return replace(blocking, panels=max(1, blocking.panels))
        if blocking.steps < _LEAST_STEPS:
            return replace(blocking, panels=1, places=0, steps=0)
        width, number = panels.vectors * isa.lanes, max(1, blocking.panels)
        while number > 1 and self.groups * -(-self.dst.dims[-1] // (number * width)) < (
            work_items.FEW_ITEMS
        ):
            number = -(-number // 2)
        sums = number * panels.vectors * isa.vector_bits // 8
        places = blocking.places or max(self.rows, isa.caches.l2 // 4 // sums)
        return replace(blocking, panels=number, places=places)


GroupedConf = ProductConf[GroupedProblem]


def resolve(problem: GroupedProblem, isa: Isa) -> GroupedProblem:
    """Decide the layouts that are ``any``: weights in panels."""
    return planner.resolve(problem, isa)


def configure(problem: GroupedProblem, isa: Isa) -> GroupedConf | Refusal:
    """Plan a product whose layouts are all decided."""
    refusal = refuse_matrices(problem)
    if refusal is not None:
        return refusal
    src, weights = (Arg.SRC, problem.src), (Arg.WEIGHTS, problem.weights)
    if problem.of_terms:
        if problem.src.data_type.is_integer or problem.weights.data_type.is_integer:
            return Refusal(Reason.DATA_TYPE, "integers in groups of terms; it takes floats")
        if problem.src.data_type is not DataType.f64:  # a group may begin within a K group
            wide = {n: getattr(problem, n).with_data_type("f32") for n in ("src", "weights")}
            problem = replace(problem, **wide, narrow=DataType.f32)
    product = plan(problem, isa, src=src, weights=weights)
    if product.copy_out is not None and not problem.of_terms:  # it would write rows of no group
        return Refusal(Reason.LAYOUT, f"dst {problem.dst}; it takes rows of whole bytes")
    return product


def build(conf: GroupedConf, isa: Isa) -> Kernel:
    """One product for each group."""
    return phases.build("matmul_grouped", conf, isa, _products)


def _products(conf: GroupedConf, isa: Isa, arguments: Arguments) -> tuple[Product]:
    problem = conf.problem
    group = Axis(problem.groups, "group")
    product = matmul.product(conf, isa, arguments, (group,))
    axis = product.inside[0] if problem.of_terms else product.places[-1]
    desc = MemoryDesc((problem.groups,), DataType.s32)
    offsets = Operand(arguments.slot(Arg.part(Arg.SRC, 1)), desc, (Affine.of(group),))
    ends = partial(_ends, offsets, group, axis.extent)
    return (replace(product, ranges=(RunTimeRange(axis, (offsets,), ends),)),)


def _ends(
    offsets: Operand,
    group: Axis,
    most: int,
    e: Emitter,
    env: Env,
    pointers: Mapping[Operand, Value],
) -> Span:
    """The begin and the end of a group, clamped to the tensor."""

    def offset(number: Value) -> Value:
        where = e.element(pointers[offsets], number, I32)
        value = e.b.sext(e.b.load(where, typ=I32, align=4), I64)
        return e.larger(i64(0), e.smaller(value, i64(most)))

    number = env[group]
    before = offset(e.larger(i64(0), e.add(number, i64(-1))))
    first = e.b.select(e.b.icmp_signed("==", number, i64(0)), i64(0), before)
    return first, offset(number)
