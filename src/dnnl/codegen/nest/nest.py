"""The generator of memory-bound kernels: loops over layouts around a body on vectors.

A kernel gives axes, operands with the index that each iteration touches, and a body. The body gets
a :class:`Point`, one vector of the iteration space. It loads and stores operands, and may fold over
the reduced axes::

    def body(point):
        (largest,) = point.fold((-inf,), lambda p, m: (maximum(p.e, p.load(src), m),), merge)
        point.store(dst, largest)

The generator handles layouts, blocks, tails, padding, transposition and work items. If the shape
has tails, the body is emitted several times: for vectors inside every bound, and for those at the
end of each axis, with constant masks. The padding of outputs is zeroed.
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
    """What to compute: ``body`` for every point of ``parallel``; it may fold over ``reduced``.

    ``inputs`` are only read. ``outputs`` are written; the layout of the first, ``dst``, decides the
    order of the loops. The body stores to each output in each point, or in each iteration inside a
    fold; padding becomes zero. An output without an element for each reduced iteration, such as the
    mean of a row, is stored after the fold.

    Only points inside the bounds ``where`` are computed and stored. Points outside ``filled`` store
    zero, as in padding. ``numbers`` are the integers that the body reads with ``Point.number``. No
    loop walks the axes ``indirect``: the body gives their values with ``Point.at`` to load operands
    whose index contains them. ``reads_dst`` says that the body reads dst. ``uses_row_buffer`` says
    that it calls ``Point.row_buffer``.

    ``core`` is the type of the body's vectors. A vector spans ``registers`` registers, unless
    devices have scalar registers or conversions are combined with a transposition; None means as
    many as are best converted at once. Vectors across the rows of a reduction span up to
    ``reduction_unroll`` registers. Vectors along long enough lines span ``unroll`` registers, so
    that long dependency chains overlap.

    ``copied`` is an input that the body stores to dst unchanged, if it does nothing else. ``steps``
    scales the estimate of the work of a point. Nothing is done if all elements of ``skip_if_zero``,
    a dense s32 tensor, are zero. With ``any_length`` no bound asks whether axes of open sizes reach
    from one end of a window to the other.
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
    any_length: bool = False

    @property
    def operands(self) -> tuple[Operand, ...]:
        """All operands."""
        skip_if_zero = () if self.skip_if_zero is None else (self.skip_if_zero,)
        return (*self.inputs, *self.outputs, *skip_if_zero)

    @property
    def space(self) -> Space:
        """The iteration space."""
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
        """What the nest asks of its schedule."""
        return Style(
            self.core,
            self.registers,
            self.reduction_unroll,
            self.unroll,
            self.copied is not None,
            self.reads_dst,
        )

    def planned(self, isa: Isa) -> Schedule:
        """The schedule of the whole space."""
        return schedule(isa, self.space, self.style)


def emit_nest(module: Module, symbol: str, nest: Nest) -> Phase:
    """Emit the phase ``symbol``."""
    return emit_planned(module, symbol, nest, nest.planned(module.isa))


def emit_planned(module: Module, symbol: str, nest: Nest, plan: Schedule) -> Phase:
    """Emit the phase ``symbol`` with a given schedule."""
    work = plan.work_per_point * nest.steps
    items = ONE if plan.serial else share_out(module.isa, plan.loops, work)
    return _emit(module, symbol, [(nest, plan)], items)


def shares_bytes(isa: Isa, nest: Nest) -> bool:
    """Whether vectors of a 4-bit dst share bytes, so that one work item stores it element by
    element."""
    return nest.planned(isa).serial


def emit_interleaved(module: Module, symbol: str, nests: Sequence[Nest]) -> Phase | None:
    """Emit nests that write parts of one destination as one phase with interleaved loops, so that
    each range of the destination is written at once. Returns None and emits nothing if their outer
    loops differ."""
    plans = [(nest, nest.planned(module.isa)) for nest in nests]
    if len({_outermost(plan) for _, plan in plans}) > 1:
        return None
    if any(plan.group > 1 for _, plan in plans):
        return None
    first = plans[0][1].loops[:1]
    if not first or not enough(first[0]):
        return None
    points = sum(prod(loop.typical for loop in plan.loops[1:]) for _, plan in plans)
    items = share_out(module.isa, first, points * plans[0][1].work_per_point)
    return _emit(module, symbol, plans, items)


def _outermost(plan: Schedule) -> tuple[int, int | None] | None:
    """The trip count of the first loop, and its step in dst in elements."""
    offset = plan.space.dst.offset
    if not plan.loops:
        return None
    loop = plan.loops[0]
    return loop.count, None if offset is None else offset.stride(loop.axis) * loop.step


def _emit(
    module: Module, symbol: str, plans: Sequence[tuple[Nest, Schedule]], items: Items
) -> Phase:
    operands = (operand for nest, _ in plans for operand in nest.operands)
    group = max(plan.group for _, plan in plans)
    phase = PhaseFunction.of(module, symbol, operands, group)
    e = phase.e
    sites = [
        Site(e, plan, phase.pointers(nest.operands), nest.core, nest.reads_dst, group=phase.group)
        for nest, plan in plans
    ]

    def run(sites: Sequence[Site]) -> Values:
        writers = [
            Writer(site, nest.body, nest.copied, any_length=nest.any_length)
            for site, (nest, _) in zip(sites, plans, strict=True)
        ]

        def item(number: ir.Value) -> None:
            for writer in writers:
                writer.item(number, items)

        phase.each_item(items.count, item)
        return ()

    def stream() -> Values:
        run([replace(site, streamed=site.plan.streamed) for site in sites])
        e.fence()
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
    """Whether any element of a dense s32 tensor is not zero."""

    def body(number: ir.Value, indirect: ir.Value) -> Values:
        place = e.element(pointer, e.add(number, e.number(desc.offset0)), I32)
        return (e.b.or_(indirect, e.b.load(place, typ=I32, align=4)),)

    (indirect,) = e.loop(
        i64(0), e.number(desc.nelems()), body, (I32(0),), unroll=False, name="needed"
    )
    return e.b.icmp_unsigned("!=", indirect, I32(0))


def _aligned(site: Site) -> ir.Value:
    """Whether dst is aligned so that whole vectors can be stored non-temporally."""
    b = site.e.b
    (dst, *_) = site.plan.space.outputs
    address = b.ptrtoint(site.pointers[dst], I64)
    conversion_group = site.plan.conversion_group if dst in site.plan.grouped else 1
    size = site.plan.vectors.lanes * conversion_group * dst.desc.data_type.size
    return b.icmp_signed("==", b.and_(address, i64(size - 1)), i64(0))
