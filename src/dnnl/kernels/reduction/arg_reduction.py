"""Where the largest or the smallest element along one dimension is."""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.codegen.ir import plan_numbers, vector
from dnnl.codegen.ir.builder import F32, F64, I32, I64, Emitter, Module, Type, Value, Values
from dnnl.codegen.ir.kernel import Arguments, Kernel, Reason, Refusal, symbol
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Number, Operand
from dnnl.codegen.memory.address import Affine, Axis, letters
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.kernels.shared.types import SMALL_FLOATS, WIDE_FLOATS, refuse_types
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import is_known
from dnnl.types.typed import BOOLEAN, INTEGERS

PLACES = frozenset({DataType.s32, DataType.s64})
_TYPES = WIDE_FLOATS | SMALL_FLOATS | INTEGERS | BOOLEAN
_MOST = 2**31  # places are counted in s32 next to keys of 32 bits
_KEY_BITS = 32


@dataclass(frozen=True)
class ArgReductionConf:
    """dst = the place of the largest element along ``axis``, or of the smallest; of equal ones the
    first, or the last."""

    largest: bool
    last: bool
    axis: int
    src: MemoryDesc
    dst: MemoryDesc


def configure(
    largest: bool, last: bool, axis: int, src: MemoryDesc, dst: MemoryDesc
) -> ArgReductionConf | Refusal:
    """Accept any layouts."""
    refusal = refuse_types(src, allowed=_TYPES) or refuse_types(dst, allowed=PLACES)
    extent = src.dims[axis]
    if refusal is None and is_known(extent) and extent >= _MOST:
        refusal = Refusal(Reason.SHAPE, f"{extent} elements along axis {axis}, {_MOST} or more")
    return refusal or ArgReductionConf(largest, last, axis, src, dst)


def build(conf: ArgReductionConf, isa: Isa) -> Kernel:
    """One nest, which folds pairs of a key and a place."""
    module, arguments = Module("arg_reduction", isa), Arguments()
    axes = letters(conf.dst.dims)
    walked = Axis(conf.src.dims[conf.axis], "walked")
    index = tuple(map(Affine.of, axes))
    place = Number(Affine.of(walked))
    src = Operand(
        arguments.slot(Arg.SRC),
        conf.src,
        (*index[: conf.axis], place.form, *index[conf.axis + 1 :]),
    )
    dst = Operand(arguments.slot(Arg.DST), conf.dst, index)
    keys = _Keys(conf)

    def step(p: Point, key: Value, best: Value) -> Values:
        return keys.better(p.e, (key, best), (keys.of(p, src), keys.place(p, place)))

    def body(point: Point) -> None:
        init = keys.least, 0
        _, found = point.fold(init, step, keys.better, None, keys.element)
        point.store_stored(dst, keys.stored(point.e, found))

    entry = symbol("arg_reduction", [conf.src, conf.dst], isa)
    nest = Nest(axes, (walked,), (src,), (dst,), body, numbers=(place,), core=keys.core)
    return Kernel(module, (emit_nest(module, entry, nest),), arguments.ids)


class _Keys:
    """Integers in the order in which elements are wanted, the best the largest. A NaN is better
    than any number. Both zeros are one."""

    def __init__(self, conf: ArgReductionConf) -> None:
        self._conf, self._kind = conf, conf.src.data_type
        wide = self._kind.bits > _KEY_BITS or self._kind is DataType.u32
        self.element: Type = I64 if wide else I32
        self._bits = 64 if wide else _KEY_BITS
        self.core: Type = self.element
        if self._kind.is_float:
            self.core = F64 if wide else F32
        self.least = -(2 ** (self._bits - 1))

    def of(self, point: Point, src: Operand) -> Value:
        """The keys of a vector of elements."""
        e, kind = point.e, vector.vector_type(self.element, point.kind.count)
        if self._kind.is_float:
            return self._of_floats(e, point.load(src), kind)
        value = point.load_stored(src)
        if self._kind.bits < self._bits:
            value = (e.b.sext if self._kind.min < 0 else e.b.zext)(value, kind)
        elif self._kind is DataType.u64:
            value = e.b.xor(value, vector.splat_constant(kind, self.least))
        return value if self._conf.largest else e.b.not_(value)

    def _of_floats(self, e: Emitter, value: Value, kind: Type) -> Value:
        """The sign of a float is apart from its number: negative ones get the order of integers,
        in which NaN has the largest."""
        value = e.b.fadd(value, vector.splat_constant(value.type, 0.0))  # 0 for -0
        whole = e.b.bitcast(value, kind)
        negative = e.b.ashr(whole, vector.splat_constant(kind, self._bits - 1))
        most = vector.splat_constant(kind, -1 - self.least)
        key = e.b.xor(whole, e.b.and_(negative, most))
        key = key if self._conf.largest else e.b.not_(key)
        return e.b.select(e.b.fcmp_unordered("uno", value, value), most, key)

    def place(self, point: Point, number: Number) -> Value:
        """The places of a vector of elements on the axis."""
        e, kind = point.e, vector.vector_type(self.element, point.kind.count)
        start, step = point.start_and_step(point.form_of(number))
        start = start if self.element == I64 else e.b.trunc(start, I32)
        first = vector.splat(e, start, kind.count)
        return e.b.add(first, plan_numbers.multiples(e, kind, step))

    def better(self, e: Emitter, a: Values, b: Values) -> Values:
        """The pair with the larger key; of equal ones that with the place that is wanted."""
        (key, place), (other, its) = a, b
        sooner = e.b.icmp_signed(">" if self._conf.last else "<", its, place)
        equal = e.b.icmp_signed("==", other, key)
        chosen = e.b.or_(e.b.icmp_signed(">", other, key), e.b.and_(equal, sooner))
        return e.b.select(chosen, other, key), e.b.select(chosen, its, place)

    def stored(self, e: Emitter, place: Value) -> Value:
        """Places in the type of dst."""
        element = I64 if self._conf.dst.data_type is DataType.s64 else I32
        if self.element == element:
            return place
        kind = vector.vector_type(element, place.type.count)
        return e.b.sext(place, kind) if element == I64 else e.b.trunc(place, kind)
