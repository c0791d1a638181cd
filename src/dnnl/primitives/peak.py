"""Loops that show what a machine can do at most: products on registers, and reads of memory."""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import I8, I32, Module, Value, Values, i64
from dnnl.codegen.ir.kernel import Kernel
from dnnl.codegen.isa import Isa
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.codegen.product.multiply import Multiply
from dnnl.codegen.product.tiles import Shape, Tiles, max_parts
from dnnl.types.arg import Arg

_STEPS = 20_000  # of the loop of products: with about 20 sums a millisecond or less
_STREAM = 8  # vectors that are read side by side, each into a register of its own
_AHEAD = 4096  # bytes by which reads are fetched ahead
_LINE = 64


@dataclass(frozen=True)
class PeakConf:
    """One independent work item for each thread, and the loop that it does."""

    items: int
    sums: int
    steps: int
    how: Multiply

    @staticmethod
    def of(how: Multiply, isa: Isa, num_threads: int) -> PeakConf:
        """As many accumulators as fit in registers next to the operands, or in tiles."""
        if how.tiles is not None:
            shape = _tiles(isa)
            return PeakConf(num_threads, len(shape.parts) * shape.vectors, _STEPS, how)
        return PeakConf(num_threads, min(24, isa.registers - 4) // how.span, _STEPS, how)

    def operations(self, isa: Isa) -> int:
        """The multiplications and additions of all items."""
        each = 2 * isa.lanes * self.how.group
        if self.how.tiles is not None:
            shape = _tiles(isa)
            each *= shape.parts[0] * shape.block
        return each * self.sums * self.steps * self.items

    def vector_size(self, isa: Isa) -> int:
        """The bytes of the operands, and of the result of each item."""
        return 4 * isa.lanes * self.how.span


def _tiles(isa: Isa) -> Shape:
    """The largest tiles of a matrix unit, two vectors wide."""
    assert isa.matrix is not None
    unit, vectors = isa.matrix, 2
    return Shape((unit.rows,) * max_parts(unit, vectors), vectors, isa.lanes)


def _build_tiles(conf: PeakConf, isa: Isa) -> Kernel:
    """Products of tiles that stay as they are."""
    module, shape = Module("peak", isa), _tiles(isa)
    phase = PhaseFunction(module, "peak", [0, 1])
    e, unit = phase.e, Tiles(phase.e, conf.how)

    def item(_: Value) -> None:
        unit.configure(shape)
        unit.fill(shape, phase.arguments[0])
        e.loop(i64(0), i64(conf.steps), lambda _: unit.multiply_once(shape), unroll=False)
        unit.release()

    phase.each_item(conf.items, item)
    return Kernel(module, (phase.end(conf.items),), (int(Arg.SRC), int(Arg.DST)))


def build_peak(conf: PeakConf, isa: Isa) -> Kernel:
    """Products on registers alone: more sums than the latency of one times its throughput.

    Where one instruction multiplies and adds, the operands of the product never change. Where two
    do, each product takes the sum before: one of operands that never change is a loop invariant.
    """
    if conf.how.tiles is not None:
        return _build_tiles(conf, isa)
    module = Module("peak", isa)
    phase = PhaseFunction(module, "peak", [0, 1])
    e, how = phase.e, conf.how
    operands, results = phase.arguments[0], phase.arguments[1]
    a, b = how.broadcast(e, operands), how.load(e, operands)
    kind = how.zero(e).type
    start = tuple(vector.splat_constant(kind, number) for number in range(conf.sums))
    constant = e.b.bitcast(b[0], kind)

    def step(_: Value, *sums: Value) -> Values:
        if how.dot.instruction and how.dot.add:
            return tuple(how.add(e, a, b, total) for total in sums)
        varied = (tuple(e.b.bitcast(total, part.type) for part in a) for total in sums)
        return tuple(how.add(e, registers, b, constant) for registers in varied)

    def item(number: Value) -> None:
        total, *others = e.loop(i64(0), i64(conf.steps), step, start, unroll=False)
        for value in others:
            total = e.b.add(total, value) if how.accumulator is I32 else e.b.fadd(total, value)
        vector.store(e, total, e.element(results, e.mul(number, isa.lanes), how.accumulator))

    phase.each_item(conf.items, item)
    return Kernel(module, (phase.end(conf.items),), (int(Arg.SRC), int(Arg.DST)))


@dataclass(frozen=True)
class ReadConf:
    """Work items that read ``steps`` runs of neighbouring vectors each, item after item."""

    items: int
    steps: int

    @staticmethod
    def run(isa: Isa) -> int:
        """The bytes of a run."""
        return _STREAM * 4 * isa.lanes


def build_read(conf: ReadConf, isa: Isa) -> Kernel:
    """Reads alone: each register collects the bits of what it has read."""
    module = Module("read", isa)
    phase = PhaseFunction(module, "read", [0, 1])
    e, size = phase.e, conf.run(isa)
    given, results = phase.arguments[0], phase.arguments[1]
    kind = vector.vector_type(I32, isa.lanes)
    start = (vector.splat_constant(kind, 0),) * _STREAM

    def item(number: Value) -> None:
        begin = e.element(given, e.mul(number, conf.steps * size), I8)

        def step(position: Value, *seen: Value) -> Values:
            place = e.mul(position, size)
            for line in range(0, size, _LINE):
                vector.prefetch(e, e.element(begin, e.add(place, i64(_AHEAD + line)), I8))
            read = (
                vector.load(e, e.element(begin, e.add(place, i64(4 * isa.lanes * v)), I8), kind)
                for v in range(_STREAM)
            )
            return tuple(e.b.xor(old, new) for old, new in zip(seen, read, strict=True))

        total, *others = e.loop(i64(0), i64(conf.steps), step, start, unroll=False)
        for value in others:
            total = e.b.xor(total, value)
        vector.store(e, total, e.element(results, e.mul(number, isa.lanes), I32))

    phase.each_item(conf.items, item)
    return Kernel(module, (phase.end(conf.items),), (int(Arg.SRC), int(Arg.DST)))
