"""A 1x1 convolution and the depthwise one behind it, a part of the intermediate at a time.

The second convolution mixes no channels, so that parts of the channels are independent. A work item
is a part of the channels in a band of rows of dst. The rows of the intermediate that its windows
read are stored in memory of the thread, sized for its second-level cache::

    src, all channels        intermediate            dst
    +------------+           +------------+
    |            |  1x1      |   border   |  k x k   +------------+
    |    rows    | ------->  |    rows    | ------>  |    band    |
    |            |           |   border   |          +------------+
    +------------+           +------------+

Rows that two bands need are computed twice. If the cache holds a whole image, there is one band.

Both convolutions are written as functions for one part of one band, which a work item calls with
the addresses of its parts of the tensors. Bands near the upper and the lower end miss other rows,
and have functions of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from operator import neg

from dnnl.codegen.epilogue.post_ops import prelu_weights
from dnnl.codegen.epilogue.quantization import Quantization
from dnnl.codegen.ir.builder import I8, Module, Values, i64
from dnnl.codegen.ir.kernel import Arguments
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Env
from dnnl.codegen.memory.address import (
    ZERO,
    Affine,
    Axis,
    block_boundaries,
    broadcast,
    decode,
    linear_offset,
)
from dnnl.codegen.nest.calls import PhaseCalls
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.kernels.convolution.depthwise import depthwise
from dnnl.kernels.convolution.direct import convolution
from dnnl.kernels.convolution.direct.compute import ConvolutionConf, products
from dnnl.kernels.convolution.direct.lines import flatten
from dnnl.kernels.convolution.direct.problem import ConvolutionProblem
from dnnl.kernels.product.base.pixel_tiles import Spatial, runs_by_key
from dnnl.kernels.product.loops.loops import emit_product
from dnnl.kernels.product.plan.plan import plan
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg
from dnnl.types.kinds import FormatKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp, PostOpPrelu

_VECTORS = 4
"""The least vectors of channels for which a part pays for reading src again."""
_MOST_VECTORS = 128
"""The most vectors of channels of a part, unless it has all."""
_MOST_BORDERS = 16
"""The most bands near the border, which are examined one by one."""
_ITEMS = 8
"""With fewer items, images are cut into bands, if ..."""
_ROWS = 16
"""... bands have at least as many rows, so that computing borders twice costs little."""
_LINE = 64
_CHANNELS = 0b10
"""The mask of what varies along the channels of an activation only."""

Shift = tuple[MemoryDesc, tuple[Affine, ...]]
"""A whole tensor, and the index at which the part of an item begins."""


@dataclass(frozen=True)
class Run:
    """``count`` consecutive bands of the same shape, from band ``first`` on. Each computes
    ``above`` rows of the intermediate, those of the first band from row ``begin`` on, and from
    these ``rows`` rows of dst. ``padding`` rows above them are padding."""

    first: int
    count: int
    begin: int
    above: int
    rows: int
    padding: int


@dataclass(frozen=True)
class Bands:
    """A chain cut into bands of at most ``rows`` rows of dst and parts of ``channels`` channels.
    ``between`` is the largest part of the intermediate, and ``first`` the convolution that computes
    it."""

    rows: int
    channels: int
    runs: tuple[Run, ...]
    between: MemoryDesc
    first: ConvolutionConf


def open_weights(first: ConvolutionProblem, second: ConvolutionProblem, isa: Isa) -> MemoryDesc:
    """The layout of the first convolution's weights, which is ``any``, that the bands read;
    unchanged if there are no bands."""
    if not _divisible(first, second):
        return first.weights
    part = _part(replace(first, post_ops=()), _channels(first, isa), 1)
    tag = convolution.resolve(part, isa).weights.tag
    return first.weights if tag is None else first.weights.with_tag(tag)


def plan_bands(first: ConvolutionProblem, second: ConvolutionProblem, isa: Isa) -> Bands | None:
    """The bands of a chain whose layouts are decided; None if it cannot be cut into bands."""
    if not isa.thread_memory or not _divisible(first, second):
        return None
    channels = _channels(first, isa)
    rows = _rows(first, second, channels, isa)
    runs = _runs(second.space[1], rows)
    if not runs:
        return None
    most = max(run.above for run in runs)
    part = _part(first, channels, most)
    if len(runs) == 1:  # the pixels of an image form one line
        part = flatten(part)
    conf = plan(part, isa, whole=False)
    if conf.scratchpad or conf.copy_out is not None:
        return None
    blocking = replace(conf.blocking, panels=0, single_rows=len(runs) > 1)
    conf = replace(conf, dst=(int(Arg.SCRATCHPAD), conf.dst[1]), blocking=blocking)
    between = _part(first, channels, most).dst
    bands = Bands(rows, channels, runs, between, conf)
    return bands if _affine(first, second, bands) else None


def _affine(first: ConvolutionProblem, second: ConvolutionProblem, bands: Bands) -> bool:
    """Whether the parts begin at affine offsets and share no blocks."""
    axes = _Axes.of(bands, first)
    shifts = [
        shift
        for run in bands.runs
        for shift in _shifts(first, second, axes, bands, run, neg).values()
    ]
    blocks = (*block_boundaries(second.dst, 1), *block_boundaries(second.weights, 0))
    parts = axes.part.extent
    return (
        all(desc.data_type.bits >= 8 for desc, _ in shifts)
        and all(linear_offset(desc, index) is not None for desc, index in shifts)
        and all(desc == _cut(desc, desc.dims) for desc in (first.src, second.dst))
        and all(dim == 1 for dim, _ in second.dst.inner_blocks)
        and (parts == 1 or all(bands.channels % block == 0 for block in blocks))
    )


def _divisible(first: ConvolutionProblem, second: ConvolutionProblem) -> bool:
    """Whether parts differ only in channels of dst, images and rows."""
    plain = all((s.kernel, s.stride, s.padding) == (1, 1, 0) for s in first.space)
    if first.grouped or not plain or first.dst.has_zero_dim or second.dst.has_zero_dim:
        return False
    masks = [
        *_masks(first.quantization.of_arguments((Arg.DST,))),
        *_masks(second.quantization.of_arguments((Arg.SRC, Arg.DST))),
    ]
    entries = (*first.post_ops, *second.post_ops)
    masks += [entry.mask for entry in entries if isinstance(entry, PostOpPrelu)]
    return not any(mask & ~_CHANNELS for mask in masks)


def _masks(given: Quantization) -> list[int]:
    return [spec.mask for _, spec in (*given.scales, *given.zero_points)]


def _channels(first: ConvolutionProblem, isa: Isa) -> int:
    """The channels of a part: some vectors of them, or all if these do not fill vectors."""
    vectors, rest = divmod(first.outputs, isa.lanes)
    if rest:
        return first.outputs
    sizes = range(min(_VECTORS, vectors), min(vectors, _MOST_VECTORS) + 1)
    return isa.lanes * next((size for size in sizes if not vectors % size), vectors)


def _rows(first: ConvolutionProblem, second: ConvolutionProblem, channels: int, isa: Isa) -> int:
    """The rows of dst in a band: those whose windows fit in half of the second-level cache."""
    h, w = second.space[1:]
    row = w.src * channels * first.dst.data_type.size
    held = max(h.kernel, isa.caches.l2 // 2 // row)
    count = 1
    if held < h.src:
        count = -(-h.dst // ((held - h.kernel) // h.stride + 1))
    parts = first.dst.dims[0] * (first.outputs // channels)
    count = max(count, min(-(-_ITEMS // parts), h.dst * h.stride // _ROWS))
    return -(-h.dst // count)


def _runs(h: Spatial, rows: int) -> tuple[Run, ...]:
    """Runs of bands of ``rows`` rows of dst; empty if too many bands are near the border."""

    def band(number: int) -> tuple[int, int, int, int]:
        begin, end = number * rows, min(h.dst, (number + 1) * rows)
        top = begin * h.stride - h.padding
        bottom = min(h.src, (end - 1) * h.stride - h.padding + h.kernel)
        return max(0, top), bottom - max(0, top), end - begin, max(0, -top)

    count, (low, high) = -(-h.dst // rows), h.inner
    first, last = -(-low // rows), high // rows
    if first + count - last > _MOST_BORDERS:
        return ()
    starts = [*range(first + 1), *range(last, count)]
    return tuple(
        Run(begin, end - begin, band(begin)[0], above, own, padding)
        for (begin, end), (above, own, padding) in runs_by_key(count, starts, lambda n: band(n)[1:])
    )


def _cut(desc: MemoryDesc, dims: tuple[int, ...]) -> MemoryDesc:
    """A part of a tensor, with the strides of the whole; broadcast dimensions stay so."""
    if desc.is_zero:
        return desc
    cut = [1 if have == 1 else size for have, size in zip(desc.dims, dims, strict=True)]
    return MemoryDesc(
        cut, desc.data_type, desc.strides, inner_blocks=desc.inner_blocks, offset0=desc.offset0
    )


def _cut_entries(entries: tuple[PostOp, ...], dims: tuple[int, ...]) -> tuple[PostOp, ...]:
    return tuple(entry.mapped(lambda desc: _cut(desc, dims)) for entry in entries)


def _part(first: ConvolutionProblem, channels: int, rows: int) -> ConvolutionProblem:
    """The first convolution for one part of the channels and ``rows`` rows."""
    width = first.space[2].src
    dims = (1, channels, rows, width)
    between = MemoryDesc(dims, first.dst.data_type, first.dst.tag)
    sizes = (channels, *first.weights.dims[1:])
    weights = MemoryDesc(sizes, first.weights.data_type, "any")
    if first.weights.format_kind is not FormatKind.any:
        weights = _cut(first.weights, sizes)
    return replace(
        first,
        src=_cut(first.src, (1, first.channels, rows, width)),
        weights=weights,
        bias=_cut(first.bias, (channels,)),
        dst=between,
        post_ops=_cut_entries(first.post_ops, dims),
        space=(first.space[0], replace(first.space[1], src=rows, dst=rows), first.space[2]),
    )


def _second_part(second: ConvolutionProblem, bands: Bands, run: Run) -> ConvolutionProblem:
    """The second convolution for one part of the channels, in the bands of a run."""
    between = bands.between
    src = _cut(between, (1, bands.channels, run.above, between.dims[3]))
    dims = (1, bands.channels, run.rows, second.dst.dims[3])
    d, h, w = second.space
    h = replace(h, src=run.above, dst=run.rows, padding=run.padding)
    return replace(
        second,
        src=src,
        weights=_cut(second.weights, (bands.channels, *second.weights.dims[1:])),
        bias=_cut(second.bias, (bands.channels,)),
        dst=_cut(second.dst, dims),
        post_ops=_cut_entries(second.post_ops, dims),
        space=(d, h, w),
    )


@dataclass(frozen=True, eq=False)
class _Axes:
    """The axes of a work item: image, band, part of the channels."""

    image: Axis
    band: Axis
    part: Axis

    @staticmethod
    def of(bands: Bands, first: ConvolutionProblem) -> _Axes:
        """The axes of all items."""
        count = sum(run.count for run in bands.runs)
        parts = first.outputs // bands.channels
        return _Axes(Axis(first.dst.dims[0], "n"), Axis(count, "band"), Axis(parts, "part"))


def _shifts(
    first: ConvolutionProblem,
    second: ConvolutionProblem,
    axes: _Axes,
    bands: Bands,
    run: Run,
    of_second: Callable[[int], int],
) -> dict[int, Shift]:
    """Where the parts of an item begin, by argument of the chain. ``of_second`` maps the arguments
    of the second convolution to those of the chain."""
    n, c = Affine.of(axes.image), Affine.of(axes.part, bands.channels)
    step = bands.rows * second.space[1].stride
    row = Affine.of(axes.band, step) + (run.begin - run.first * step)
    between, out = (n, c, row, ZERO), (n, c, Affine.of(axes.band, bands.rows), ZERO)
    src, none = (n, ZERO, row, ZERO), (ZERO,) * 4
    weights = (c, *none)
    found: dict[int, Shift] = {
        int(Arg.SRC): (first.src, src),
        int(Arg.WEIGHTS): (first.weights, weights[: first.weights.ndims]),
        of_second(Arg.WEIGHTS): (second.weights, weights),
        int(Arg.DST): (second.dst, out),
    }
    if not first.bias.is_zero:
        found[int(Arg.BIAS)] = first.bias, (c,)
    if not second.bias.is_zero:
        found[of_second(Arg.BIAS)] = second.bias, (c,)
    places = {int(Arg.SRC): none, int(Arg.WEIGHTS): weights, int(Arg.DST): between}
    found |= _attributes(first, places)
    places = {int(Arg.SRC): between, int(Arg.WEIGHTS): weights, int(Arg.DST): out}
    own = _attributes(second, places)
    return found | {of_second(argument): shift for argument, shift in own.items()}


def _attributes(
    problem: ConvolutionProblem, places: Mapping[int, tuple[Affine, ...]]
) -> dict[int, Shift]:
    """The tensors of attributes; ``places`` are the begins of the tensors that they belong to."""
    tensors = {
        int(Arg.SRC): problem.src,
        int(Arg.WEIGHTS): problem.weights,
        int(Arg.DST): problem.dst,
    }
    found = {}
    given = problem.quantization
    for flag, specs in ((Arg.SCALES, given.scales), (Arg.ZERO_POINTS, given.zero_points)):
        for arg, spec in specs:
            desc = spec.desc(tensors[arg].dims)
            found[flag | arg] = desc, broadcast(desc, places[arg][: desc.ndims])
    dst = places[int(Arg.DST)]
    for number, entry in enumerate(problem.post_ops):
        operands = entry.operands
        if isinstance(entry, PostOpPrelu):
            operands = ((int(Arg.WEIGHTS), prelu_weights(entry.mask, problem.dst)),)
        for argument, desc in operands:
            found[Arg.post_op(number) | argument] = desc, broadcast(desc, dst)
    return found


def emit_bands(
    module: Module,
    bands: Bands,
    first: ConvolutionProblem,
    second: ConvolutionProblem,
    arguments: Arguments,
    renamed: Callable[[Arguments], Arguments],
    of_second: Callable[[int], int],
) -> Phase:
    """Write the one phase of a chain. ``renamed`` gives the arguments of a chain as the second
    convolution names them, ``of_second`` maps one of them."""
    own, isa = Arguments(), module.isa
    tile = bands.first.blocking.tile
    name = f"convolution__{bands.between.data_type}__{tile.rows}x{tile.vectors * isa.lanes}"
    (product,) = products(bands.first, isa, own)
    computes = emit_product(module, f"{name}__{isa.name}", product)
    uses = []
    for number, run in enumerate(bands.runs):
        part = _second_part(second, bands, run)
        uses.append(depthwise.emit(module, f"depthwise{number}", part, renamed(own)))
    axes = _Axes.of(bands, first)
    slots = {arg: arguments.slot(arg) for arg in own.ids if arg != Arg.SCRATCHPAD}
    phase = PhaseFunction(module, f"convolution_chain{name[11:]}__{isa.name}", slots.values())
    called = [
        _Called(run, _shifts(first, second, axes, bands, run, of_second), use)
        for run, use in zip(bands.runs, uses, strict=True)
    ]
    writer = _BandWriter(phase, own.ids, slots, computes, bands.between)
    order = (axes.image, axes.band, axes.part)
    count = prod(axis.extent for axis in order)
    phase.each_item(count, lambda n: writer.item(decode(phase.e, n, order), axes.band, called))
    return phase.end(count)


@dataclass(frozen=True)
class _Called:
    """The functions that the bands of a run call: where their parts begin, and the second
    convolution."""

    run: Run
    shifts: Mapping[int, Shift]
    uses: Phase


class _BandWriter:
    """Writes a work item: two calls with the addresses of its parts.

    ``computes`` is the first convolution, for all rows that ``between`` has. The memory of the
    thread holds the intermediate, the scratch of the calls, and their list of arguments.
    """

    def __init__(
        self,
        phase: PhaseFunction,
        ids: Sequence[int],
        slots: Mapping[int, int],
        computes: Phase,
        between: MemoryDesc,
    ) -> None:
        self.e, self.phase = phase.e, phase
        self._ids, self._slots = ids, slots
        self._computes, self._rows = computes, between.dims[2]
        begin = -(-between.size // _LINE) * _LINE
        end = begin + computes.scratch
        self._buffer = phase.scratch(end + PhaseCalls.nbytes(len(ids)))
        scratch = self.e.element(self._buffer, i64(begin), I8)
        self._calls = PhaseCalls(self.e, self.e.element(self._buffer, i64(end), I8), scratch)

    def item(self, env: Env, band: Axis, called: Sequence[_Called]) -> None:
        """Branch to the code of the run that the band belongs to."""
        here, *rest = called
        if not rest:
            self._call(env, here)
            return

        def own() -> Values:
            self._call(env, here)
            return ()

        def later() -> Values:
            self.item(env, band, rest)
            return ()

        limit = i64(here.run.first + here.run.count)
        self.e.branch(self.e.b.icmp_signed("<", env[band], limit), own, later)

    def _call(self, env: Env, called: _Called) -> None:
        e, addresses = self.e, []
        for argument in self._ids:
            address = self._buffer
            if argument in self._slots:
                desc, index = called.shifts[argument]
                offset = linear_offset(desc, index)
                assert offset is not None, "planned so"
                distance = (offset + -desc.offset0) * desc.data_type.size
                given = self.phase.arguments[self._slots[argument]]
                address = e.element(given, distance.emit(e, env), I8)
            addresses.append(address)
        self._calls.use(addresses)
        self._calls.call(self._computes, self._computes.count * called.run.above // self._rows)
        self._calls.call(called.uses, called.uses.count)
