"""Elements that are weighted sums of a few others, whose positions are in tables for each
dimension."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce

from dnnl.codegen.conversion.convert import bare_core
from dnnl.codegen.epilogue.attributes import Attributes, Result, Sources
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F64, I32, Module, Type, Value, Values
from dnnl.codegen.ir.kernel import Arguments, Kernel, Reason, Refusal, symbol
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, Axis, letters
from dnnl.codegen.nest.fold_loop import added
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.kernels.shared.scratchpad import Scratchpad
from dnnl.kernels.shared.types import (
    WIDE_FLOATS,
    computed_in,
    core_of,
    refuse_forward,
    refuse_types,
)
from dnnl.kernels.windows.resampling_open import OpenTable, inverts
from dnnl.kernels.windows.resampling_rows import Row, row_lanes
from dnnl.kernels.windows.resampling_taps import Side, Table
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.interpolation import Interpolation
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import is_known
from dnnl.types.taps import Taps

# Registers that share the table lookups of a pixel.
_SIDE_BY_SIDE = 4
# The most elements along an axis, for which a kernel is built in some ten seconds, and the most
# taps.
_LONGEST = 2**20
_MOST_TAPS = 2**22
_CHANNELS = 3  # mask of batch and channels


@dataclass(frozen=True)
class ResamplingConf:
    """dst = the weighted sums of elements of src with ``attributes``, along each spatial dimension
    those of its ``taps``. In a ``gradient`` src and dst are diff_dst and diff_src, and the sums go
    over the elements to which one contributes."""

    taps: tuple[Taps | Interpolation, ...]
    gradient: bool
    src: MemoryDesc
    dst: MemoryDesc
    attributes: Attributes

    @property
    def ends(self) -> tuple[Arg, Arg]:
        """The arguments that are read and written."""
        return (Arg.DIFF_DST, Arg.DIFF_SRC) if self.gradient else (Arg.SRC, Arg.DST)

    @cached_property
    def _tables(self) -> tuple[tuple[Table | OpenTable, ...], int]:
        """The taps along each spatial dimension, and the bytes of scratchpad that they take."""
        scratchpad = Scratchpad()
        sizes = list(zip(self.src.dims[2:], self.dst.dims[2:], strict=True))
        tables = [
            self._table(taps, pair, scratchpad, row=place == len(sizes))
            for place, (taps, pair) in enumerate(zip(self.taps, sizes, strict=True), 1)
        ]
        return tuple(tables), scratchpad.size

    def _table(
        self,
        taps: Taps | Interpolation,
        sizes: tuple[int, int],
        scratchpad: Scratchpad,
        *,
        row: bool,
    ) -> Table | OpenTable:
        """The taps between the ``sizes`` of src and dst along one dimension, its last one if it is
        the ``row``."""
        if (
            isinstance(taps, Interpolation)
            and not all(map(is_known, sizes))
            and (not self.gradient or inverts(taps, *reversed(sizes)))
        ):
            kind = computed_in(self.src, self.dst)
            return OpenTable.of(taps, sizes, kind, scratchpad, gradient=self.gradient, row=row)
        # Tables in the code fix the sizes that they were made for.
        source, element = map(int, sizes)
        if self.gradient:
            return Table.backward(*taps.table(element, source), element)
        return Table.forward(*taps.table(source, element))

    @property
    def dims(self) -> tuple[Table | OpenTable, ...]:
        """The taps along each spatial dimension."""
        return self._tables[0]

    @property
    def scratchpad(self) -> int:
        """The bytes of temporary memory."""
        return self._tables[1]

    @property
    def copies(self) -> bool:
        """Whether elements are copied unchanged."""
        alike = self.src.data_type is self.dst.data_type and self.attributes.plain
        return alike and all(table.taps == 1 and not table.weighted for table in self.dims)


def configure(
    taps: tuple[Taps | Interpolation, ...],
    gradient: bool,
    src: MemoryDesc,
    dst: MemoryDesc,
    attributes: Attributes,
) -> ResamplingConf | Refusal:
    """Accept any two layouts of supported types; those of gradients are floats."""
    conf = ResamplingConf(taps, gradient, src, dst, attributes)
    longest = max(n for n in (*src.dims[2:], *dst.dims[2:], 0) if is_known(n))
    if longest > _LONGEST:
        rule = f"at most {_LONGEST}, as the positions of all elements are part of the code"
        return Refusal(Reason.SHAPE, f"{longest} elements along an axis; {rule}")
    given = [each for each in taps if isinstance(each, Taps)]
    most = max((each.count * each.elements for each in given), default=0)
    if most > _MOST_TAPS:
        rule = f"at most {_MOST_TAPS}, as they are part of the code"
        return Refusal(Reason.SHAPE, f"{most} taps of all elements along an axis; {rule}")
    if gradient:
        refusal = refuse_types(src, dst, allowed=WIDE_FLOATS)
    else:
        refusal = refuse_forward({Arg.SRC: src}, dst, attributes) or _refuse_masks(attributes)
    return refusal or conf


def _refuse_masks(attributes: Attributes) -> Refusal | None:
    """A refusal of scales and zero points that differ between the terms of a sum."""
    own = attributes.quantization.of_arguments((Arg.SRC,))
    for _, spec in (*own.scales, *own.zero_points):
        if spec.mask > _CHANNELS:
            detail = f"scales or zero points of SRC with mask {spec.mask}, along the image"
            return Refusal(Reason.ATTRIBUTE, f"{detail}; at most {_CHANNELS}")
    return None


def build(conf: ResamplingConf, isa: Isa) -> Kernel:
    """A phase for each table of open sizes, and one nest that sums the taps of each element: along
    rows by registers of consecutive elements if possible, else element by element."""
    core, arguments = _core(conf), Arguments()
    axes = letters(conf.dst.dims)
    nest = _nest(conf, core, axes, arguments, None)
    # Elements that are copied are extended to 32 bits, the unit of permutations.
    elements = I32 if conf.copies and vector.bits(core) < vector.bits(I32) else core
    row = _row(conf, isa, axes[-1], arguments, vector.bits(elements))
    if row is not None:
        by_rows = _nest(conf, elements, axes, arguments, row)
        nest, row = (by_rows, row) if row.fits(by_rows, isa) else (nest, None)
    module = Module("resampling", isa)
    entry = symbol("resampling", [conf.src, conf.dst], isa)
    rows = [*[None] * (len(conf.dims) - 1), row]
    filled = [
        table.emit(module, f"{entry}_taps{place}", arguments.slot(Arg.SCRATCHPAD), own)
        for place, (table, own) in enumerate(zip(conf.dims, rows, strict=True))
        if isinstance(table, OpenTable)
    ]
    return Kernel(module, (*filled, emit_nest(module, entry, nest)), arguments.ids)


def _row(conf: ResamplingConf, isa: Isa, axis: Axis, arguments: Arguments, bits: int) -> Row | None:
    """The row along the last axis, if it can be computed by registers."""
    lanes, table = row_lanes(isa, axis, conf.src, conf.dst, bits), conf.dims[-1]
    if not lanes:
        return None
    if isinstance(table, OpenTable):
        return table.row(axis, arguments.slot(Arg.SCRATCHPAD), lanes)
    return Row.of(table, axis, int(conf.src.dims[-1]), lanes)


def _nest(
    conf: ResamplingConf,
    core: Type,
    axes: tuple[Axis, ...],
    arguments: Arguments,
    row: Row | None,
) -> Nest:
    """The nest over ``axes``, those of dst. The last axis is that of ``row``, if given."""
    read, written = conf.ends
    index = tuple(map(Affine.of, axes))
    spatial = list(zip(conf.dims, axes[2:], conf.src.dims[2:], strict=True))
    looked_up = spatial if row is None else spatial[:-1]
    sides = [_side(conf, *side, arguments) for side in looked_up]
    found = tuple(side.found for side in sides) + (() if row is None else (row.found,))
    src = Operand(arguments.slot(read), conf.src, (*index[:2], *map(Affine.of, found)))
    dst = Operand(arguments.slot(written), conf.dst, index)
    given = Sources(conf.attributes, {read: src}, arguments)
    result = Result(conf.attributes, dst, arguments)

    def load(p: Point) -> list[Value]:
        places = {side.found: p.lookup(side.places) for side in sides}
        if row is None:
            return [p.at(places).load_stored(src)]
        return row.load(p.at({**places, row.found: row.start(p)}), src)

    def step(p: Point, *totals: Value) -> Values:
        values = [p.widen(src, value) for value in load(p)]
        weights = [p.load(side.weights) for side in sides if side.weights is not None]
        if not weights:
            return added(p.e, totals, tuple(values))
        weight = reduce(p.e.b.fmul, weights)
        if any(side.gaps for side in sides):
            some, zero = p.e.b.fcmp_ordered("!=", weight, p.constant(0.0)), p.constant(0.0)
            values = [p.e.b.select(some, value, zero) for value in values]
        pairs = zip(values, totals, strict=True)
        return tuple(vector.multiply_add(p.e, weight, value, total) for value, total in pairs)

    def body(point: Point) -> None:
        if conf.copies:
            stored = load(point)
            point.store_stored(dst, stored[0] if row is None else row.picked(point, stored))
            return
        count = 1 if row is None else row.parts
        if any(side.taps for side in sides):
            values = point.fold((0.0,) * count, step, added)
        else:
            values = step(point, *[point.constant(-0.0)] * count)
        value = values[0] if row is None else row.summed(point, values)
        # The weights of an element sum up to 1.
        result.store(point, given.dequantized(point, read, value))

    tables = [table for side in (*sides, *(() if row is None else (row,))) for table in side.tables]
    return Nest(
        axes,
        tuple(tap for side in sides for tap in side.taps),
        (*given.operands, *tables, *result.inputs),
        result.outputs,
        body,
        reads_dst=result.reads_dst,
        core=core,
        registers=1 if conf.copies or row is not None else _SIDE_BY_SIDE,
        indirect=found,
    )


def _side(
    conf: ResamplingConf, table: Table | OpenTable, axis: Axis, extent: int, arguments: Arguments
) -> Side:
    """One spatial dimension, in which src has ``extent`` elements."""
    if isinstance(table, OpenTable):
        return table.side(axis, arguments.slot(Arg.SCRATCHPAD))
    return Side.of(table, axis, extent, computed_in(conf.src, conf.dst))


def _core(conf: ResamplingConf) -> Type:
    """The type of the computation: f64 if f32 would not distinguish integers."""
    if conf.copies:
        return bare_core(conf.src.data_type, conf.dst.data_type)
    wide = conf.src.data_type is DataType.s32 and conf.attributes.plain
    return F64 if wide else core_of(conf.src, conf.dst)
