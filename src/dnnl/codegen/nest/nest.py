"""The generator for memory-bound work: loops over layouts around a body written on vectors.

A kernel names its axes, its operands with the element that each iteration touches, and a body. The
body gets a :class:`Point`: one vector of the iteration space. It loads and stores operands, and it
may fold over the reduced axes::

    def body(point):
        (largest,) = point.fold((-inf,), lambda p, m: (maximum(p.e, p.load(src), m),), merge)
        point.store(dst, largest)

Layouts, blocks, tails, padding, transposition and work sharing are this module's business. The
body is written out several times where the shape has tails: for vectors that lie inside every
bound, and for those at the end of each axis, whose masks are then constants. Padding of the
destination is written with zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import prod

from llvmlite import ir

from dnnl.codegen.ir.builder import F32, I32, I64, Emitter, Module, Values, i64
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Bound, Number, Operand
from dnnl.codegen.memory.address import Axis
from dnnl.codegen.nest.loop_writer import Writer
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.codegen.nest.point import Body
from dnnl.codegen.nest.predicates import Site
from dnnl.codegen.nest.schedule import Schedule, Style, schedule
from dnnl.codegen.nest.space import Space
from dnnl.codegen.nest.work_items import ONE, Items, enough, share_out
from dnnl.runtime.image import Phase
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True, eq=False)
class Nest:
    """What to compute: for every point of ``parallel``, ``body``, which may fold over ``reduced``.

    ``inputs`` are only read. ``outputs`` are written: the layout of the first, ``dst``, decides the
    order of the walk, and the body stores to each what belongs to the point, or, inside of a fold,
    to the iteration; padding becomes zero. One that has no element of its own for each iteration of
    a reduction, such as the mean of a row, is stored after the fold.

    Only points inside the bounds ``where`` are computed and stored; at those outside ``filled``
    zero is stored, as in padding. ``numbers`` are what the body asks for by ``Point.number``. No
    loop walks the axes ``found``: the body says by ``Point.at`` what they are where it loads an
    operand whose index has them. ``reads_dst`` says that the body reads dst as well, which then had
    better be in a cache, and ``keeps`` that it asks for ``Point.room``. ``core`` is the type of the
    body's vectors, and ``registers`` how many registers one fills where these hold more than one
    element and what is converted is not transposed: those that are best converted together if None;
    vectors along neighbours of a reduction may fill as many as ``beside``, and where lines are long
    enough all of them ``abreast``, so that long chains of arithmetic run side by side.
    ``moved`` is an operand whose elements the body stores to dst as they are, if it does no more.
    Nothing is done where all of ``needed``, numbers of s32 side by side, are zero. ``in_rows`` says
    that operands are rows along the reduced axis: where sizes are open, code for vectors that lie
    otherwise is left out.
    """

    parallel: tuple[Axis, ...]
    reduced: tuple[Axis, ...]
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    body: Body
    where: tuple[Bound, ...] = ()
    numbers: tuple[Number, ...] = ()
    filled: tuple[Bound, ...] = ()
    reads_dst: bool = False
    core: ir.Type = F32
    registers: int | None = 1
    reduction_unroll: int = 1
    unroll: int = 1
    copied: Operand | None = None
    indirect: tuple[Axis, ...] = ()
    uses_row_buffer: bool = False
    steps: int = 1
    skip_if_zero: Operand | None = None
    in_rows: bool = False

    @property
    def operands(self) -> tuple[Operand, ...]:
        """All that is touched."""
        skip_if_zero = () if self.skip_if_zero is None else (self.skip_if_zero,)
        return (*self.inputs, *self.outputs, *skip_if_zero)

    @property
    def space(self) -> Space:
        """What is to be walked."""
        return Space.of(
            self.parallel,
            self.reduced,
            self.inputs,
            self.outputs,
            self.where,
            self.numbers,
            self.filled,
            self.indirect,
        )

    @property
    def style(self) -> Style:
        """What the nest asks of any schedule of its."""
        return Style(
            self.core,
            self.registers,
            self.reduction_unroll,
            self.unroll,
            self.copied is not None,
            self.reads_dst,
        )

    def planned(self, isa: Isa) -> Schedule:
        """The walk over all of the space."""
        return schedule(isa, self.space, self.style)


def emit_nest(module: Module, symbol: str, nest: Nest) -> Phase:
    """Write the phase ``symbol``."""
    return emit_planned(module, symbol, nest, nest.planned(module.isa))


def emit_planned(module: Module, symbol: str, nest: Nest, plan: Schedule) -> Phase:
    """Write the phase ``symbol`` after a plan that somebody else made."""
    work = plan.work_per_point * nest.steps
    items = ONE if plan.serial else share_out(module.isa, plan.loops, work)
    return _emit(module, symbol, [(nest, plan)], items)


def shares_bytes(isa: Isa, nest: Nest) -> bool:
    """Whether vectors of a 4-bit dst share bytes, so that one work item stores it all, element by
    element."""
    return nest.planned(isa).serial


def emit_interleaved(module: Module, symbol: str, nests: Sequence[Nest]) -> Phase | None:
    """Write nests over parts of one destination as one phase in which they take turns, so that
    each stretch of the destination is written in one go; None, and nothing is written, if they do
    not walk alike."""
    plans = [(nest, nest.planned(module.isa)) for nest in nests]
    if len({_outermost(plan) for _, plan in plans}) > 1:
        return None
    first = plans[0][1].loops[:1]
    if not first or not enough(first[0]):
        return None
    points = sum(prod(loop.count for loop in plan.loops[1:]) for _, plan in plans)
    items = share_out(module.isa, first, points * plans[0][1].work_per_point)
    return _emit(module, symbol, plans, items)


def _outermost(plan: Schedule) -> tuple[int, int | None] | None:
    """The number of iterations of the first loop, and how far each goes in dst."""
    offset = plan.space.dst.offset
    if not plan.loops:
        return None
    loop = plan.loops[0]
    return loop.count, None if offset is None else offset.stride(loop.axis) * loop.step


def _emit(
    module: Module, symbol: str, plans: Sequence[tuple[Nest, Schedule]], items: Items
) -> Phase:
    phase = PhaseFunction.of(module, symbol, (op for nest, _ in plans for op in nest.operands))
    e = phase.e
    sites = [
        Site(e, plan, phase.pointers(nest.operands), nest.core, nest.reads_dst)
        for nest, plan in plans
    ]

    def run(sites: Sequence[Site]) -> Values:
        writers = [
            Writer(site, nest.body, nest.copied)
            for site, (nest, _) in zip(sites, plans, strict=True)
        ]

        def item(number: ir.Value) -> None:
            for writer in writers:
                writer.item(number, items)

        phase.each_item(items.count, item)
        return ()

    def stream() -> Values:
        run([replace(site, streamed=site.plan.streamed) for site in sites])
        e.b.fence("seq_cst")  # such stores are not ordered by the locks of the runtime
        return ()

    def every() -> Values:
        aligned = [_aligned(site) for site in sites if site.plan.streamed]
        if aligned:
            return e.branch(reduce(e.b.and_, aligned), stream, lambda: run(sites))
        return run(sites)

    skip_if_zero = [
        _any(e, phase.pointers((nest.skip_if_zero,))[nest.skip_if_zero], nest.skip_if_zero.desc)
        for nest, _ in plans
        if nest.skip_if_zero is not None
    ]
    if skip_if_zero:
        e.branch(reduce(e.b.or_, skip_if_zero), every, lambda: ())
    else:
        every()
    return phase.end(items.count)


def _any(e: Emitter, pointer: ir.Value, desc: MemoryDesc) -> ir.Value:
    """Whether one of the numbers of s32 of a dense tensor is not zero."""

    def body(number: ir.Value, indirect: ir.Value) -> Values:
        place = e.element(pointer, e.add(number, i64(desc.offset0)), I32)
        return (e.b.or_(indirect, e.b.load(place, typ=I32, align=4)),)

    (indirect,) = e.loop(i64(0), i64(desc.nelems()), body, (I32(0),), unroll=False, name="needed")
    return e.b.icmp_unsigned("!=", indirect, I32(0))


def _aligned(site: Site) -> ir.Value:
    """Whether dst begins where whole vectors may be written by non-temporal stores."""
    b = site.e.b
    (dst, *_) = site.plan.space.outputs
    address = b.ptrtoint(site.pointers[dst], I64)
    conversion_group = site.plan.conversion_group if dst in site.plan.grouped else 1
    size = site.plan.vectors.lanes * conversion_group * dst.desc.data_type.size
    return b.icmp_signed("==", b.and_(address, i64(size - 1)), i64(0))
