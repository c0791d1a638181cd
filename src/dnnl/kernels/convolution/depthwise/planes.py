"""Depthwise convolution of planes: rows are contiguous, as in nchw.

A tile is a vector of consecutive outputs in each row of a band. Rows of src are loaded once for
each tap of a row, shifted by it, and contribute to several rows of outputs::

    row of src    0    1    2    3    4         all taps of a row
    outputs 0     w0   w1   w2
    outputs 1          w0   w1   w2             the taps of a column, in all lanes
    outputs 2               w0   w1   w2

With a stride, every other pixel is picked. The outputs of a transposed convolution with a stride
are as many vectors, each of which reads consecutive pixels, and which are interleaved in the end.
Bands and tiles near the border are unrolled for their positions, with masks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import prod

from dnnl.codegen.conversion.convert import storage
from dnnl.codegen.epilogue.product_epilogue import core_type
from dnnl.codegen.ir import interleave, vector
from dnnl.codegen.ir.builder import F32, Module, Type, Value, Values, i64
from dnnl.codegen.ir.kernel import Arguments, symbol
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Access, Bound, Env, Operand
from dnnl.codegen.memory.address import Affine, Axis
from dnnl.codegen.memory.place import Place
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.codegen.product.brgemm import Tile
from dnnl.kernels.convolution.depthwise import factors
from dnnl.kernels.convolution.depthwise.lines import Line, Meets, Taps, everywhere
from dnnl.kernels.convolution.depthwise.rows import DepthwiseRowsConf, RowsTensors, three
from dnnl.kernels.convolution.direct.problem import ConvolutionProblem
from dnnl.kernels.shared.scratchpad import Argument, Scratchpad
from dnnl.kernels.shared.types import FLOATS, SMALL_FLOATS
from dnnl.runtime.image import Phase
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.tag import FormatTag

_MOST_ROWS = 4  # and sums of a tile, as far as there are outputs
_MOST_STRIDE = 4
_MOST_TAPS = 64  # of a depth, all of which are unrolled
_MOST_LINES = 2**12  # multiplications that are unrolled
_ITEMS = 64  # at least, where there are so many bands


@dataclass(frozen=True)
class DepthwisePlanesConf(DepthwiseRowsConf):
    """A tile has ``rows`` rows of outputs, and ``vectors`` along each, of every residue if it is
    transposed."""

    rows: int

    def emit(self, module: Module, name: str, arguments: Arguments) -> list[Phase]:
        return [_PlanesWriter(module, name, self, arguments).phase()]


def plan(problem: ConvolutionProblem, isa: Isa) -> DepthwisePlanesConf | None:
    """The configuration of a depthwise convolution, or None if it is left to nests."""
    src, weights, dst = problem.src, problem.weights, problem.dst
    if isa.lanes == 1 or dst.has_zero_dim or dst.data_type.bits < 8:
        return None
    if not {src.data_type, weights.data_type} <= FLOATS | SMALL_FLOATS:
        return None
    if not all(map(in_rows, (src, dst))):
        return None
    height, width = (Line(space, problem.transposed) for space in problem.space[1:])
    rows = _rows(height)
    if rows is None or width.space.stride > _MOST_STRIDE:
        return None
    outputs = isa.lanes * (width.space.stride if problem.transposed else 1)
    vectors = min(max(1, _MOST_ROWS // rows), -(-width.space.dst // outputs))
    borders = _borders(height, rows), _borders(width, outputs * vectors)
    taps = prod(space.kernel for space in problem.space[1:])
    tiles = prod(count + 1 for count in borders)
    if taps > _MOST_TAPS or tiles * rows * vectors * taps > _MOST_LINES:
        return None
    scratchpad = Scratchpad()
    read: Argument = (problem.arguments[1], weights)
    if weights.inner_blocks:
        read = scratchpad.copy(read, weights.with_tag(FormatTag("abcdef"[: weights.ndims])))
    dot = factors.multiply_of(isa, (src.data_type, weights.data_type))
    bare = problem.bias.is_zero and not problem.post_ops
    core = core_type(dot, dst.data_type, problem.quantization, bare=bare)
    copies = tuple(scratchpad.copies)
    return DepthwisePlanesConf(problem, read, dot, core, vectors, copies, scratchpad.size, rows)


def in_rows(desc: MemoryDesc) -> bool:
    """Whether rows are contiguous, and no dimension has blocks."""
    return not desc.inner_blocks and desc.strides[-1] == 1 and desc.dims == desc.padded_dims


def _rows(height: Line) -> int | None:
    """The rows of a tile, a multiple of the stride of a transposed convolution."""
    own = height.space
    rows = -(-own.dst // -(-own.dst // _MOST_ROWS))
    if not height.transposed:
        return rows
    return min(-(-rows // own.stride), _MOST_ROWS // own.stride) * own.stride or None


def _borders(line: Line, outputs: int) -> int:
    """The tiles that are not inside, or not full."""
    first, last = line.inner(outputs)
    return first + -(-line.space.dst // outputs) - last


@dataclass(frozen=True)
class _Plane:
    """A plane of outputs: its position, the address of its first row in src, the taps of depth, and
    the address of the weights of the first one."""

    env: Env
    src: Value
    weights: Value
    depths: Taps


@dataclass(frozen=True)
class _Part:
    """A tile along one dimension: its number, how many outputs exist, and the pixels that they
    read, of which those outside of src are missing; ``inside`` says which are in src."""

    number: Value
    outputs: int
    meets: Meets
    inside: Callable[[int], bool]


class _PlanesWriter:
    """Writes the convolution."""

    def __init__(
        self, module: Module, name: str, conf: DepthwisePlanesConf, arguments: Arguments
    ) -> None:
        self.conf, problem, lanes = conf, conf.problem, module.isa.lanes
        self.lines = [Line(space, problem.transposed) for space in problem.space]
        depth, height, width = (space.dst for space in problem.space)
        self.strips = self.lines[2].space.stride if problem.transposed else 1
        self.outputs = lanes * self.strips * conf.vectors
        self.batch, self.channel = Axis(problem.dst.dims[0], "n"), Axis(problem.dst.dims[1], "c")
        self.depth, self.height = Axis(depth, "od"), Axis(height, "oh")
        self.lane, self.vector = Axis(lanes, "lane"), Axis(-(-width // lanes), "vector")
        self.across = Affine.of(self.vector, lanes) + Affine.of(self.lane)
        there = [Affine.of(self.depth), Affine.of(self.height), self.across]
        image, channel = Affine.of(self.batch), Affine.of(self.channel)
        self.tensors = RowsTensors.of(conf, image, channel, there, arguments)
        entry = symbol(name, (problem.src, problem.weights, problem.dst), module.isa)
        self.function = PhaseFunction.of(module, entry, self.tensors.operands)
        self.e = self.function.e
        self.pointers = self.function.pointers(self.tensors.operands)
        finish = self.tensors.finish.operands
        self.accesses = {operand: Access.of(operand, operand.index) for operand in finish}
        self.steps = three(problem.src.strides[2:])
        self.weight_steps = three(conf.weights[1].strides[3:])

    def phase(self) -> Phase:
        """The phase."""
        bands = -(-self.height.extent // self.conf.rows)
        planes = self.batch, self.channel, self.depth
        parts = min(bands, -(-_ITEMS // prod(axis.extent for axis in planes)))
        axes, each = (*planes, Axis(parts, "part")), -(-bands // parts)
        count = prod(axis.extent for axis in axes)

        def item(number: Value) -> None:
            env: Env = {}
            for axis in reversed(axes):
                number, env[axis] = self.e.divmod(number, axis.extent)
            low: Value = self.e.mul(env[axes[-1]], each)
            high = self.e.smaller(self.e.add(low, i64(each)), i64(bands))
            if parts == 1:
                low, high = i64(0), i64(bands)
            self._bands(self._plane(env), low, high)

        self.function.each_item(count, item)
        return self.function.end(count)

    def _plane(self, env: Env) -> _Plane:
        e, line, places = self.e, self.lines[0], []
        depths = line.taps(e, env[self.depth])
        src, weights = self.tensors.src, self.tensors.weights
        for operand, first, step in (
            (src, depths.first, self.steps[0]),
            (weights, depths.first_tap, self.weight_steps[0]),
        ):
            form = operand.offset(operand.index)
            assert form is not None, "plan takes layouts without blocks"
            at = e.add(form.emit(e, env), e.mul(first, step))
            places.append(e.element(self.pointers[operand], at, _element(operand)))
        return _Plane(env, places[0], places[1], depths)

    def _bands(self, plane: _Plane, low: Value, high: Value) -> None:
        """The bands from ``low`` to ``high``; inner ones in a loop."""
        e, rows = self.e, self.conf.rows
        first, last = self.lines[1].inner(rows)

        def at(number: int) -> None:
            def one() -> Values:
                self._tiles(plane, self._part(1, number, rows))
                return ()

            begun = e.b.icmp_signed("<=", low, i64(number))
            e.branch(e.b.and_(begun, e.b.icmp_signed("<", i64(number), high)), one, lambda: ())

        def inner(number: Value) -> None:
            self._tiles(plane, self._inner_part(1, number, rows))

        for number in range(first):
            at(number)
        begin, end = e.larger(low, i64(first)), e.smaller(high, i64(last))
        e.loop(begin, end, inner, unroll=False, name="band")
        for number in range(last, -(-self.height.extent // rows)):
            at(number)

    def _tiles(self, plane: _Plane, rows: _Part) -> None:
        """The tiles of a band; inner ones in a loop."""
        width, outputs = self.lines[2], self.outputs
        first, last = width.inner(outputs)
        for number in range(first):
            self._tile(plane, rows, self._part(2, number, outputs))

        def inner(number: Value) -> None:
            self._tile(plane, rows, self._inner_part(2, number, outputs))

        self.e.loop(i64(first), i64(last), inner, unroll=False, name="tile")
        for number in range(last, -(-width.space.dst // outputs)):
            self._tile(plane, rows, self._part(2, number, outputs))

    def _part(self, dim: int, number: int, outputs: int) -> _Part:
        """A tile at a known position."""
        line = self.lines[dim]
        count, inside = (
            min(outputs, line.space.dst - number * outputs),
            line.inside(number, outputs),
        )
        return _Part(i64(number), count, self._meets(dim, count, inside), inside)

    def _inner_part(self, dim: int, number: Value, outputs: int) -> _Part:
        """A full tile that misses no pixel."""
        return _Part(number, outputs, self._meets(dim, outputs, everywhere), everywhere)

    def _meets(self, dim: int, outputs: int, inside: Callable[[int], bool]) -> Meets:
        """What the rows of a tile read, or the first lanes of its vectors."""
        if dim == 2:  # some lanes may be inside
            outputs, inside = self.strips, everywhere
        return self.lines[dim].meets(outputs, inside)

    def _tile(self, plane: _Plane, rows: _Part, columns: _Part) -> None:
        e, zero = self.e, vector.splat_constant(self._kind(F32), 0.0)
        src, offset = self.tensors.src, i64(0)
        for part, line, outputs, step in (
            (rows, self.lines[1], self.conf.rows, self.steps[1]),
            (columns, self.lines[2], self.outputs, self.steps[2]),
        ):
            moved = e.mul(part.number, line.advance(outputs) * step)
            offset = e.add(offset, e.add(moved, i64(line.start * step)))
        start = e.element(plane.src, offset, _element(src))

        def of_depth(d: Value, *sums: Value) -> Values:
            depths = plane.depths
            there = e.mul(d, depths.step * self.steps[0])
            own = e.mul(d, depths.tap_step * self.weight_steps[0])
            first = e.element(plane.weights, own, _element(self.tensors.weights))
            pixels = e.opaque(e.element(start, there, _element(src)))
            return self._of_taps(pixels, e.opaque(first), rows, columns, sums)

        sums: Values = (zero,) * (rows.outputs * self._vectors(columns) * self.strips)
        low, high = plane.depths.low, plane.depths.high
        sums = e.loop(low, high, of_depth, sums, unroll=False, name="kd")
        self._store(plane, rows, columns, sums)

    def _of_taps(
        self, pixels: Value, weights: Value, rows: _Part, columns: _Part, sums: Values
    ) -> Values:
        """The sums with the taps of one depth."""
        e, multiply, results = self.e, self.conf.multiply, list(sums)
        vectors, apart = self._vectors(columns), self.lane.extent * self._apart
        taps: dict[tuple[int, int], Value] = {}
        for line, column in product(sorted(rows.meets), sorted(columns.meets)):
            for v in range(vectors):
                first = column + v * apart
                pixel = self._pixels(pixels, line * self.steps[1], first, columns.inside)
                for (row, h), (strip, w) in product(rows.meets[line], columns.meets[column]):
                    if (h, w) not in taps:
                        taps[h, w] = self._tap(weights, h, w)
                    number = (row * vectors + v) * self.strips + strip
                    results[number] = factors.add(e, multiply, pixel, taps[h, w], results[number])
        return tuple(results)

    def _vectors(self, columns: _Part) -> int:
        """The vectors of a tile that have outputs."""
        return -(-columns.outputs // (self.lane.extent * self.strips))

    @property
    def _apart(self) -> int:
        """The distance of the pixels that neighbouring lanes read."""
        return 1 if self.conf.problem.transposed else self.lines[2].space.stride

    def _tap(self, weights: Value, h: int, w: int) -> Value:
        """A weight in all lanes."""
        e, operand = self.e, self.tensors.weights
        at = h * self.weight_steps[1] + w * self.weight_steps[2]
        place = e.element(weights, i64(at), _element(operand))
        one = e.b.load(place, typ=_element(operand), align=operand.data_type.size)
        lanes = vector.splat(e, one, self.lane.extent)
        return factors.factor(e, self.conf.multiply, operand.data_type, lanes)

    def _pixels(
        self, start: Value, offset: int, column: int, inside: Callable[[int], bool]
    ) -> Value:
        """The pixels of a tap in a row, from ``column`` on; those outside of src are zero.

        Pixels that are apart are loaded with all between them, and picked.
        """
        e, operand, lanes = self.e, self.tensors.src, self.lane.extent
        apart = self._apart
        length = (lanes - 1) * apart + 1
        picked: Value | None = None
        for begin in (min(first, length - lanes) for first in range(0, length, lanes)):
            first = column + begin
            mask = vector.known_lanes([inside(first + lane) for lane in range(lanes)])
            place = e.element(start, i64(offset + first), _element(operand))
            part = vector.load(e, place, self._kind(_element(operand)), mask)
            at = [lane * apart - begin for lane in range(lanes)]
            if picked is None:
                chosen = [n % lanes for n in at]
                picked = part if apart == 1 else vector.shuffle(e, part, part, chosen)
            else:
                new = [lanes + n if 0 <= n < lanes else lane for lane, n in enumerate(at)]
                picked = vector.shuffle(e, picked, part, new)
        return factors.factor(e, self.conf.multiply, operand.data_type, picked)

    def _kind(self, element: Type) -> Type:
        return vector.vector_type(element, self.lane.extent)

    def _store(self, plane: _Plane, rows: _Part, columns: _Part, sums: Values) -> None:
        """The epilogue of a tile."""
        e, strips, lanes = self.e, self.strips, self.lane.extent
        in_order: list[Value] = []
        for first in range(0, len(sums), strips):
            vectors = sums[first : first + strips]
            in_order += interleave.interleave(e, vectors) if strips > 1 else vectors
        each, used = len(in_order) // rows.outputs, -(-columns.outputs // lanes)
        cells = [value for n, value in enumerate(in_order) if n % each < used]
        begin = e.mul(rows.number, self.conf.rows)
        inside = Bound(self.across, self.lines[2].space.dst)
        full = columns.outputs == lanes * used

        def place_of(number: Value, core: Type) -> Place:
            row, strip = e.divmod(number, used)
            here = {
                self.height: e.add(begin, row),
                self.vector: e.add(e.mul(columns.number, self.outputs // lanes), strip),
            }
            return Place(
                e,
                self.pointers,
                self.accesses,
                {**plane.env, **here},
                self.lane,
                lanes,
                masked=not full,
                exists=() if full else (inside,),
                core=core,
            )

        self.tensors.finish.store(Tile(used, tuple(cells)), partial(place_of))


def _element(operand: Operand) -> Type:
    return storage(operand.data_type).element
