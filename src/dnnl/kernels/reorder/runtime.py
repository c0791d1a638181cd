"""Copy a tensor into another layout and type with run-time sizes.

The boxes of an execution describe its layouts, so the code depends on the data types and the
operations only: reorders that have these in common share the code, see `shared`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dnnl.codegen.epilogue.post_ops import refuse
from dnnl.codegen.epilogue.quantization import Quantization, Specs
from dnnl.codegen.ir.builder import I64, Module, Value, Values, i64
from dnnl.codegen.ir.kernel import SIZES, Kernel, Reason, Refusal, Sizes, symbol
from dnnl.codegen.isa import Isa
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.codegen.nest.schedule import widths
from dnnl.codegen.nest.work_items import SHARES
from dnnl.codegen.open_nest.place import advanced
from dnnl.kernels.reorder import boxes
from dnnl.kernels.reorder.boxes import HEAD, View
from dnnl.kernels.reorder.reorder import Copy, ReorderConf
from dnnl.kernels.reorder.rows import Row, Vectors, square_of
from dnnl.types.arg import Arg
from dnnl.types.kinds import RUNTIME_DIM
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp, PostOpPrelu

_STRIP = 64
"""The elements of a line that are done together without vectors; whole bytes of 4-bit elements."""


def configure(
    src: MemoryDesc, dst: MemoryDesc, post_ops: tuple[PostOp, ...], quantization: Quantization
) -> ReorderConf | Refusal:
    """Accept any two layouts of any types with run-time values."""
    if src.compensation is not None or dst.compensation is not None:
        return Refusal(Reason.RUNTIME_DIM, "with a compensation")
    refusal = refuse(post_ops, dst, (src,))
    refusal = refusal or quantization.refuse({Arg.SRC: src, Arg.DST: dst})
    return refusal or ReorderConf(src, dst, post_ops, quantization)


def sizes(conf: ReorderConf, isa: Isa, descs: Mapping[int, MemoryDesc]) -> Sizes:
    """The launch parameters of an execution on memories of these descriptors, by argument."""
    copy = Copy(conf)
    ids = copy.arguments.ids
    views = [View(descs[ids[operand.slot]], operand.groups) for operand in copy.operands]
    lanes, _ = widths(isa, conf.core)
    lanes = lanes if lanes > 1 else _STRIP
    return boxes.sizes(views, lanes, square_of(isa, conf.core), counters=isa.thread_memory)


def shared(conf: ReorderConf) -> ReorderConf:
    """The configuration that all reorders with the same code share: lines of any length."""

    def line(desc: MemoryDesc) -> MemoryDesc:
        return MemoryDesc((RUNTIME_DIM,), desc.data_type, (RUNTIME_DIM,), offset0=RUNTIME_DIM)

    def specs(given: Specs) -> Specs:
        return tuple((arg, replace(spec, mask=spec.mask and 1, groups=())) for arg, spec in given)

    def operand(desc: MemoryDesc) -> MemoryDesc:
        return MemoryDesc((1 if set(desc.dims) <= {1} else 2,), desc.data_type)

    def post_op(entry: PostOp) -> PostOp:
        if isinstance(entry, PostOpPrelu) and entry.mask:
            return replace(entry, mask=1)
        return entry.mapped(operand)

    own = conf.quantization
    quantization = Quantization(specs(own.scales), specs(own.zero_points))
    post_ops = tuple(map(post_op, conf.post_ops))
    return ReorderConf(line(conf.src), line(conf.dst), post_ops, quantization)


def build(conf: ReorderConf, isa: Isa) -> Kernel:
    """One phase that walks boxes; ``conf`` comes from `shared`."""
    copy = Copy(conf)
    module = Module("reorder", isa)
    entry = symbol("reorder_boxes", [conf.src, conf.dst], isa)
    slot = copy.arguments.slot(SIZES)
    phase = PhaseFunction(module, entry, range(slot + 1))
    e, block = phase.e, phase.arguments[slot]
    count, most = (e.b.load(e.element(block, i64(number), I64), typ=I64) for number in range(2))
    walk = _Walk(phase, Vectors(e, conf.core, copy, phase.pointers(copy.operands)), most)

    def box(_: Value, start: Value) -> Values:
        return (e.b.add(start, walk.box(e.element(block, start, I64))),)

    e.loop(i64(0), count, box, (i64(2),), unroll=False, name="box")
    return Kernel(module, (phase.end(SHARES),), copy.arguments.ids)


class _Walk:
    """Writes the walk over one box. Lists of values have one for each operand, dst first.

    ``limit`` is the second parameter of the block. The counters of the outer loops are in memory of
    the thread; without such memory each row is found by divisions.
    """

    def __init__(self, phase: PhaseFunction, vectors: Vectors, limit: Value) -> None:
        self.e, self._phase, self._vectors = vectors.e, phase, vectors
        self._limit, self._counts = limit, vectors.e.isa.thread_memory
        self._counters = self.e.b.alloca(I64, limit) if self._counts else None
        self._views = len(vectors.operands)

    def box(self, box: Value) -> Value:
        """Walk the part of a box that belongs to an invocation. Returns the number of its launch
        parameters."""
        e, views = self.e, self._views
        traversal, zero, rows, outer, *row = (self._parameter(box, n) for n in range(HEAD))
        first, last = self._share(rows)
        triples = [
            [self._parameter(box, HEAD + 3 * view + n) for n in range(3)] for view in range(views)
        ]
        bases, across, along = ([triple[n] for triple in triples] for n in range(3))
        walk = Row(self._vectors, traversal, (row[0], row[1]), (across, along))
        loops = e.element(box, i64(HEAD + 3 * views), I64)

        def write(places: Values) -> None:
            e.branch(self._flag(zero), lambda: walk.clear(places), lambda: walk.copy(places))

        def visit(_: Value, *places: Value) -> Values:
            write(places)
            return self._advance(loops, outer, places)

        def run() -> Values:
            if self._counts:
                places = self._locate(loops, outer, first, bases)
                e.loop(first, last, visit, places, unroll=False, name="row")
            else:

                def find(row: Value) -> None:
                    write(self._locate(loops, outer, row, bases))

                e.loop(first, last, find, unroll=False, name="row")
            return ()

        e.branch(e.b.icmp_signed("<", first, last), run, lambda: ())
        return e.add(e.mul(outer, 1 + views), i64(HEAD + 3 * views))

    def _share(self, rows: Value) -> tuple[Value, Value]:
        """The first of the rows of an invocation, and the one behind its last."""
        if self._counts:
            return self._phase.share(rows, SHARES)
        b, alone = self.e.b, self._flag(self._limit)
        first, last = self._phase.share(b.select(alone, i64(1), rows), SHARES)
        size = b.select(alone, rows, i64(1))
        return b.mul(first, size), b.mul(last, size)

    def _parameter(self, block: Value, number: int) -> Value:
        return self.e.b.load(self.e.element(block, i64(number), I64), typ=I64)

    def _flag(self, number: Value) -> Value:
        return self.e.b.icmp_signed("!=", number, i64(0))

    def _loop(self, loops: Value, number: Value) -> tuple[Value, list[Value]]:
        """The extent and the strides of an outer loop."""
        step = 1 + self._views
        parameters = self.e.element(loops, self.e.mul(number, step), I64)
        extent, *strides = (self._parameter(parameters, n) for n in range(step))
        return extent, strides

    def _counter(self, number: Value) -> Value:
        """The address of the counter of an outer loop."""
        return self.e.element(self._counters, number, I64)

    def _locate(self, loops: Value, outer: Value, row: Value, bases: Sequence[Value]) -> Values:
        """The places of a row by its number; sets the counters of the outer loops, if there are
        any."""
        e, b = self.e, self.e.b

        def step(done: Value, rest: Value, *places: Value) -> Values:
            number = b.sub(b.sub(outer, done), i64(1))
            extent, strides = self._loop(loops, number)
            counter = self._counter(number) if self._counts else None
            index = b.urem(rest, extent)
            if counter is not None:
                b.store(index, counter)
            return b.udiv(rest, extent), *advanced(e, places, index, strides)

        return e.loop(i64(0), outer, step, (row, *bases), unroll=False, name="locate")[1:]

    def _advance(self, loops: Value, outer: Value, places: Values) -> Values:
        """The places of the next row: the counters are incremented like an odometer."""
        e, b = self.e, self.e.b

        def step(done: Value, steps: Value, *places: Value) -> Values:
            number = b.sub(b.sub(outer, done), i64(1))
            extent, strides = self._loop(loops, number)
            counter = self._counter(number)
            index = b.add(b.load(counter, typ=I64), steps)
            over = b.icmp_signed("==", index, extent)
            back = b.select(over, extent, i64(0))
            b.store(b.sub(index, back), counter)
            following = advanced(e, places, b.sub(steps, back), strides)
            return b.zext(over, I64), *following

        return e.loop(i64(0), outer, step, (i64(1), *places), unroll=False, name="advance")[1:]
