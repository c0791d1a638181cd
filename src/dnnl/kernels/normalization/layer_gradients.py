"""The gradients that belong to a few rows side by side: that of src, and what the rows add to those
of scale and shift."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Type, Value, Values, i64
from dnnl.codegen.ir.kernel import Arguments
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, Axis
from dnnl.codegen.nest import folds
from dnnl.codegen.nest.point import Point
from dnnl.errors import InvalidArguments
from dnnl.kernels.normalization.layer_rows import Block, Chunks, Index
from dnnl.kernels.normalization.shared import inverse_deviation
from dnnl.kernels.shared.types import computed_in, core_of
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc

_NONE = MemoryDesc.zero()


@dataclass(frozen=True)
class LayerNormalizationBackwardConf:
    """The gradients of dst = scale * (src - mean) / sqrt(variance + epsilon) + shift.

    The statistics, of layout ``stat``, are functions of src, or ``constant``; of the root mean
    square kind (``rms``) there is no mean. ``scale``, ``diff_scale`` and ``diff_shift`` are the
    zero descriptor where there are none.

    The gradients of scale and shift are ``partial`` sums first, over ``chunks`` of rows where rows
    lie in one piece, else over parts of all with the ``factors``, the inverse deviation of each
    row, if sizes are known. Both lie in the ``scratchpad``, which has that many bytes.
    """

    src: MemoryDesc
    diff_dst: MemoryDesc
    diff_src: MemoryDesc
    stat: MemoryDesc
    scale: MemoryDesc
    diff_scale: MemoryDesc
    diff_shift: MemoryDesc
    epsilon: float
    rms: bool
    constant: bool
    chunks: Chunks | None = None
    factors: MemoryDesc = _NONE
    partial: MemoryDesc = _NONE
    scratchpad: int = 0

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

    @property
    def summed(self) -> dict[Arg, MemoryDesc]:
        """The gradients that are sums over rows."""
        every = {Arg.DIFF_SCALE: self.diff_scale, Arg.DIFF_SHIFT: self.diff_shift}
        return {arg: desc for arg, desc in every.items() if not desc.is_zero}

    @property
    def flat(self) -> LayerNormalizationBackwardConf | None:
        """This configuration with all rows along one dimension; None where they do not lie so, or
        not in one piece."""
        *rows, length = self.src.dims
        if any(desc.inner_blocks or desc.strides[-1] != 1 for desc in self.data):
            return None
        try:
            src, diff_dst, diff_src = (desc.reshape((prod(rows), length)) for desc in self.data)
            stat = self.stat.reshape((prod(rows),))
        except InvalidArguments:
            return None
        return replace(self, src=src, diff_dst=diff_dst, diff_src=diff_src, stat=stat)


class _Row:
    """The tensors of one row."""

    def __init__(
        self, conf: LayerNormalizationBackwardConf, arguments: Arguments, row: Index, along: Axis
    ) -> None:
        index = (*row, Affine.of(along))
        self.diff_dst = Operand(arguments.slot(Arg.DIFF_DST), conf.diff_dst, index)
        self.diff_src = Operand(arguments.slot(Arg.DIFF_SRC), conf.diff_src, index)
        self.src = Operand(arguments.slot(Arg.SRC), conf.src, index)
        self.variance = Operand(arguments.slot(Arg.VARIANCE), conf.stat, row)
        self.mean = None if conf.rms else Operand(arguments.slot(Arg.MEAN), conf.stat, row)


@dataclass(frozen=True)
class _Statistics:
    """What is known of each row after the first pass over it. ``along`` and ``constant``, where
    there are such, are the shares that its statistics take away."""

    means: Values
    inverses: Values
    along: Values = ()
    constant: Values = ()


class Gradients:
    """Two passes over the rows of a block.

    The second adds to ``sums``, the gradients of scale and shift by argument. In the meantime what
    is wanted next is fetched: where the gradient of src goes, then the next block.
    """

    def __init__(
        self,
        conf: LayerNormalizationBackwardConf,
        arguments: Arguments,
        block: Block,
        sums: Mapping[Arg, Operand] | None = None,
    ) -> None:
        self._conf, self._block, self.sums = conf, block, sums or {}
        self._rows = [_Row(conf, arguments, row, block.along) for row in block.rows]
        self._scale = None
        if not conf.scale.is_zero:
            self._scale = Operand(arguments.slot(Arg.SCALE), conf.scale, (Affine.of(block.along),))
        self._normalizes = Arg.DIFF_SCALE in self.sums or not conf.constant

    @property
    def inputs(self) -> tuple[Operand, ...]:
        """Everything that is read."""
        every = [self._scale]
        for row in self._rows:
            every += [row.diff_dst, row.variance]
            every += [row.src, row.mean] if self._normalizes else []
        return tuple(operand for operand in every if operand is not None)

    @property
    def outputs(self) -> tuple[Operand, ...]:
        """Everything that is written."""
        return (*(row.diff_src for row in self._rows), *self.sums.values())

    def body(self, point: Point) -> None:
        """Both passes."""
        inverses = tuple(
            inverse_deviation(point, point.load(row.variance), self._conf.epsilon)
            for row in self._rows
        )
        operands = [row.mean for row in self._rows] if self._normalizes else []
        means = tuple(point.load(operand) for operand in operands if operand is not None)
        known = _Statistics(means, inverses)
        if not self._conf.constant:
            known = self._shares(point, known)
        point.each(lambda p: self._finish(p, known))

    def _prefetch_sources(self, p: Point) -> None:
        for row in self._rows:
            read = (row.diff_dst, row.src) if self._normalizes else (row.diff_dst,)
            for operand in read:
                distance = self._block.next_block(operand.desc)
                if distance is not None:
                    p.prefetch(operand, i64(distance))

    def _gradients(self, p: Point) -> list[Value]:
        """Those of the normalized rows."""
        values = [p.load(row.diff_dst) for row in self._rows]
        if self._scale is None:
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
        share = b.fdiv(point.constant(-1.0), point.divisor)
        totals = folds.sums(step, count * (1 + shifts)).partial(point)
        shares = [
            b.fmul(b.fmul(total, share), inverse)
            for total, inverse in zip(totals, known.inverses * 2, strict=False)
        ]
        # The sum along a row lacks the factor that makes it one of normalized elements.
        pairs = zip(shares[:count], known.inverses, strict=True)
        along = tuple(b.fmul(value, inverse) for value, inverse in pairs)
        return _Statistics(known.means, known.inverses, along, tuple(shares[count:]))

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
                self._add(p, totals, p.load(row.diff_dst), normalized[number:])
        results = []
        for number, gradient in enumerate(self._gradients(p)):
            inverse = known.inverses[number]
            if known.constant:
                value = vector.multiply_add(p.e, gradient, inverse, known.constant[number])
            else:
                value = p.e.b.fmul(gradient, inverse)
            if known.along:
                share = known.along[number]
                value = vector.multiply_add(p.e, normalized[number], share, value)
            results.append(value)
        # Behind all loads: of rows 4 KiB apart, one row's would seem to wait for another's stores.
        for row, value in zip(self._rows, results, strict=True):
            p.store(row.diff_src, value)
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
