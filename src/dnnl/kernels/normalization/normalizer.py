"""What normalizes one or several rows at a point of a nest."""

from __future__ import annotations

from collections.abc import Iterable

from dnnl.codegen.epilogue.attributes import Result, Sources
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Value, Values
from dnnl.codegen.ir.kernel import Arguments
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.nest.folds import Reduction, mean_and_variance, moments
from dnnl.codegen.nest.nest import Nest
from dnnl.codegen.nest.point import Point
from dnnl.kernels.normalization.axes import Block, Row
from dnnl.kernels.normalization.description import (
    NormalizationConf,
    Operands,
    RowTensors,
    affine,
    inverse_deviation,
    present,
)
from dnnl.types.arg import Arg


class NormalizedRow(RowTensors):
    """The tensors of one row, and what is done to it."""

    def __init__(self, conf: NormalizationConf, arguments: Arguments, row: Row) -> None:
        data = {Arg.SRC: conf.src, Arg.DST: conf.dst, Arg.WORKSPACE: conf.workspace}
        if conf.added:
            data[Arg.SRC_1] = conf.dst
        super().__init__(conf, arguments, row, data)
        self.src, self.dst = self._data[Arg.SRC], self._data[Arg.DST]
        self.workspace = self._data.get(Arg.WORKSPACE)
        self.sources = Sources(conf.attributes, {Arg.SRC: self.src}, arguments, late=conf.late)
        late = self.src if conf.late else None
        self.result = Result(conf.attributes, self.dst, arguments, src=late)
        self._added, self._relu = None, conf.relu
        if conf.added:
            second = {int(Arg.SRC_1): self._data[Arg.SRC_1]}
            self._added = Sources(conf.attributes, second, arguments)

    @property
    def beside(self) -> Operands:
        """What is read besides src, statistics, scale and shift."""
        added = () if self._added is None else self._added.operands
        return (*self.result.inputs, *added)

    @property
    def outputs(self) -> Operands:
        """What is written for each element."""
        return (*self.result.outputs, *present(self.workspace))

    def load(self, point: Point) -> Value:
        """The elements of src here."""
        return self.sources.load(point, Arg.SRC)

    def normalized(
        self, p: Point, mean: Value | None, factor: Value, scale: Value | None, shift: Value | None
    ) -> Value:
        """One vector of dst."""
        b, value = p.e.b, self.load(p)
        if mean is not None:
            value = b.fsub(value, mean)
        if scale is not None:
            factor = b.fmul(factor, scale)
        value = affine(p, value, factor, shift)
        if self._added is not None:
            value = b.fadd(value, self._added.load(p, Arg.SRC_1))
        if self.workspace is not None:
            positive = b.fcmp_unordered(">", value, p.constant(0.0))
            p.store(self.workspace, b.select(positive, p.constant(1.0), p.constant(0.0)))
        if self._relu:
            # In this order NaN stays.
            value = vector.maximum(p.e, p.constant(0.0), value)
        return self.result.finished(p, value)


class Normalizer:
    """The rows of a block, with what is done to them."""

    def __init__(self, conf: NormalizationConf, arguments: Arguments, block: Block) -> None:
        self._conf, self._block = conf, block
        self._rows = [NormalizedRow(conf, arguments, row) for row in block.rows]
        self.scale, self.shift = (
            None if desc.is_zero else Operand(arguments.slot(arg), desc, block.channel)
            for arg, desc in ((Arg.SCALE, conf.scale), (Arg.SHIFT, conf.shift))
        )

    @property
    def nest(self) -> Nest:
        """What normalizes every row by itself."""
        block, conf = self._block, self._conf
        given = self.statistics if conf.given else ()
        return Nest(
            block.parallel,
            block.reduced,
            (*self.read, *given, *present(self.scale), *self.beside),
            (*self.outputs, *self.written),
            self._body,
            reads_dst=self.reads_dst,
            core=conf.core,
        )

    @property
    def read(self) -> Operands:
        """What is normalized."""
        return _every(row.sources.operands for row in self._rows)

    @property
    def beside(self) -> Operands:
        """What is read besides src, statistics and scale."""
        return (*_every(row.beside for row in self._rows), *present(self.shift))

    @property
    def statistics(self) -> Operands:
        """The statistics that are in memory."""
        return _every(row.statistics.values() for row in self._rows)

    @property
    def outputs(self) -> Operands:
        """What is written for each element, dst first."""
        return _every(row.outputs for row in self._rows)

    @property
    def written(self) -> Operands:
        """The statistics that are outputs."""
        return self.statistics if self._conf.stored else ()

    @property
    def reads_dst(self) -> bool:
        """Whether the post-ops need what the destination held before."""
        return any(row.result.reads_dst for row in self._rows)

    @property
    def reduction(self) -> Reduction:
        """The moments of a row, which :meth:`settled` takes."""
        return moments(self._rows[0].load, self._conf.held)

    def settled(self, point: Point, values: Values) -> tuple[Value, Value]:
        """The mean and the variance out of moments, stored where they are outputs."""
        mean, variance = mean_and_variance(point.e, values)
        self._store(point, (mean,), (variance,))
        return mean, variance

    def given(self, point: Point) -> tuple[Values, Values]:
        """The means, where there are such, and the variances in memory."""
        means, variances = (
            tuple(point.load(row.statistics[arg]) for row in self._rows if arg in row.statistics)
            for arg in (Arg.MEAN, Arg.VARIANCE)
        )
        return means, variances

    def computed(self, point: Point) -> tuple[Values, Values]:
        """The means, where there are such, and the variances of the rows."""
        mean, variance = self.settled(point, self.reduction.partial(point))
        return (mean,), (variance,)

    def factor(self, point: Point, variance: Value, scale: Operand | None = None) -> Value:
        """What the differences from the mean are multiplied by."""
        return inverse_deviation(point, variance, self._conf.epsilon, scale)

    def write(self, p: Point, means: Values, factors: Values, scale: Operand | None = None) -> None:
        """One vector of each row, times a scale of each element where there is such."""
        above = None if scale is None else p.load(scale)
        shift = None if self.shift is None else p.load(self.shift)
        results = [
            row.normalized(p, means[number] if means else None, factors[number], above, shift)
            for number, row in enumerate(self._rows)
        ]
        # Behind all loads: of rows 4 KiB apart, one's would seem to wait for another's stores.
        for row, value in zip(self._rows, results, strict=True):
            p.store(row.dst, value)

    def _body(self, point: Point) -> None:
        means, variances = self.given(point) if self._conf.given else self.computed(point)
        once, each = (self.scale, None) if self._block.direct else (None, self.scale)
        factors = tuple(self.factor(point, value, once) for value in variances)
        point.each(lambda p: self.write(p, means, factors, each))

    def _store(self, point: Point, means: Values, variances: Values) -> None:
        if not self._conf.stored:
            return
        for number, row in enumerate(self._rows):
            for arg, values in ((Arg.MEAN, means), (Arg.VARIANCE, variances)):
                if values:
                    point.store(row.statistics[arg], values[number])


def _every(operands: Iterable[Iterable[Operand]]) -> Operands:
    return tuple(operand for some in operands for operand in some)
