"""Normalize each channel, with given statistics or with those of the batch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from dnnl.codegen.epilogue.attributes import Attributes, Result, Sources
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Module, Type, Value, Values
from dnnl.codegen.ir.kernel import Arguments, Kernel, Refusal, symbol
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, Axis, letters
from dnnl.codegen.nest.folds import (
    Fold,
    Reduction,
    emit_fold,
    mean_and_variance,
    moments,
    partials_desc,
)
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.codegen.nest.resident import emit_resident, resident
from dnnl.kernels.normalization.shared import KEPT, Flagged, affine, inverse_deviation
from dnnl.kernels.shared.scratchpad import Scratchpad
from dnnl.kernels.shared.types import computed_in, core_of, refuse_forward
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.kinds import NormFlags
from dnnl.types.memory_desc import MemoryDesc

_NONE = MemoryDesc.zero()
# Results of a reduction to moments.
_MOMENTS = 4


@dataclass(frozen=True)
class BatchNormalizationConf(Flagged):
    """dst = relu(scale * (src - mean) / sqrt(variance + epsilon) + shift + added) with
    ``attributes``.

    ``workspace`` is what the relu kept, if that is asked for. In ``training`` statistics of the
    batch are outputs.

    Where a cache holds a channel, all is done ``at_once``. Elsewhere ``factor``, the one of each
    channel, lies in the ``scratchpad``, which has that many bytes, and so do ``partial`` results of
    statistics of the batch, and their ``mean`` where it is no output, or is rounded there.
    """

    src: MemoryDesc
    dst: MemoryDesc
    epsilon: float
    flags: NormFlags
    workspace: MemoryDesc | None
    training: bool
    attributes: Attributes
    at_once: bool = False
    factor: MemoryDesc = _NONE
    mean: MemoryDesc = _NONE
    partial: MemoryDesc = _NONE
    scratchpad: int = 0

    @property
    def held(self) -> DataType:
        """What is computed in, and kept between phases."""
        return computed_in(self.src, self.dst)

    @property
    def core(self) -> Type:
        """What is computed in."""
        return core_of(self.src, self.dst)

    @property
    def sources(self) -> dict[int, MemoryDesc]:
        """What is normalized, and what is added to that."""
        added = {int(Arg.SRC_1): self.dst} if self.added else {}
        return {int(Arg.SRC): self.src, **added}

    @property
    def relu(self) -> bool:
        """Whether a relu ends the normalization."""
        return self.added or NormFlags.fuse_norm_relu in self.flags

    @property
    def added(self) -> bool:
        """Whether a second source is added."""
        return NormFlags.fuse_norm_add_relu in self.flags


def per_channel(data: MemoryDesc) -> MemoryDesc:
    """The descriptor of everything that has one value for each channel of ``data``."""
    return MemoryDesc((data.dims[1],), "f32")


def configure(
    src: MemoryDesc,
    dst: MemoryDesc,
    isa: Isa,
    epsilon: float,
    flags: NormFlags,
    workspace: MemoryDesc | None,
    training: bool,
    attributes: Attributes,
) -> BatchNormalizationConf | Refusal:
    """Accept any two layouts of supported types."""
    conf = BatchNormalizationConf(src, dst, epsilon, flags, workspace, training, attributes)
    refusal = refuse_forward(conf.sources, dst, attributes)
    if refusal is not None:
        return refusal
    scratchpad, channels = Scratchpad(), per_channel(dst).with_data_type(conf.held)
    _, factor = scratchpad.take(channels)
    if conf.given:
        return replace(conf, factor=factor, scratchpad=scratchpad.size)
    left = training and conf.held is DataType.f32
    mean = _NONE if left else scratchpad.take(channels)[1]
    _, partial = scratchpad.take(partials_desc(isa, src.dims[1], reduced(src), _MOMENTS, conf.held))
    apart = replace(conf, factor=factor, mean=mean, partial=partial, scratchpad=scratchpad.size)
    return replace(conf, at_once=True) if _resident(apart, isa) else apart


@lru_cache(KEPT)
def _resident(apart: BatchNormalizationConf, isa: Isa) -> bool:
    """Whether a cache holds a channel. Planning both ways takes a millisecond."""
    own = _Normalizer(apart, Arguments())
    return resident(isa, _at_once(own), _normalization(own))


def reduced(data: MemoryDesc) -> int:
    """How many elements a channel has."""
    return data.nelems() // max(1, data.dims[1])


def build(conf: BatchNormalizationConf, isa: Isa) -> Kernel:
    """Factors of each channel out of given statistics, or statistics and factors, then one nest
    over the data; or all in one nest, where a cache holds a channel."""
    module = Module("batch_normalization", isa)
    arguments = Arguments()
    phases = _given(conf, module, arguments) if conf.given else _computed(conf, module, arguments)
    return Kernel(module, phases, arguments.ids)


def _given(conf: BatchNormalizationConf, module: Module, arguments: Arguments) -> tuple[Phase, ...]:
    scale = conf.scaled
    factors = emit_factors(module, arguments, conf.factor, conf.epsilon, scale)
    nest = _normalization(_Normalizer(conf, arguments))
    return factors, emit_nest(module, _entry(conf, module), nest)


def _entry(conf: BatchNormalizationConf, module: Module) -> str:
    return symbol("batch_normalization", [conf.src, conf.dst], module.isa)


def emit_factors(
    module: Module, arguments: Arguments, factor: MemoryDesc, epsilon: float, scale: bool
) -> Phase:
    """Write the phase scratchpad[c] = scale[c] / sqrt(variance[c] + epsilon)."""
    desc = MemoryDesc(factor.dims, "f32")
    axes = letters(desc.dims)
    index = (Affine.of(axes[0]),)
    variance = Operand(arguments.slot(Arg.VARIANCE), desc, index)
    factors = Operand(arguments.slot(Arg.SCRATCHPAD), factor, index)
    above = Operand(arguments.slot(Arg.SCALE), desc, index) if scale else None

    def body(point: Point) -> None:
        point.store(factors, inverse_deviation(point, point.load(variance), epsilon, above))

    inputs = (variance,) if above is None else (variance, above)
    entry = symbol("batch_normalization_factors", [desc], module.isa)
    nest = Nest(axes, (), inputs, (factors,), body, core=core_of(factor))
    return emit_nest(module, entry, nest)


class _Normalizer:
    """The tensors of the forward pass, and what is done at one point of them."""

    def __init__(self, conf: BatchNormalizationConf, arguments: Arguments) -> None:
        self._conf, self._arguments, self.core = conf, arguments, conf.core
        self.axes = letters(conf.dst.dims)
        index = tuple(Affine.of(axis) for axis in self.axes)

        def tensor(arg: Arg, desc: MemoryDesc) -> Operand:
            return Operand(arguments.slot(arg), desc, index)

        def source(arg: Arg, desc: MemoryDesc) -> Sources:
            return Sources(conf.attributes, {arg: tensor(arg, desc)}, arguments)

        self.given = source(Arg.SRC, conf.src)
        self.added = source(Arg.SRC_1, conf.dst) if conf.added else None
        self.result = Result(conf.attributes, tensor(Arg.DST, conf.dst), arguments)
        self.scale = self._channel(Arg.SCALE) if conf.scaled else None
        self.shift = self._channel(Arg.SHIFT) if conf.shifted else None
        self.kept = None if conf.workspace is None else tensor(Arg.WORKSPACE, conf.workspace)

    def _channel(self, arg: Arg, desc: MemoryDesc | None = None) -> Operand:
        own = desc or per_channel(self._conf.dst)
        return Operand(self._arguments.slot(arg), own, (Affine.of(self.axes[1]),))

    @cached_property
    def mean(self) -> Operand:
        """The mean, where one phase leaves it to the next."""
        if self._conf.mean.is_zero:
            return self._channel(Arg.MEAN)
        return self._channel(Arg.SCRATCHPAD, self._conf.mean)

    @cached_property
    def factor(self) -> Operand:
        """What differences from the mean are multiplied by, where phases are apart."""
        return self._channel(Arg.SCRATCHPAD, self._conf.factor)

    @cached_property
    def results(self) -> tuple[Operand, ...]:
        """The mean and the variance, where they are outputs."""
        if not self._conf.training:
            return ()
        mean = self.mean if self._conf.mean.is_zero else self._channel(Arg.MEAN)
        return mean, self._channel(Arg.VARIANCE)

    @property
    def beside(self) -> tuple[Operand, ...]:
        """What is read besides src, statistics and factors."""
        added = () if self.added is None else self.added.operands
        return (*self.result.inputs, *added, *(() if self.shift is None else (self.shift,)))

    @property
    def scales(self) -> tuple[Operand, ...]:
        """The scale of each channel, if there are such."""
        return () if self.scale is None else (self.scale,)

    @property
    def parts(self) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
        """The axis of channels, and those that their statistics go over."""
        return self.axes[1:2], (self.axes[0], *self.axes[2:])

    @property
    def outputs(self) -> tuple[Operand, ...]:
        """What is written for each element."""
        return (*self.result.outputs, *(() if self.kept is None else (self.kept,)))

    @property
    def reduction(self) -> Reduction:
        """What :meth:`settle` takes."""
        return moments(self.load, self._conf.held)

    def load(self, point: Point) -> Value:
        """The elements of src here."""
        return self.given.load(point, Arg.SRC)

    def settle(self, point: Point, values: Values) -> tuple[Value, Value]:
        """The mean and the factor of a channel, whose mean and variance are stored where they are
        outputs."""
        mean, variance = mean_and_variance(point.e, values)
        for operand, value in zip(self.results, (mean, variance), strict=False):
            point.store(operand, value)
        return mean, inverse_deviation(point, variance, self._conf.epsilon, self.scale)

    def normalize(self, point: Point, mean: Value, factor: Value) -> None:
        """One vector of elements."""
        e = point.e
        shift = None if self.shift is None else point.load(self.shift)
        value = affine(point, e.b.fsub(self.load(point), mean), factor, shift)
        if self.added is not None:
            value = e.b.fadd(value, self.added.load(point, Arg.SRC_1))
        if self.kept is not None:
            positive = e.b.fcmp_unordered(">", value, point.constant(0.0))
            flags = e.b.select(positive, point.constant(1.0), point.constant(0.0))
            point.store(self.kept, flags)
        if self._conf.relu:
            # In this order NaN stays.
            value = vector.maximum(e, point.constant(0.0), value)
        self.result.store(point, value)


def _normalization(own: _Normalizer) -> Nest:
    """What normalizes with the means and factors in memory."""

    def body(point: Point) -> None:
        own.normalize(point, point.load(own.mean), point.load(own.factor))

    inputs = (*own.given.operands, own.mean, own.factor, *own.beside)
    reads = own.result.reads_dst
    return Nest(own.axes, (), inputs, own.outputs, body, reads_dst=reads, core=own.core)


def _at_once(own: _Normalizer) -> Nest:
    """What finds the statistics of a channel and normalizes with them."""
    reduction = own.reduction

    def body(point: Point) -> None:
        mean, factor = own.settle(point, reduction.partial(point))
        point.each(lambda p: own.normalize(p, mean, factor))

    inputs = (*own.given.operands, *own.scales, *own.beside)
    outputs = (*own.outputs, *own.results)
    reads = own.result.reads_dst
    return Nest(*own.parts, inputs, outputs, body, reads_dst=reads, core=own.core)


def _computed(
    conf: BatchNormalizationConf, module: Module, arguments: Arguments
) -> tuple[Phase, ...]:
    """Write the phases that find the statistics as well."""
    own, entry = _Normalizer(conf, arguments), _entry(conf, module)
    if conf.at_once:
        return (emit_resident(module, entry, _at_once(own)),)
    mean_apart = () if conf.mean.is_zero else (own.mean,)

    def finish(point: Point, values: Values) -> None:
        mean, factor = own.settle(point, values)
        for operand in mean_apart:
            point.store(operand, mean)
        point.store(own.factor, factor)

    outputs = (*own.results, *mean_apart, own.factor)
    fold = Fold(*own.parts, own.given.operands, outputs, own.reduction, finish, own.scales)
    scratch = arguments.slot(Arg.SCRATCHPAD), conf.partial
    name = symbol("batch_normalization_statistics", [conf.src], module.isa)
    return *emit_fold(module, name, fold, scratch), emit_nest(module, entry, _normalization(own))
