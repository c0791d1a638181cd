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

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import prod

from dnnl.codegen.conversion.convert import storage
from dnnl.codegen.epilogue.product_epilogue import core_type
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, Module, Value, Values, i64
from dnnl.codegen.ir.kernel import Arguments
from dnnl.codegen.isa import Isa
from dnnl.codegen.isa.caches import LINE
from dnnl.codegen.memory.access import Env, Operand
from dnnl.codegen.memory.address import Affine, Axis, linear_offset
from dnnl.codegen.product.brgemm import Tile, TileShape
from dnnl.kernels.convolution.depthwise import factors
from dnnl.kernels.convolution.depthwise.groups import DEPTHWISE, Groups
from dnnl.kernels.convolution.depthwise.lines import Line, Meets, Taps, everywhere
from dnnl.kernels.convolution.depthwise.rows import (
    DepthwiseRowsConf,
    DepthwiseRowsWriter,
    has_scalar_src_zero_point,
    load_one,
    three,
)
from dnnl.kernels.convolution.direct.problem import ConvolutionProblem
from dnnl.kernels.product.base.store import Columns, Store
from dnnl.kernels.product.plan.summary import PlanSummary
from dnnl.kernels.shared.scratchpad import Argument, Scratchpad
from dnnl.kernels.shared.types import BYTES, FLOATS, SMALL_FLOATS
from dnnl.runtime.image import Phase
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.tag import FormatTag

_MOST_PLACES = 8
_MOST_TAPS = 16  # of a row, which is unrolled
_MOST_BORDERS = 4  # tiles, which are unrolled
_MOST_LINES = 2**12  # multiplications that are unrolled for them
_ITEMS = 64  # at least, where there are so many rows of panels


@dataclass(frozen=True)
class DepthwiseTilesConf(DepthwiseRowsConf):
    """A tile has ``places`` consecutive outputs. Weights have one dimension of all outputs, and the
    channels of a group as inputs."""

    places: int
    shared: Groups

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

    def emit(self, module: Module, name: str, arguments: Arguments) -> Phase:
        return _TilesWriter(module, name, self, arguments).phase()


def plan(
    problem: ConvolutionProblem,
    isa: Isa,
    groups: Groups = DEPTHWISE,
    scratchpad: Scratchpad | None = None,
) -> DepthwiseTilesConf | None:
    """The configuration of a depthwise convolution, or None if it is left to nests.

    Each output may be a group of its own that shares its channels with others of ``groups``, and
    has weights in vectors. ``scratchpad`` has what was copied before.
    """
    src, weights, dst = problem.src, problem.weights, problem.dst
    if isa.lanes == 1 or dst.has_zero_dim:
        return None
    types = {src.data_type, weights.data_type}
    if (
        not types <= FLOATS | BYTES | SMALL_FLOATS
        or dst.data_type.bits < 8
        or not has_scalar_src_zero_point(problem)
    ):
        return None
    width = Line(problem.space[2], problem.transposed)
    places = _places(width, isa, groups.k_groups)
    if places is None or width.space.kernel > _MOST_TAPS:
        return None
    scratchpad = scratchpad or Scratchpad()
    read: Argument = (problem.arguments[1], weights)
    if groups == DEPTHWISE and not in_vectors(weights, 0, isa.lanes):
        letters = "bcdefg"[: weights.ndims - 1]
        read = scratchpad.copy(read, weights.with_tag(FormatTag(f"{letters}a")))
    given = isa.lanes * groups.channels // groups.outputs
    if not all(in_vectors(desc, 1, lanes) for desc, lanes in ((src, given), (dst, isa.lanes))):
        return None
    if not (_whole(src, isa) and _whole(dst, isa)):
        return None
    dot = factors.multiply_of(isa, types)
    bare = problem.bias.is_zero and not problem.post_ops
    core = core_type(dot, dst.data_type, problem.quantization, bare=bare)
    vectors = _vectors(problem.groups, width, places, isa)
    return DepthwiseTilesConf(
        problem,
        read,
        dot,
        core,
        vectors,
        tuple(scratchpad.copies),
        scratchpad.size,
        places,
        groups,
    )


def _vectors(channels: int, width: Line, places: int, isa: Isa) -> int:
    """The vectors of a tile: two, if there are registers, and channels for both."""
    used = 2 * (places + width.space.kernel + 1)
    needed = -(-channels // isa.lanes)
    wide = needed % 2 == 0 or needed > 2 * _MOST_PLACES
    return 2 if wide and used < isa.registers else 1


def _places(width: Line, isa: Isa, k_groups: int) -> int | None:
    """The outputs of a tile, which share registers with a row of weights; None if too many tiles
    would have borders, or the stride of a transposed convolution is longer."""
    own = width.space
    most = max(2, min(_MOST_PLACES, isa.registers - own.kernel - 2))
    places = -(-own.dst // -(-own.dst // most))
    if width.transposed:
        places = min(-(-places // own.stride), most // own.stride) * own.stride
        if not places:
            return None
    inner, last = width.inner(places)
    borders = inner + -(-own.dst // places) - last
    written = (borders + 1) * places * own.kernel * k_groups
    return places if borders <= _MOST_BORDERS and written <= _MOST_LINES else None


def in_vectors(desc: MemoryDesc, dim: int, lanes: int) -> bool:
    """Whether vectors of elements along ``dim`` are contiguous, at affine offsets."""
    columns = Columns.of(desc.dims[dim], TileShape(1, 1), lanes)
    index = [Affine.of(Axis(max(2, extent), "i")) for extent in desc.dims]
    index[dim] = columns.form
    form = linear_offset(desc, index)
    return form is not None and form.stride(columns.lane) == 1


def _whole(desc: MemoryDesc, isa: Isa) -> bool:
    """Whether only the last vector of channels is padded."""
    channels = desc.dims[1]
    wanted = [
        -(-channels // isa.lanes) * isa.lanes if n == 1 else size
        for n, size in enumerate(desc.dims)
    ]
    return desc.padded_dims in (desc.dims, tuple(wanted))


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
        self.weight_steps = three(conf.weights[1].strides[3:])
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
        self.in_pixels = self._form(self.tensors.src).stride(panel) == self.width
        least = -(-_ITEMS // prod(axis.extent for axis in rows)) if self.in_pixels else panel.extent
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
        (depth, height, _), src, weights = self.walk.places, i64(0), i64(0)
        taps = []
        for axis, line, step, wide in zip(
            (depth, height), self.lines, self.steps, self.weight_steps, strict=False
        ):
            own = line.taps(e, env[axis])
            src = e.add(src, e.mul(own.first, step))
            weights = e.add(weights, e.mul(own.first_tap, wide))
            taps.append(own)
        src = e.add(src, i64(self.lines[2].start * self.steps[2]))
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
        count = -(-self.space[2].dst // places)
        first, last = self.lines[2].inner(places)
        for number in range(first):
            self._at(row, number)

        def inner(number: Value) -> None:
            self._tile(row, number, places, everywhere)

        e.loop(i64(first), i64(last), inner, unroll=False, name="tile")
        for number in range(last, count):
            self._at(row, number)

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
            self._sum(row, panel, number, places, meets)

        self._each_panel(row, of_panel)

    def _sum(self, row: _Row, panel: _Panel, number: Value, places: int, meets: Meets) -> None:
        """The outputs of a tile in one panel."""
        e, (depths, heights) = self.e, row.taps
        begin = e.mul(number, self.conf.places)
        if self.lines[2].transposed:
            column = e.mul(number, self.lines[2].advance(self.conf.places) * self.steps[2])
        else:
            column = e.mul(begin, self.space[2].stride * self.steps[2])

        self._prefetch(panel, column, places)

        def of_height(d: Value, h: Value, *sums: Value) -> Values:
            there, own = column, i64(0)
            for tap, taps, step, wide in zip(
                (d, h), row.taps, self.steps, self.weight_steps, strict=False
            ):
                there = e.add(there, e.mul(tap, taps.step * step))
                own = e.add(own, e.mul(tap, taps.tap_step * wide))
            return self._of_k_groups(panel, there, own, meets, sums)

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
        e, src, line = self.e, self.tensors.src, self.lines[1]
        if not self.in_pixels or src.desc.size < e.isa.caches.l2:
            return
        space = line.space
        ahead = (space.kernel - 1) * space.dilation + space.stride
        if line.transposed:
            ahead = 1
        element, width = storage(src.data_type).element, self.width
        for pixel in range(max(1, self.lines[2].advance(places))):
            for first in range(0, width, LINE // src.data_type.size):
                at = ahead * self.steps[1] + pixel * self.steps[2] + first
                place = e.element(panel.src, e.add(column, i64(at)), element)
                vector.prefetch(e, place, second_level=True)

    def _of_k_groups(
        self, panel: _Panel, there: Value, own: Value, meets: Meets, sums: Values
    ) -> Values:
        """The sums with all K groups of a row of taps: pixels from ``there`` on and weights from
        ``own`` on."""
        e, groups, channel = self.e, self.groups, self.conf.weights[1].strides[2]
        if not groups.looped:
            for k in range(groups.k_groups):
                first = e.add(own, i64(k * channel))
                sums = self._of_taps(panel, there, first, meets, k, sums)
            return sums

        def of_one(k: Value, *carried: Value) -> Values:
            at, first = e.add(there, e.mul(k, groups.k_group)), e.mul(k, channel)
            return self._of_taps(panel, at, e.add(own, first), meets, 0, carried)

        return e.loop(i64(0), i64(groups.k_groups), of_one, sums, unroll=False, name="k")

    def _of_taps(
        self, panel: _Panel, there: Value, own: Value, meets: Meets, k: int, sums: Values
    ) -> Values:
        """The sums with a row of taps: K group ``k`` of the pixels from ``there`` on, and its
        weights from ``own`` on. Pixels are loaded again for each, which takes no registers."""
        e, results, vectors = self.e, list(sums), range(self.conf.vectors)
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
            pixel = self._pixel(panel, pixels, at * self.steps[2], k)
            if self.shift is not None:
                pixel = [e.b.fsub(value, self.shift) for value in pixel]
            for (output, tap), v in product(meets[at], vectors):
                number = output * len(vectors) + v
                results[number] = factors.add(
                    e, self.conf.multiply, pixel[v], loaded[tap][v], results[number]
                )
        return tuple(results)

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
            yield self.e.element(start, i64(offset + v * step), element)

    def _factor(self, operand: Operand, stored: Value) -> Value:
        return self.groups.factor(self.e, self.conf.multiply, operand.data_type, stored)

    def _shift(self) -> Value | None:
        """The zero point of src in all lanes, if it has one."""
        operand = self.tensors.zero_point
        return None if operand is None else load_one(self.e, self.pointers[operand], operand, F32)
