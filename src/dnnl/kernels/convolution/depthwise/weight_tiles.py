"""The gradient of a depthwise convolution's weights, a row of diff_dst at a time.

A tile is a vector of channels, or two, of consecutive pixels of diff_dst. Each pixel of src is
loaded once for a row of taps, and contributes to the sum of every tap by which it is read::

    pixels of src       p0              p1              p2
    sums of the taps    t0 += p0*d0     t0 += p1*d1     t0 += p2*d2
                                        t1 += p1*d0     t1 += p2*d1
                                                        t2 += p2*d0

If the sums of all taps fit into registers, they stay there for the rows of a *band*; rows of src
are then read together that a row of diff_dst meets. Otherwise the sums of one row of taps at a time
are loaded and stored. Bands follow memory order: of channels last, a band has a few rows, and all
panels of channels before the next band.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, product
from math import prod

from dnnl.codegen.conversion.convert import storage
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, Module, Value, Values, i64
from dnnl.codegen.ir.kernel import Arguments, symbol
from dnnl.codegen.isa.caches import LINE
from dnnl.codegen.memory.access import Env, Operand
from dnnl.codegen.memory.address import ZERO, Affine, Axis
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.convolution.depthwise import factors
from dnnl.kernels.convolution.depthwise.lines import Line, Meets, Taps, everywhere
from dnnl.kernels.convolution.depthwise.rows import three
from dnnl.kernels.convolution.depthwise.weight_plan import Tiles
from dnnl.kernels.convolution.direct.gradient_problem import WeightsGradient
from dnnl.kernels.convolution.direct.pieces import activation_index
from dnnl.kernels.shared.scratchpad import Argument
from dnnl.runtime.image import Phase
from dnnl.types.size import surely_at_most, typical


def emit(
    module: Module,
    name: str,
    problem: WeightsGradient,
    tensors: tuple[Argument, Argument],
    tiles: Tiles,
    arguments: Arguments,
) -> Phase:
    """Write the phase ``name``, which sums the parts. The tensors are src and diff_dst."""
    return _Writer(module, name, problem, tensors, tiles, arguments).phase()


def _form(operand: Operand) -> Affine:
    form = operand.offset(operand.index)
    assert form is not None, "the plan takes affine layouts"
    return form


@dataclass(frozen=True)
class _Panel:
    """A panel of channels: the masks of its vectors, and the addresses of its first channel in src,
    diff_dst and the sums."""

    masks: tuple[vector.Mask, ...]
    src: Value
    diff: Value
    sums: Value


@dataclass(frozen=True)
class _Row:
    """A row of diff_dst in a panel: the addresses of its first pixel, and of the first tap of that
    in src; the taps of depth and height."""

    panel: _Panel
    diff: Value
    src: Value
    taps: tuple[Taps, Taps]


@dataclass(frozen=True)
class _Some:
    """Some pixels of a row of diff_dst: so many from ``begin`` on, and the pixels of src that they
    meet. ``found`` says of those that may be outside whether they are inside."""

    begin: Value
    count: int
    meets: Meets
    found: Mapping[int, Value] = field(default_factory=dict)


class _Writer:
    def __init__(
        self,
        module: Module,
        name: str,
        problem: WeightsGradient,
        tensors: tuple[Argument, Argument],
        tiles: Tiles,
        arguments: Arguments,
    ) -> None:
        self.plan, self.shape, self.space = tiles, tiles.shape, problem.space
        self.columns = tiles.shape.columns(problem.groups, module.isa)
        self.lines = [Line(space, transposed=False) for space in problem.space]
        slot, self.desc = tiles.sums
        self.count = self.desc.dims[2]
        self.kernel = [space.kernel for space in problem.space]
        image = Axis(problem.src.dims[0], "n")
        self.axes = image, *(Axis(space.dst, "o") for space in problem.space[:2])
        zeros = [ZERO] * 3
        self.sums = Operand(arguments.slot(slot), self.desc, ())
        operands = []
        for slot, desc in tensors:
            index = activation_index(desc, Affine.of(image), (self.columns.form,), zeros)
            operands.append(Operand(arguments.slot(slot), desc, index))
        self.src, self.diff = operands
        entry = symbol(name, (problem.src, problem.diff_dst, problem.diff_weights), module.isa)
        self.function = PhaseFunction.of(module, entry, (*operands, self.sums))
        self.e = self.function.e
        self.pointers = self.function.pointers((*operands, self.sums))
        self.src_steps = three(self.src.desc.strides[2:])
        self.diff_steps = three(self.diff.desc.strides[2:])
        self.multiply = tiles.multiply
        self.kind = vector.vector_type(F32, module.isa.lanes)
        self.zero = vector.splat_constant(self.kind, 0.0)

    def phase(self) -> Phase:
        """The phase."""
        panels = self.columns.panel.extent
        groups = -(-panels // self.plan.panels)
        count = self.desc.dims[0] * groups

        def item(number: Value) -> None:
            part, group = self.e.divmod(number, groups)
            low = self.e.mul(group, self.plan.panels)
            high = self.e.smaller(self.e.add(low, i64(self.plan.panels)), i64(panels))
            self._item(part, (low, high))

        self.function.each_item(count, item)
        return self.function.end(count)

    def _item(self, part: Value, panels: tuple[Value, Value]) -> None:
        e, plan = self.e, self.plan
        rows = prod(axis.extent for axis in self.axes)
        low = e.mul(part, plan.rows)
        high = e.smaller(e.add(low, e.number(plan.rows)), e.number(rows))
        if not (self._alone and self.shape.resident):
            self._each_panel(part, panels, self._clear)

        def band(row: Value) -> None:
            end = high if self._alone else e.smaller(e.add(row, i64(plan.band)), high)
            self._each_panel(part, panels, partial(self._band, (row, end)))

        if self._alone:
            band(low)
        else:
            e.loop(low, high, band, step=plan.band, unroll=False, name="band")

    @property
    def _alone(self) -> bool:
        """Whether a part is one band."""
        return surely_at_most(self.plan.rows, self.plan.band)

    def _each_panel(
        self, part: Value, panels: tuple[Value, Value], body: Callable[[_Panel], None]
    ) -> None:
        e, columns, (low, high) = self.e, self.columns, panels
        rest = columns.count % columns.width

        def whole(number: Value) -> None:
            body(self._panel(part, number, columns.width))

        if not rest:
            e.loop(low, high, whole, unroll=False, name="panel")
            return
        last = i64(columns.panel.extent - 1)
        if columns.panel.extent > 1:
            e.loop(low, e.smaller(high, last), whole, unroll=False, name="panel")

        def partly() -> Values:
            body(self._panel(part, last, rest))
            return ()

        e.branch(e.b.icmp_signed(">", high, last), partly, lambda: ())

    def _panel(self, part: Value, number: Value, channels: int) -> _Panel:
        e = self.e
        axis = self.columns.panel

        def first(operand: Operand) -> Value:
            at = _form(operand).along({axis}).emit(e, {axis: number})
            element = storage(operand.data_type).element
            return e.element(self.pointers[operand], at, element)

        row = e.add(e.mul(part, self.columns.panel.extent), number)
        at = e.add(e.mul(row, self.columns.width * self.count), e.number(self.desc.offset0))
        sums = e.element(self.pointers[self.sums], at, F32)
        return _Panel(self.columns.masks(channels), first(self.src), first(self.diff), sums)

    def _clear(self, panel: _Panel) -> None:
        self._store(panel, i64(0), (self.zero,) * (self.count * self.shape.vectors))

    def _load(self, panel: _Panel, first: Value, taps: int) -> Values:
        """The sums of so many taps from the ``first`` on."""
        return tuple(
            vector.load(self.e, place, self.kind) for place in self._places(panel, first, taps)
        )

    def _store(self, panel: _Panel, first: Value, sums: Values) -> None:
        for place, value in zip(
            self._places(panel, first, len(sums) // self.shape.vectors), sums, strict=True
        ):
            vector.store(self.e, value, place)

    def _places(self, panel: _Panel, first: Value, taps: int) -> list[Value]:
        start = self.e.element(panel.sums, self.e.mul(first, self.columns.width), F32)
        lanes = self.columns.lane.extent
        return [
            self.e.element(start, i64(number * lanes), F32)
            for number in range(taps * self.shape.vectors)
        ]

    def _band(self, rows: tuple[Value, Value], panel: _Panel) -> None:
        """The contribution of some rows to the sums of a panel."""
        e, first = self.e, i64(0)
        if not self.shape.resident:
            e.loop(*rows, lambda row: self._from_memory(self._row(row, panel)), unroll=False)
            return
        sums = (self.zero,) * (self.count * self.shape.vectors)
        if not self._alone:
            sums = self._load(panel, first, self.count)

        def one(number: Value, *carried: Value) -> Values:
            return self._resident(self._row(number, panel), carried)

        self._store(panel, first, e.loop(*rows, one, sums, unroll=False, name="row"))

    def _row(self, number: Value, panel: _Panel) -> _Row:
        """Row ``number`` of all images."""
        e, env = self.e, Env()
        for axis in reversed(self.axes):
            number, env[axis] = e.divmod(number, axis.extent)
        src = e.number(self.lines[2].start * self.src_steps[2])
        diff, taps = i64(0), []
        for axis, line, step, own in zip(
            self.axes[1:], self.lines, self.src_steps, self.diff_steps, strict=False
        ):
            taps.append(line.taps(e, env[axis]))
            src = e.add(src, e.mul(taps[-1].first, step))
            diff = e.add(diff, e.mul(env[axis], own))
        image = self.axes[0]
        places = []
        for operand, start, more in ((self.src, panel.src, src), (self.diff, panel.diff, diff)):
            at = e.add(e.mul(env[image], operand.desc.strides[0]), more)
            places.append(e.element(start, at, storage(operand.data_type).element))
        return _Row(panel, places[1], places[0], (taps[0], taps[1]))

    def _resident(self, row: _Row, sums: Values) -> Values:
        """All sums, with the contribution of a row of diff_dst. Those of rows near the border are
        stored meanwhile."""
        e, taps, panel = self.e, self.kernel[1], row.panel
        depths, heights = row.taps
        low, high = heights.low, heights.high
        if self.space[0].padded:
            some = e.b.icmp_signed("<", depths.low, depths.high)
            low, high = e.b.select(some, low, i64(0)), e.b.select(some, high, i64(0))
        own, bias = sums[: self._wide * taps], sums[self._wide * taps :]

        def all_taps() -> Values:
            return self._tiles(row, [self._tap(row, i64(0), i64(tap)) for tap in range(taps)], own)

        def some_taps() -> Values:
            self._store(panel, i64(0), own)
            add = partial(self._line_of_taps, row, i64(0))
            e.loop(low, high, add, unroll=False, name="kh")
            return self._load(panel, i64(0), self.plan.taps)

        if self.space[0].padded or self.space[1].padded:
            every = e.b.icmp_signed("==", e.b.sub(high, low), i64(taps))
            own = e.branch(every, all_taps, some_taps)
        else:
            own = all_taps()
        return (*own, *(self._biased(row, bias) if self.plan.biased else ()))

    def _from_memory(self, row: _Row) -> None:
        """Add the contribution of a row of diff_dst to the sums in memory."""
        e, (depths, heights) = self.e, row.taps

        def of_depth(d: Value) -> None:
            add = partial(self._line_of_taps, row, d)
            e.loop(heights.low, heights.high, add, unroll=False, name="kh")

        e.loop(depths.low, depths.high, of_depth, unroll=False, name="kd")
        if self.plan.biased:
            last = i64(self.plan.taps)
            self._store(row.panel, last, self._biased(row, self._load(row.panel, last, 1)))

    def _line_of_taps(self, row: _Row, d: Value, h: Value) -> None:
        """Add the contribution of a row of diff_dst to a row of taps in memory."""
        e, width = self.e, self.kernel[2]
        first = e.mul(e.add(e.mul(d, self.kernel[1]), h), width)
        sums = self._load(row.panel, first, width)
        self._store(row.panel, first, self._tiles(row, [self._tap(row, d, h)], sums))

    @property
    def _wide(self) -> int:
        """The vectors of the sums of a row of taps."""
        return self.kernel[2] * self.shape.vectors

    def _tap(self, row: _Row, d: Value, h: Value) -> Value:
        """The address in src of the first tap of a row of taps."""
        offset = i64(0)
        for tap, space, step in zip((d, h), self.space, self.src_steps, strict=False):
            offset = self.e.add(offset, self.e.mul(tap, space.dilation * step))
        return self.e.element(row.src, offset, storage(self.src.data_type).element)

    def _each_tile(self, sums: Values, tile: Callable[[_Some, Values], Values]) -> Values:
        """The sums after ``tile(some, sums)`` of all tiles of a row; inner ones in a loop."""
        e, places, line, width = self.e, self.shape.places, self.lines[2], self.space[2]
        first, last = line.inner(places)

        def inner(number: Value, *carried: Value) -> Values:
            some = _Some(e.mul(number, places), places, line.meets(places, everywhere))
            return tile(some, carried)

        if width.is_open:
            return self._any_tiles(sums, tile, inner)

        def at(number: int) -> Values:
            size = min(places, width.dst - number * places)
            meets = line.meets(size, line.inside(number, places))
            return tile(_Some(i64(number * places), size, meets), sums)

        for number in range(first):
            sums = at(number)
        sums = e.loop(i64(first), i64(last), inner, sums, unroll=False, name="tile")
        for number in range(last, -(-width.dst // places)):
            sums = at(number)
        return sums

    def _any_tiles(
        self,
        sums: Values,
        tile: Callable[[_Some, Values], Values],
        inner: Callable[..., Values],
    ) -> Values:
        """The sums after all tiles of a row whose width only an execution knows, and after the
        pixels behind them, one by one."""
        e, places, line, width = self.e, self.shape.places, self.lines[2], self.space[2]

        def bordered(begin: Value, count: int, carried: Values) -> Values:
            meets = line.meets(count, everywhere)
            return tile(_Some(begin, count, meets, line.found(e, begin, count)), carried)

        def one(number: Value, *carried: Value) -> Values:
            return line.inside_or(
                e,
                number,
                places,
                lambda: inner(number, *carried),
                lambda: bordered(e.mul(number, places), places, carried),
            )

        full = width.dst // places
        sums = e.loop(i64(0), e.number(full), one, sums, unroll=False, name="tile")
        rest = e.number(full * places), e.number(width.dst)

        def single(begin: Value, *carried: Value) -> Values:
            return bordered(begin, 1, carried)

        return e.loop(*rest, single, sums, unroll=False, name="pixel")

    def _tiles(self, row: _Row, taps: Sequence[Value], sums: Values) -> Values:
        """The sums of some rows of taps, the first of which read from ``taps`` on, after a row of
        diff_dst."""
        return self._each_tile(sums, partial(self._tile, row, taps))

    def _tile(self, row: _Row, taps: Sequence[Value], some: _Some, sums: Values) -> Values:
        e, vectors = self.e, self.shape.vectors
        results, wide = list(sums), self._wide
        column = e.mul(some.begin, self.space[2].stride * self.src_steps[2])
        starts = [self._from(self.src, tap, column) for tap in taps]
        begin = self._from(self.diff, row.diff, e.mul(some.begin, self.diff_steps[2]))
        if len(taps) > 1:
            self._prefetch(starts[-1], begin)
        diffs: dict[int, Values] = {}
        for at in sorted(some.meets):
            for output, _ in some.meets[at]:
                if output not in diffs:
                    more = output * self.diff_steps[2]
                    diffs[output] = self._pixel(row, self.diff, begin, more, self.multiply)
            for line, start in enumerate(starts):
                cells = [
                    line * wide + tap * vectors + v
                    for _, tap in some.meets[at]
                    for v in range(vectors)
                ]
                of_outputs = [value for output, _ in some.meets[at] for value in diffs[output]]
                add = partial(self._added, row, start, at, of_outputs)
                given = tuple(results[cell] for cell in cells)
                made = (
                    e.branch(some.found[at], partial(add, given), partial(tuple, given))
                    if at in some.found
                    else add(given)
                )
                for cell, value in zip(cells, made, strict=True):
                    results[cell] = value
        return tuple(results)

    def _added(
        self, row: _Row, start: Value, at: int, diffs: Sequence[Value], sums: Values
    ) -> Values:
        """The sums of taps with pixel ``at`` of src behind ``start`` times those of diff_dst."""
        pixel = self._pixel(row, self.src, start, at * self.src_steps[2], self.multiply)
        factor = cycle(pixel)
        return tuple(
            factors.add(self.e, self.multiply, next(factor), diff, total)
            for diff, total in zip(diffs, sums, strict=True)
        )

    def _prefetch(self, src: Value, diff: Value) -> None:
        """Prefetch what the next band reads first: channels last, pixels are read in strides that
        no hardware prefetcher follows. ``src`` is where the last row of taps begins."""
        e, places, stride = self.e, self.shape.places, self.space[1].stride
        if self._alone or typical(self.src.desc.size) < e.isa.caches.l2:
            return
        rows = self.plan.band * stride
        pixels = self.lines[2].advance(places)
        self._prefetch_rows(self.src, src, range(rows - stride + 1, rows + 1), pixels)
        self._prefetch_rows(self.diff, diff, range(self.plan.band, self.plan.band + 1), places)

    def _prefetch_rows(self, operand: Operand, start: Value, rows: range, pixels: int) -> None:
        """Prefetch a panel of some pixels in each of the ``rows`` behind ``start``."""
        element, line = storage(operand.data_type).element, LINE // operand.data_type.size
        _, down, along = three(operand.desc.strides[2:])
        parts = range(0, self.columns.width, line)
        for row, pixel, first in product(rows, range(pixels), parts):
            offset = self.e.number(row * down + pixel * along + first)
            place = self.e.element(start, offset, element)
            vector.prefetch(self.e, place, second_level=True)

    def _biased(self, row: _Row, sums: Values) -> Values:
        """The sums of diff_dst after a row of it."""

        def tile(some: _Some, carried: Values) -> Values:
            e = self.e
            column = e.mul(some.begin, self.diff_steps[2])
            begin = self._from(self.diff, row.diff, column)
            for output in range(some.count):
                more = output * self.diff_steps[2]
                found = self._pixel(row, self.diff, begin, more, factors.IN_F32)
                carried = tuple(map(e.b.fadd, carried, found))
            return carried

        return self._each_tile(sums, tile)

    def _from(self, operand: Operand, start: Value, offset: Value) -> Value:
        """The address of a pixel, of which LLVM knows nothing else."""
        element = storage(operand.data_type).element
        return self.e.opaque(self.e.element(start, offset, element))

    def _pixel(
        self, row: _Row, operand: Operand, start: Value, offset: int, multiply: Multiply
    ) -> Values:
        """The channels of a pixel as factors."""
        e, element = self.e, storage(operand.data_type).element
        step, found = _form(operand).stride(self.columns.vector), []
        for v, mask in enumerate(row.panel.masks):
            place = e.element(start, e.number(offset + v * step), element)
            found.append(factors.load(e, multiply, operand.data_type, place, mask))
        return tuple(found)
