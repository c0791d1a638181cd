"""The maximum or the average of each window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, prod

from dnnl.codegen.epilogue.attributes import Attributes, Result, Sources
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F64, Emitter, Module, Type, Value, Values
from dnnl.codegen.ir.kernel import Arguments, Kernel, Reason, Refusal, symbol
from dnnl.codegen.isa import Isa
from dnnl.codegen.math.arithmetic import round_down
from dnnl.codegen.memory.access import Number, Operand
from dnnl.codegen.memory.address import Affine, Axis, letters
from dnnl.codegen.nest import extreme
from dnnl.codegen.nest.fold_loop import added
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.codegen.nest.windows import Window, tap_number
from dnnl.kernels.shared.types import core_of, refuse_forward
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.kinds import Alg
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import is_known, typical

# With many taps several registers are filled together, as the taps of one form a chain of dependent
# operations.
_MANY_TAPS, _SIDE_BY_SIDE = 16, 4
# Vectors of a row of channels, of which a rest at its end is a small part.
_MANY_VECTORS = 4
# Numbers of taps are computed as floats.
_MOST_NUMBERED = 2**24
# The initial maximum: the least number of any type, after conversion.
_LEAST = -inf


@dataclass(frozen=True)
class PoolingConf:
    """dst = pooling of src with ``attributes``. There is one number for each spatial dimension; a
    dilation of 0 is dense.

    Tap k of output o is at ``o * stride + k * (dilation + 1) - padding``. A maximum stores in
    ``workspace``, if there is one, the number of its tap, with the last dimension fastest.
    """

    alg: Alg
    src: MemoryDesc
    dst: MemoryDesc
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[int, ...]
    dilations: tuple[int, ...]
    attributes: Attributes
    workspace: MemoryDesc | None = None


def configure(
    alg: Alg,
    src: MemoryDesc,
    dst: MemoryDesc,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    padding: tuple[int, ...],
    dilations: tuple[int, ...],
    attributes: Attributes,
    workspace: MemoryDesc | None = None,
) -> PoolingConf | Refusal:
    """Accept any window and any layouts of supported types. A maximum may have a workspace, with
    dst's dims, of u8 or s32."""
    conf = PoolingConf(alg, src, dst, kernel, strides, padding, dilations, attributes, workspace)
    refusal = refuse_forward({Arg.SRC: src}, dst, attributes)
    if refusal is None and workspace is not None:
        refusal = refuse_taps(kernel)
    return refusal or conf


def refuse_taps(kernel: tuple[int, ...]) -> Refusal | None:
    """Why taps cannot be numbered in a workspace, or None."""
    if prod(kernel) <= _MOST_NUMBERED:
        return None
    return Refusal(Reason.SHAPE, f"{prod(kernel)} taps; a workspace numbers {_MOST_NUMBERED}")


def build(conf: PoolingConf, isa: Isa) -> Kernel:
    """One nest that reduces over the taps of the window."""
    arguments = Arguments()
    axes = letters(conf.dst.dims)
    index = [Affine.of(axis) for axis in axes]
    windows = [
        Window(*sizes)
        for sizes in zip(
            conf.src.dims[2:],
            conf.dst.dims[2:],
            conf.kernel,
            conf.strides,
            (dilation + 1 for dilation in conf.dilations),
            conf.padding,
            strict=True,
        )
    ]
    taps = tuple(Axis(len(dim.reached), f"k{number}") for number, dim in enumerate(windows))
    number = [Affine.of(tap) + dim.reached.start for tap, dim in zip(taps, windows, strict=True)]
    seen = [
        form * dim.stride + tap * dim.dilation + -dim.padding
        for form, dim, tap in zip(index[2:], windows, number, strict=True)
    ]
    bare = frozenset(range(2, len(axes)))  # padding of a block is no tap
    src = Operand(arguments.slot(Arg.SRC), conf.src, (*index[:2], *seen), bare=bare)
    given = Sources(conf.attributes, {Arg.SRC: src}, arguments)
    dst = Operand(arguments.slot(Arg.DST), conf.dst, tuple(index))
    result = Result(conf.attributes, dst, arguments)
    places = []
    if conf.workspace is not None:
        places.append(Operand(arguments.slot(Arg.WORKSPACE), conf.workspace, tuple(index)))
    tap = Number(tap_number(number, conf.kernel))
    # Rounded up to whole dilation steps.
    starts = [
        Number(form * -dim.stride + (dim.padding + dim.dilation - 1))
        for form, dim in zip(index[2:], windows, strict=True)
    ]

    def body(point: Point) -> None:
        if conf.alg is not Alg.pooling_max:
            value = _average(conf, given, point)
        elif not places:
            value = _maximum(conf, given, point)
        else:
            value, place = _maximum_with_place(conf, given, tap, starts, point)
            point.store(places[0], place)
        result.store(point, value)

    module = Module("pooling", isa)
    entry = symbol("pooling", [conf.src, conf.dst], isa)
    nest = Nest(
        axes,
        taps,
        (*given.operands, *result.inputs),
        (*result.outputs, *places),
        body,
        numbers=(tap, *starts) if places else (),
        reads_dst=result.reads_dst,
        core=_core(conf),
        registers=_registers(conf, tuple(tap.extent for tap in taps), isa),
    )
    return Kernel(module, (emit_nest(module, entry, nest),), arguments.ids)


def _registers(conf: PoolingConf, kernel: tuple[int, ...], isa: Isa) -> int:
    """The number of registers as `registers` says; twice as many for a single result if that
    divides the channels, or if typical ones have many such vectors, so that more lines of each row
    of channels are read at a time."""
    count, channels = registers(kernel), conf.dst.dims[1]
    if count == 1 or conf.workspace is not None:
        return count
    vector = 2 * count * isa.lanes
    if is_known(channels):
        return 2 * count if channels % vector == 0 else count
    return 2 * count if typical(channels) >= _MANY_VECTORS * vector else count


def registers(kernel: tuple[int, ...]) -> int:
    """The number of registers to fill together for windows of this size."""
    return _SIDE_BY_SIDE if prod(kernel) > _MANY_TAPS else 1


def _core(conf: PoolingConf) -> Type:
    """The type in which windows are compared and summed: f64 if f32 would not distinguish their
    elements."""
    wide = conf.src.data_type is DataType.s32 and conf.attributes.plain
    return F64 if wide else core_of(conf.src, conf.dst)


def _maximum(conf: PoolingConf, given: Sources, point: Point) -> Value:
    """The maximum of the taps inside, NaN if one is; padding is ignored."""
    if conf.src.data_type.is_float:
        return extreme.fold(
            point, lambda p: given.load(p, Arg.SRC), vector.maximum, _LEAST, absent=_LEAST
        )

    def step(p: Point, best: Value) -> Values:
        return (vector.maximum(p.e, given.load(p, Arg.SRC), best),)

    def merge(e: Emitter, a: Values, b: Values) -> Values:
        return (vector.maximum(e, a[0], b[0]),)

    (best,) = point.fold((_LEAST,), step, merge, absent=_LEAST)
    return best


def _maximum_with_place(
    conf: PoolingConf, given: Sources, tap: Number, starts: Sequence[Number], point: Point
) -> Values:
    """The maximum, and the number of the first tap that has it, or of the last one that is NaN."""
    # Taps are visited in the memory order of src.
    steps = zip(conf.src.strides[2:], conf.kernel, strict=True)
    in_order = all(a > b for a, b in pairwise(stride for stride, size in steps if size > 1))
    extremes = extreme.Extreme(point.e, vector.maximum, _LEAST)

    def first(e: Emitter, a: Values, b: Values, ordered: bool) -> Value:
        """The number of a's tap or of b's, which is the later one if taps are ``ordered``."""
        better = e.b.fcmp_ordered(">", b[0], a[0])
        if not ordered:
            equal = e.b.fcmp_ordered("==", b[0], a[0])
            earlier = e.b.fcmp_ordered("<", b[-1], a[-1])
            better = e.b.or_(better, e.b.and_(equal, earlier))
        return e.b.select(better, b[-1], a[-1])

    def step(p: Point, *state: Value) -> Values:
        seen = given.load(p, Arg.SRC), p.number(tap)
        number = first(p.e, state, seen, in_order)
        return *extremes.with_term(p.e, seen[0], state[:-1]), number

    def merge(e: Emitter, a: Values, b: Values) -> Values:
        return *extremes.merged(e, a[:-1], b[:-1]), first(e, a, b, False)

    *state, found = point.fold((*extremes.init, 0.0), step, merge, absent=_LEAST)
    best = extremes.result(point.e, tuple(state))

    def settled() -> Values:
        e, number = point.e, _last_nan(given, tap, point)
        nothing = e.b.fcmp_ordered("==", best, point.constant(_LEAST))
        number = e.b.select(_is_nan(e, best), number, found)
        return (e.b.select(nothing, _first_inside(conf, starts, point), number),)

    # Rarely a tap is NaN, or all taps are the least number.
    special = point.e.b.fcmp_unordered("<=", best, point.constant(_LEAST))
    if point.stored is not None:
        special = point.e.b.and_(special, point.stored)
    (number,) = point.e.branch(vector.any_lane(point.e, special), settled, lambda: (found,))
    return best, number


def _is_nan(e: Emitter, value: Value) -> Value:
    return e.b.fcmp_unordered("uno", value, value)


def _last_nan(given: Sources, tap: Number, point: Point) -> Value:
    """The number of the last tap that is NaN."""

    def step(p: Point, last: Value) -> Values:
        later = vector.maximum(p.e, p.number(tap), last)
        return (p.e.b.select(_is_nan(p.e, given.load(p, Arg.SRC)), later, last),)

    def merge(e: Emitter, a: Values, b: Values) -> Values:
        return (vector.maximum(e, a[0], b[0]),)

    return point.fold((0.0,), step, merge, absent=_LEAST)[0]


def _first_inside(conf: PoolingConf, starts: Sequence[Number], point: Point) -> Value:
    """The number of the first tap inside src, for windows that begin before it."""
    e, zero, number = point.e, point.constant(0.0), point.constant(0.0)
    rows = zip(starts, conf.kernel, conf.padding, conf.dilations, strict=True)
    for start, taps, padding, dilation in rows:
        number = e.b.fmul(number, point.constant(taps))
        if padding:
            first = vector.maximum(e, point.number(start), zero)
            if dilation:
                first = round_down(e, e.b.fdiv(first, point.constant(dilation + 1)))
            first = vector.minimum(e, first, point.constant(taps - 1))
            number = e.b.fadd(number, first)
    return number


def _average(conf: PoolingConf, given: Sources, point: Point) -> Value:
    """The sum of the taps inside src, divided by the number of all taps, or of those inside."""
    volume = prod(conf.kernel)

    def step(p: Point, total: Value) -> Values:
        return (p.e.b.fadd(total, given.load(p, Arg.SRC)),)

    (total,) = point.fold((0.0,), step, added, absent=0.0)
    if conf.alg is Alg.pooling_avg_exclude_padding:
        count = point.folded
        if count != point.constant(volume):
            return point.e.b.fdiv(total, vector.maximum(point.e, count, point.constant(1.0)))
    if conf.dst.data_type.is_float:
        return point.e.b.fmul(total, point.constant(1 / volume))
    return point.e.b.fdiv(total, point.constant(volume))
