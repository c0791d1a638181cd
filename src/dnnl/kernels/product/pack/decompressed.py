"""Panels of bf16 from compressed weights, for a matrix unit that multiplies bf16 faster than
vectors multiply f32::

    weights   | 8 k of 4 bits | 8 k of 4 bits |     in panels, read once
                  |
                  v   (w - zero point) * scale in f32
    packed    | k0 k1 | k0 k1 | k0 k1 | k0 k1 |     bf16

Both are panels of the same width, with all of K in one stream.
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
from dnnl.codegen.memory.access import Access, Env, Operand
from dnnl.codegen.memory.address import Affine, Axis
from dnnl.codegen.memory.place import Place
from dnnl.codegen.product.brgemm import PREFETCH_DISTANCE
from dnnl.codegen.product.decompress import PackedMultiply
from dnnl.codegen.product.multiply import Multiply, as_f32
from dnnl.kernels.product.base.problem import Panels, ProductProblem
from dnnl.kernels.product.compensation.segments import cut
from dnnl.kernels.product.pack.on_the_fly import (
    BoundPacking,
    IndexOf,
    PanelBuffer,
    PanelPacking,
    Span,
    Writer,
    in_one_stream,
)
from dnnl.kernels.shared.scratchpad import Argument
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True)
class DecompressedPacking(PanelPacking):
    """``dot`` loads the weights as f32. Their ``quantization`` is constant within a ``segment`` of
    K."""

    dot: Multiply
    segment: int
    quantization: Quantization

    def bound(self, arguments: Arguments, at: IndexOf) -> BoundPacking:
        (argument, desc), group = self.weights, self.dot.group
        k_groups = Axis(self.terms // group, "k_group")
        segments = Axis(self.terms // self.segment, "segment")
        slot = arguments.slot(argument)
        weights = Operand(slot, desc, at(Affine.of(k_groups, group)))
        values = Operand(slot, desc, at(Affine.of(segments, self.segment)))
        quantizer = Quantizer(self.quantization, {argument: values}, arguments)
        return BoundDecompressed(self, weights, k_groups, segments, quantizer)


def plan_decompressed(
    isa: Isa,
    src: MemoryDesc,
    weights: Argument,
    dot: Multiply,
    wanted: Panels,
    quantization: Quantization,
    problem: ProductProblem,
) -> DecompressedPacking | None:
    """How threads pack the ``wanted`` panels of weights for a product of ``src``. None if the
    weights have another layout, or if their quantization changes within a K group."""
    _, desc = weights
    summed = problem.summed[1]
    if problem.simple or dot.tiles is None or len(desc.dims[summed]) != 1:
        return None
    if desc.data_type.bits > 8 or not in_one_stream(wanted.desc, range(desc.ndims)[summed]):
        return None
    loads = as_f32(desc.data_type)
    if desc.data_type.bits < 8:
        k_groups = PackedMultiply.of(isa, desc.data_type)
        if k_groups is None:
            return None
        loads = k_groups
    parts = cut(quantization, {weights[0]: (desc, summed)}, problem.terms)
    panels = problem.panels(isa, src, desc, loads)
    if parts is None or panels != Panels(desc, wanted.vectors):
        return None
    whole = parts.size % lcm(loads.group, dot.group) == 0
    return (
        DecompressedPacking(weights, problem.terms, loads, parts.size, quantization)
        if whole
        else None
    )


@dataclass(frozen=True, eq=False)
class BoundDecompressed(BoundPacking):
    """The stored weights along ``source_k_groups``, the K groups in which they are loaded, and the
    ``segments`` within which their quantization is constant."""

    plan: DecompressedPacking
    weights: Operand
    source_k_groups: Axis
    segments: Axis
    quantizer: Quantizer

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (self.weights, *self.quantizer.operands)

    def least_k_groups(self, dot: Multiply) -> int:
        return lcm(self.plan.dot.group, dot.group) // dot.group

    def writer(self, buffer: PanelBuffer) -> Writer:
        return _DecompressedWriter(self, buffer)


class _DecompressedWriter(Writer):
    def __init__(self, packing: BoundDecompressed, buffer: PanelBuffer) -> None:
        super().__init__(buffer)
        self._packing, dot = packing, buffer.dot
        segment = packing.plan.segment
        self._unit = gcd(segment, buffer.steps * dot.group) if buffer.steps else segment
        self._step = packing.least_k_groups(dot) * dot.group
        self._accesses = {op: Access.of(op, op.index) for op in packing.quantizer.operands}
        form = packing.weights.offset(packing.weights.index)
        assert form is not None, "panels are affine"
        self._form = form.in_units(2 if packing.weights.desc.data_type.bits < 8 else 1)

    def write_panel(self, env: Env, k_groups: Span, start: Value) -> None:
        e, each = self.e, self._unit // self.buffer.dot.group
        (first, _), (last, _) = (e.divmod(k_group, each) for k_group in k_groups)
        e.loop(
            first, last, lambda unit: self._write_unit(env, unit, start), unroll=False, name="unit"
        )

    def _write_unit(self, env: Env, unit: Value, start: Value) -> None:
        """Write the K groups of a unit, which share scales and zero points."""
        e, packing = self.e, self._packing
        segment, _ = e.divmod(e.mul(unit, self._unit), packing.plan.segment)
        scales, zeros = self._values({**env, packing.segments: segment})
        first = e.mul(unit, self._unit // self._step)
        e.loop(
            first,
            e.add(first, i64(self._unit // self._step)),
            lambda number: self._write_k_groups(env, number, start, scales, zeros),
            unroll=False,
            name="k_group",
        )

    def _values(self, env: Env) -> tuple[Values, Values]:
        """The scales and the zero points of a segment, for each vector of columns."""
        columns, quantizer = self.buffer.columns, self._packing.quantizer
        domain = (columns.inside,) if columns.inside.needed else ()

        def place_of(v: int) -> Place:
            return Place(
                self.e,
                self.buffer.pointers,
                self._accesses,
                {**env, columns.vector: i64(v)},
                columns.lane,
                columns.lane.extent,
                masked=True,
                domain=domain,
                core=F32,
            )

        places = [place_of(v) for v in range(columns.vector.extent)]
        argument = self._packing.plan.weights[0]
        both = quantizer.scale(argument), quantizer.zero_point(argument)
        scales, zeros = (
            () if operand is None else tuple(place.load(operand) for place in places)
            for operand in both
        )
        return scales, zeros

    def _write_k_groups(
        self, env: Env, number: Value, start: Value, scales: Values, zeros: Values
    ) -> None:
        """Write the K groups of the terms that are loaded at a time."""
        e, group, step = self.e, self.buffer.dot.group, self._step
        terms = self._load(env, e.mul(number, step // self._packing.plan.dot.group), step)
        for k_group, term in enumerate(range(0, step, group)):
            at = e.add(e.mul(number, step // group), i64(k_group))
            for v in range(self.buffer.columns.vector.extent):
                pair = [self._dequantized(values[v], v, scales, zeros) for values in terms[term:]]
                vector.store(e, bfloat.pairs(e, *pair[:group]), self.buffer.row(start, at, v))

    def _load(self, env: Env, k_group: Value, count: int) -> list[list[Value]]:
        """Vectors of columns for ``count`` terms, from a K group of the weights on."""
        e, packing, vectors = self.e, self._packing, self.buffer.columns.vector
        dot, (_, element) = packing.plan.dot, packing.plan.dot.element
        step, begin = self._form.stride(packing.source_k_groups), self._form.along(env).emit(e, env)
        begin = e.add(begin, e.mul(k_group, step))
        terms = []
        for number in range(count // dot.group):
            offsets = [
                step * number + self._form.stride(vectors) * v for v in range(vectors.extent)
            ]
            at = [e.add(begin, i64(offset)) for offset in offsets]
            starts = [e.element(self.buffer.pointers[packing.weights], to, element) for to in at]
            vector.prefetch(e, e.element(starts[0], i64(PREFETCH_DISTANCE), I8), second_level=True)
            for loaded in dot.columns(e, starts):
                terms.append([value for (value,) in loaded])
        return terms

    def _dequantized(self, value: Value, v: int, scales: Values, zeros: Values) -> Value:
        """The dequantized value: scale * (value - zero point)."""
        value = self.e.b.fsub(value, zeros[v]) if zeros else value
        return self.e.b.fmul(value, scales[v]) if scales else value
