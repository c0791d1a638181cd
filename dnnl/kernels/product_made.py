"""Panels of weights that each thread makes just before it multiplies them.

Weights of few bits stand for floats that a faster instruction multiplies as bf16. A copy of all of
them would be written to memory and read again, at many times their size. So a thread makes one
panel at a time, or as much of it as a block of the sums takes, in memory of its own::

    weights   | 8 k of 4 bits | 8 k of 4 bits |     in panels, read once
                  |
                  v   (w - zero point) * scale in f32
    made      | k0 k1 | k0 k1 | k0 k1 | k0 k1 |     bf16, in a cache, for all rows that meet them

Both lie in panels of the same width, with all of K in one stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import gcd, lcm

from dnnl.codegen import bfloat, vector
from dnnl.codegen.access import Access, Env, Operand
from dnnl.codegen.address import Affine, Axis
from dnnl.codegen.brgemm import AHEAD
from dnnl.codegen.builder import F32, I8, Emitter, Value, Values, i64
from dnnl.codegen.decompress import Words
from dnnl.codegen.epilogue import Arguments
from dnnl.codegen.isa import Isa
from dnnl.codegen.isa.row import FLOATS
from dnnl.codegen.multiply import Multiply
from dnnl.codegen.place import Place
from dnnl.codegen.quantization import Quantization, Quantizer
from dnnl.kernels.product_problem import Panels, Shape
from dnnl.kernels.product_segments import cut
from dnnl.kernels.product_store import Columns
from dnnl.kernels.scratchpad import Argument
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True)
class Making:
    """What is made of ``weights``, which ``way`` loads as f32: within ``segment`` terms, nothing of
    their ``quantization`` changes."""

    weights: Argument
    way: Multiply
    segment: int
    quantization: Quantization


def making(
    isa: Isa, src: MemoryDesc, weights: Argument, way: Multiply, wanted: Panels,
    quantization: Quantization, terms: int, shape: Shape,
) -> Making | None:  # fmt: skip
    """How threads make the ``wanted`` panels of weights for a product of ``src``, or None where
    these lie otherwise, or change from one word to the next."""
    _, desc = weights
    summed = shape.summed[1]
    if shape.simple or way.tiles is None or len(desc.dims[summed]) != 1:
        return None
    if desc.data_type.bits > 8 or not wanted.desc.inner_blocks:
        return None
    loads = Multiply(DataType.f32, desc.data_type, 1, FLOATS)
    if desc.data_type.bits < 8:
        words = Words.of(isa, desc.data_type)
        if words is None:
            return None
        loads = words
    parts = cut(quantization, {weights[0]: (desc, summed)}, terms)
    panels = shape.panels(src, desc, loads, False)
    if parts is None or panels != Panels(desc, wanted.vectors):
        return None
    whole = parts.size % lcm(loads.group, way.group) == 0
    return Making(weights, loads, parts.size, quantization) if whole else None


@dataclass(frozen=True, eq=False)
class Made:
    """Weights of a product as they lie, along ``words`` of the way in which they are loaded, and
    the ``segments`` in which nothing of their quantization changes."""

    making: Making
    weights: Operand
    words: Axis
    segments: Axis
    quantizer: Quantizer

    @staticmethod
    def of(
        making: Making | None, arguments: Arguments, terms: int,
        at: Callable[[Affine], tuple[Affine, ...]],
    ) -> Made | None:  # fmt: skip
        """What is made, if anything is, of weights with so many ``terms``, which are ``at`` these
        indices for one of them."""
        if making is None:
            return None
        (argument, desc), group = making.weights, making.way.group
        words, segments = Axis(terms // group, "word"), Axis(terms // making.segment, "segment")
        slot = arguments.slot(argument)
        weights = Operand(slot, desc, at(Affine.of(words, group)))
        values = Operand(slot, desc, at(Affine.of(segments, making.segment)))
        quantizer = Quantizer(making.quantization, {argument: values}, arguments)
        return Made(making, weights, words, segments, quantizer)

    @property
    def operands(self) -> tuple[Operand, ...]:
        """What is read to make them."""
        return (self.weights, *self.quantizer.operands)

    def least(self, way: Multiply) -> int:
        """How many words of a ``way`` are made at least."""
        return lcm(self.making.way.group, way.group) // way.group

    def words_of(self, way: Multiply) -> int:
        """How many words a panel has that is multiplied in a ``way``."""
        return self.words.extent * self.making.way.group // way.group

    def room(self, columns: Columns, way: Multiply, steps: int) -> int:
        """The bytes of what is made at a time: so many ``steps``, and as many behind the last ones
        of a panel at most; all of a panel where there are none."""
        words = min(self.words_of(way), 2 * steps) if steps else self.words_of(way)
        return words * columns.width * way.group * way.b.size


class PanelMaker:
    """Writes what makes panels of ``columns`` in a thread's ``room``, ``steps`` words at a time or,
    if that is 0, as a whole, for a product that multiplies in a ``way``."""

    def __init__(
        self, e: Emitter, made: Made, pointers: Mapping[Operand, Value], columns: Columns,
        way: Multiply, steps: int, room: Value,
    ) -> None:  # fmt: skip
        self.e, self._made, self._pointers, self._columns = e, made, pointers, columns
        self._way, self._room = way, room
        segment = made.making.segment
        self._unit = gcd(segment, steps * way.group) if steps else segment
        self._step = made.least(way) * way.group
        self._accesses = {op: Access.of(op, op.index) for op in made.quantizer.operands}
        form = made.weights.offset(made.weights.index)
        assert form is not None, "panels are affine"
        self._form = form.in_units(2 if made.weights.desc.data_type.bits < 8 else 1)

    def make(self, env: Env, begin: Value, end: Value) -> Value:
        """Make the words from number ``begin`` to ``end`` of the panel to which ``env`` leads.
        Returns where the first word of the whole panel would be."""
        e, words = self.e, self._unit // self._way.group
        first, _ = e.divmod(begin, words)
        last, _ = e.divmod(end, words)
        size = self._columns.width * self._way.group * self._way.b.size
        start = e.element(self._room, e.mul(begin, -size), I8)
        e.loop(
            first, last, lambda unit: self._make_unit(env, unit, start),
            unroll=False, name="unit",
        )  # fmt: skip
        return start

    def _make_unit(self, env: Env, unit: Value, start: Value) -> None:
        """Make the words of a unit, of which all have the same scales and zero points."""
        e, making = self.e, self._made.making
        segment, _ = e.divmod(e.mul(unit, self._unit), making.segment)
        scales, zeros = self._values({**env, self._made.segments: segment})
        first = e.mul(unit, self._unit // self._step)
        e.loop(
            first, e.add(first, i64(self._unit // self._step)),
            lambda number: self._make_words(env, number, start, scales, zeros),
            unroll=False, name="words",
        )  # fmt: skip

    def _values(self, env: Env) -> tuple[Values, Values]:
        """The scales and the zero points of a segment, for each vector of columns."""
        columns, quantizer = self._columns, self._made.quantizer
        domain = (columns.inside,) if columns.inside.needed else ()

        def place_of(v: int) -> Place:
            return Place(
                self.e, self._pointers, self._accesses, {**env, columns.vector: i64(v)},
                columns.lane, columns.lane.extent, masked=True, domain=domain, core=F32,
            )  # fmt: skip

        places = [place_of(v) for v in range(columns.vector.extent)]
        argument = self._made.making.weights[0]
        both = quantizer.scale(argument), quantizer.zero_point(argument)
        scales, zeros = (
            () if operand is None else tuple(place.load(operand) for place in places)
            for operand in both
        )
        return scales, zeros

    def _make_words(
        self, env: Env, number: Value, start: Value, scales: Values, zeros: Values
    ) -> None:
        """Make the words of as many terms as are loaded at a time."""
        e, way, columns, step = self.e, self._way, self._columns, self._step
        terms = self._load(env, e.mul(number, step // self._made.making.way.group), step)
        lanes, size = columns.lane.extent, way.group * way.b.size
        for word, term in enumerate(range(0, step, way.group)):
            at = e.add(e.mul(number, step // way.group), i64(word))
            row = e.element(start, e.mul(at, columns.width * size), I8)
            for v in range(columns.vector.extent):
                pair = [self._stands_for(values[v], v, scales, zeros) for values in terms[term:]]
                made = bfloat.pairs(e, *pair[: way.group])
                vector.store(e, made, e.element(row, i64(v * lanes * size), I8))

    def _load(self, env: Env, word: Value, count: int) -> list[list[Value]]:
        """Vectors of columns, for so many terms from a word of the weights on."""
        e, made, vectors = self.e, self._made, self._columns.vector
        way, (_, element) = made.making.way, made.making.way.element
        begin = self._form.along(env).emit(e, env)
        begin = e.add(begin, e.mul(word, self._form.stride(made.words)))
        terms = []
        for number in range(count // way.group):
            offsets = [
                self._form.stride(made.words) * number + self._form.stride(vectors) * v
                for v in range(vectors.extent)
            ]
            at = [e.add(begin, i64(offset)) for offset in offsets]
            starts = [e.element(self._pointers[made.weights], offset, element) for offset in at]
            vector.prefetch(e, e.element(starts[0], i64(AHEAD), I8), second_level=True)
            for loaded in way.columns(e, starts):
                terms.append([value for (value,) in loaded])
        return terms

    def _stands_for(self, value: Value, v: int, scales: Values, zeros: Values) -> Value:
        """scale * (value - zero point)."""
        value = self.e.b.fsub(value, zeros[v]) if zeros else value
        return self.e.b.fmul(value, scales[v]) if scales else value
