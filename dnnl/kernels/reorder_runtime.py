"""Copy a tensor into another layout and type, whatever its sizes: they come with each execution.

An execution's boxes say all about layouts, so the code depends on the data types and on what is
done with the values alone: reorders that have these in common share the code, see `shared`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from dnnl.codegen import convert
from dnnl.codegen.access import Access, Bound, Operand, Place
from dnnl.codegen.address import ZERO, Affine, Axis
from dnnl.codegen.builder import I64, Emitter, Module, Type, Value, Values, i64
from dnnl.codegen.epilogue import refuse
from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import SIZES, Kernel, Reason, Refusal, Sizes
from dnnl.codegen.nest import widths
from dnnl.codegen.phase import PhaseFunction
from dnnl.codegen.quantization import Quantization, Specs
from dnnl.codegen.vector import transpose, vector_type
from dnnl.kernels import boxes
from dnnl.kernels.boxes import HEAD, SHARES, View, Way
from dnnl.kernels.pointwise import refuse_types, symbol
from dnnl.kernels.reorder import Conf, Copy
from dnnl.types.arg import Arg
from dnnl.types.attr import ScaleSpec
from dnnl.types.kinds import RUNTIME_DIM
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp, PostOpBinary, PostOpPrelu


def configure(
    src: MemoryDesc, dst: MemoryDesc, post_ops: tuple[PostOp, ...], quantization: Quantization
) -> Conf | Refusal:
    """Accept any two layouts of supported types of which something is known at execution only."""
    if not (src.has_runtime_values or dst.has_runtime_values):
        return Refusal(Reason.SHAPE, "all sizes are known")
    if dst.compensation is not None:
        return Refusal(Reason.RUNTIME_DIM, "beside a compensation")
    refusal = refuse_types(src, dst, allowed=convert.SUPPORTED, runtime=True)
    refusal = refusal or refuse(post_ops, dst)
    refusal = refusal or quantization.refuse({Arg.SRC: src, Arg.DST: dst})
    return refusal or Conf(src, dst, post_ops, quantization)


def sizes(conf: Conf, isa: Isa, descs: Mapping[int, MemoryDesc]) -> Sizes:
    """What the kernel needs to know of an execution on memories of these descriptors, by
    argument."""
    copy = Copy(conf)
    ids = copy.arguments.ids
    views = [View(descs[ids[operand.slot]], operand.groups) for operand in copy.operands]
    lanes, unit = widths(isa, conf.core)
    return boxes.sizes(views, lanes, _square(lanes, unit))


def _square(lanes: int, unit: int) -> int:
    """The rows and columns of a square: 16 columns of elements below 32 bits would leave the
    registers."""
    return lanes if unit <= 4 else unit


def shared(conf: Conf) -> Conf:
    """The configuration of all reorders with the same code: lines of any length."""

    def line(desc: MemoryDesc) -> MemoryDesc:
        return MemoryDesc((RUNTIME_DIM,), desc.data_type, (RUNTIME_DIM,), offset0=RUNTIME_DIM)

    def specs(given: Specs) -> Specs:
        return tuple((arg, ScaleSpec(spec.mask and 1, (), spec.data_type)) for arg, spec in given)

    def post_op(entry: PostOp) -> PostOp:
        if isinstance(entry, PostOpBinary):
            size = 1 if set(entry.src1_desc.dims) <= {1} else 2
            return replace(entry, src1_desc=MemoryDesc((size,), entry.src1_desc.data_type))
        return replace(entry, mask=1) if isinstance(entry, PostOpPrelu) and entry.mask else entry

    own = conf.quantization
    quantization = Quantization(specs(own.scales), specs(own.zero_points))
    post_ops = tuple(map(post_op, conf.post_ops))
    return Conf(line(conf.src), line(conf.dst), post_ops, quantization)


def build(conf: Conf, isa: Isa) -> Kernel:
    """One phase that walks boxes; ``conf`` comes from `shared`."""
    copy = Copy(conf)
    module = Module("reorder", isa)
    entry = symbol("reorder_boxes", [conf.src, conf.dst], isa)
    slot = copy.arguments.slot(SIZES)
    phase = PhaseFunction(module, entry, range(slot + 1))
    e, block = phase.e, phase.arguments[slot]
    count, most = (e.b.load(e.element(block, i64(word), I64), typ=I64) for word in range(2))
    counters = e.b.alloca(I64, most)
    writer = _Writer(e, conf.core, copy, phase.pointers(copy.operands), counters)

    def walk(begin: Value, end: Value) -> None:
        def box(_: Value, start: Value) -> Values:
            return (e.b.add(start, writer.box(e.element(block, start, I64), begin, end)),)

        e.loop(i64(0), count, box, (i64(2),), unroll=False, name="box")

    phase.each_range(walk)
    return Kernel(module, (phase.end(SHARES),), copy.arguments.ids)


_FAR = 2**62  # a limit that nothing reaches


class _Writer:
    """Writes the walk over one box. Lists of values have one for each operand, dst first."""

    def __init__(
        self,
        e: Emitter,
        core: Type,
        copy: Copy,
        pointers: dict[Operand, Value],
        counters: Value,
    ) -> None:
        self.e, self.core, self.copy, self.pointers = e, core, copy, pointers
        self.operands = copy.operands
        self._counters = counters
        self.lanes, self.unit = widths(e.isa, core)
        self.square = _square(self.lanes, self.unit)
        self.lane = Axis(self.lanes, "lane")
        self.last = Axis(2, "last")  # how far the last lane that exists is away
        # Where an operand is at, in pairs of elements if it has two a byte and vectors of them.
        self.at = {operand: Axis(1, f"at{k}") for k, operand in enumerate(self.operands)}

    def box(self, box: Value, begin: Value, end: Value) -> Value:
        """Walk the part of a box that belongs to the work items ``begin`` to ``end``; the number
        of the box's words."""
        e, views = self.e, len(self.operands)
        way, zero, rows, outer, *row = (self._word(box, n) for n in range(HEAD))
        first, last = (e.b.udiv(e.b.mul(rows, item), i64(SHARES)) for item in (begin, end))
        triples = [
            [self._word(box, HEAD + 3 * view + n) for n in range(3)] for view in range(views)
        ]
        bases, across, along = ([triple[n] for triple in triples] for n in range(3))
        walk = _Row(self, way, (row[0], row[1]), (across, along))
        loops = e.element(box, i64(HEAD + 3 * views), I64)

        def visit(_: Value, *places: Value) -> Values:
            e.branch(self._flag(zero), lambda: walk.clear(places), lambda: walk.copy(places))
            return self._advance(loops, outer, places)

        def run() -> Values:
            places = self._locate(loops, outer, first, bases)
            e.loop(first, last, visit, places, unroll=False, name="row")
            return ()

        e.branch(e.b.icmp_signed("<", first, last), run, lambda: ())
        return e.add(e.mul(outer, 1 + views), i64(HEAD + 3 * views))

    def _word(self, block: Value, number: int) -> Value:
        return self.e.b.load(self.e.element(block, i64(number), I64), typ=I64)

    def _flag(self, word: Value) -> Value:
        return self.e.b.icmp_signed("!=", word, i64(0))

    def _loop(self, loops: Value, number: Value) -> tuple[Value, list[Value], Value]:
        """The extent and the strides of an outer loop, and where its counter is."""
        step = 1 + len(self.operands)
        words = self.e.element(loops, self.e.mul(number, step), I64)
        extent, *strides = (self._word(words, n) for n in range(step))
        return extent, strides, self.e.element(self._counters, number, I64)

    def _locate(self, loops: Value, outer: Value, row: Value, bases: Sequence[Value]) -> Values:
        """The places of a row by its number; sets the counters of the outer loops."""
        e, b = self.e, self.e.b

        def step(turn: Value, rest: Value, *places: Value) -> Values:
            number = b.sub(b.sub(outer, turn), i64(1))
            extent, strides, counter = self._loop(loops, number)
            index = b.urem(rest, extent)
            b.store(index, counter)
            return b.udiv(rest, extent), *_moved(e, places, index, strides)

        return e.loop(i64(0), outer, step, (row, *bases), unroll=False, name="locate")[1:]

    def _advance(self, loops: Value, outer: Value, places: Values) -> Values:
        """The places of the next row: one step of the innermost outer loop, and where a loop is
        at its end back to its begin and one step of the next one."""
        e, b = self.e, self.e.b

        def step(turn: Value, steps: Value, *places: Value) -> Values:
            number = b.sub(b.sub(outer, turn), i64(1))
            extent, strides, counter = self._loop(loops, number)
            index = b.add(b.load(counter, typ=I64), steps)
            over = b.icmp_signed("==", index, extent)
            back = b.select(over, extent, i64(0))
            b.store(b.sub(index, back), counter)
            following = _moved(e, places, b.sub(steps, back), strides)
            return b.zext(over, I64), *following

        return e.loop(i64(0), outer, step, (i64(1), *places), unroll=False, name="advance")[1:]

    def place(
        self,
        places: Sequence[Value],
        lanes: int,
        still: Mapping[Operand, Value] | None = None,
        loaded: Mapping[Operand, Value] | None = None,
        left: Value | None = None,
    ) -> _Place:
        """A vector along the lane axis that begins at ``places``; an operand for which ``still``
        holds stays where it is. If ``left`` is given, only so many elements are left there."""
        accesses, env, exists = {}, {}, []
        if left is not None:
            env[self.last] = self.e.b.sub(left, i64(1))
            exists.append(Bound(Affine.of(self.last) + Affine.of(self.lane, -1), _FAR))
        for operand, where in zip(self.operands, places, strict=True):
            paired = lanes > 1 and self._paired(operand)
            env[self.at[operand]] = self.e.b.ashr(where, i64(1)) if paired else where
            form = Affine.of(self.at[operand], 2 if paired else 1)
            moves = lanes == 1 or any(index != ZERO for index in operand.index)
            accesses[operand] = Access(operand, (), form + Affine.of(self.lane, int(moves)))
        made = _Place(
            self.e, self.pointers, accesses, env, self.lane, lanes,
            masked=left is not None, exists=exists, core=self.core,
        )  # fmt: skip
        made.still, made.loaded = still or {}, loaded or {}
        return made

    def _paired(self, operand: Operand) -> bool:
        """Whether vectors of the operand begin with whole bytes, of two elements."""
        return operand.desc.data_type.bits == 4 and operand in self.operands[:2]


def _moved(e: Emitter, places: Sequence[Value], steps: Value, strides: Sequence[Value]) -> Values:
    """The places ``steps`` further along a loop."""
    pairs = zip(places, strides, strict=True)
    return tuple(e.b.add(place, e.b.mul(steps, stride)) for place, stride in pairs)


class _Place(Place):
    """A place at which some operands are loaded already, and some may stay still."""

    still: Mapping[Operand, Value]
    loaded: Mapping[Operand, Value]

    def load(self, operand: Operand) -> Value:
        """The operand's elements in the core type."""
        if operand in self.loaded:
            return self.loaded[operand]
        if operand not in self.still:
            return super().load(operand)

        def broadcast() -> Values:
            access = self._accesses[operand]
            assert access.offset is not None
            assert self._lane is not None
            alone = {operand: Access(operand, (), access.offset.without(self._lane))}
            at = Place(
                self.e, self._pointers, alone, self._env, self._lane, self._lanes,
                masked=False, core=self.kind.element,  # the first lane exists
            )  # fmt: skip
            return (at.load(operand),)

        (value,) = self.e.branch(
            self.still[operand], broadcast, lambda: (super(_Place, self).load(operand),)
        )
        return value


class _Row:
    """Writes the two loops of a row: the outer one and the lane loop."""

    def __init__(
        self,
        writer: _Writer,
        way: Value,
        extents: tuple[Value, Value],
        strides: tuple[list[Value], list[Value]],
    ) -> None:
        e = writer.e
        self.writer, self.e = writer, e
        self.across, self.along = strides
        self.width, self.length = extents
        self.lines = e.b.icmp_signed("==", way, i64(Way.LINES))
        self.squares = e.b.icmp_signed("==", way, i64(Way.SQUARES))
        self.still = {
            operand: e.b.icmp_signed("==", stride, i64(0))
            for operand, stride in zip(writer.operands[2:], self.across[2:], strict=True)
            if any(index != ZERO for index in operand.index)
        }

    def copy(self, places: Values) -> Values:
        """Compute a row."""
        writer = self.writer

        def write(at: Values, lanes: int, left: Value | None = None) -> None:
            writer.copy.run(writer.place(at, lanes, self.still if lanes > 1 else None, left=left))

        if writer.square > 1:
            self._when(self.squares, lambda: self._all_squares(places))
        self._by_columns(places, write)
        self._by_elements(places, write)
        return ()

    def clear(self, places: Values) -> Values:
        """Write zeros into a row of dst."""
        writer = self.writer

        def write(at: Values, lanes: int, left: Value | None = None) -> None:
            place = writer.place(at, lanes, left=left)
            place.store(writer.copy.dst, place.constant(0.0))

        self._by_columns(places, write)
        self._by_elements(places, write)
        return ()

    def _by_columns(self, places: Values, write: Callable[..., None]) -> None:
        """Run ``write(place, lanes)`` for vectors, if the row is walked so: those at the begin of
        all lines first."""
        e, lanes = self.e, self.writer.lanes
        whole = self._whole(self.width, lanes)

        def column(lane: Value, left: Value | None = None) -> None:
            top = self._moved(places, lane)

            def line(number: Value) -> None:
                write(_moved(e, top, number, self.along), lanes, left)

            e.loop(i64(0), self.length, line, name="line")

        def columns() -> None:
            e.loop(i64(0), whole, column, step=lanes, unroll=False, name="lane")
            if e.isa.masked:
                left = e.b.sub(self.width, whole)
                self._when(e.b.icmp_signed(">", left, i64(0)), lambda: column(whole, left))

        if lanes > 1:
            self._when(self.lines, columns)

    def _by_elements(self, places: Values, write: Callable[..., None]) -> None:
        """Run ``write(place, 1)`` for what vectors and squares leave."""
        e, b, writer = self.e, self.e.b, self.writer
        every = b.not_(b.or_(self.lines, self.squares))

        def vectors(number: Value) -> Value:
            """The elements of a line that are in vectors."""
            within = b.icmp_signed("<", number, self._whole(self.length, writer.square))
            width = self._whole(self.width, writer.square)
            of_squares = b.select(b.and_(self.squares, within), width, i64(0))
            return b.select(self.lines, self._whole(self.width, writer.lanes), of_squares)

        def line(number: Value) -> None:
            at = _moved(e, places, number, self.along)
            begin = i64(0) if e.isa.masked else vectors(number)

            def each(lane: Value) -> None:
                write(self._moved(at, lane), 1)

            e.loop(begin, self.width, each, unroll=False, name="each")

        # Under masks nothing is left.
        count = b.select(every, self.length, i64(0)) if e.isa.masked else self.length
        e.loop(i64(0), count, line, unroll=False, name="line")

    def _all_squares(self, places: Values) -> None:
        e, b, step = self.e, self.e.b, self.writer.square
        width, length = self.width, self.length
        if not e.isa.masked:
            width, length = (self._whole(extent, step) for extent in (width, length))

        def lines(line: Value) -> None:
            start = _moved(e, places, line, self.along)

            def lanes(lane: Value) -> None:
                at = self._moved(start, lane)
                left = b.sub(self.width, lane), b.sub(self.length, line)
                whole = (b.icmp_signed(">=", n, i64(step)) for n in left)
                if e.isa.masked:
                    e.branch(
                        b.and_(*whole), lambda: self._square(at), lambda: self._part(at, *left)
                    )
                else:
                    self._square(at)

            e.loop(i64(0), width, lanes, step=step, unroll=False, name="lane")

        e.loop(i64(0), length, lines, step=step, unroll=False, name="line")

    def _square(self, at: Values) -> Values:
        """Load lines of src, which lie along the row's outer loop, and transpose them."""
        e, writer, src = self.e, self.writer, self.writer.copy.src

        def load(row: int, piece: int) -> Value:
            start = _moved(e, self._moved(at, i64(row)), i64(piece * writer.unit), self.along)
            return writer.place(start, writer.unit).load(src)

        columns = transpose(e, writer.square, writer.square // writer.unit, load)
        for number, value in enumerate(columns):
            line = _moved(e, at, i64(number), self.along)
            writer.copy.run(writer.place(line, writer.square, self.still, {src: value}))
        return ()

    def _part(self, at: Values, width: Value, length: Value) -> Values:
        """The same for the upper left part of a square, ``width`` lanes of ``length`` lines if
        these are less than its size: by loops over what there is, with the square on the stack."""
        e, writer, src = self.e, self.writer, self.writer.copy.src
        size, unit = writer.square, writer.unit
        kind, part = vector_type(writer.core, size), vector_type(writer.core, unit)
        with e.b.goto_entry_block():
            square = e.b.alloca(kind, size)

        def load(lane: Value) -> None:
            row = writer.place(self._moved(at, lane), size, left=length)
            e.b.store(row.load(src), e.element(square, lane, kind))

        def store(number: Value) -> None:
            loaded = {src: e.b.load(e.element(square, number, kind), typ=kind)}
            line = _moved(e, at, number, self.along)
            writer.copy.run(writer.place(line, size, self.still, loaded, width))

        e.loop(i64(0), e.smaller(width, i64(size)), load, unroll=False, name="row")

        def loaded_piece(row: int, piece: int) -> Value:
            number = row * (size // unit) + piece
            return e.b.load(e.element(square, i64(number), part), typ=part)

        for number, value in enumerate(transpose(e, size, size // unit, loaded_piece)):
            e.b.store(value, e.element(square, i64(number), kind))
        e.loop(i64(0), e.smaller(length, i64(size)), store, unroll=False, name="column")
        return ()

    def _moved(self, places: Values, steps: Value) -> Values:
        """The places ``steps`` further along the lane loop."""
        return _moved(self.e, places, steps, self.across)

    def _whole(self, extent: Value, step: int) -> Value:
        """The part of a loop that whole vectors fill."""
        return self.e.b.and_(extent, i64(-step))

    def _when(self, condition: Value, run: Callable[[], None]) -> None:
        def then() -> Values:
            run()
            return ()

        self.e.branch(condition, then, lambda: ())
