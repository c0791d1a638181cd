"""Numbers as pairs of bytes: instructions for bytes multiply them by weights that are bytes.

A row of numbers is two rows of bytes, half its length apart::

    high bytes of all channels | scale, inverse | low bytes of all channels | a flag of each vector
    <------------- half ----------------------> <------------- half ------------------------------>

A number x is stored as round(x inverse) = 256 high + low, both s8, or both 128 more as u8. The sums
of products of either row are exact, and those of x are 256 times the first plus the second ones.
A scale is that of a row: its largest number becomes 127 * 256, so that errors are at most 2^-16 of
it. It is NaN where a row is filled with a number that is not finite. Work items that write parts of
a row say by flags whether there is a NaN. Either makes sums of the row NaN.
"""

from __future__ import annotations

from collections.abc import Callable

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, I8, I32, Emitter, Value, Values, i64
from dnnl.codegen.ir.horizontal import reduce_lanes
from dnnl.codegen.ir.vector import Mask
from dnnl.codegen.math.arithmetic import rounded_bits
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.codegen.product.multiply import multiply
from dnnl.kernels.rnn.memory import LayerMemory, Product
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType

_UNIT = 256
"""What high bytes are multiplied by."""
_MOST = 127.0 * _UNIT
"""What the largest number becomes. It is 127 below the largest pair, so that sums of states may
exceed their bound by roundings."""
_HALF_UNIT = 128
"""What is added before a number is split, so that low bytes are signed."""
_SIGN = 0x80
_MAGNITUDE = 0x7FFFFFFF
_NAN = float("nan")
_LEAST = 2.0**-100
"""Of the largest numbers of rows: inverses are finite."""
_GROUP = 4


class BytePairs(LayerMemory):
    """Stores operands as pairs of bytes, and finds what their products are multiplied by."""

    @property
    def _parts_of_row(self) -> int:
        """The rows of operands that a row of numbers is."""
        return 1 + self._conf.operands.byte_pairs

    def _half(self, name: str) -> int:
        """The bytes of half a row of pairs; 0 in parts that have none."""
        is_paired = self._conf.operands.byte_pairs and name in self._conf.channels_of_rows
        return self._conf.parts[name].strides[-2] // 2 if is_paired else 0

    def _put(
        self, e: Emitter, name: str, row: Value, unit: Value, value: Value, mask: Mask = None
    ) -> None:
        """Store a vector, zeros behind the ``mask``, and whether it has a NaN."""
        half = self._half(name)
        if not half:
            super()._put(e, name, row, unit, value, mask)
            return
        if mask is not None:
            value = e.b.select(mask, value, vector.splat_constant(value.type, 0))
        inverse = e.b.load(self._of_scale(e, name, row, 1), typ=F32)
        scaled = e.b.fmul(value, vector.splat(e, inverse, self._lanes))
        whole = rounded_bits(e, scaled, start=_HALF_UNIT)
        narrow = vector.vector_type(I8, self._lanes)
        high = e.b.trunc(e.b.lshr(whole, vector.splat_constant(whole.type, 8)), narrow)
        low, sign = e.b.trunc(whole, narrow), vector.splat_constant(narrow, _SIGN)
        if self._conf.operands.data is DataType.s8:
            low = e.b.xor(low, sign)
        else:
            high = e.b.xor(high, sign)
        vector.store(e, high, e.element(row, unit, I8))
        vector.store(e, low, e.element(_low(e, row, half), unit, I8))
        has_nan = vector.any_lane(e, e.b.fcmp_unordered("uno", value, value))
        number, _ = e.divmod(unit, self._lanes)
        e.b.store(e.b.zext(has_nan, I8), e.element(self._flags(e, name, row), number, I8))

    def _scale_inputs(self, phase: PhaseFunction, to: Value, step: Value, row: Value) -> None:
        """The scale of a row of inputs."""
        if not self._conf.operands.byte_pairs:
            return
        found = self._largest(phase, Arg.SRC_LAYER, [step, row], self._conf.inputs)
        self._set_scales(phase.e, to, "inputs", _scales_for(phase.e, found, _LEAST))

    def _scale_states(self, phase: PhaseFunction, direction: Value, row: Value) -> None:
        """The scales of a row of states in all steps: those behind a step are no larger than 1, or
        than the ones before it."""
        conf, e = self._conf, phase.e
        if not conf.operands.byte_pairs:
            return
        place = [i64(self._layer), direction, row]
        found = self._largest(phase, Arg.SRC_ITER, place, conf.before)
        scales = _scales_for(e, found, 1.0)

        def of(step: Value) -> None:
            own = self._operand(phase, direction, step, row)
            self._set_scales(e, own, "states", scales)

        e.loop(i64(0), e.number(conf.steps + 1), of, unroll=False, name="step")
        if conf.in_two:
            own = self._part(phase, "between", [direction, row, i64(0)])
            self._set_scales(e, own, "between", scales)

    def _set_scales(self, e: Emitter, row: Value, name: str, scales: tuple[Value, Value]) -> None:
        for place, value in enumerate(scales):
            e.b.store(value, self._of_scale(e, name, row, place))

    def _of_scale(self, e: Emitter, name: str, row: Value, place: int) -> Value:
        """The address of the scale of a row, or of its inverse."""
        return e.element(e.element(row, i64(self._end(name)), I8), i64(place), F32)

    def _flags(self, e: Emitter, name: str, row: Value) -> Value:
        """The address of the flags of a row."""
        return e.element(row, i64(self._half(name) + self._end(name)), I8)

    def _end(self, name: str) -> int:
        """The bytes of all channels, with those that pad them."""
        return self._conf.pitch(self._conf.channels_of_rows[name])

    def _largest(
        self, phase: PhaseFunction, argument: int, place: list[Value], channels: int
    ) -> Value:
        """The magnitudes of a row of a tensor as integers, which have their order: the largest in
        any lane, NaN above all; zeros if the tensor is absent."""
        e, kind = phase.e, vector.vector_type(I32, self._lanes)
        zero = vector.splat_constant(kind, 0)
        if argument not in self._tensors:
            return zero

        def one(at: Value, found: Value, mask: Mask = None) -> Values:
            own = e.b.bitcast(self._load(phase, argument, [*place, at], mask), kind)
            size = e.b.and_(own, vector.splat_constant(kind, _MAGNITUDE))
            return (_larger(e, found, size),)

        rest = channels % self._lanes
        whole = i64(channels - rest)
        (found,) = e.loop(i64(0), whole, one, (zero,), step=self._lanes, unroll=False, name="c")
        if rest:
            mask = vector.known_lanes([lane < rest for lane in range(self._lanes)])
            (found,) = one(whole, found, mask)
        return found

    # Products of pairs.

    def _sources(self, e: Emitter, product: Product, rows: list[Value]) -> list[Value]:
        """The rows of operands that rows of numbers are."""
        half = self._half(product.part)
        return [own for row in rows for own in ((row, _low(e, row, half)) if half else (row,))]

    def _row_scale(self, e: Emitter, product: Product, row: Value) -> Value:
        """What the sums of a row are multiplied by."""
        name, count = product.part, self._conf.pitch(product.inputs) // self._lanes
        flags, width = self._flags(e, name, row), self._lanes * _GROUP
        kind = vector.vector_type(I8, width)
        zero = vector.splat_constant(kind, 0)

        def one(start: Value, found: Value, mask: Mask) -> Value:
            return e.b.or_(found, vector.load(e, e.element(flags, start, I8), kind, mask))

        found = self._each_bytes(e, count, zero, one)
        has_nan = vector.any_lane(e, e.b.icmp_unsigned("!=", found, zero))
        scale = e.b.load(self._of_scale(e, name, row, 0), typ=F32)
        return vector.splat(e, e.b.select(has_nan, F32(_NAN), scale), self._lanes)

    def _row_sum(self, e: Emitter, product: Product, row: Value) -> Value:
        """The sum of the numbers of a row before its scale, in all lanes."""
        conf, count = self._conf, product.inputs
        total = _joined(e, *(self._sum_of_bytes(e, own, count) for own in
                             self._sources(e, product, [row])))  # fmt: skip
        surplus = (_UNIT + 1) * conf.shift * count
        return e.b.fsub(total, vector.splat_constant(total.type, surplus)) if surplus else total

    def _sum_of_bytes(self, e: Emitter, row: Value, count: int) -> Value:
        """The sum of so many operands, s32 in all lanes: products with ones."""
        kind, total = (vector.vector_type(*own) for own in
                       ((I8, self._lanes * _GROUP), (I32, self._lanes)))  # fmt: skip
        dot, ones = multiply(e.isa, DataType.u8, DataType.s8), (vector.splat_constant(kind, 1),)
        assert dot is not None

        def one(start: Value, sums: Value, mask: Mask) -> Value:
            own = (vector.load(e, e.element(row, start, I8), kind, mask),)
            if self._conf.operands.data is DataType.u8:
                return dot.add(e, own, ones, sums)
            return dot.add(e, ones, own, sums)

        sums = self._each_bytes(e, count, vector.splat_constant(total, 0), one)
        (found,) = reduce_lanes(e, (sums,), _added)
        return found

    def _each_bytes(
        self, e: Emitter, count: int, first: Value, body: Callable[[Value, Value, Mask], Value]
    ) -> Value:
        """What ``body`` makes of a value for each vector of so many bytes."""
        width = self._lanes * _GROUP
        rest = count % width

        def one(start: Value, value: Value) -> Values:
            return (body(start, value, None),)

        whole = i64(count - rest)
        (found,) = e.loop(i64(0), whole, one, (first,), step=width, unroll=False, name="bytes")
        if not rest:
            return found
        return body(whole, found, vector.known_lanes([lane < rest for lane in range(width)]))


def _joined(e: Emitter, high: Value, low: Value) -> Value:
    """The sum of numbers of the sums of their bytes, as f32."""
    kind = vector.vector_type(F32, high.type.count)
    unit = vector.splat_constant(kind, float(_UNIT))
    return vector.multiply_add(e, e.b.sitofp(high, kind), unit, e.b.sitofp(low, kind))


def joined(e: Emitter, high: list[Value], low: list[Value]) -> list[Value]:
    """The sums of numbers of the sums of their bytes, for each gate."""
    return [_joined(e, *own) for own in zip(high, low, strict=True)]


def _scales_for(e: Emitter, found: Value, least: float) -> tuple[Value, Value]:
    """The scale and its inverse for a row whose magnitudes are ``found``, or which may later have
    numbers as large as ``least``."""
    (most,) = reduce_lanes(e, (found,), lambda e, a, b: (_larger(e, *a, *b),))
    one = e.b.bitcast(vector.lane(e, most, 0), F32)
    bound = e.b.select(e.b.fcmp_ordered("<", one, F32(least)), F32(least), one)
    finite = e.b.fcmp_ordered("<", one, F32(float("inf")))
    bound = e.b.select(finite, bound, F32(_NAN))
    return e.b.fdiv(bound, F32(_MOST)), e.b.fdiv(F32(_MOST), bound)


def _larger(e: Emitter, a: Value, b: Value) -> Value:
    return e.b.select(e.b.icmp_signed(">", a, b), a, b)


def _added(e: Emitter, a: Values, b: Values) -> Values:
    return tuple(e.b.add(*own) for own in zip(a, b, strict=True))


def _low(e: Emitter, row: Value, half: int) -> Value:
    """The low bytes of a row."""
    return e.element(row, i64(half), I8)
