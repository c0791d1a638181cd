"""Gradients of a normalization: of src, of the scales and of the shifts."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, lru_cache, partial

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Module, Value, Values
from dnnl.codegen.ir.kernel import Arguments, Kernel, Refusal, symbol
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import letters
from dnnl.codegen.nest.fold_loop import added
from dnnl.codegen.nest.folds import Fold, Reduction, emit_fold, partials_desc, sums
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.codegen.nest.resident import emit_resident, resident
from dnnl.kernels.normalization import backward_rows
from dnnl.kernels.normalization.axes import Block
from dnnl.kernels.normalization.description import (
    DECISIONS,
    NONE,
    NormalizationBackwardConf,
    Operands,
    present,
    store,
)
from dnnl.kernels.normalization.gradients import (
    GradientRow,
    Gradients,
    gradient,
    shares,
    totals,
)
from dnnl.kernels.shared.scratchpad import Scratchpad
from dnnl.kernels.shared.types import WIDE_FLOATS, refuse_types
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg

# The statistics of a channel, its sums, and the coefficients of its gradient where statistics are
# given or not.
_STATISTICS, _SUMS, _GIVEN, _COMPUTED = 2, 2, 1, 4
_ORDER = (Arg.DIFF_SCALE, Arg.DIFF_SHIFT)
"""The sums of a channel are the gradients of its scale and of its shift."""


def configure(conf: NormalizationBackwardConf, isa: Isa) -> NormalizationBackwardConf | Refusal:
    """Accept any layouts of supported types, and choose the strategy."""
    refusal = refuse_types(*conf.data, allowed=WIDE_FLOATS)
    if refusal is not None:
        return refusal
    if conf.axes.along_channels:
        return backward_rows.configured(conf, isa)
    scratchpad, summed = Scratchpad(), bool(conf.learned) or not conf.given
    sums_desc = statistics = parts = NONE
    if summed and not (conf.axes.direct and _finished(conf)):
        _, sums_desc = scratchpad.take(conf.layers(_SUMS))
    whole = replace(
        conf,
        resident=True,
        sums=sums_desc,
        scratchpad=scratchpad.size if conf.learned else 0,
    )
    _, coefficients = scratchpad.take(conf.layers(_GIVEN if conf.given else _COMPUTED))
    if summed:
        if not conf.axes.direct:
            _, statistics = scratchpad.take(conf.layers(_STATISTICS))
        _, parts = scratchpad.take(partials_desc(isa, *conf.sizes, _SUMS, conf.held))
    apart = replace(
        conf,
        sums=sums_desc,
        coefficients=coefficients,
        statistics=statistics,
        partial=parts,
        scratchpad=scratchpad.size,
    )
    return whole if summed and _resident(whole, apart, isa) else apart


def _finished(conf: NormalizationBackwardConf) -> bool:
    """Whether the sums of a channel are gradients of its scale and shift, or not wanted, and not
    to be added up over images."""
    return not conf.learned or conf.axes.coefficients == (conf.axes.channels,)


@lru_cache(DECISIONS)
def _resident(whole: NormalizationBackwardConf, apart: NormalizationBackwardConf, isa: Isa) -> bool:
    """Whether rows are apart and a cache holds one, whose sums are those that are wanted. Planning
    both takes a millisecond."""
    shared = whole.learned and not whole.axes.direct
    if shared or not whole.axes.separable(*whole.data):
        return False
    own = _Nests(apart, Arguments())
    return resident(isa, _Nests(whole, Arguments()).whole, own.differentiation)


def build(conf: NormalizationBackwardConf, isa: Isa) -> Kernel:
    """All in one nest for blocks of rows; or sums over channels, coefficients made of those, then
    one nest over the data. Last the totals over all images."""
    module, arguments = Module(f"{conf.kind}_backward", isa), Arguments()
    if conf.axes.along_channels:
        return Kernel(module, backward_rows.phases(conf, module, arguments), arguments.ids)
    phases: tuple[Phase, ...]
    if conf.resident:
        entry = symbol(f"{conf.kind}_backward", conf.data, isa)
        phases = (emit_resident(module, entry, _Nests(conf, arguments).whole),)
    else:
        phases = _Nests(conf, arguments).emit(module)
    if not _finished(conf):
        name = symbol(f"{conf.kind}_totals", [conf.sums], isa)
        phases += (emit_nest(module, name, _totals(conf, arguments)),)
    return Kernel(module, phases, arguments.ids)


def _learned(
    conf: NormalizationBackwardConf, arguments: Arguments, block: Block
) -> dict[Arg, Operand]:
    """Where the sums of a channel go: they are gradients of scale and shift, or parts of them."""
    if _finished(conf):
        return dict(zip(conf.learned, conf.learned_at(arguments, block.channel), strict=True))
    layered = conf.layered(arguments, conf.sums, block.rows[0].element)
    return dict(zip(_ORDER, layered, strict=True))


def _totals(conf: NormalizationBackwardConf, arguments: Arguments) -> Nest:
    """The gradients of scale and shift: sums over all images."""
    block = conf.axes.of_channels.block(letters(conf.src.dims))
    by = _learned(conf, arguments, block)
    read, written = (by[arg] for arg in conf.learned), conf.learned_at(arguments, block.channel)
    image, channel = block.parallel
    return totals((channel,), (image,), tuple(read), written, conf.held)


class _Nests:
    """One nest where a cache holds a row; elsewhere first what each channel has, then the data."""

    def __init__(self, conf: NormalizationBackwardConf, arguments: Arguments) -> None:
        self._conf, self._arguments = conf, arguments
        self._axes = letters(conf.src.dims)
        self._channels = conf.axes.of_channels.block(self._axes)

    @property
    def whole(self) -> Nest:
        """What sums over a row and makes its part of diff_src."""
        conf, block = self._conf, self._channels
        if not conf.axes.direct:
            block = conf.axes.block(self._axes)
        learned = _learned(conf, self._arguments, block)
        return Gradients(conf, self._arguments, block, learned=learned).nest

    @cached_property
    def _row(self) -> GradientRow:
        return GradientRow(self._conf, self._arguments, self._channels.rows[0])

    @cached_property
    def _coefficients(self) -> Operands:
        """What the gradients of a channel are made of, besides its elements."""
        element = self._channels.rows[0].element
        return self._conf.layered(self._arguments, self._conf.coefficients, element)

    def emit(self, module: Module) -> tuple[Phase, ...]:
        """Write the phases where no cache holds a row."""
        conf = self._conf

        def name(part: str) -> str:
            return symbol(f"{conf.kind}_{part}", conf.data, module.isa)

        direct, summed = conf.axes.direct, bool(conf.learned) or not conf.given
        phases: tuple[Phase, ...] = ()
        if summed and not direct:
            phases = (emit_nest(module, name("statistics"), self._statistics),)
        if summed:
            fold = self._direct_sums if direct else self._sums
            scratch = self._arguments.slot(Arg.SCRATCHPAD), conf.partial
            phases += emit_fold(module, name("sums"), fold, scratch)
        if not (summed and direct):
            phases += (emit_nest(module, name("coefficients"), self._made),)
        return *phases, emit_nest(module, name("backward"), self.differentiation)

    def _reduction(self, mean: Operand, inverse: Operand | None = None) -> Reduction:
        """The sums of the products of what the relu passes with the distances from the mean, which
        are normalized by an ``inverse`` deviation, and of that itself."""
        row = self._row

        def step(p: Point, products: Value, total: Value) -> Values:
            passed = row.passed(p)
            centred = row.centred(p, p.load(mean))
            return vector.multiply_add(p.e, passed, centred, products), p.e.b.fadd(total, passed)

        own = sums(step, _SUMS, self._conf.held)
        if inverse is None:
            return own

        def part(point: Point) -> Values:
            products, total = own.partial(point)
            return point.e.b.fmul(products, point.load(inverse)), total

        return replace(own, partial=part)

    @property
    def _direct_sums(self) -> Fold:
        """The sums and the coefficients of each row, which is a channel."""
        conf, block, row = self._conf, self._channels, self._row
        learned = _learned(conf, self._arguments, block) if conf.learned else {}
        scale, behind = self._scale(block), GradientRow(conf, self._arguments, block.rows[0])

        def finish(point: Point, values: Values) -> None:
            inverse = behind.inverse(point)
            found = [point.e.b.fmul(values[0], inverse), values[1]]
            by = dict(zip(_ORDER, found, strict=True))
            store(tuple(learned.values()), point, tuple(by[arg] for arg in learned))
            factor, *found = _scaled(point, scale, inverse, *found)
            terms = self._terms(point, behind, inverse, tuple(found))
            store(self._coefficients, point, (factor, *terms))

        assert row.mean is not None
        inputs = (*row.gradients, row.src, row.mean)
        outputs = (*learned.values(), *self._coefficients)
        after = present(behind.variance, None if conf.given else behind.mean, scale)
        reduction = self._reduction(row.mean)
        return Fold(block.parallel, block.space, inputs, outputs, reduction, finish, after)

    @property
    def _sums(self) -> Fold:
        """The sums of each channel."""
        conf, block, row = self._conf, self._channels, self._row
        element = block.rows[0].element
        mean, inverse = conf.layered(self._arguments, conf.statistics, element)
        written = conf.layered(self._arguments, conf.sums, element)
        inputs = (*row.gradients, row.src, mean, inverse)
        reduction, finish = self._reduction(mean, inverse), partial(store, written)
        return Fold(block.parallel, block.space, inputs, written, reduction, finish)

    @property
    def _statistics(self) -> Nest:
        """The mean and the inverse deviation of each channel, which may then be read in whole
        vectors whatever the size of a group is."""
        conf = self._conf
        block = conf.axes.block(self._axes)
        row = GradientRow(conf, self._arguments, block.rows[0])
        written = conf.layered(self._arguments, conf.statistics, block.rows[0].element)
        mean = row.mean
        assert mean is not None

        def body(point: Point) -> None:
            values = point.load(mean), row.inverse(point)
            point.each(lambda p: store(written, p, values))

        read = mean, row.variance
        return Nest(block.parallel, block.channels, read, written, body, core=conf.core)

    @property
    def _made(self) -> Nest:
        """The coefficients of each channel, for which the sums of all channels of a row are added
        up where statistics are functions of src."""
        conf, arguments = self._conf, self._arguments
        block = conf.axes.block(self._axes)
        element = block.rows[0].element
        row, scale = GradientRow(conf, arguments, block.rows[0]), self._scale(block)
        written = conf.layered(arguments, conf.coefficients, element)
        read = () if conf.given else conf.layered(arguments, conf.sums, element)

        def step(p: Point, *before: Value) -> Values:
            return added(p.e, before, _scaled(p, scale, *map(p.load, read)))

        def body(point: Point) -> None:
            inverse = row.inverse(point)
            found = () if conf.given else point.fold((0.0,) * _SUMS, step, added)
            terms = self._terms(point, row, inverse, found)

            def finish(p: Point) -> None:
                (factor,) = _scaled(p, scale, inverse)
                store(written, p, (factor, *terms))

            block.each_channel(point, finish)

        inputs = (*read, *present(scale, row.variance, None if conf.given else row.mean))
        return Nest(block.parallel, block.channels, inputs, written, body, core=conf.core)

    def _terms(self, point: Point, row: GradientRow, inverse: Value, found: Values) -> Values:
        """The coefficients besides the factor, out of the sums of a row, times its scales: the
        mean, and what the statistics take away."""
        if self._conf.given or row.mean is None:
            return ()
        block = self._conf.axes.block(self._axes)
        share = point.e.b.fdiv(point.constant(-1.0), block.count(point))
        along, constant = shares(point.e, share, (inverse,), (inverse,), found)
        return (point.load(row.mean), *along, *(point.e.b.fmul(own, inverse) for own in constant))

    @property
    def differentiation(self) -> Nest:
        """What makes diff_src with the coefficients in memory."""
        row, given = self._row, self._conf.given

        def body(point: Point) -> None:
            factor, *terms = map(point.load, self._coefficients)
            passed = row.passed(point)
            if given:
                value = gradient(point.e, passed, factor)
            else:
                mean, along, constant = terms
                centred = row.centred(point, mean)
                value = gradient(point.e, passed, factor, constant, centred, along)
            row.store(point, value, row.second(point))

        read = row.gradients if given else (*row.gradients, row.src)
        inputs = (*read, *self._coefficients)
        return Nest(self._axes, (), inputs, row.outputs, body, core=self._conf.core)

    def _scale(self, block: Block) -> Operand | None:
        """The scales, if there are such."""
        conf = self._conf
        if conf.scale.is_zero:
            return None
        return Operand(self._arguments.slot(Arg.SCALE), conf.scale, block.channel)


def _scaled(point: Point, scale: Operand | None, *values: Value) -> Values:
    """Values times the scale of a channel."""
    if scale is None:
        return values
    factor = point.load(scale)
    return tuple(point.e.b.fmul(value, factor) for value in values)
