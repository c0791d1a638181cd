"""Normalize each group of channels, with given statistics or with those of the group.

Groups need not fit the blocks of a layout: statistics are found for each channel of each image,
then merged, and only the merger, whose data lies in the scratchpad, knows of groups. Where the
elements of a group lie well for it and a cache holds them, one nest does everything instead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from dnnl.codegen.epilogue.attributes import Attributes, Result, Sources
from dnnl.codegen.ir.builder import Module, Type, Value, Values
from dnnl.codegen.ir.kernel import Arguments, Kernel, Refusal, symbol
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, letters
from dnnl.codegen.nest.folds import Fold, emit_fold, mean_and_variance, moments, partials_desc
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.codegen.nest.resident import emit_resident, resident
from dnnl.kernels.normalization.group_axes import GroupAxes, layered, layers
from dnnl.kernels.normalization.shared import KEPT, Flagged, affine, inverse_deviation
from dnnl.kernels.shared.scratchpad import Scratchpad
from dnnl.kernels.shared.types import computed_in, core_of, refuse_forward
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.kinds import NormFlags
from dnnl.types.memory_desc import MemoryDesc

_NONE = MemoryDesc.zero()
# Results of a reduction to moments, and what normalizes: the mean and the factor.
_MOMENTS, _FACTORS = 4, 2


@dataclass(frozen=True)
class GroupNormalizationConf(Flagged):
    """dst = scale * (src - mean) / sqrt(variance + epsilon) + shift for each of ``groups`` groups
    of channels of each image with ``attributes``, of which the scale of src multiplies that.

    In ``training`` statistics that are not given are outputs.

    Where a cache holds a group, all is done ``at_once``. Elsewhere the ``scratchpad`` of that many
    bytes has the ``factors`` of each channel of each image, the first of which is its mean, and
    before these its ``moments``, made of ``partial`` ones.
    """

    src: MemoryDesc
    dst: MemoryDesc
    groups: int
    epsilon: float
    flags: NormFlags
    training: bool
    attributes: Attributes
    at_once: bool = False
    factors: MemoryDesc = _NONE
    moments: MemoryDesc = _NONE
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
    def axes(self) -> GroupAxes:
        """The axes of the groups."""
        return GroupAxes.of(self.src.dims, self.groups)


def configure(
    src: MemoryDesc,
    dst: MemoryDesc,
    isa: Isa,
    groups: int,
    epsilon: float,
    flags: NormFlags,
    training: bool,
    attributes: Attributes,
) -> GroupNormalizationConf | Refusal:
    """Accept any two layouts of supported types."""
    refusal = refuse_forward({Arg.SRC: src}, dst, attributes)
    if refusal is not None:
        return refusal
    conf = GroupNormalizationConf(src, dst, groups, epsilon, flags, training, attributes)
    scratchpad = Scratchpad()
    apart = replace(conf, factors=scratchpad.take(layers(src, _FACTORS, conf.held))[1])
    if not conf.given:
        sizes = prod(src.dims[:2]), prod(src.dims[2:])
        _, found = scratchpad.take(layers(src, _MOMENTS, conf.held))
        _, parts = scratchpad.take(partials_desc(isa, *sizes, _MOMENTS, conf.held))
        apart = replace(apart, moments=found, partial=parts)
    apart = replace(apart, scratchpad=scratchpad.size)
    return replace(conf, at_once=True) if not conf.given and _resident(apart, isa) else apart


@lru_cache(KEPT)
def _resident(apart: GroupNormalizationConf, isa: Isa) -> bool:
    """Whether groups lie well and a cache holds one. Planning both ways takes a millisecond."""
    if not apart.axes.lie_well(apart.src, apart.dst):
        return False
    return resident(isa, _at_once(apart, Arguments()), _normalization(apart, Arguments()))


def build(conf: GroupNormalizationConf, isa: Isa) -> Kernel:
    """Moments of each channel, the mean and the factor of each, then one nest over the data; or
    all in one nest."""
    module = Module("group_normalization", isa)
    arguments = Arguments()
    entry = symbol("group_normalization", [conf.src, conf.dst], isa)
    if conf.at_once:
        phases: tuple[Phase, ...] = (emit_resident(module, entry, _at_once(conf, arguments)),)
    else:
        found = () if conf.given else _moments(conf, module, arguments)
        name = symbol("group_normalization_factors", [conf.factors], isa)
        factors = emit_nest(module, name, _factors(conf, arguments))
        phases = *found, factors, emit_nest(module, entry, _normalization(conf, arguments))
    return Kernel(module, phases, arguments.ids)


class _Groups:
    """What each group has: its statistics, and the numbers of its channels."""

    def __init__(self, conf: GroupNormalizationConf, arguments: Arguments) -> None:
        self._conf, self._arguments = conf, arguments
        self.axes = axes = conf.axes
        desc = MemoryDesc((conf.src.dims[0], conf.groups), "f32")
        self._statistics = tuple(
            Operand(arguments.slot(arg), desc, axes.statistics)
            for arg in (Arg.MEAN, Arg.VARIANCE)
            if conf.given or conf.training
        )
        self.scale = None
        if conf.scaled:
            channels = MemoryDesc(conf.src.dims[1:2], "f32")
            self.scale = Operand(arguments.slot(Arg.SCALE), channels, axes.index[1:2])

    @property
    def read(self) -> tuple[Operand, ...]:
        """The statistics that are given, and the scales."""
        scales = () if self.scale is None else (self.scale,)
        return (*scales, *self._statistics) if self._conf.given else scales

    @property
    def written(self) -> tuple[Operand, ...]:
        """The statistics that are outputs."""
        return () if self._conf.given else self._statistics

    def settle(self, point: Point, values: Values = ()) -> tuple[Value, Value]:
        """The mean of a group and its inverse deviation: given, or of moments, then stored where
        they are wanted."""
        if self._conf.given:
            mean, variance = map(point.load, self._statistics)
        else:
            mean, variance = mean_and_variance(point.e, values)
            for operand, value in zip(self.written, (mean, variance), strict=False):
                point.store(operand, value)
        return mean, inverse_deviation(point, variance, self._conf.epsilon)

    def factor(self, point: Point, inverse: Value) -> Value:
        """What the differences from the mean of a channel are multiplied by."""
        return inverse if self.scale is None else point.e.b.fmul(inverse, point.load(self.scale))


class _Normalizer:
    """The tensors of the data, an element of which has this ``index``, and what is done with
    one vector of them."""

    def __init__(
        self, conf: GroupNormalizationConf, arguments: Arguments, index: tuple[Affine, ...]
    ) -> None:
        src = Operand(arguments.slot(Arg.SRC), conf.src, index)
        dst = Operand(arguments.slot(Arg.DST), conf.dst, index)
        self._given = Sources(conf.attributes, {Arg.SRC: src}, arguments, late=True)
        self.result = Result(conf.attributes, dst, arguments, src=src)
        self.shift = None
        if conf.shifted:
            channels = MemoryDesc(conf.src.dims[1:2], "f32")
            self.shift = Operand(arguments.slot(Arg.SHIFT), channels, index[1:2])

    @property
    def read(self) -> tuple[Operand, ...]:
        """What is read besides statistics and factors."""
        shifts = () if self.shift is None else (self.shift,)
        return (*self._given.operands, *shifts, *self.result.inputs)

    def load(self, point: Point) -> Value:
        """The elements of src here."""
        return self._given.load(point, Arg.SRC)

    def normalize(self, point: Point, mean: Value, factor: Value) -> None:
        """One vector of elements."""
        shift = None if self.shift is None else point.load(self.shift)
        value = affine(point, point.e.b.fsub(self.load(point), mean), factor, shift)
        self.result.store(point, value)


def _moments(
    conf: GroupNormalizationConf, module: Module, arguments: Arguments
) -> tuple[Phase, ...]:
    """The moments of each channel of each image."""
    axes = letters(conf.src.dims)
    index = tuple(map(Affine.of, axes))
    src = Operand(arguments.slot(Arg.SRC), conf.src, index)
    given = Sources(conf.attributes, {Arg.SRC: src}, arguments, late=True)
    slot = arguments.slot(Arg.SCRATCHPAD)
    written = layered(slot, conf.moments, index[:2])

    def finish(point: Point, values: Values) -> None:
        for operand, value in zip(written, values, strict=True):
            point.store(operand, value)

    own = moments(lambda p: given.load(p, Arg.SRC), conf.held)
    fold = Fold(axes[:2], axes[2:], given.operands, written, own, finish)
    name = symbol("group_normalization_moments", [conf.src], module.isa)
    return emit_fold(module, name, fold, (slot, conf.partial))


def _factors(conf: GroupNormalizationConf, arguments: Arguments) -> Nest:
    """The mean and the factor of each channel, out of given statistics, or of the moments of all
    channels of a group."""
    own = _Groups(conf, arguments)
    slot, index = arguments.slot(Arg.SCRATCHPAD), own.axes.index[:2]
    means, factors = layered(slot, conf.factors, index)
    read = () if conf.given else layered(slot, conf.moments, index)
    merge = moments(lambda p: p.load(means)).merge

    def step(p: Point, *values: Value) -> Values:
        return merge(p.e, values, tuple(map(p.load, read)))

    def body(point: Point) -> None:
        values = () if conf.given else point.fold((0.0,) * _MOMENTS, step, merge)
        mean, inverse = own.settle(point, values)

        def finish(p: Point) -> None:
            p.store(means, mean)
            p.store(factors, own.factor(p, inverse))

        point.each(finish)

    axes = own.axes
    outputs = (means, factors, *own.written)
    inputs = (*read, *own.read)
    return Nest(axes.kept, axes.channels, inputs, outputs, body, core=conf.core)


def _normalization(conf: GroupNormalizationConf, arguments: Arguments) -> Nest:
    """What normalizes with the means and factors in memory."""
    axes = letters(conf.src.dims)
    index, slot = tuple(map(Affine.of, axes)), arguments.slot(Arg.SCRATCHPAD)
    own = _Normalizer(conf, arguments, index)
    means, factors = layered(slot, conf.factors, index[:2])

    def body(point: Point) -> None:
        own.normalize(point, point.load(means), point.load(factors))

    inputs, result = (means, factors, *own.read), own.result
    return Nest(axes, (), inputs, result.outputs, body, reads_dst=result.reads_dst, core=conf.core)


def _at_once(conf: GroupNormalizationConf, arguments: Arguments) -> Nest:
    """What finds the statistics of a group and normalizes with them."""
    groups = _Groups(conf, arguments)
    axes = groups.axes
    own = _Normalizer(conf, arguments, axes.index)
    reduction = moments(own.load)

    def body(point: Point) -> None:
        mean, inverse = groups.settle(point, reduction.partial(point))
        point.each(lambda p: own.normalize(p, mean, groups.factor(p, inverse)))

    inputs, outputs = (*own.read, *groups.read), (*own.result.outputs, *groups.written)
    reads = own.result.reads_dst
    return Nest(axes.kept, axes.reduced, inputs, outputs, body, reads_dst=reads, core=conf.core)
