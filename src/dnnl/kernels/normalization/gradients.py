"""The gradients of one or several rows at a point of a nest: that of src, and what the rows add to
those of scale and shift."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Emitter, Value, Values
from dnnl.codegen.ir.kernel import Arguments
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Axis
from dnnl.codegen.nest import folds
from dnnl.codegen.nest.fold_loop import added
from dnnl.codegen.nest.nest import Nest
from dnnl.codegen.nest.point import Point
from dnnl.kernels.normalization.axes import Block, Row
from dnnl.kernels.normalization.description import (
    NONE,
    NormalizationBackwardConf,
    Operands,
    RowTensors,
    inverse_deviation,
    present,
    store,
)
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType


class GradientRow(RowTensors):
    """The tensors of one row, and what is read and written of it."""

    def __init__(self, conf: NormalizationBackwardConf, arguments: Arguments, row: Row) -> None:
        data = {
            Arg.DIFF_DST: conf.diff_dst,
            Arg.DIFF_SRC: conf.diff_src,
            Arg.SRC: conf.src,
            Arg.WORKSPACE: conf.workspace,
            Arg.DIFF_SRC_1: conf.diff_dst if conf.added else NONE,
        }
        super().__init__(conf, arguments, row, data)
        self.diff_dst, self.src = self._data[Arg.DIFF_DST], self._data[Arg.SRC]
        self.diff_src, self._epsilon = self._data[Arg.DIFF_SRC], conf.epsilon
        self.workspace = self._data.get(Arg.WORKSPACE)
        self.diff_added = self._data.get(Arg.DIFF_SRC_1)

    @property
    def gradients(self) -> Operands:
        """What the gradient of the result is read from."""
        return (self.diff_dst, *present(self.workspace))

    @property
    def outputs(self) -> Operands:
        """What is written for each element."""
        return (self.diff_src, *present(self.diff_added))

    @property
    def variance(self) -> Operand:
        """The variance."""
        return self.statistics[Arg.VARIANCE]

    @property
    def mean(self) -> Operand | None:
        """The mean, where there is such."""
        return self.statistics.get(Arg.MEAN)

    def inverse(self, point: Point) -> Value:
        """The inverse deviation."""
        return inverse_deviation(point, point.load(self.variance), self._epsilon)

    def passed(self, point: Point) -> Value:
        """What the fused relu passes back of the gradient of the result."""
        gradient = point.load(self.diff_dst)
        if self.workspace is None:
            return gradient
        zero = point.constant(0.0)
        passes = point.e.b.fcmp_ordered("!=", point.load(self.workspace), zero)
        return point.e.b.select(passes, gradient, zero)

    def centred(self, point: Point, mean: Value | None) -> Value:
        """The differences of src from the mean."""
        value = point.load(self.src)
        return value if mean is None else point.e.b.fsub(value, mean)

    def second(self, point: Point) -> Value | None:
        """The gradient of the second source, if there is such; in place, the first one's may be
        stored where it is read."""
        return None if self.diff_added is None else self.passed(point)

    def store(self, point: Point, value: Value, second: Value | None) -> None:
        """Store one vector of diff_src, and of the gradient of the second source."""
        point.store(self.diff_src, value)
        if self.diff_added is not None and second is not None:
            point.store(self.diff_added, second)


def totals(
    parallel: tuple[Axis, ...],
    reduced: tuple[Axis, ...],
    read: Operands,
    written: Operands,
    held: DataType,
) -> Nest:
    """The sum of each operand of ``read`` over the reduced axes."""
    own = folds.sums(
        lambda p, *before: added(p.e, before, tuple(map(p.load, read))), len(read), held
    )
    return folds.at_once(folds.Fold(parallel, reduced, read, written, own, partial(store, written)))


def shares(
    e: Emitter, share: Value, factors: Values, inverses: Values, totals: Values
) -> tuple[Values, Values]:
    """What the statistics of rows take away from the gradients of src: a multiple of each
    element's distance from the mean, and a constant of each row, if ``totals`` has the sums of the
    gradients behind those of their products with the distances. Times the inverse deviation, either
    distances or sums of products are normalized. The constant is not yet times the factor.
    ``share`` is -1 / the size of a row."""
    count, b = len(factors), e.b
    means = [b.fmul(total, share) for total in totals]
    terms = zip(means[:count], factors, inverses, strict=True)
    along = tuple(b.fmul(b.fmul(mean, factor), inverse) for mean, factor, inverse in terms)
    return along, tuple(means[count:])


def gradient(
    e: Emitter,
    value: Value,
    factor: Value,
    constant: Value | None = None,
    distance: Value | None = None,
    along: Value | None = None,
) -> Value:
    """value * factor + constant + distance * along, as far as there are such terms."""
    if constant is None:
        value = e.b.fmul(value, factor)
    else:
        value = vector.multiply_add(e, value, factor, constant)
    if distance is None or along is None:
        return value
    return vector.multiply_add(e, distance, along, value)


@dataclass(frozen=True)
class _Statistics:
    """What is known of each row after the first pass over it: its mean, inverse deviation, and the
    factor of its gradients. ``along`` and ``constant``, where there are such, are the shares that
    its statistics take away: a constant before the factor, so that of one element nothing is
    left."""

    means: Values
    inverses: Values
    factors: Values
    along: Values = ()
    constant: Values = ()


class Gradients:
    """Two passes over the rows of a block.

    The first may store ``learned``, the gradients of scale and shift of a row, by argument. The
    second adds those of the block to ``sums``. In the meantime what is wanted next is fetched:
    where the gradient of src goes, then the next block.
    """

    def __init__(
        self,
        conf: NormalizationBackwardConf,
        arguments: Arguments,
        block: Block,
        sums: Mapping[Arg, Operand] | None = None,
        learned: Mapping[Arg, Operand] | None = None,
    ) -> None:
        self._conf, self._block = conf, block
        self.sums, self._learned = sums or {}, learned or {}
        self._rows = [GradientRow(conf, arguments, row) for row in block.rows]
        self._scale = None
        if not conf.scale.is_zero:
            self._scale = Operand(arguments.slot(Arg.SCALE), conf.scale, block.channel)
        self._summed = not conf.given or bool(self._learned)
        self._normalizes = Arg.DIFF_SCALE in self.sums or not conf.given

    @property
    def nest(self) -> Nest:
        """What differentiates every row by itself."""
        return Nest(
            self._block.parallel,
            self._block.reduced,
            self.inputs,
            self.outputs,
            self.body,
            core=self._conf.core,
        )

    @property
    def inputs(self) -> Operands:
        """Everything that is read."""
        every = [self._scale]
        for row in self._rows:
            every += [*row.gradients, row.variance]
            every += [row.src, row.mean] if self._normalizes or self._summed else []
        return present(*every)

    @property
    def outputs(self) -> Operands:
        """Everything that is written."""
        data = [operand for row in self._rows for operand in row.outputs]
        return (*data, *self.sums.values(), *self._learned.values())

    def body(self, point: Point) -> None:
        """Both passes."""
        inverses = tuple(row.inverse(point) for row in self._rows)
        reads = self._normalizes or self._summed
        operands = [row.mean for row in self._rows] if reads else []
        means = tuple(point.load(operand) for operand in operands if operand is not None)
        factors = inverses
        if self._scale is not None and self._block.direct:
            scale = point.load(self._scale)
            factors = tuple(point.e.b.fmul(value, scale) for value in inverses)
        known = _Statistics(means, inverses, factors)
        if self._summed:
            known = self._shares(point, known)
        point.each(lambda p: self._finish(p, known))

    def _prefetch_sources(self, p: Point) -> None:
        for row in self._rows:
            read = (row.diff_dst, row.src) if self._normalizes else (row.diff_dst,)
            for operand in read:
                distance = self._block.next_block(operand.desc)
                if distance is not None:
                    p.prefetch(operand, p.e.number(distance))

    def _gradients(self, p: Point) -> list[Value]:
        """Those of the normalized rows, but for a scale that a row has once."""
        values = [row.passed(p) for row in self._rows]
        if self._scale is None or self._block.direct:
            return values
        scale = p.load(self._scale)
        return [p.e.b.fmul(value, scale) for value in values]

    def _centred(self, p: Point, known: _Statistics) -> list[Value]:
        values = [p.load(row.src) for row in self._rows]
        if not known.means:
            return values
        return [p.e.b.fsub(value, mean) for value, mean in zip(values, known.means, strict=True)]

    def _shares(self, point: Point, known: _Statistics) -> _Statistics:
        """Two sums along each row, one of the root mean square kind."""
        count, shifts = len(self._rows), bool(known.means)

        def step(p: Point, *totals: Value) -> Values:
            gradients, centred = self._gradients(p), self._centred(p, known)
            if self._block.next_block(self._conf.src) is not None and not p.streamed:
                for row in self._rows:
                    p.prefetch(row.diff_src)
            terms = zip(gradients, centred, totals[:count], strict=True)
            along = [vector.multiply_add(p.e, *term) for term in terms]
            pairs = zip(totals[count:], gradients, strict=False)
            return (*along, *(p.e.b.fadd(total, gradient) for total, gradient in pairs))

        b = point.e.b
        share = b.fdiv(point.constant(-1.0), self._block.count(point))
        totals = folds.sums(step, count * (1 + shifts)).partial(point)
        if self._learned:
            products, total = totals
            found = {Arg.DIFF_SCALE: b.fmul(products, known.inverses[0]), Arg.DIFF_SHIFT: total}
            store(tuple(self._learned.values()), point, tuple(found[arg] for arg in self._learned))
        if self._conf.given:
            return known
        # Sums along a row lack the factor that makes them ones of normalized elements.
        terms = shares(point.e, share, known.factors, known.inverses, totals)
        return _Statistics(known.means, known.inverses, known.factors, *terms)

    def _finish(self, p: Point, known: _Statistics) -> None:
        self._prefetch_sources(p)
        totals = {arg: p.load(operand) for arg, operand in self.sums.items()}
        centred = self._centred(p, known) if self._normalizes else []
        normalized = [
            p.e.b.fmul(value, inverse)
            for value, inverse in zip(centred, known.inverses, strict=False)
        ]
        if totals:
            for number, row in enumerate(self._rows):
                self._add(p, totals, row.passed(p), normalized[number:])
        values = self._gradients(p)
        if known.constant:
            pairs = zip(values, known.constant, strict=True)
            values = [p.e.b.fadd(value, constant) for value, constant in pairs]
        results = [
            gradient(
                p.e,
                value,
                known.factors[number],
                distance=normalized[number] if normalized else None,
                along=known.along[number] if known.along else None,
            )
            for number, value in enumerate(values)
        ]
        seconds = [row.second(p) for row in self._rows]
        # Behind all loads: of rows 4 KiB apart, one row's would seem to wait for another's stores.
        for row, value, second in zip(self._rows, results, seconds, strict=True):
            row.store(p, value, second)
        for arg, operand in self.sums.items():
            p.store(operand, totals[arg])

    def _add(
        self, p: Point, totals: dict[Arg, Value], gradient: Value, normalized: list[Value]
    ) -> None:
        """What one row adds to the gradients of scale and shift; it is the first of ``normalized``,
        if these are wanted."""
        if Arg.DIFF_SCALE in totals:
            total = totals[Arg.DIFF_SCALE]
            totals[Arg.DIFF_SCALE] = vector.multiply_add(p.e, gradient, normalized[0], total)
        if Arg.DIFF_SHIFT in totals:
            totals[Arg.DIFF_SHIFT] = p.e.b.fadd(totals[Arg.DIFF_SHIFT], gradient)
