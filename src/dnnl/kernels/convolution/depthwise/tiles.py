"""Depthwise convolution of channels in vectors, several outputs of a row at a time.

A tile is a vector of channels of consecutive outputs. For each row of taps it loads the weights,
then one pixel after the other, each of which contributes to several outputs::

    pixels    p0    p1    p2    p3
    outputs   o0 += w0*p0 + w1*p1 + w2*p2
              o1 +=         w0*p1 + w1*p2 + w2*p3

For a row of three taps a tile of 8 outputs loads 10 pixels and 3 weights for 24 multiplications. A
loop skips rows of taps above and below the image. The first and the last tiles of a row, whose taps
may be outside, are unrolled for their positions. Bytes are converted to f32, which represents their
sums exactly.

A transposed convolution differs in which pixels an output reads. With stride 2::

    outputs   o0 += w1*p0                   tiles begin at multiples of the stride
              o1 += w2*p0 + w0*p1
              o2 +=         w1*p1
              o3 +=         w2*p1 + w0*p2
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import prod

from dnnl.codegen.conversion.convert import storage
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, Module, Value, Values, i64
from dnnl.codegen.ir.kernel import Arguments
from dnnl.codegen.isa.caches import LINE
from dnnl.codegen.memory.access import Env, Operand
from dnnl.codegen.memory.address import Affine, Axis
from dnnl.codegen.product.brgemm import Tile
from dnnl.kernels.convolution.depthwise import factors
from dnnl.kernels.convolution.depthwise.groups import DEPTHWISE, Groups
from dnnl.kernels.convolution.depthwise.lines import Line, Meets, Taps, everywhere
from dnnl.kernels.convolution.depthwise.rows import (
    DepthwiseRowsConf,
    DepthwiseRowsWriter,
    load_one,
    three,
)
from dnnl.kernels.convolution.direct.pieces import Piece
from dnnl.kernels.convolution.direct.residue_images import emit_untapped
from dnnl.kernels.convolution.direct.residues import Steps
from dnnl.kernels.product.base.store import Store
from dnnl.kernels.product.plan.summary import PlanSummary
from dnnl.runtime.image import Phase
from dnnl.types.size import is_known, smaller, surely_below, surely_equal

_ITEMS = 64  # at least, where there are so many rows of panels


@dataclass(frozen=True)
class DepthwiseTilesConf(DepthwiseRowsConf):
    """A tile has ``places`` consecutive outputs. Weights have one dimension of all outputs, and the
    channels of a group as inputs. The convolution has these ``taps`` of theirs."""

    places: int
    shared: Groups
    taps: tuple[Steps, Steps, Steps] = (Steps(), Steps(), Steps())

    @property
    def groups(self) -> Groups:
        """What the outputs in a vector read."""
        return self.shared

    @property
    def summary(self) -> PlanSummary:
        """The decisions, for `dnnl explain`."""
        channels = self.groups.channels
        shared = f"each lane of a vector reads the {channels} channels of its own group"
        cut = "" if self.groups == DEPTHWISE else shared
        return PlanSummary(self.multiply, copies_in=self.copies_in, cut=cut)

    def emit(self, module: Module, name: str, arguments: Arguments) -> list[Phase]:
        return [_TilesWriter(module, name, self, arguments).phase()]


@dataclass(frozen=True)
class DepthwisePiecesConf(DepthwiseTilesConf):
    """A transposed convolution of sizes that only an execution knows: the convolutions of its
    residues, and the pixels of those that have no taps."""

    pieces: tuple[DepthwiseTilesConf, ...] = ()
    untapped: tuple[Piece, ...] = ()

    def emit(self, module: Module, name: str, arguments: Arguments) -> list[Phase]:
        found = emit_untapped(module, name, self.problem, self.untapped, arguments)
        for number, piece in enumerate(self.pieces):
            found += piece.emit(module, f"{name}{number}", arguments)
        return found


@dataclass(frozen=True)
class _Row:
    """A row of outputs of some panels: its position, the offsets ``src`` and ``weights`` of its
    first tap, the ``taps`` of depth and height, and the range of ``panels``."""

    env: Env
    src: Value
    weights: Value
    taps: tuple[Taps, Taps]
    panels: tuple[Value, Value]


@dataclass(frozen=True)
class _Panel:
    """A panel of a row: its position, and of src and of weights the masks of lanes that exist in
    its vectors and the address that the first tap reads."""

    env: Env
    src_masks: tuple[vector.Mask, ...]
    weight_masks: tuple[vector.Mask, ...]
    src: Value
    weights: Value


class _TilesWriter(DepthwiseRowsWriter):
    """Writes the convolution. With channels last, a work item computes all panels of a tile before
    the next tile, so that pixels are read in memory order."""

    def __init__(
        self, module: Module, name: str, conf: DepthwiseTilesConf, arguments: Arguments
    ) -> None:
        super().__init__(module, name, conf, arguments)
        self.conf, problem, columns = conf, conf.problem, self.walk.columns
        self.shift = self._shift()
        self.lines = [Line(space, problem.transposed) for space in self.space]
        apart = three(conf.weights[1].strides[3:])
        pairs = [*zip(conf.taps, apart, strict=True)]
        self.weight_steps = [own.step * step for own, step in pairs]
        self.first_tap = sum(own.first * step for own, step in pairs)
        self.rest = columns.count % columns.width
        padded = self.rest and problem.dst.dims != problem.dst.padded_dims
        self.store = Store(
            self.e,
            self.pointers,
            self.tensors.finish,
            self.walk.places,
            columns,
            (columns.inside,) if padded else (),
            (),
            banded=False,
        )
        *rows, panel = self.walk.items
        self.groups = conf.groups
        self.width = self.walk.source.width * self.groups.k_group
        self.in_pixels = surely_equal(self._form(self.tensors.src).stride(panel), self.width)
        lines = prod(axis.typical for axis in rows)
        least = -(-_ITEMS // lines) if self.in_pixels else panel.extent
        self.each = -(-panel.extent // min(panel.extent, least))
        self.part = Axis(-(-panel.extent // self.each), "part")

    @property
    def items(self) -> tuple[Axis, ...]:
        """In memory order."""
        batch, *rows, _ = self.walk.items
        return (batch, *rows, self.part) if self.in_pixels else (batch, self.part, *rows)

    def item(self, env: Env) -> None:
        e, panels = self.e, self.walk.columns.panel.extent
        low = e.mul(env[self.part], self.each)
        high = e.smaller(e.add(low, i64(self.each)), i64(panels))
        (depth, height, _), src, weights = self.walk.places, i64(0), i64(self.first_tap)
        taps = []
        for axis, line, step, wide in zip(
            (depth, height), self.lines, self.steps, self.weight_steps, strict=False
        ):
            own = line.taps(e, env[axis])
            src = e.add(src, e.mul(own.first, step))
            weights = e.add(weights, e.mul(own.first_tap, wide))
            taps.append(own)
        src = e.add(src, e.number(self.lines[2].start * self.steps[2]))
        self._row(_Row(env, src, weights, (taps[0], taps[1]), (low, high)))

    def _each_panel(self, row: _Row, tile: Callable[[_Panel], None]) -> None:
        """Call ``tile(panel)`` for the panels of a row."""
        e, columns, (low, high) = self.e, self.walk.columns, row.panels

        def whole(number: Value) -> None:
            tile(self._panel(row, number, columns.width))

        if not self.rest:
            e.loop(low, high, whole, unroll=False, name="panel")
            return
        last = i64(columns.panel.extent - 1)
        e.loop(low, e.smaller(high, last), whole, unroll=False, name="panel")

        def partly() -> Values:
            tile(self._panel(row, last, self.rest))
            return ()

        e.branch(e.b.icmp_signed(">", high, last), partly, lambda: ())

    def _panel(self, row: _Row, number: Value, channels: int) -> _Panel:
        e, env = self.e, {**row.env, self.walk.columns.panel: number}
        given = channels // self.groups.outputs * self.groups.k_groups
        masks = self.walk.source.masks(given), self.walk.columns.masks(channels)
        places = []
        for operand, more in ((self.tensors.src, row.src), (self.tensors.weights, row.weights)):
            at = e.add(self._form(operand).along(env).emit(e, env), more)
            places.append(e.element(self.pointers[operand], at, storage(operand.data_type).element))
        return _Panel(env, *masks, *places)

    @staticmethod
    def _form(operand: Operand) -> Affine:
        form = operand.offset(operand.index)
        assert form is not None, "plan takes affine layouts"
        return form

    def _row(self, row: _Row) -> None:
        """All tiles of a row; inner ones in a loop."""
        e, places = self.e, self.conf.places
        if self.space[2].is_open:
            self._any_row(row)
            return
        count = -(-self.space[2].dst // places)
        first, last = self.lines[2].inner(places)
        for number in range(first):
            self._at(row, number)

        def inner(number: Value) -> None:
            self._tile(row, number, places, everywhere)

        e.loop(i64(first), i64(last), inner, unroll=False, name="tile")
        for number in range(last, count):
            self._at(row, number)

    def _any_row(self, row: _Row) -> None:
        """All tiles of a row whose width only an execution knows. The last one begins earlier, so
        that it is full; outputs that so are computed twice must not read what they were. The
        outputs of rows that are no tile long, or that are left, are computed one by one."""
        e, places, dst = self.e, self.conf.places, self.space[2].dst
        full, twice = dst // places, not self.tensors.finish.reads_dst
        count = smaller(1, full) * -(-dst // places) if twice else full

        def tile(number: Value) -> None:
            def inner() -> Values:
                self._tile(row, number, places, everywhere)
                return ()

            def outer() -> Values:
                begin = e.smaller(e.mul(number, places), e.number(dst - places))
                self._bordered(row, begin, places)
                return ()

            self.lines[2].inside_or(e, number, places, inner, outer)

        e.loop(i64(0), e.number(count), tile, unroll=False, name="tile")
        done = smaller(1, full) * dst if twice else full * places
        single = partial(self._bordered, row, places=1)
        e.loop(e.number(done), e.number(dst), single, unroll=False, name="output")

    def _bordered(self, row: _Row, begin: Value, places: int) -> None:
        """``places`` outputs from ``begin`` on, some of whose taps may be outside."""
        meets = self.lines[2].meets(places, everywhere)
        column = self.e.mul(begin, self.space[2].stride * self.steps[2])

        def of_panel(panel: _Panel) -> None:
            self._sum(row, panel, (begin, column), places, meets, bordered=True)

        self._each_panel(row, of_panel)

    def _at(self, row: _Row, number: int) -> None:
        """A tile at a known position, for which it is known which taps are inside."""
        width, places, line = self.space[2], self.conf.places, self.lines[2]
        count = min(places, width.dst - number * places)
        self._tile(row, i64(number), count, line.inside(number, places))

    def _tile(self, row: _Row, number: Value, places: int, inside: Callable[[int], bool]) -> None:
        """The outputs of a tile in all panels, with the taps of a row whose pixels are
        ``inside``."""
        meets = self.lines[2].meets(places, inside)

        def of_panel(panel: _Panel) -> None:
            begin = self.e.mul(number, self.conf.places)
            if self.lines[2].transposed:
                step = self.lines[2].advance(self.conf.places) * self.steps[2]
                column = self.e.mul(number, step)
            else:
                column = self.e.mul(begin, self.space[2].stride * self.steps[2])
            self._sum(row, panel, (begin, column), places, meets)

        self._each_panel(row, of_panel)

    def _sum(
        self,
        row: _Row,
        panel: _Panel,
        start: tuple[Value, Value],
        places: int,
        meets: Meets,
        *,
        bordered: bool = False,
    ) -> None:
        """The outputs of a tile in one panel, which ``start`` at an output and at the offset of a
        pixel. If it is ``bordered``, an execution knows which pixels are inside."""
        e, (depths, heights), (begin, column) = self.e, row.taps, start
        found = self.lines[2].found(e, begin, places) if bordered else {}

        self._prefetch(panel, column, places)

        def of_height(d: Value, h: Value, *sums: Value) -> Values:
            there, own = column, i64(0)
            for tap, taps, step, wide in zip(
                (d, h), row.taps, self.steps, self.weight_steps, strict=False
            ):
                there = e.add(there, e.mul(tap, taps.step * step))
                own = e.add(own, e.mul(tap, taps.tap_step * wide))
            return self._of_k_groups(panel, there, own, meets, sums, found)

        def of_depth(d: Value, *sums: Value) -> Values:
            within = partial(of_height, d)
            return e.loop(heights.low, heights.high, within, sums, unroll=False, name="kh")

        kind = vector.vector_type(F32, e.isa.lanes)
        zeros = (vector.splat_constant(kind, 0.0),) * (places * self.conf.vectors)
        sums = e.loop(depths.low, depths.high, of_depth, zeros, unroll=False, name="kd")
        env = {**panel.env, self.walk.places[2]: begin}
        self.store.at(env, self.space[2].dst, places).finish(Tile(self.conf.vectors, sums))

    def _prefetch(self, panel: _Panel, column: Value, places: int) -> None:
        """Prefetch what the next row reads first, and this one does not: channels last, pixels are
        read in strides that no hardware prefetcher follows."""
        e, src = self.e, self.tensors.src
        if not self.in_pixels or surely_below(src.desc.size, e.isa.caches.l2):
            return
        if not is_known(src.desc.size):
            far = e.b.icmp_signed(">=", e.number(src.desc.size), i64(e.isa.caches.l2))
            e.branch(far, lambda: self._prefetch_row(panel, column, places), lambda: ())
            return
        self._prefetch_row(panel, column, places)

    def _prefetch_row(self, panel: _Panel, column: Value, places: int) -> Values:
        e, src, line = self.e, self.tensors.src, self.lines[1]
        space = line.space
        ahead = (space.kernel - 1) * space.dilation + space.stride
        if line.transposed:
            ahead = 1
        element, width = storage(src.data_type).element, self.width
        for pixel in range(max(1, self.lines[2].advance(places))):
            for first in range(0, width, LINE // src.data_type.size):
                at = ahead * self.steps[1] + pixel * self.steps[2] + first
                place = e.element(panel.src, e.add(column, e.number(at)), element)
                vector.prefetch(e, place, second_level=True)
        return ()

    def _of_k_groups(
        self,
        panel: _Panel,
        there: Value,
        own: Value,
        meets: Meets,
        sums: Values,
        found: Mapping[int, Value],
    ) -> Values:
        """The sums with all K groups of a row of taps: pixels from ``there`` on and weights from
        ``own`` on."""
        e, groups, channel = self.e, self.groups, self.conf.weights[1].strides[2]
        if not groups.looped:
            for k in range(groups.k_groups):
                first = e.add(own, i64(k * channel))
                sums = self._of_taps(panel, there, first, meets, k, sums, found)
            return sums

        def of_one(k: Value, *carried: Value) -> Values:
            at, first = e.add(there, e.mul(k, groups.k_group)), e.mul(k, channel)
            return self._of_taps(panel, at, e.add(own, first), meets, 0, carried, found)

        return e.loop(i64(0), i64(groups.k_groups), of_one, sums, unroll=False, name="k")

    def _of_taps(
        self,
        panel: _Panel,
        there: Value,
        own: Value,
        meets: Meets,
        k: int,
        sums: Values,
        found: Mapping[int, Value],
    ) -> Values:
        """The sums with a row of taps: K group ``k`` of the pixels from ``there`` on, and its
        weights from ``own`` on. Pixels are loaded again for each, which takes no registers.
        ``found`` says of those that may be outside of src whether they are inside."""
        e, results = self.e, list(sums)
        src, weights = self.tensors.src, self.tensors.weights
        pixels, first = (
            e.opaque(e.element(start, offset, storage(operand.data_type).element))
            for operand, start, offset in ((src, panel.src, there), (weights, panel.weights, own))
        )
        taps = {tap for met in meets.values() for _, tap in met}
        loaded = {
            tap: self._weights(panel, first, tap * self.weight_steps[2]) for tap in sorted(taps)
        }
        for at in sorted(meets):
            add = partial(self._of_pixel, panel, pixels, at, k, meets[at], loaded)
            cells = self._cells(meets[at])
            given = tuple(results[cell] for cell in cells)
            if at not in found:
                made = add(given)
            else:
                made = e.branch(found[at], partial(add, given), partial(tuple, given))
            for cell, value in zip(cells, made, strict=True):
                results[cell] = value
        return tuple(results)

    def _cells(self, met: Sequence[tuple[int, int]]) -> list[int]:
        """The sums of the outputs to which a pixel contributes."""
        vectors = range(self.conf.vectors)
        return [output * len(vectors) + v for (output, _), v in product(met, vectors)]

    def _of_pixel(
        self,
        panel: _Panel,
        pixels: Value,
        at: int,
        k: int,
        met: Sequence[tuple[int, int]],
        loaded: Mapping[int, list[Value]],
        sums: Values,
    ) -> Values:
        """The sums with what pixel ``at`` contributes."""
        e = self.e
        pixel = self._pixel(panel, pixels, at * self.steps[2], k)
        if self.shift is not None:
            pixel = [e.b.fsub(value, self.shift) for value in pixel]
        pairs = product(met, range(self.conf.vectors))
        return tuple(
            factors.add(e, self.conf.multiply, pixel[v], loaded[tap][v], total)
            for ((_, tap), v), total in zip(pairs, sums, strict=True)
        )

    def _weights(self, panel: _Panel, first: Value, offset: int) -> list[Value]:
        """The weights of a tap as factors."""
        e, operand = self.e, self.tensors.weights
        kind = vector.vector_type(self.groups.element(operand.data_type), e.isa.lanes)
        places = self._places(operand, first, offset)
        return [
            self._factor(operand, vector.load(e, place, kind, mask))
            for place, mask in zip(places, panel.weight_masks, strict=True)
        ]

    def _pixel(self, panel: _Panel, first: Value, offset: int, k: int) -> list[Value]:
        """A K group of a pixel as factors."""
        e, groups, operand = self.e, self.groups, self.tensors.src
        places = self._places(operand, first, offset)
        found = [
            groups.load(e, operand.data_type, place, mask, k)
            for place, mask in zip(places, panel.src_masks, strict=True)
        ]
        return [self._factor(operand, stored) for stored in found]

    def _places(self, operand: Operand, start: Value, offset: int) -> Iterator[Value]:
        """The addresses of the vectors of a panel."""
        step = self._form(operand).stride(self.walk.columns.vector)
        element = storage(operand.data_type).element
        for v in range(self.conf.vectors):
            yield self.e.element(start, self.e.number(offset + v * step), element)

    def _factor(self, operand: Operand, stored: Value) -> Value:
        return self.groups.factor(self.e, self.conf.multiply, operand.data_type, stored)

    def _shift(self) -> Value | None:
        """The zero point of src in all lanes, if it has one."""
        operand = self.tensors.zero_point
        return None if operand is None else load_one(self.e, self.pointers[operand], operand, F32)
