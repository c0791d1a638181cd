"""Layer normalization forward: up to three passes over a few rows side by side, which a cache
holds: mean, variance, result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dnnl.codegen.epilogue.attributes import Attributes, Result, Sources
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Module, Value, Values, i64
from dnnl.codegen.ir.kernel import Arguments, Kernel, Refusal, symbol
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine
from dnnl.codegen.nest.folds import sums
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.kernels.normalization.layer_rows import Block, Index, blocks, open_blocks
from dnnl.kernels.normalization.shared import affine, inverse_deviation
from dnnl.kernels.shared.open_nests import OpenKernel
from dnnl.kernels.shared.types import core_of, refuse_forward
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg
from dnnl.types.kinds import RUNTIME_DIM
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True)
class LayerNormalizationConf:
    """dst = scale * (src - mean) / sqrt(variance + epsilon) + shift for each row with
    ``attributes``, of which the scale of src multiplies that.

    The statistics have the layout ``stat``. They are ``given``, or else computed and then
    ``kept`` where that is wanted. Of the root mean square kind (``rms``) there is no mean.
    ``scale`` and ``shift`` are the zero descriptor where there are none.
    """

    src: MemoryDesc
    dst: MemoryDesc
    stat: MemoryDesc
    scale: MemoryDesc
    shift: MemoryDesc
    epsilon: float
    rms: bool
    given: bool
    kept: bool
    attributes: Attributes


def configure(conf: LayerNormalizationConf) -> LayerNormalizationConf | Refusal:
    """Accept any layouts of supported types."""
    return refuse_forward({Arg.SRC: conf.src}, conf.dst, conf.attributes) or conf


def build(conf: LayerNormalizationConf, isa: Isa) -> Kernel:
    """A nest for whole blocks of rows, and one for the rows that remain."""
    module = Module("layer_normalization", isa)
    arguments = Arguments()
    phases = tuple(
        _phase(conf, module, arguments, block, number)
        for number, block in enumerate(_blocks(conf, isa))
    )
    return Kernel(module, phases, arguments.ids)


def _blocks(conf: LayerNormalizationConf, isa: Isa) -> list[Block]:
    """The rows of the tensors; one by one where their statistics have padding, which only an axis
    that walks all rows reaches."""
    padded = conf.kept and conf.stat.padded_dims != conf.stat.dims
    return blocks(isa, [conf.src, conf.dst], single=padded)


def _phase(
    conf: LayerNormalizationConf, module: Module, arguments: Arguments, block: Block, number: int
) -> Phase:
    name = "layer_normalization" + (f"_rest{number}" if number else "")
    entry = symbol(name, [conf.src, conf.dst], module.isa)
    return emit_nest(module, entry, _nest(conf, arguments, block))


def _nest(conf: LayerNormalizationConf, arguments: Arguments, block: Block) -> Nest:
    rows = _Rows(conf, arguments, block)
    return Nest(
        block.parallel,
        (block.along,),
        rows.inputs,
        rows.outputs,
        rows.body,
        reads_dst=rows.reads_dst,
        core=core_of(conf.src, conf.dst),
        in_rows=len(block.rows) > 1,
    )


def build_open(conf: LayerNormalizationConf, isa: Isa) -> Kernel:
    """One nest for all sizes."""
    return OPEN.build(conf, isa)


def _nests(conf: LayerNormalizationConf, arguments: Arguments) -> Iterator[Nest]:
    """A nest of blocks of rows, and one of single rows."""
    for block in open_blocks([conf.src, conf.dst]):
        yield _nest(conf, arguments, block)


OPEN = OpenKernel(
    "layer_normalization",
    _nests,
    {
        "src": Arg.SRC, "dst": Arg.DST, "stat": Arg.VARIANCE, "scale": Arg.SCALE,
        "shift": Arg.SHIFT,
    },
)  # fmt: skip


class _Row:
    """The tensors of one row of a block."""

    def __init__(
        self, conf: LayerNormalizationConf, arguments: Arguments, block: Block, row: Index
    ) -> None:
        index = (*row, Affine.of(block.along))
        self.src = Operand(arguments.slot(Arg.SRC), conf.src, index)
        self.dst = Operand(arguments.slot(Arg.DST), conf.dst, index)
        self.given = Sources(conf.attributes, {Arg.SRC: self.src}, arguments, late=True)
        self.result = Result(conf.attributes, self.dst, arguments, src=self.src)
        self.statistics: dict[Arg, Operand] = {}
        if conf.given or conf.kept:
            names = (Arg.VARIANCE,) if conf.rms else (Arg.MEAN, Arg.VARIANCE)
            for name in names:
                self.statistics[name] = Operand(arguments.slot(name), conf.stat, row)

    def load(self, point: Point) -> Value:
        """The elements of src here."""
        return self.given.load(point, Arg.SRC)


class _Rows:
    """The passes over the rows of one block, or over as many blocks side by side as a vector has
    lanes."""

    def __init__(self, conf: LayerNormalizationConf, arguments: Arguments, block: Block) -> None:
        self._conf, self._block = conf, block
        self._rows = [_Row(conf, arguments, block, row) for row in block.rows]
        along = (Affine.of(block.along),)
        self._channels = {
            arg: Operand(arguments.slot(arg), desc, along)
            for arg, desc in ((Arg.SCALE, conf.scale), (Arg.SHIFT, conf.shift))
            if not desc.is_zero
        }

    @property
    def inputs(self) -> tuple[Operand, ...]:
        """Everything that is read."""
        rows = [op for row in self._rows for op in (*row.given.operands, *row.result.inputs)]
        if self._conf.given:
            rows += [op for row in self._rows for op in row.statistics.values()]
        return (*rows, *self._channels.values())

    @property
    def outputs(self) -> tuple[Operand, ...]:
        """Everything that is written."""
        kept = [op for row in self._rows for op in row.statistics.values() if self._conf.kept]
        return (*(row.dst for row in self._rows), *kept)

    @property
    def reads_dst(self) -> bool:
        """Whether the post-ops need what the destination held before."""
        return any(row.result.reads_dst for row in self._rows)

    def body(self, point: Point) -> None:
        """The statistics and the result."""
        means, variances = self._given(point) if self._conf.given else self._computed(point)
        inverses = [inverse_deviation(point, value, self._conf.epsilon) for value in variances]

        def finish(p: Point) -> None:
            channels = {arg: p.load(operand) for arg, operand in self._channels.items()}
            results = []
            for number, row in enumerate(self._rows):
                value = row.load(p)
                if means:
                    value = p.e.b.fsub(value, means[number])
                scale, factor = channels.get(Arg.SCALE), inverses[number]
                factor = factor if scale is None else p.e.b.fmul(factor, scale)
                value = affine(p, value, factor, channels.get(Arg.SHIFT))
                results.append(row.result.finished(p, value))
            # Behind all loads: of rows 4 KiB apart, one's would seem to wait for another's stores.
            for row, value in zip(self._rows, results, strict=True):
                p.store(row.dst, value)

        point.each(finish)

    def _prefetch(self, p: Point) -> None:
        """Fetch the next block while this one is in the first-level cache, if there is room for it,
        and where the result goes, if that may have left the caches and does not pass them by."""
        conf, next_block = self._conf, self._block.next_block(self._conf.src)
        if next_block is None or not self._block.fits_twice(p.e.isa, (conf.src, conf.dst)):
            return
        large = conf.src.size + conf.dst.size > p.e.isa.caches.shared
        for row in self._rows:
            p.prefetch(row.src, i64(next_block))
            if large and not p.streamed:
                p.prefetch(row.dst)

    def _given(self, point: Point) -> tuple[Values, Values]:
        means = tuple(
            point.load(row.statistics[Arg.MEAN]) for row in self._rows if not self._conf.rms
        )
        return means, tuple(point.load(row.statistics[Arg.VARIANCE]) for row in self._rows)

    def _computed(self, point: Point) -> tuple[Values, Values]:
        """The mean, and then the mean of the squares of the differences from it: nothing cancels,
        however far it is from zero."""
        rows, length = self._rows, self._block.along.extent
        count = point.divisor if length == RUNTIME_DIM else point.constant(max(1, length))
        means: Values = ()

        def total(p: Point, *totals: Value) -> Values:
            return tuple(
                p.e.b.fadd(value, row.load(p)) for value, row in zip(totals, rows, strict=True)
            )

        def squares(p: Point, *totals: Value) -> Values:
            values = [row.load(p) for row in rows]
            self._prefetch(p)
            if means:
                values = [p.e.b.fsub(x, mean) for x, mean in zip(values, means, strict=True)]
            return tuple(
                vector.multiply_add(p.e, x, x, value)
                for x, value in zip(values, totals, strict=True)
            )

        def mean_of(totals: Values) -> Values:
            return tuple(point.e.b.fdiv(value, count) for value in totals)

        if not self._conf.rms:
            means = mean_of(sums(total, len(rows)).partial(point))
        variances = mean_of(sums(squares, len(rows)).partial(point))
        if self._conf.kept:
            for number, row in enumerate(rows):
                if means:
                    point.store(row.statistics[Arg.MEAN], means[number])
                point.store(row.statistics[Arg.VARIANCE], variances[number])
        return means, variances
