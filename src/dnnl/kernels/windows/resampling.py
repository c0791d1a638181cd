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
from dnnl.kernels.shared.types import (
    WIDE_FLOATS,
    computed_in,
    core_of,
    refuse_forward,
    refuse_types,
)
from dnnl.kernels.windows.resampling_rows import Row, row_of
from dnnl.kernels.windows.resampling_taps import Side, Table, usual
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import is_known, typical
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
    """dst = the weighted sums of elements of src with ``attributes``: those given by ``taps``, or
    without taps the nearest one, or with ``linear`` interpolation the adjacent ones. In a
    ``gradient`` src and dst are diff_dst and diff_src, and the sums go over the elements to which
    one contributes."""

    linear: bool
    taps: tuple[Taps, ...]
    gradient: bool
    src: MemoryDesc
    dst: MemoryDesc
    attributes: Attributes

    @property
    def ends(self) -> tuple[Arg, Arg]:
        """The arguments that are read and written."""
        return (Arg.DIFF_DST, Arg.DIFF_SRC) if self.gradient else (Arg.SRC, Arg.DST)

    @cached_property
    def dims(self) -> tuple[Table, ...]:
        """The taps along each spatial dimension."""
        # Tables in the code fix the sizes that they were made for.
        old, new = tuple(map(int, self.src.dims[2:])), tuple(map(int, self.dst.dims[2:]))
        if self.gradient:
            old, new = new, old
        found = [(each.places, each.weights) for each in self.taps]
        found = found or [usual(*pair, self.linear) for pair in zip(old, new, strict=True)]
        if self.gradient:
            return tuple(Table.backward(*each, n) for each, n in zip(found, old, strict=True))
        return tuple(Table.forward(*each) for each in found)

    @cached_property
    def times(self) -> tuple[int, ...]:
        """How often the elements of each spatial dimension are repeated, where that is all that
        happens and only an execution knows how many there are: no table is needed."""
        pairs = list(zip(self.src.dims[2:], self.dst.dims[2:], strict=True))
        known = all(is_known(old) and is_known(new) for old, new in pairs)
        if known or self.linear or self.taps or self.gradient:
            return ()
        found = [divmod(typical(new), max(1, typical(old))) for old, new in pairs]
        whole = all(not rest for _, rest in found)
        times = tuple(factor for factor, _ in found)
        same = whole and all(old * n == new for n, (old, new) in zip(times, pairs, strict=True))
        return times if same else ()

    @property
    def copies(self) -> bool:
        """Whether elements are copied unchanged."""
        alike = self.src.data_type is self.dst.data_type and self.attributes.plain
        return alike and all(table.taps == 1 and not table.weighted for table in self.dims)


def configure(
    linear: bool,
    taps: tuple[Taps, ...],
    gradient: bool,
    src: MemoryDesc,
    dst: MemoryDesc,
    attributes: Attributes,
) -> ResamplingConf | Refusal:
    """Accept any two layouts of supported types; those of gradients are floats."""
    conf = ResamplingConf(linear, taps, gradient, src, dst, attributes)
    repeats = bool(conf.times)
    longest = 0 if repeats else max(map(int, (*src.dims[2:], *dst.dims[2:])))
    if longest > _LONGEST:
        rule = f"at most {_LONGEST}, as the positions of all elements are part of the code"
        return Refusal(Reason.SHAPE, f"{longest} elements along an axis; {rule}")
    most = max((each.count * each.elements for each in taps), default=0)
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
    """One nest that sums the taps of each element: along rows by registers of consecutive elements
    if possible, else element by element."""
    if conf.times:
        return _repeated(conf, isa)
    core, axes = _core(conf), letters(conf.dst.dims)
    nest, ids = _nest(conf, core, axes, None)
    # Elements that are copied are extended to 32 bits, the unit of permutations.
    elements = I32 if conf.copies and vector.bits(core) < vector.bits(I32) else core
    row = row_of(isa, conf.dims[-1], axes[-1], conf.src, conf.dst, vector.bits(elements))
    if row is not None:
        by_rows, its_ids = _nest(conf, elements, axes, row)
        if row.fits(by_rows, isa):
            nest, ids = by_rows, its_ids
    module = Module("resampling", isa)
    entry = symbol("resampling", [conf.src, conf.dst], isa)
    return Kernel(module, (emit_nest(module, entry, nest),), ids)


def _repeated(conf: ResamplingConf, isa: Isa) -> Kernel:
    """Each element of src, as often as it is repeated along each dimension."""
    arguments, outer = Arguments(), letters(conf.src.dims)
    inner = [Axis(times, f"k{number}") for number, times in enumerate(conf.times)]
    index = [Affine.of(axis) for axis in outer]
    places = [
        form * axis.extent + Affine.of(axis) for form, axis in zip(index[2:], inner, strict=True)
    ]
    src = Operand(arguments.slot(Arg.SRC), conf.src, tuple(index))
    dst = Operand(arguments.slot(Arg.DST), conf.dst, (*index[:2], *places))
    given = Sources(conf.attributes, {Arg.SRC: src}, arguments)
    result = Result(conf.attributes, dst, arguments)
    copies = conf.src.data_type is conf.dst.data_type and conf.attributes.plain

    def body(point: Point) -> None:
        if copies:
            point.store_stored(dst, point.load_stored(src))
        else:
            result.store(point, given.load(point, Arg.SRC))

    bare = bare_core(conf.src.data_type, conf.dst.data_type)
    nest = Nest(
        (*outer, *inner),
        (),
        (*given.operands, *result.inputs),
        result.outputs,
        body,
        reads_dst=result.reads_dst,
        core=bare if copies else core_of(conf.src, conf.dst),
    )
    module = Module("resampling", isa)
    entry = symbol("resampling", [conf.src, conf.dst], isa)
    return Kernel(module, (emit_nest(module, entry, nest),), arguments.ids)


def _nest(
    conf: ResamplingConf, core: Type, axes: tuple[Axis, ...], row: Row | None
) -> tuple[Nest, tuple[int, ...]]:
    """The nest over ``axes``, those of dst, and its arguments. The last axis is that of ``row``, if
    given."""
    (read, written), arguments = conf.ends, Arguments()
    index = tuple(map(Affine.of, axes))
    spatial = list(zip(conf.dims, axes[2:], conf.src.dims[2:], strict=True))
    looked_up = spatial if row is None else spatial[:-1]
    sides = [Side(*side, computed_in(conf.src, conf.dst)) for side in looked_up]
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
    nest = Nest(
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
    return nest, arguments.ids


def _core(conf: ResamplingConf) -> Type:
    """The type of the computation: f64 if f32 would not distinguish integers."""
    if conf.copies:
        return bare_core(conf.src.data_type, conf.dst.data_type)
    wide = conf.src.data_type is DataType.s32 and conf.attributes.plain
    return F64 if wide else core_of(conf.src, conf.dst)
