"""Gradients of a batch normalization: of src, of the scales and of the shifts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Module, Type, Value, Values
from dnnl.codegen.ir.kernel import Arguments, Kernel, Refusal, symbol
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, Axis, letters
from dnnl.codegen.nest.folds import Fold, Reduction, emit_fold, partials_desc, sums
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.codegen.nest.resident import emit_resident, resident
from dnnl.kernels.normalization.batch import emit_factors, per_channel, reduced
from dnnl.kernels.normalization.shared import KEPT, Flagged, inverse_deviation
from dnnl.kernels.shared.scratchpad import Scratchpad
from dnnl.kernels.shared.types import WIDE_FLOATS, computed_in, core_of, refuse_types
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.kinds import NormFlags
from dnnl.types.memory_desc import MemoryDesc

_NONE = MemoryDesc.zero()
_SUMS = 2


@dataclass(frozen=True)
class BatchNormalizationBackwardConf(Flagged):
    """With g what the relu passes of diff_dst, and M the number of elements of a channel:

        along    = sum of g * (src - mean) / (variance + epsilon)
        diff_src = scale / sqrt(variance + epsilon) * (g - sum of g / M - (src - mean) * along / M)

    The terms of the sums are there where statistics are computed of the batch. ``weights`` says
    whether gradients of scale and shift are wanted, where there are such.

    Where a cache holds a channel, all is done ``at_once``. Elsewhere what each channel has, and
    ``partial`` results of sums, lie in the ``scratchpad`` of that many bytes.
    """

    src: MemoryDesc
    diff_dst: MemoryDesc
    diff_src: MemoryDesc
    epsilon: float
    flags: NormFlags
    workspace: MemoryDesc | None
    weights: bool
    at_once: bool = False
    factor: MemoryDesc = _NONE
    constant: MemoryDesc = _NONE
    along: MemoryDesc = _NONE
    partial: MemoryDesc = _NONE
    scratchpad: int = 0

    @property
    def held(self) -> DataType:
        """What is computed in, and kept between phases."""
        return computed_in(self.src, self.diff_dst, self.diff_src)

    @property
    def core(self) -> Type:
        """What is computed in."""
        return core_of(self.src, self.diff_dst, self.diff_src)

    @property
    def sums(self) -> bool:
        """Whether sums over the elements of channels are needed."""
        return not self.given or (self.weights and (self.scaled or self.shifted))


def configure(
    src: MemoryDesc,
    diff_dst: MemoryDesc,
    diff_src: MemoryDesc,
    isa: Isa,
    epsilon: float,
    flags: NormFlags,
    workspace: MemoryDesc | None,
    weights: bool,
) -> BatchNormalizationBackwardConf | Refusal:
    """Accept any layouts of supported types."""
    refusal = refuse_types(src, diff_dst, diff_src, allowed=WIDE_FLOATS)
    if refusal is not None:
        return refusal
    conf = BatchNormalizationBackwardConf(
        src, diff_dst, diff_src, epsilon, flags, workspace, weights
    )
    scratchpad, channels = Scratchpad(), per_channel(src).with_data_type(conf.held)
    apart = replace(conf, factor=scratchpad.take(channels)[1])
    if not conf.given:
        (_, constant), (_, along) = scratchpad.take(channels), scratchpad.take(channels)
        apart = replace(apart, constant=constant, along=along)
    if conf.sums:
        _, partial = scratchpad.take(
            partials_desc(isa, src.dims[1], reduced(src), _SUMS, conf.held)
        )
        apart = replace(apart, partial=partial)
    apart = replace(apart, scratchpad=scratchpad.size)
    return replace(conf, at_once=True) if conf.sums and _resident(apart, isa) else apart


@lru_cache(KEPT)
def _resident(apart: BatchNormalizationBackwardConf, isa: Isa) -> bool:
    """Whether a cache holds a channel. Planning both ways takes a millisecond."""
    own = _Gradient(apart, Arguments())
    return resident(isa, _at_once(own), _differentiation(own))


class _Coefficients(NamedTuple):
    """What the gradient of one channel's elements is made of, besides the elements; the terms of
    the sums are None where they vanish."""

    factor: Value
    constant: Value | None
    along: Value | None


class _Gradient:
    """The tensors of the backward pass, and what is done at one point of them."""

    def __init__(self, conf: BatchNormalizationBackwardConf, arguments: Arguments) -> None:
        self.axes = letters(conf.src.dims)
        index = tuple(Affine.of(axis) for axis in self.axes)

        def tensor(arg: Arg, desc: MemoryDesc) -> Operand:
            return Operand(arguments.slot(arg), desc, index)

        def channel(arg: Arg, desc: MemoryDesc | None = None) -> Operand:
            return Operand(arguments.slot(arg), desc or per_channel(conf.src), index[1:2])

        self.src, self.diff_dst = tensor(Arg.SRC, conf.src), tensor(Arg.DIFF_DST, conf.diff_dst)
        self.kept = None if conf.workspace is None else tensor(Arg.WORKSPACE, conf.workspace)
        self.mean, self.variance = channel(Arg.MEAN), channel(Arg.VARIANCE)
        self.scale = channel(Arg.SCALE) if conf.scaled else None
        self.diff_src = tensor(Arg.DIFF_SRC, conf.diff_src)
        added = NormFlags.fuse_norm_add_relu in conf.flags
        self.diff_added = tensor(Arg.DIFF_SRC_1, conf.diff_dst) if added else None
        by_scale, by_shift = (
            conf.weights and flag in conf.flags
            for flag in (NormFlags.use_scale, NormFlags.use_shift)
        )
        self.diff_scale = channel(Arg.DIFF_SCALE) if by_scale else None
        self.diff_shift = channel(Arg.DIFF_SHIFT) if by_shift else None
        self._conf, self._arguments, self.core = conf, arguments, conf.core

    @property
    def gradients(self) -> tuple[Operand, ...]:
        """What the gradient of the result is read from."""
        return (self.diff_dst,) if self.kept is None else (self.diff_dst, self.kept)

    @property
    def outputs(self) -> tuple[Operand, ...]:
        """What is written for each element."""
        return _there(self.diff_src, self.diff_added)

    @property
    def learned(self) -> tuple[Operand, ...]:
        """The gradients of scale and shift."""
        return _there(self.diff_scale, self.diff_shift)

    @property
    def given(self) -> bool:
        """Whether the statistics are."""
        return self._conf.given

    @cached_property
    def coefficients(self) -> tuple[Operand, ...]:
        """Where the coefficients of a channel lie."""
        conf, slot = self._conf, self._arguments.slot(Arg.SCRATCHPAD)
        descs = (conf.factor,) if conf.given else (conf.factor, conf.constant, conf.along)
        return tuple(Operand(slot, desc, (Affine.of(self.axes[1]),)) for desc in descs)

    @property
    def data(self) -> tuple[Operand, ...]:
        """What sums are made of."""
        return (*self.gradients, self.src, self.mean)

    @property
    def after(self) -> tuple[Operand, ...]:
        """What is read besides to make coefficients of sums."""
        return _there(self.variance, self.scale)

    @property
    def parts(self) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
        """The axis of channels, and those that are summed over."""
        return self.axes[1:2], (self.axes[0], *self.axes[2:])

    @property
    def reduction(self) -> Reduction:
        """The sums of what the relu passes, and of its products with differences from the mean."""

        def step(p: Point, total: Value, products: Value) -> Values:
            passed = self.passed(p)
            centred = p.e.b.fsub(p.load(self.src), p.load(self.mean))
            return p.e.b.fadd(total, passed), vector.multiply_add(p.e, passed, centred, products)

        return sums(step, _SUMS, self._conf.held)

    def passed(self, point: Point) -> Value:
        """What the fused relu passes back of the gradient of the result."""
        gradient = point.load(self.diff_dst)
        if self.kept is None:
            return gradient
        zero = point.constant(0.0)
        kept = point.e.b.fcmp_ordered("!=", point.load(self.kept), zero)
        return point.e.b.select(kept, gradient, zero)

    def settle(self, point: Point, sums: Values) -> _Coefficients:
        """Store the gradients of scale and shift, and make the coefficients."""
        b = point.e.b
        total, products = sums
        variance = point.load(self.variance)
        one = inverse_deviation(point, variance, self._conf.epsilon)
        normalized = b.fmul(products, one)
        if self.diff_scale is not None:
            point.store(self.diff_scale, normalized)
        if self.diff_shift is not None:
            point.store(self.diff_shift, total)
        factor = one if self.scale is None else b.fmul(one, point.load(self.scale))
        if self._conf.given:
            return _Coefficients(factor, None, None)
        count = point.constant(float(max(1, reduced(self._conf.src))))
        return _Coefficients(factor, b.fdiv(total, count), b.fdiv(b.fmul(normalized, one), count))

    def differentiate(self, point: Point, by: _Coefficients) -> None:
        """One vector of elements."""
        e = point.e
        value = passed = self.passed(point)
        if by.constant is not None and by.along is not None:
            centred = e.b.fsub(point.load(self.mean), point.load(self.src))
            value = vector.multiply_add(e, centred, by.along, e.b.fsub(value, by.constant))
        point.store(self.diff_src, e.b.fmul(value, by.factor))
        if self.diff_added is not None:
            point.store(self.diff_added, passed)


def _there(*operands: Operand | None) -> tuple[Operand, ...]:
    return tuple(operand for operand in operands if operand is not None)


def build(conf: BatchNormalizationBackwardConf, isa: Isa) -> Kernel:
    """Sums over each channel, then one nest over the data; or both in one nest, where a cache holds
    a channel."""
    module = Module("batch_normalization_backward", isa)
    arguments = Arguments()
    own = _Gradient(conf, arguments)
    if conf.sums:
        phases = _summed(conf, own, module, arguments)
    else:
        factors = emit_factors(module, arguments, conf.factor, conf.epsilon, conf.scaled)
        nest = _differentiation(own)
        phases = factors, emit_nest(module, _entry(conf, module), nest)
    return Kernel(module, phases, arguments.ids)


def _summed(
    conf: BatchNormalizationBackwardConf, own: _Gradient, module: Module, arguments: Arguments
) -> tuple[Phase, ...]:
    """Write the phases that sum over channels."""
    entry = _entry(conf, module)
    if conf.at_once:
        return (emit_resident(module, entry, _at_once(own)),)

    def finish(point: Point, values: Values) -> None:
        for operand, value in zip(own.coefficients, own.settle(point, values), strict=False):
            point.store(operand, value)

    outputs = (*own.learned, *own.coefficients)
    fold = Fold(*own.parts, own.data, outputs, own.reduction, finish, own.after)
    scratch = arguments.slot(Arg.SCRATCHPAD), conf.partial
    name = symbol("batch_normalization_sums", [conf.src], module.isa)
    return *emit_fold(module, name, fold, scratch), emit_nest(module, entry, _differentiation(own))


def _at_once(own: _Gradient) -> Nest:
    """What sums over a channel and makes its part of diff_src."""
    reduction = own.reduction

    def body(point: Point) -> None:
        coefficients = own.settle(point, reduction.partial(point))
        point.each(lambda p: own.differentiate(p, coefficients))

    inputs, outputs = (*own.data, *own.after), (*own.outputs, *own.learned)
    return Nest(*own.parts, inputs, outputs, body, core=own.core)


def _differentiation(own: _Gradient) -> Nest:
    """What makes diff_src with the coefficients in memory."""

    def body(point: Point) -> None:
        loaded = [point.load(operand) for operand in own.coefficients]
        factor, constant, along = [*loaded, None, None][:3]
        own.differentiate(point, _Coefficients(factor, constant, along))

    terms = own.gradients if own.given else own.data
    inputs = (*terms, *own.coefficients)
    return Nest(own.axes, (), inputs, own.outputs, body, core=own.core)


def _entry(conf: BatchNormalizationBackwardConf, module: Module) -> str:
    return symbol("batch_normalization_backward", [conf.src, conf.diff_src], module.isa)
