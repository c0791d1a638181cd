"""Gradients of a group normalization: of src, of the scales and of the shifts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import prod

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Module, Type, Value, Values
from dnnl.codegen.ir.kernel import Arguments, Kernel, Refusal, symbol
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, letters
from dnnl.codegen.nest.fold_loop import added
from dnnl.codegen.nest.folds import Fold, Reduction, at_once, emit_fold, partials_desc, sums
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.codegen.nest.resident import emit_resident, resident
from dnnl.kernels.normalization.group_axes import GroupAxes, layered, layers
from dnnl.kernels.normalization.shared import KEPT, Flagged, inverse_deviation
from dnnl.kernels.shared.scratchpad import Scratchpad
from dnnl.kernels.shared.types import WIDE_FLOATS, computed_in, core_of, refuse_types
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.kinds import NormFlags
from dnnl.types.memory_desc import MemoryDesc

_NONE = MemoryDesc.zero()
# The statistics of a channel, its sums, and the coefficients of its gradient where statistics are
# given or not.
_STATISTICS, _SUMS, _GIVEN, _COMPUTED = 2, 2, 1, 3
_LEARNED = {Arg.DIFF_SCALE: NormFlags.use_scale, Arg.DIFF_SHIFT: NormFlags.use_shift}


@dataclass(frozen=True)
class GroupNormalizationBackwardConf(Flagged):
    """With g = scale * diff_dst, and M the number of elements of a group:

        along    = sum of g * (src - mean) / (variance + epsilon)
        diff_src = (g - sum of g / M - (src - mean) * along / M) / sqrt(variance + epsilon)

    The terms of the sums are there where statistics are functions of src. ``weights`` says
    whether gradients of scale and shift are wanted, where there are such.

    Where a cache holds a group, diff_src is made ``at_once``. Elsewhere the ``coefficients`` of
    each channel of each image lie in the ``scratchpad`` of that many bytes. So do its ``sums``,
    made of ``partial`` ones, which gradients of scale and shift are the totals of as well, and the
    ``statistics`` of its group for these: the mean and the inverse deviation.
    """

    src: MemoryDesc
    diff_dst: MemoryDesc
    diff_src: MemoryDesc
    groups: int
    epsilon: float
    flags: NormFlags
    weights: bool
    at_once: bool = False
    statistics: MemoryDesc = _NONE
    sums: MemoryDesc = _NONE
    coefficients: MemoryDesc = _NONE
    partial: MemoryDesc = _NONE
    scratchpad: int = 0

    @property
    def learned(self) -> tuple[Arg, ...]:
        """The gradients of scale and shift that are wanted."""
        return tuple(arg for arg, flag in _LEARNED.items() if self.weights and flag in self.flags)

    @property
    def axes(self) -> GroupAxes:
        """The axes of the groups."""
        return GroupAxes.of(self.src.dims, self.groups)

    @property
    def data(self) -> tuple[MemoryDesc, ...]:
        """What is of the size of src."""
        return self.src, self.diff_dst, self.diff_src

    @property
    def held(self) -> DataType:
        """What is computed in, and kept between phases."""
        return computed_in(*self.data)

    @property
    def core(self) -> Type:
        """What is computed in."""
        return core_of(*self.data)


def configure(
    src: MemoryDesc,
    diff_dst: MemoryDesc,
    diff_src: MemoryDesc,
    isa: Isa,
    groups: int,
    epsilon: float,
    flags: NormFlags,
    weights: bool,
) -> GroupNormalizationBackwardConf | Refusal:
    """Accept any layouts of supported types."""
    refusal = refuse_types(src, diff_dst, diff_src, allowed=WIDE_FLOATS)
    if refusal is not None:
        return refusal
    conf = GroupNormalizationBackwardConf(src, diff_dst, diff_src, groups, epsilon, flags, weights)
    scratchpad = Scratchpad()
    if conf.learned or not conf.given:
        conf = replace(conf, sums=scratchpad.take(layers(src, _SUMS, conf.held))[1])
    whole = replace(conf, at_once=True, scratchpad=scratchpad.size if conf.learned else 0)
    count = _GIVEN if conf.given else _COMPUTED
    _, coefficients = scratchpad.take(layers(src, count, conf.held))
    apart = replace(conf, coefficients=coefficients)
    if not conf.sums.is_zero:
        sizes = prod(src.dims[:2]), prod(src.dims[2:])
        _, statistics = scratchpad.take(layers(src, _STATISTICS, conf.held))
        _, parts = scratchpad.take(partials_desc(isa, *sizes, _SUMS, conf.held))
        apart = replace(apart, statistics=statistics, partial=parts)
    apart = replace(apart, scratchpad=scratchpad.size)
    return whole if _resident(whole, apart, isa) else apart


@lru_cache(KEPT)
def _resident(
    whole: GroupNormalizationBackwardConf, apart: GroupNormalizationBackwardConf, isa: Isa
) -> bool:
    """Whether groups lie well and a cache holds one, whose sums are those that are wanted."""
    axes = whole.axes
    if whole.given or not axes.lie_well(*whole.data) or (whole.learned and axes.size > 1):
        return False
    return resident(isa, _at_once(whole, Arguments()), _differentiation(apart, Arguments()))


def build(conf: GroupNormalizationBackwardConf, isa: Isa) -> Kernel:
    """Sums over each channel, coefficients made of those of a group, then one nest over the data;
    or sums over groups and diff_src in one nest. Last the totals over all images."""
    module = Module("group_normalization_backward", isa)
    arguments = Arguments()
    entry = symbol("group_normalization_backward", [conf.src, conf.diff_src], isa)
    if conf.at_once:
        phases: tuple[Phase, ...] = (emit_resident(module, entry, _at_once(conf, arguments)),)
    else:
        found = () if conf.sums.is_zero else _sums(conf, module, arguments)
        name = symbol("group_normalization_coefficients", [conf.coefficients], isa)
        made = emit_nest(module, name, _coefficients(conf, arguments))
        phases = *found, made, emit_nest(module, entry, _differentiation(conf, arguments))
    if conf.learned:
        name = symbol("group_normalization_totals", [conf.sums], isa)
        phases += (emit_nest(module, name, _totals(conf, arguments)),)
    return Kernel(module, phases, arguments.ids)


class _Data:
    """The tensors of which sums and gradients are made, an element of which has this ``index``."""

    def __init__(
        self, conf: GroupNormalizationBackwardConf, arguments: Arguments, index: tuple[Affine, ...]
    ) -> None:
        self._given, self._held = conf.given, conf.held
        self.src = Operand(arguments.slot(Arg.SRC), conf.src, index)
        self.diff_dst = Operand(arguments.slot(Arg.DIFF_DST), conf.diff_dst, index)
        self.diff_src = Operand(arguments.slot(Arg.DIFF_SRC), conf.diff_src, index)

    @property
    def read(self) -> tuple[Operand, ...]:
        """What the gradient is made of."""
        return (self.diff_dst,) if self._given else (self.diff_dst, self.src)

    def sums(self, mean: Value, scale: Operand | None = None) -> Reduction:
        """The sums of the gradients of the results, times ``scale``, and of their products with
        the differences from the mean."""

        def step(p: Point, total: Value, products: Value) -> Values:
            gradient = p.load(self.diff_dst)
            if scale is not None:
                gradient = p.e.b.fmul(gradient, p.load(scale))
            centred = p.e.b.fsub(p.load(self.src), mean)
            more = vector.multiply_add(p.e, gradient, centred, products)
            return p.e.b.fadd(total, gradient), more

        return sums(step, _SUMS, self._held)

    def differentiate(self, point: Point, *by: Value) -> None:
        """One vector of diff_src, by the factor, or the mean, the factor, the constant, and the
        share of the differences from the mean, where statistics are functions of src."""
        e = point.e
        factor = by[0] if self._given else by[1]
        value = e.b.fmul(point.load(self.diff_dst), factor)
        if not self._given:
            mean, _, constant, along = by
            centred = e.b.fsub(mean, point.load(self.src))
            value = vector.multiply_add(e, centred, along, e.b.fsub(value, constant))
        point.store(self.diff_src, value)


class _Group:
    """The statistics and the scales, where groups are walked along ``axes``."""

    def __init__(
        self, conf: GroupNormalizationBackwardConf, arguments: Arguments, axes: GroupAxes
    ) -> None:
        self._conf = conf
        desc = MemoryDesc((conf.src.dims[0], conf.groups), "f32")
        self.mean, self.variance = (
            Operand(arguments.slot(arg), desc, axes.statistics) for arg in (Arg.MEAN, Arg.VARIANCE)
        )
        self.scale = None
        if conf.scaled:
            channels = MemoryDesc(conf.src.dims[1:2], "f32")
            self.scale = Operand(arguments.slot(Arg.SCALE), channels, axes.index[1:2])

    @property
    def read(self) -> tuple[Operand, ...]:
        """What is read besides the mean."""
        return (self.variance,) if self.scale is None else (self.variance, self.scale)

    def inverse(self, point: Point) -> Value:
        """The inverse deviation."""
        return inverse_deviation(point, point.load(self.variance), self._conf.epsilon)

    def scaled(self, point: Point, *values: Value) -> Values:
        """Values times the scale of a channel."""
        if self.scale is None:
            return values
        scale = point.load(self.scale)
        return tuple(point.e.b.fmul(value, scale) for value in values)

    def shares(self, point: Point, inverse: Value, totals: Values) -> Values:
        """What the statistics take away, out of the sum of the gradients of a group, and the sum
        of their products with normalized elements: the constant, and the share of the differences
        from the mean."""
        b, (total, products) = point.e.b, totals
        count = prod(axis.extent for axis in self._conf.axes.reduced)
        share = b.fmul(inverse, point.constant(1 / max(1, count)))
        return b.fmul(total, share), b.fmul(b.fmul(products, share), inverse)


def _sums(
    conf: GroupNormalizationBackwardConf, module: Module, arguments: Arguments
) -> tuple[Phase, ...]:
    """The sums of each channel of each image: of diff_dst, and of its products with normalized
    elements."""
    axes = letters(conf.src.dims)
    index, slot = tuple(map(Affine.of, axes)), arguments.slot(Arg.SCRATCHPAD)
    data, written = _Data(conf, arguments, index), layered(slot, conf.sums, index[:2])
    mean, inverse = layered(slot, conf.statistics, index[:2])

    def part(point: Point) -> Values:
        total, products = data.sums(point.load(mean)).partial(point)
        return total, point.e.b.fmul(products, point.load(inverse))

    fold = Fold(
        axes[:2],
        axes[2:],
        (data.diff_dst, data.src, mean, inverse),
        written,
        Reduction(part, added, (0.0,) * _SUMS, conf.held),
        partial(_store, written),
    )
    isa = module.isa
    name = symbol("group_normalization_statistics", [conf.statistics], isa)
    statistics = emit_nest(module, name, _statistics(conf, arguments))
    name = symbol("group_normalization_sums", [conf.src, conf.diff_dst], isa)
    return statistics, *emit_fold(module, name, fold, (slot, conf.partial))


def _statistics(conf: GroupNormalizationBackwardConf, arguments: Arguments) -> Nest:
    """The mean and the inverse deviation of each channel, which may then be read in whole vectors
    whatever the size of a group is."""
    axes = conf.axes
    group = _Group(conf, arguments, axes)
    written = layered(arguments.slot(Arg.SCRATCHPAD), conf.statistics, axes.index[:2])

    def body(point: Point) -> None:
        values = point.load(group.mean), group.inverse(point)
        point.each(lambda p: _store(written, p, values))

    read = group.mean, group.variance
    return Nest(axes.kept, axes.channels, read, written, body, core=conf.core)


def _store(operands: tuple[Operand, ...], point: Point, values: Values) -> None:
    for operand, value in zip(operands, values, strict=True):
        point.store(operand, value)


def _coefficients(conf: GroupNormalizationBackwardConf, arguments: Arguments) -> Nest:
    """The coefficients of each channel, for which the sums of all channels of a group are added
    up where statistics are functions of src."""
    axes = conf.axes
    group, slot = _Group(conf, arguments, axes), arguments.slot(Arg.SCRATCHPAD)
    written = layered(slot, conf.coefficients, axes.index[:2])
    read = () if conf.given else layered(slot, conf.sums, axes.index[:2])

    def step(p: Point, *totals: Value) -> Values:
        return added(p.e, totals, group.scaled(p, *map(p.load, read)))

    def body(point: Point) -> None:
        inverse = group.inverse(point)
        others: Values = ()
        if not conf.given:
            totals = point.fold((0.0,) * _SUMS, step, added)
            others = group.shares(point, inverse, totals)
        point.each(lambda p: _store(written, p, (*group.scaled(p, inverse), *others)))

    inputs = (*read, *group.read)
    return Nest(axes.kept, axes.channels, inputs, written, body, core=conf.core)


def _differentiation(conf: GroupNormalizationBackwardConf, arguments: Arguments) -> Nest:
    """What makes diff_src with the coefficients in memory."""
    axes = letters(conf.src.dims)
    index = tuple(map(Affine.of, axes))
    data = _Data(conf, arguments, index)
    slot = arguments.slot(Arg.SCRATCHPAD)
    read = layered(slot, conf.coefficients, index[:2])
    if not conf.given:
        read = layered(slot, conf.statistics, index[:2])[:1] + read

    def body(point: Point) -> None:
        data.differentiate(point, *map(point.load, read))

    return Nest(axes, (), (*data.read, *read), (data.diff_src,), body, core=conf.core)


def _at_once(conf: GroupNormalizationBackwardConf, arguments: Arguments) -> Nest:
    """What sums over a group and makes its part of diff_src. If the sums are wanted themselves, a
    group is a channel."""
    axes = conf.axes
    group, data = _Group(conf, arguments, axes), _Data(conf, arguments, axes.index)
    written: tuple[Operand, ...] = ()
    if conf.learned:
        written = layered(arguments.slot(Arg.SCRATCHPAD), conf.sums, axes.index[:2])

    def body(point: Point) -> None:
        mean, inverse = point.load(group.mean), group.inverse(point)
        found = data.sums(mean, None if written else group.scale).partial(point)
        totals = found[0], point.e.b.fmul(found[1], inverse)
        if written:
            _store(written, point, totals)
            totals = group.scaled(point, *totals)
        shares = group.shares(point, inverse, totals)
        point.each(lambda p: data.differentiate(p, mean, *group.scaled(p, inverse), *shares))

    outputs = (data.diff_src, *written)
    inputs = (*data.read, group.mean, *group.read)
    return Nest(axes.kept, axes.reduced, inputs, outputs, body, core=conf.core)


def _totals(conf: GroupNormalizationBackwardConf, arguments: Arguments) -> Nest:
    """The gradients of scale and shift: sums over all images."""
    image, channel = letters(conf.src.dims[:2])
    index = Affine.of(image), Affine.of(channel)
    shifts, scales = layered(arguments.slot(Arg.SCRATCHPAD), conf.sums, index)
    by = {Arg.DIFF_SCALE: scales, Arg.DIFF_SHIFT: shifts}
    read = tuple(by[arg] for arg in conf.learned)
    desc = MemoryDesc(conf.src.dims[1:2], "f32")
    written = tuple(Operand(arguments.slot(arg), desc, index[1:]) for arg in conf.learned)
    own = sums(
        lambda p, *totals: added(p.e, totals, tuple(map(p.load, read))), len(read), conf.held
    )
    return at_once(Fold((channel,), (image,), read, written, own, partial(_store, written)))
