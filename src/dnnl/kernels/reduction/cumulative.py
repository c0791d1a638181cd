"""Sums and products of all elements up to each along one dimension."""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.codegen.conversion.convert import storage
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, F64, Emitter, Module, Type, Value, Values
from dnnl.codegen.ir.kernel import Arguments, Kernel, Reason, Refusal, symbol
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, letters
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.codegen.nest.schedule import REDUCTION_UNROLL
from dnnl.kernels.shared.types import WIDE_FLOATS, refuse_types
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import surely_equal
from dnnl.types.typed import INTEGERS


@dataclass(frozen=True)
class CumulativeConf:
    """dst = the sum or the product of all src up to each along ``axis``, without the element itself
    where it is ``exclusive``, from the end where it is ``reverse``."""

    product: bool
    axis: int
    exclusive: bool
    reverse: bool
    src: MemoryDesc
    dst: MemoryDesc

    @property
    def floats(self) -> bool:
        """Whether floats are computed, in f64 if they are."""
        return self.src.data_type.is_float

    @property
    def neutral(self) -> int:
        """What an exclusive sum or product begins with."""
        return int(self.product)


def configure(
    product: bool, axis: int, exclusive: bool, reverse: bool, src: MemoryDesc, dst: MemoryDesc
) -> CumulativeConf | Refusal:
    """Accept any layouts whose blocks do not pad the axis."""
    refusal = refuse_types(src, dst, allowed=WIDE_FLOATS | INTEGERS)
    if refusal is None and src.data_type is not dst.data_type:
        rule = f"{src.data_type} to {dst.data_type}: it is computed in one type"
        refusal = Refusal(Reason.DATA_TYPE, rule)
    if refusal is None and not surely_equal(dst.padded_dims[axis], dst.dims[axis]):
        refusal = Refusal(Reason.LAYOUT, f"dst is padded along axis {axis}")
    return refusal or CumulativeConf(product, axis, exclusive, reverse, src, dst)


def build(conf: CumulativeConf, isa: Isa) -> Kernel:
    """One nest, which carries a value for each row along the axis."""
    module, arguments = Module("cumulative", isa), Arguments()
    axes = letters(conf.dst.dims)
    walked = axes[conf.axis]
    index = [Affine.of(axis) for axis in axes]
    if conf.reverse:
        index[conf.axis] = Affine.of(walked, -1) + (walked.extent - 1)
    src = Operand(arguments.slot(Arg.SRC), conf.src, tuple(index))
    dst = Operand(arguments.slot(Arg.DST), conf.dst, tuple(index))
    element: Type = storage(conf.src.data_type, F32).element
    core = element
    if conf.floats:
        core = F64 if conf.src.data_type is DataType.f64 else F32

    def step(p: Point, before: Value) -> Values:
        own = _loaded(p, conf, src)
        if p.along_lanes:
            before, own = _counted(p, conf, before, own)
            every = _joined(p.e, conf, before, _up_to_lanes(p.e, conf, own))
            _store(p, conf, dst, _behind(p.e, before, every) if conf.exclusive else every)
            return (_splat_lane(p, every, p.kind.count - 1),)
        total = _joined(p.e, conf, before, own)
        _store(p, conf, dst, before if conf.exclusive else total)
        return (total,)

    def body(point: Point) -> None:
        point.scan((conf.neutral,), step, core)

    rows = tuple(axis for axis in axes if axis is not walked)
    nest = Nest(rows, (walked,), (src,), (dst,), body, reduction_unroll=REDUCTION_UNROLL, core=core)
    entry = symbol("cumulative", [conf.src, conf.dst], isa)
    return Kernel(module, (emit_nest(module, entry, nest),), arguments.ids)


def _loaded(point: Point, conf: CumulativeConf, src: Operand) -> Value:
    return point.load(src) if conf.floats else point.load_stored(src)


def _counted(point: Point, conf: CumulativeConf, before: Value, own: Value) -> Values:
    """What there is before a vector, and its elements, where some lanes have none, as behind the
    end of a block. These get the neutral element. Their lanes of ``before`` are stale."""
    mask = point.valid
    if mask is None:
        return before, own
    neutral = vector.splat_constant(own.type, conf.neutral)
    return _splat_lane(point, before, 0), point.e.b.select(mask, own, neutral)


def _splat_lane(point: Point, value: Value, lane: int) -> Value:
    return vector.splat(point.e, vector.lane(point.e, value, lane), point.kind.count)


def _store(point: Point, conf: CumulativeConf, dst: Operand, value: Value) -> None:
    if conf.floats:
        point.store(dst, value)
    else:
        point.store_stored(dst, value)


def _joined(e: Emitter, conf: CumulativeConf, a: Value, b: Value) -> Value:
    if conf.floats:
        return e.b.fmul(a, b) if conf.product else e.b.fadd(a, b)
    return e.b.mul(a, b) if conf.product else e.b.add(a, b)


def _up_to_lanes(e: Emitter, conf: CumulativeConf, value: Value) -> Value:
    """The sum or product of all lanes up to each, in as many steps as their number has digits."""
    count, neutral = value.type.count, vector.splat_constant(value.type, conf.neutral)
    distance = 1
    while distance < count:
        order = [count - distance + lane for lane in range(count)]
        earlier = vector.shuffle(e, neutral, value, order)
        value = _joined(e, conf, earlier, value)
        distance *= 2
    return value


def _behind(e: Emitter, before: Value, every: Value) -> Value:
    """What there is before each lane: ``before`` the first, and what the lane in front has."""
    count = every.type.count
    return vector.shuffle(e, before, every, [count - 1 + lane for lane in range(count)])
