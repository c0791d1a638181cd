"""Normalize rows, with given statistics or with their own.

Groups need not fit the blocks of a layout: statistics are found for each channel of each image,
then merged, and only the merger, whose data is in the scratchpad, knows of groups. Where the
elements of a row are apart from those of others and a cache holds them, one nest does everything.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, lru_cache, partial

from dnnl.codegen.ir.builder import Module, Value, Values
from dnnl.codegen.ir.kernel import Arguments, Kernel, Refusal, symbol
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.address import letters
from dnnl.codegen.nest.folds import Fold, emit_fold, partials_desc
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.codegen.nest.resident import emit_resident, resident
from dnnl.kernels.normalization import forward_rows
from dnnl.kernels.normalization.description import (
    DECISIONS,
    NONE,
    NormalizationConf,
    Operands,
    store,
)
from dnnl.kernels.normalization.normalizer import Normalizer
from dnnl.kernels.shared.scratchpad import Scratchpad
from dnnl.kernels.shared.types import refuse_forward
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg

# Results of a reduction to moments, and what normalizes: the mean and the factor.
_MOMENTS, _COEFFICIENTS = 4, 2


def configure(conf: NormalizationConf, isa: Isa) -> NormalizationConf | Refusal:
    """Accept any layouts of supported types, and choose the strategy."""
    refusal = refuse_forward(conf.sources, conf.dst, conf.attributes)
    if refusal is not None or conf.axes.along_channels:
        return refusal or conf
    scratchpad, moments, parts = Scratchpad(), NONE, NONE
    _, coefficients = scratchpad.take(conf.layers(_COEFFICIENTS))
    if not conf.given:
        if not conf.axes.direct:
            _, moments = scratchpad.take(conf.layers(_MOMENTS))
        _, parts = scratchpad.take(partials_desc(isa, *conf.sizes, _MOMENTS, conf.held))
    apart = replace(
        conf,
        coefficients=coefficients,
        moments=moments,
        partial=parts,
        scratchpad=scratchpad.size,
    )
    return replace(conf, resident=True) if _resident(apart, isa) else apart


@lru_cache(DECISIONS)
def _resident(apart: NormalizationConf, isa: Isa) -> bool:
    """Whether rows are apart and a cache holds one. Planning both takes a millisecond."""
    if apart.given or not apart.axes.separable(*apart.data):
        return False
    own = _Nests(apart, Arguments())
    return resident(isa, own.whole, own.normalization)


def build(conf: NormalizationConf, isa: Isa) -> Kernel:
    """All in one nest, for blocks of rows where they go along channels; or statistics, the
    coefficients of each channel, then one nest over the data."""
    module, arguments = Module(conf.kind, isa), Arguments()
    if conf.axes.along_channels:
        phases = forward_rows.phases(conf, module, arguments)
    elif conf.resident:
        entry = symbol(conf.kind, conf.data, isa)
        phases = (emit_resident(module, entry, _Nests(conf, arguments).whole),)
    else:
        phases = _Nests(conf, arguments).emit(module)
    return Kernel(module, phases, arguments.ids)


class _Nests:
    """One nest where a cache holds a row; elsewhere first what each channel has, then the data."""

    def __init__(self, conf: NormalizationConf, arguments: Arguments) -> None:
        self._conf, self._arguments = conf, arguments
        self._axes = letters(conf.src.dims)
        self._block = conf.axes.of_channels.block(self._axes)
        self._own = Normalizer(conf, arguments, self._block)

    @property
    def whole(self) -> Nest:
        """What finds the statistics of a row and normalizes with them."""
        if self._conf.axes.direct:
            return self._own.nest
        block = self._conf.axes.block(self._axes)
        return Normalizer(self._conf, self._arguments, block).nest

    @cached_property
    def _coefficients(self) -> Operands:
        """The mean and the factor of each channel."""
        element = self._block.rows[0].element
        return self._conf.layered(self._arguments, self._conf.coefficients, element)

    def emit(self, module: Module) -> tuple[Phase, ...]:
        """Write the phases where no cache holds a row."""
        conf = self._conf

        def name(part: str = "") -> str:
            return symbol(f"{conf.kind}{part}", conf.data, module.isa)

        phases: tuple[Phase, ...] = ()
        if not conf.given:
            fold = self._statistics if conf.axes.direct else self._moments
            scratch = self._arguments.slot(Arg.SCRATCHPAD), conf.partial
            phases = emit_fold(module, name("_statistics"), fold, scratch)
        if conf.given or not conf.axes.direct:
            phases += (emit_nest(module, name("_factors"), self._factors),)
        return *phases, emit_nest(module, name(), self.normalization)

    @property
    def _statistics(self) -> Fold:
        """The statistics and the coefficients of each row, which is a channel."""
        own = self._own

        def finish(point: Point, values: Values) -> None:
            mean, variance = own.settled(point, values)
            store(self._coefficients, point, (mean, own.factor(point, variance, own.scale)))

        block, outputs = self._block, (*own.written, *self._coefficients)
        after = () if own.scale is None else (own.scale,)
        return Fold(block.parallel, block.space, own.read, outputs, own.reduction, finish, after)

    @property
    def _moments(self) -> Fold:
        """The moments of each channel."""
        conf, block = self._conf, self._block
        written = conf.layered(self._arguments, conf.moments, block.rows[0].element)
        finish = partial(store, written)
        return Fold(
            block.parallel, block.space, self._own.read, written, self._own.reduction, finish
        )

    @property
    def _factors(self) -> Nest:
        """The mean and the factor of each channel, out of given statistics, or of the moments of
        all channels of a row."""
        conf, arguments = self._conf, self._arguments
        block = conf.axes.block(self._axes)
        own = Normalizer(conf, arguments, block)
        element = block.rows[0].element
        written = conf.layered(arguments, conf.coefficients, element)
        read = () if conf.given else conf.layered(arguments, conf.moments, element)
        merge = self._own.reduction.merge

        def step(p: Point, *values: Value) -> Values:
            return merge(p.e, values, tuple(map(p.load, read)))

        def body(point: Point) -> None:
            if conf.given:
                (mean,), (variance,) = own.given(point)
            else:
                mean, variance = own.settled(point, point.fold((0.0,) * _MOMENTS, step, merge))
            inverse = own.factor(point, variance)

            def finish(p: Point) -> None:
                scale = None if own.scale is None else p.load(own.scale)
                factor = inverse if scale is None else p.e.b.fmul(inverse, scale)
                store(written, p, (mean, factor))

            block.each_channel(point, finish)

        scales = () if own.scale is None else (own.scale,)
        given = own.statistics if conf.given else ()
        inputs, outputs = (*read, *scales, *given), (*written, *own.written)
        return Nest(block.parallel, block.channels, inputs, outputs, body, core=conf.core)

    @property
    def normalization(self) -> Nest:
        """What normalizes with the coefficients in memory."""
        own = self._own

        def body(point: Point) -> None:
            mean, factor = map(point.load, self._coefficients)
            own.write(point, (mean,), (factor,))

        inputs = (*own.read, *self._coefficients, *own.beside)
        reads, core = own.reads_dst, self._conf.core
        return Nest(self._axes, (), inputs, own.outputs, body, reads_dst=reads, core=core)
