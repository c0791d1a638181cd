"""Normalize rows along channels: up to three passes over a few of them side by side, which a cache
holds: mean, variance, result."""

from __future__ import annotations

from collections.abc import Sequence

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Module, Value, Values
from dnnl.codegen.ir.kernel import Arguments, symbol
from dnnl.codegen.isa import Isa
from dnnl.codegen.nest.folds import sums
from dnnl.codegen.nest.nest import emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.kernels.normalization.blocks import blocks
from dnnl.kernels.normalization.description import NormalizationConf
from dnnl.kernels.normalization.normalizer import Normalizer
from dnnl.runtime.image import Phase
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import typical


def phases(conf: NormalizationConf, module: Module, arguments: Arguments) -> tuple[Phase, ...]:
    """Write a nest for whole blocks of rows, and one for the rows that remain."""
    # Only an axis over all rows reaches the padding of their statistics.
    padded = conf.stored and conf.stat.padded_dims != conf.stat.dims
    written = []
    for number, block in enumerate(blocks(module.isa, conf.data, single=padded)):
        name = conf.kind + (f"_rest{number}" if number else "")
        nest = _Rows(conf, arguments, block).nest
        written.append(emit_nest(module, symbol(name, conf.data, module.isa), nest))
    return tuple(written)


class _Rows(Normalizer):
    """The passes over the rows of one block, or over as many blocks side by side as a vector has
    lanes."""

    def computed(self, point: Point) -> tuple[Values, Values]:
        """The mean, and then the mean of the squares of the differences from it: nothing cancels,
        however far it is from zero."""
        rows, count = self._rows, self._block.count(point)
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
        self._store(point, means, variances)
        return means, variances

    def _prefetch(self, p: Point) -> None:
        """Fetch the next block while this one is in the first-level cache, if both fit, and where
        the result goes, if that may have left the caches and is not stored past them."""
        conf, next_block = self._conf, self._block.next_block(self._conf.src)
        if next_block is None or not self._fits_twice(p.e.isa, conf.data):
            return
        large = typical(conf.src.size + conf.dst.size) > p.e.isa.caches.shared
        for row in self._rows:
            p.prefetch(row.src, p.e.number(next_block))
            if large and not p.streamed:
                p.prefetch(row.dst)

    def _fits_twice(self, isa: Isa, descs: Sequence[MemoryDesc]) -> bool:
        """Whether the first-level cache holds the rows of all of ``descs``, and those of the next
        block besides."""
        (along,) = self._block.reduced
        row = sum(desc.data_type.nbytes(along.typical) for desc in descs)
        return 2 * len(self._rows) * row <= isa.caches.l1
