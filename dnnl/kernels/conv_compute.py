"""The compute phase of a convolution: register tiles of pixels times panels of weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

from dnnl.codegen import vector
from dnnl.codegen.access import Access, Bound, Env, Operand, Place
from dnnl.codegen.address import Affine, Axis, decode, linear_offset
from dnnl.codegen.brgemm import Level, Panels, Tile, accumulate
from dnnl.codegen.builder import F32, Emitter, Module, Value, Values, i64
from dnnl.codegen.epilogue import Arguments, Epilogue
from dnnl.codegen.isa import Isa
from dnnl.codegen.phase import PhaseFunction
from dnnl.kernels.conv_tiles import (
    BandRun,
    Spatial,
    TileRun,
    band_runs,
    pixels,
    rows_per_band,
    static_taps,
    tile_runs,
)
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp


@dataclass(frozen=True)
class Compute:
    """A convolution whose layouts the compute phase can walk.

    ``src``, ``weights`` and ``dst`` are (argument, descriptor): an operand, or its copy in the
    scratchpad. ``channels`` and ``outputs`` are those of one group. ``channel_block`` is how many
    channels of src are contiguous before the next block; 0 if all of them are evenly spaced.
    """

    src: tuple[int, MemoryDesc]
    weights: tuple[int, MemoryDesc]
    dst: tuple[int, MemoryDesc]
    bias: MemoryDesc
    post_ops: tuple[PostOp, ...]
    groups: int
    channels: int
    outputs: int
    channel_block: int
    space: tuple[Spatial, Spatial, Spatial]
    tile: Tile
    keep_weights: bool


def channel_levels(channels: int, block: int) -> tuple[Axis, Axis]:
    """The loops over channels: blocks, and channels within a block."""
    if not block:
        return Axis(1, "icb"), Axis(channels, "ic")
    return Axis(-(-channels // block), "icb"), Axis(block, "ic")


def src_index(
    desc: MemoryDesc, n: Affine, c: Affine, spatial: Sequence[Affine]
) -> tuple[Affine, ...]:
    """The index of an activation from its three spatial ones, of which it may have fewer."""
    return (n, c, *spatial[3 - (desc.ndims - 2) :])


def weights_index(
    desc: MemoryDesc, groups: bool, g: Affine, o: Affine, i: Affine, taps: Sequence[Affine]
) -> tuple[Affine, ...]:
    """The index of the weights, with the dimension of groups if they have one."""
    head = (g, o, i) if groups else (o, i)
    return (*head, *taps[3 - (desc.ndims - len(head)) :])


def emit_compute(module: Module, symbol: str, compute: Compute, arguments: Arguments) -> Phase:
    """Write the phase ``symbol``."""
    writer = _Writer(module.isa, compute, arguments)
    operands = [writer.src, writer.weights, *writer.accesses]
    phase = PhaseFunction.of(module, symbol, operands)
    writer.e, writer.pointers = phase.e, phase.pointers(operands)
    phase.each_item(writer.items, writer.item)
    return phase.end(writer.items)


class _Writer:
    """Writes one compute phase. ``e`` and ``pointers`` belong to the function, which is begun when
    its operands are known."""

    e: Emitter
    pointers: dict[Operand, Value]

    def __init__(self, isa: Isa, compute: Compute, arguments: Arguments) -> None:
        self.isa, self.compute = isa, compute
        d, h, w = compute.space
        lanes = isa.lanes
        self.width = compute.tile.vectors * lanes
        self.n = Axis(compute.dst[1].dims[0], "n")
        self.g = Axis(compute.groups, "g")
        self.ocb = Axis(-(-compute.outputs // self.width), "ocb")
        self.vec = Axis(compute.tile.vectors, "vec")
        self.lane = Axis(lanes, "lane")
        self.od, self.oh, self.ow = Axis(d.dst, "od"), Axis(h.dst, "oh"), Axis(w.dst, "ow")
        self.kd, self.kh, self.kw = (
            Axis(space.kernel, name)
            for space, name in zip((d, h, w), ("kd", "kh", "kw"), strict=True)
        )
        self.icb, self.ic = channel_levels(compute.channels, compute.channel_block)
        self.band_rows = rows_per_band(h, w, compute.tile.rows)
        self.bands = band_runs(h, self.band_rows)
        self.tiles = tile_runs(w, compute.tile.rows)
        self._offsets()
        self._operands(arguments)
        self._share_out()

    def _offsets(self) -> None:
        """The affine offsets of src and weights."""
        compute = self.compute
        d, h, w = compute.space
        spatial = [
            Affine.of(out, space.stride) + Affine.of(tap, space.dilation) + -space.padding
            for space, out, tap in zip(
                (d, h, w), (self.od, self.oh, self.ow), (self.kd, self.kh, self.kw), strict=True
            )
        ]
        step = compute.channel_block or 1
        c = Affine.of(self.icb, step) + Affine.of(self.ic)
        src = compute.src[1]
        channel = Affine.of(self.g, compute.channels) + c
        form = linear_offset(src, src_index(src, Affine.of(self.n), channel, spatial))
        weights = compute.weights[1]
        taps = [Affine.of(tap) for tap in (self.kd, self.kh, self.kw)]
        index = weights_index(
            weights, weights.ndims > src.ndims, Affine.of(self.g), self.local_oc, c, taps
        )
        panel = linear_offset(weights, index)
        assert form is not None, "configure admits only affine layouts"
        assert panel is not None, "panels are affine"
        self.a_form, self.b_form = form, panel

    @property
    def local_oc(self) -> Affine:
        """The output channel inside its group."""
        lanes = self.lane.extent
        return Affine.of(self.ocb, self.width) + Affine.of(self.vec, lanes) + Affine.of(self.lane)

    def _operands(self, arguments: Arguments) -> None:
        compute = self.compute
        oc = Affine.of(self.g, compute.outputs) + self.local_oc
        spatial = [Affine.of(axis) for axis in (self.od, self.oh, self.ow)]
        dst = compute.dst[1]
        index = src_index(dst, Affine.of(self.n), oc, spatial)
        self.src = Operand(arguments.slot(compute.src[0]), compute.src[1], ())
        self.weights = Operand(arguments.slot(compute.weights[0]), compute.weights[1], ())
        self.dst = Operand(arguments.slot(compute.dst[0]), dst, index)
        self.bias = None
        if not compute.bias.is_zero:
            self.bias = Operand(arguments.slot(Arg.BIAS), compute.bias, (oc,))
        self.epilogue = Epilogue(compute.post_ops, self.dst, arguments)
        touched = [self.dst, *self.epilogue.operands, *([self.bias] if self.bias else [])]
        self.accesses = {operand: Access.of(operand, operand.index) for operand in touched}
        inside = Bound(self.local_oc, compute.outputs)
        # Past the last channel lies padding, to be zeroed, or the next group, to be left alone.
        self.domain = [inside] if inside.needed and compute.groups == 1 else []
        self.exists = [inside] if inside.needed and compute.groups > 1 else []

    def _share_out(self) -> None:
        """Decide what a work item is: the channels of one panel if weights are kept, all of them
        otherwise, for one band or for a part of its tiles."""
        compute = self.compute
        self.per_band = self.tiles[-1].first + self.tiles[-1].count
        bands = sum(run.count for run in self.bands)
        outer = self.n.extent * self.g.extent * self.od.extent * bands
        outer *= self.ocb.extent if compute.keep_weights else 1
        self.chunks = self.per_band
        if self.isa.device is None:
            self.chunks = min(self.per_band, max(1, 64 // outer))
        self.chunk = -(-self.per_band // self.chunks)
        self.chunks = -(-self.per_band // self.chunk)
        images = [self.n]
        if compute.keep_weights:
            images = [self.n, self.ocb] if self._images_outside() else [self.ocb, self.n]
        pixels = [self.od, Axis(bands, "band"), Axis(self.chunks, "chunk")]
        self.item_loops = [self.g, *images, *pixels]
        self.items = outer * self.chunks

    def _images_outside(self) -> bool:
        """Whether each image should meet all panels before the next one, which reads the weights
        once an image; else each panel meets all images, which reads src once a panel."""
        src, weights = self.compute.src[1], self.compute.weights[1]
        return weights.size * self.n.extent < src.size * self.ocb.extent

    def item(self, item: Value) -> None:
        """One work item."""
        env = decode(self.e, item, self.item_loops)
        band, chunk = env[self.item_loops[-2]], env[self.item_loops[-1]]
        self._bands(env, band, chunk, list(self.bands))

    def _bands(self, env: Env, band: Value, chunk: Value, runs: list[BandRun]) -> None:
        """Branch to the code of the run that ``band`` belongs to."""
        run = runs[0]
        if len(runs) == 1:
            self._band(env, band, chunk, run)
            return

        def here() -> Values:
            self._band(env, band, chunk, run)
            return ()

        def later() -> Values:
            self._bands(env, band, chunk, runs[1:])
            return ()

        before = self.e.b.icmp_signed("<", band, i64(run.first + run.count))
        self.e.branch(before, here, later)

    def _band(self, env: Env, band: Value, chunk: Value, run: BandRun) -> None:
        """The tiles of one band that belong to the work item."""
        e = self.e
        env = {**env, self.oh: e.mul(band, self.band_rows)}
        low = e.mul(chunk, self.chunk)
        high = e.add(low, i64(self.chunk))
        for tile in self.tiles:
            first, last = i64(tile.first), i64(tile.first + tile.count)
            whole = self.chunks == 1
            begin = first if whole else _clamp(e, low, first, last)
            end = last if whole else _clamp(e, high, first, last)
            e.loop(begin, end, self._tile_body(env, run, tile), unroll=False, name="tile")

    def _tile_body(self, env: Env, run: BandRun, tile: TileRun) -> Callable[[Value], None]:
        def body(number: Value) -> None:
            offset = self.e.mul(number, tile.width)
            ow = self.e.add(offset, i64(tile.begin - tile.first * tile.width))
            here = {**env, self.ow: ow}
            if self.ocb in here:
                self._tile(here, run, tile)
                return
            self.e.loop(
                i64(0), i64(self.ocb.extent),
                lambda ocb: self._tile({**here, self.ocb: ocb}, run, tile),
                unroll=False, name="ocb",
            )  # fmt: skip

        return body

    def _tile(self, env: Env, run: BandRun, tile: TileRun) -> None:
        """One register tile: bias, all products, post-ops, store."""
        e = self.e
        places = list(pixels(run, tile))
        row_step = self.a_form.stride(self.oh)
        pixel_step = self.a_form.stride(self.ow)
        panels = Panels(
            e.element(self.pointers[self.src], self.a_form.along(env).emit(e, env), F32),
            e.element(self.pointers[self.weights], self.b_form.along(env).emit(e, env), F32),
            tuple(row * row_step + column * pixel_step for row, column in places),
            tuple(self.b_form.stride(self.vec) * v for v in range(self.vec.extent)),
        )
        self._prefetch(env, len(places) * self.vec.extent, tile.width)
        acc = self._bias(env) * len(places)
        acc = self._products(env, acc, panels, run, tile)
        self._store(env, acc, tile.width)

    def _products(
        self, env: Env, acc: Values, panels: Panels, run: BandRun, tile: TileRun
    ) -> Values:
        """The sum over channels and taps."""
        d, h, w = self.compute.space
        levels = [self._level(self.icb), self._taps(self.kd, d, env[self.od])]
        inner = [self._level(self.ic)]
        if not static_taps(run, tile, w.kernel):
            spans = run.taps[0] if run.taps else None
            levels.append(self._taps(self.kh, h, env[self.oh], spans))
            levels.append(self._level(self.kw))
            ahead = tile.width * self.a_form.stride(self.ow) if self._streams() else 0

            def block(e: Emitter, acc: Values, at: Panels) -> Values:
                for offset in panels.rows if ahead else ():
                    vector.prefetch(e, e.element(at.a, i64(offset + ahead), F32))
                return accumulate(e, acc, at, inner)

            return accumulate(self.e, acc, panels, levels, block)
        if run.taps is None or len(set(run.taps)) == 1:
            spans = run.taps[0] if run.taps else None
            levels.append(self._taps(self.kh, h, env[self.oh], spans))
            taps = [(0, kw) for kw in range(w.kernel)]
            rows_h = ((0, 1),) * run.rows
        else:
            taps = list(product(range(h.kernel), range(w.kernel)))
            rows_h = run.taps

        def leaf(e: Emitter, acc: Values, at: Panels) -> Values:
            for kh, kw in taps:
                acc = self._tap(acc, at, inner, (kh, kw), rows_h, tile)
            return acc

        return accumulate(self.e, acc, panels, levels, leaf)

    def _streams(self) -> bool:
        """Whether src is read once, block of channels by block, from beyond the caches: then each
        tile asks for the next one's, since the gaps between blocks hide the stream."""
        large = self.compute.src[1].size > self.e.isa.caches.l2 // 2
        taps = self.kd.extent * self.kh.extent * self.kw.extent
        return large and taps == 1 and self.icb.extent > 1

    def _tap(
        self,
        acc: Values,
        panels: Panels,
        inner: list[Level],
        tap: tuple[int, int],
        rows_h: Sequence[tuple[int, int]],
        tile: TileRun,
    ) -> Values:
        """One tap, for the pixels that have it."""
        kh, kw = tap
        vectors = len(panels.vectors)
        chosen = [
            number
            for number, (row, column) in enumerate(product(range(len(rows_h)), range(tile.width)))
            if rows_h[row][0] <= kh < rows_h[row][1]
            and tile.taps[column][0] <= kw < tile.taps[column][1]
        ]
        if not chosen:
            return acc
        a_step = self.a_form.stride(self.kh) * kh + self.a_form.stride(self.kw) * kw
        b_step = self.b_form.stride(self.kh) * kh + self.b_form.stride(self.kw) * kw
        part = Panels(
            self.e.element(panels.a, i64(a_step), F32),
            self.e.element(panels.b, i64(b_step), F32),
            tuple(panels.rows[number] for number in chosen),
            panels.vectors,
        )
        cells = [number * vectors + v for number in chosen for v in range(vectors)]
        summed = accumulate(self.e, tuple(acc[cell] for cell in cells), part, inner)
        result = list(acc)
        for cell, value in zip(cells, summed, strict=True):
            result[cell] = value
        return tuple(result)

    def _level(self, axis: Axis) -> Level:
        return Level.over(axis.extent, self.a_form.stride(axis), self.b_form.stride(axis))

    def _taps(
        self, axis: Axis, space: Spatial, out: Value, span: tuple[int, int] | None = None
    ) -> Level:
        """The taps of one output that lie inside the image."""
        steps = self.a_form.stride(axis), self.b_form.stride(axis)
        if span is not None:
            return Level(i64(span[0]), i64(span[1]), *steps)
        if not space.padded:
            return Level(i64(0), i64(space.kernel), *steps)
        e, b = self.e, self.e.b
        first = e.add(e.mul(out, space.stride), i64(-space.padding))
        missing = _ceil_div(e, b.neg(first), space.dilation)
        reach = _ceil_div(e, b.sub(i64(space.src), first), space.dilation)
        low, high = e.larger(missing, i64(0)), e.smaller(reach, i64(space.kernel))
        return Level(low, high, *steps)

    def _result(self, env: Env, number: Value, width: int) -> Env:
        """The position of one vector of a tile of ``width`` columns."""
        pixel, v = self.e.divmod(number, self.vec.extent)
        row, column = self.e.divmod(pixel, width)
        oh, ow = self.e.add(env[self.oh], row), self.e.add(env[self.ow], column)
        return {**env, self.oh: oh, self.ow: ow, self.vec: v}

    def _prefetch(self, env: Env, results: int, width: int) -> None:
        """Ask for what the post-ops will read and the store will overwrite, if it is too much to
        be in the cache: it arrives while the products are computed."""
        far = [
            operand
            for operand in (self.dst, *self.epilogue.operands)
            if operand.desc.size > self.e.isa.caches.l2 // 2
        ]
        for number in range(results) if far else []:
            place = self._place(self._result(env, i64(number), width), masked=False)
            for operand in far:
                place.prefetch(operand)

    def _place(self, env: Env, masked: bool) -> Place:
        return Place(
            self.e, self.pointers, self.accesses, env, self.lane, self.lane.extent,
            masked=masked, domain=self.domain, exists=self.exists,
        )  # fmt: skip

    def _bias(self, env: Env) -> Values:
        """The accumulators of one pixel before the first product."""
        vectors = range(self.vec.extent)
        if self.bias is None:
            return tuple(self._place(env, False).constant(0.0) for _ in vectors)
        bias = self.bias
        return tuple(
            self._place({**env, self.vec: i64(v)}, masked=True).load(bias) for v in vectors
        )

    def _store(self, env: Env, acc: Values, width: int) -> None:
        def store(masked: bool) -> Values:
            def one(number: Value, value: Value) -> None:
                place = self._place(self._result(env, number, width), masked)
                place.store(self.dst, self.epilogue.apply(place, value))

            self.epilogue.each(self.e, acc, one)
            return ()

        window = any(access.window for access in self.accesses.values())
        if not (self.domain or self.exists or window):
            store(masked=False)
            return
        last = self.e.b.icmp_signed("<", env[self.ocb], i64(self.ocb.extent - 1))
        self.e.branch(last, lambda: store(False), lambda: store(True))


def _clamp(e: Emitter, value: Value, low: Value, high: Value) -> Value:
    return e.smaller(e.larger(value, low), high)


def _ceil_div(e: Emitter, value: Value, divisor: int) -> Value:
    """ceil(value / divisor) for values above -divisor; anything at most 0 for those below."""
    if divisor == 1:
        return value
    return e.b.sdiv(e.b.add(value, i64(divisor - 1)), i64(divisor))
