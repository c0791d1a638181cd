"""Panels of bf16 out of weights of few bits, for a matrix unit that multiplies these faster than
vectors multiply f32::

    weights   | 8 k of 4 bits | 8 k of 4 bits |     in panels, read once
                  |
                  v   (w - zero point) * scale in f32
    made      | k0 k1 | k0 k1 | k0 k1 | k0 k1 |     bf16

Both lie in panels of the same width, with all of K in one stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, lcm

from dnnl.codegen.conversion import bfloat
from dnnl.codegen.epilogue.quantization import Quantization, Quantizer
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, I8, Value, Values, i64
from dnnl.codegen.ir.kernel import Arguments
from dnnl.codegen.isa import Isa
from dnnl.codegen.isa.row import FLOATS
from dnnl.codegen.memory.access import Access, Env, Operand
from dnnl.codegen.memory.address import Affine, Axis
from dnnl.codegen.memory.place import Place
from dnnl.codegen.product.brgemm import PREFETCH_DISTANCE
from dnnl.codegen.product.decompress import PackedMultiply
from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.product.base.problem import Panels, Shape
from dnnl.kernels.product.compensation.segments import cut
from dnnl.kernels.product.pack.on_the_fly import (
    IndexOf,
    Made,
    Making,
    Room,
    Span,
    Writer,
    in_one_stream,
)
from dnnl.kernels.shared.scratchpad import Argument
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True)
class Decompressing(Making):
    """``way`` loads the weights as f32; within a ``segment`` of so many terms, nothing of their
    ``quantization`` changes."""

    way: Multiply
    segment: int
    quantization: Quantization

    def bound(self, arguments: Arguments, at: IndexOf) -> Made:
        (argument, desc), group = self.weights, self.way.group
        words = Axis(self.terms // group, "word")
        segments = Axis(self.terms // self.segment, "segment")
        slot = arguments.slot(argument)
        weights = Operand(slot, desc, at(Affine.of(words, group)))
        values = Operand(slot, desc, at(Affine.of(segments, self.segment)))
        quantizer = Quantizer(self.quantization, {argument: values}, arguments)
        return Decompressed(self, weights, words, segments, quantizer)


def decompressing(
    isa: Isa,
    src: MemoryDesc,
    weights: Argument,
    way: Multiply,
    wanted: Panels,
    quantization: Quantization,
    terms: int,
    shape: Shape,
) -> Decompressing | None:
    """How threads make the ``wanted`` panels of weights for a product of ``src``, or None where
    these lie otherwise, or change from one word to the next."""
    _, desc = weights
    summed = shape.summed[1]
    if shape.simple or way.tiles is None or len(desc.dims[summed]) != 1:
        return None
    if desc.data_type.bits > 8 or not in_one_stream(wanted.desc, range(desc.ndims)[summed]):
        return None
    loads = Multiply(DataType.f32, desc.data_type, 1, FLOATS)
    if desc.data_type.bits < 8:
        words = PackedMultiply.of(isa, desc.data_type)
        if words is None:
            return None
        loads = words
    parts = cut(quantization, {weights[0]: (desc, summed)}, terms)
    panels = shape.panels(src, desc, loads, False)
    if parts is None or panels != Panels(desc, wanted.vectors):
        return None
    whole = parts.size % lcm(loads.group, way.group) == 0
    return Decompressing(weights, terms, loads, parts.size, quantization) if whole else None


@dataclass(frozen=True, eq=False)
class Decompressed(Made):
    """Weights as they lie, along ``words`` of the way in which they are loaded, and the
    ``segments`` in which nothing of their quantization changes."""

    making: Decompressing
    weights: Operand
    words_in: Axis
    segments: Axis
    quantizer: Quantizer

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (self.weights, *self.quantizer.operands)

    def least(self, way: Multiply) -> int:
        return lcm(self.making.way.group, way.group) // way.group

    def writer(self, room: Room) -> Writer:
        return _DecompressedWriter(self, room)


class _DecompressedWriter(Writer):
    def __init__(self, made: Decompressed, room: Room) -> None:
        super().__init__(room)
        self._made, way = made, room.way
        segment = made.making.segment
        self._unit = gcd(segment, room.steps * way.group) if room.steps else segment
        self._step = made.least(way) * way.group
        self._accesses = {op: Access.of(op, op.index) for op in made.quantizer.operands}
        form = made.weights.offset(made.weights.index)
        assert form is not None, "panels are affine"
        self._form = form.in_units(2 if made.weights.desc.data_type.bits < 8 else 1)

    def write_panel(self, env: Env, words: Span, start: Value) -> None:
        e, each = self.e, self._unit // self.room.way.group
        (first, _), (last, _) = (e.divmod(word, each) for word in words)
        e.loop(
            first, last, lambda unit: self._write_unit(env, unit, start), unroll=False, name="unit"
        )

    def _write_unit(self, env: Env, unit: Value, start: Value) -> None:
        """Write the words of a unit, of which all have the same scales and zero points."""
        e, made = self.e, self._made
        segment, _ = e.divmod(e.mul(unit, self._unit), made.making.segment)
        scales, zeros = self._values({**env, made.segments: segment})
        first = e.mul(unit, self._unit // self._step)
        e.loop(
            first,
            e.add(first, i64(self._unit // self._step)),
            lambda number: self._write_words(env, number, start, scales, zeros),
            unroll=False,
            name="words",
        )

    def _values(self, env: Env) -> tuple[Values, Values]:
        """The scales and the zero points of a segment, for each vector of columns."""
        columns, quantizer = self.room.columns, self._made.quantizer
        domain = (columns.inside,) if columns.inside.needed else ()

        def place_of(v: int) -> Place:
            return Place(
                self.e,
                self.room.pointers,
                self._accesses,
                {**env, columns.vector: i64(v)},
                columns.lane,
                columns.lane.extent,
                masked=True,
                domain=domain,
                core=F32,
            )

        places = [place_of(v) for v in range(columns.vector.extent)]
        argument = self._made.making.weights[0]
        both = quantizer.scale(argument), quantizer.zero_point(argument)
        scales, zeros = (
            () if operand is None else tuple(place.load(operand) for place in places)
            for operand in both
        )
        return scales, zeros

    def _write_words(
        self, env: Env, number: Value, start: Value, scales: Values, zeros: Values
    ) -> None:
        """Write the words of as many terms as are loaded at a time."""
        e, group, step = self.e, self.room.way.group, self._step
        terms = self._load(env, e.mul(number, step // self._made.making.way.group), step)
        for word, term in enumerate(range(0, step, group)):
            at = e.add(e.mul(number, step // group), i64(word))
            for v in range(self.room.columns.vector.extent):
                pair = [self._stands_for(values[v], v, scales, zeros) for values in terms[term:]]
                vector.store(e, bfloat.pairs(e, *pair[:group]), self.room.row(start, at, v))

    def _load(self, env: Env, word: Value, count: int) -> list[list[Value]]:
        """Vectors of columns, for so many terms from a word of the weights on."""
        e, made, vectors = self.e, self._made, self.room.columns.vector
        way, (_, element) = made.making.way, made.making.way.element
        step, begin = self._form.stride(made.words_in), self._form.along(env).emit(e, env)
        begin = e.add(begin, e.mul(word, step))
        terms = []
        for number in range(count // way.group):
            offsets = [
                step * number + self._form.stride(vectors) * v for v in range(vectors.extent)
            ]
            at = [e.add(begin, i64(offset)) for offset in offsets]
            starts = [e.element(self.room.pointers[made.weights], to, element) for to in at]
            vector.prefetch(e, e.element(starts[0], i64(PREFETCH_DISTANCE), I8), second_level=True)
            for loaded in way.columns(e, starts):
                terms.append([value for (value,) in loaded])
        return terms

    def _stands_for(self, value: Value, v: int, scales: Values, zeros: Values) -> Value:
        """scale * (value - zero point)."""
        value = self.e.b.fsub(value, zeros[v]) if zeros else value
        return self.e.b.fmul(value, scales[v]) if scales else value
