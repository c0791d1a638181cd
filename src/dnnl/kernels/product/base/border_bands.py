"""Per-thread zero padding of an image: rows of the padded copy are written just before the first
band that reads them, so that they are found in the first-level cache.

Each thread has a buffer for one image. Successive work items read mostly the same rows, so the
thread remembers which rows are valid.
"""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.codegen.ir.builder import I8, Emitter, Value, i64
from dnnl.codegen.ir.variable import Variable
from dnnl.codegen.memory.access import Env, Operand
from dnnl.codegen.memory.address import Affine
from dnnl.kernels.product.base.border_rows import Rows
from dnnl.kernels.product.base.pixel_tiles import Spatial


@dataclass(frozen=True, eq=False)
class Bands:
    """The padded ``rows`` of ``src`` in image number ``image``; ``height`` gives the rows that each
    output row reads."""

    src: Operand
    rows: Rows
    image: Affine
    height: Spatial

    @property
    def nbytes(self) -> int:
        """The bytes of the padded copy of an image."""
        return self.height.src * self.rows.row_bytes


class BandWriter:
    """Writes padded rows of ``src`` to the ``buffer`` of a thread."""

    def __init__(self, e: Emitter, bands: Bands, src: Value, buffer: Value) -> None:
        self.e, self._bands, self._src, self._buffer = e, bands, src, buffer
        self._image, self._begin, self._end = Variable(e), Variable(e), Variable(e)

    def need(self, env: Env, first: Value, count: int) -> None:
        """Make the rows available that ``count`` rows of dst, from number ``first`` on, read."""
        e, b, bands, h = self.e, self.e.b, self._bands, self._bands.height
        low = e.add(e.mul(first, h.stride), i64(-h.padding))
        reach = (count - 1) * h.stride + (h.kernel - 1) * h.dilation + 1
        high = e.smaller(e.add(low, i64(reach)), i64(h.src))
        image = bands.image.emit(e, env)
        begin, end = self._begin.value, self._end.value
        same = b.icmp_signed("==", e.add(image, i64(1)), self._image.value)
        goes_on = b.and_(b.icmp_signed("<=", begin, low), b.icmp_signed("<=", low, end))
        reuses = b.and_(same, goes_on)
        start = b.select(reuses, end, low)

        def row(number: Value) -> None:
            target = e.element(self._buffer, e.mul(number, bands.rows.row_bytes), I8)
            bands.rows.write(e, self._src, target, [image, number])

        e.loop(start, high, row, unroll=False, name="row")
        self._image.set(e.add(image, i64(1)))
        self._begin.set(b.select(reuses, begin, low))
        self._end.set(e.larger(start, high))
