"""Scales and zero points: a stored x means scale * (x - zero_point)."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass

from llvmlite import ir

from dnnl.codegen.conversion import convert
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Emitter, i64
from dnnl.codegen.ir.kernel import Arguments, Reason, Refusal
from dnnl.codegen.math.arithmetic import clamp
from dnnl.codegen.math.division import Divisor, inverts
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import broadcast
from dnnl.codegen.memory.place import Place
from dnnl.types.arg import Arg, name_of
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.scales import ScaleSpec

Specs = tuple[tuple[int, ScaleSpec], ...]


@dataclass(frozen=True)
class Quantization:
    """The arguments with scales and zero points, and their layouts. Weights are stored multiplied
    by ``adjust``; results are divided by it."""

    scales: Specs = ()
    zero_points: Specs = ()
    adjust: float = 1.0

    @staticmethod
    def of(attr: PrimitiveAttr) -> Quantization:
        """The quantization that the attributes specify."""
        return Quantization(
            tuple(sorted(attr.scales.items(), key=_by_arg)),
            tuple(sorted(attr.zero_points.items(), key=_by_arg)),
        )

    def of_arguments(self, wanted: Container[int]) -> Quantization:
        """The quantization of the arguments in ``wanted``."""

        def some(specs: Specs) -> Specs:
            return tuple((arg, spec) for arg, spec in specs if arg in wanted)

        adjust = self.adjust if Arg.WEIGHTS in wanted else 1.0
        return Quantization(some(self.scales), some(self.zero_points), adjust)

    def without_zero_points(self, argument: int) -> Quantization:
        """The quantization without the zero points of an argument."""
        others = tuple((arg, spec) for arg, spec in self.zero_points if arg != argument)
        return Quantization(self.scales, others, self.adjust)

    @property
    def computed(self) -> ScaleSpec | None:
        """The scales of dst, if the kernel computes them (dynamic quantization)."""
        spec = dict(self.scales).get(Arg.DST)
        return spec if spec is not None and spec.computed else None

    def refuse(
        self, tensors: Mapping[int, MemoryDesc], *, computes: bool = False
    ) -> Refusal | None:
        """The reason why this cannot be generated for the quantizable arguments ``tensors``, or
        None. ``computes`` says that the caller computes scales of dst that are not given.

        Raises InvalidArguments if a mask or a group does not fit the dims.
        """
        for what, specs in (("scales", self.scales), ("zero points", self.zero_points)):
            for arg, spec in specs:
                where = f"{what} of {name_of(arg)}"
                if arg not in tensors:
                    return Refusal(Reason.ATTRIBUTE, where)
                if spec.computed and not computes:
                    return Refusal(Reason.ATTRIBUTE, f"{where} that the library computes")
                integer = arg == Arg.DST or tensors[arg].data_type.is_integer
                if specs is self.zero_points and not integer:
                    detail = f"{where}, whose type {tensors[arg].data_type} is no integer"
                    return Refusal(Reason.ATTRIBUTE, detail)
                spec.shape(tensors[arg].dims)
        return None


def _by_arg(item: tuple[int, ScaleSpec]) -> int:
    return item[0]


class Quantizer:
    """Scales and zero points bound to the operands of a kernel. With ``requantizes`` (products), a
    single scale of an integer dst is applied as a multiplication by its reciprocal on every
    instruction set; otherwise results are divided."""

    def __init__(
        self,
        quantization: Quantization,
        tensors: Mapping[int, Operand],
        arguments: Arguments,
        *,
        requantizes: bool = False,
    ) -> None:
        def bind(flag: Arg, specs: Specs) -> dict[int, Operand]:
            return {
                arg: _values(arguments.slot(flag | arg), spec, tensors[arg]) for arg, spec in specs
            }

        self._limits = {
            arg: float(tensors[arg].data_type.max)
            for arg, spec in quantization.scales
            if spec.computed
        }
        single = {arg for arg, spec in quantization.scales if spec.mask == 0}
        self._inverted = {arg for arg in single if tensors[arg].data_type.is_integer}
        self._requantizes, self._adjust = requantizes, quantization.adjust
        self._divisors: dict[tuple[Emitter, int, int], Divisor] = {}
        self._reciprocals: dict[tuple[Emitter, int, int], ir.Value] = {}
        self._scales = bind(Arg.SCALES, quantization.scales)
        self._zero_points = bind(Arg.ZERO_POINTS, quantization.zero_points)

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The scales and zero points."""
        return (*self._scales.values(), *self._zero_points.values())

    def scale(self, argument: int) -> Operand | None:
        """The scales of an argument, or None."""
        return self._scales.get(argument)

    def zero_point(self, argument: int) -> Operand | None:
        """The zero points of an argument, or None."""
        return self._zero_points.get(argument)

    def dequantize(self, place: Place, argument: int, value: ir.Value) -> ir.Value:
        """scale * (value - zero_point)."""
        return self.scaled(place, argument, self.centred(place, argument, value))

    def centred(self, place: Place, argument: int, value: ir.Value) -> ir.Value:
        """value - zero_point."""
        if argument in self._zero_points:
            value = place.e.b.fsub(value, place.load(self._zero_points[argument]))
        return value

    def scaled(self, place: Place, argument: int, value: ir.Value) -> ir.Value:
        """scale * value."""
        if argument in self._scales:
            value = place.e.b.fmul(value, place.load(self._scales[argument]))
        if argument == Arg.WEIGHTS and self._adjust != 1:
            value = place.e.b.fmul(value, place.constant(1 / self._adjust))
        return value

    def quantize(self, place: Place, argument: int, value: ir.Value) -> ir.Value:
        """value / scale + zero_point."""
        return self.shifted(place, argument, self.divided(place, argument, value))

    def divided(self, place: Place, argument: int, value: ir.Value) -> ir.Value:
        """value / scale."""
        if argument in self._scales:
            if argument in self._inverted and self._requantizes:
                value = place.e.b.fmul(value, self._reciprocal(place, argument))
            elif argument in self._inverted and inverts(place.e, value):
                value = self._divisor(place, argument).divide(place.e, value)
            else:
                scale = place.load(self._scales[argument])
                quotient = place.e.b.fdiv(value, scale)
                limit = self._limits.get(argument)
                value = quotient if limit is None else _within(place, quotient, scale, limit)
        return value

    def shifted(self, place: Place, argument: int, value: ir.Value) -> ir.Value:
        """value + zero_point."""
        if argument in self._zero_points:
            value = place.e.b.fadd(value, place.load(self._zero_points[argument]))
        return value

    def _divisor(self, place: Place, argument: int) -> Divisor:
        """The divisor for the single scale of an argument, computed in the entry block."""
        key = place.e, argument, place.kind.count
        if key not in self._divisors:
            with place.e.b.goto_entry_block():
                self._divisors[key] = Divisor.of(place.e, self._one(place, argument))
        return self._divisors[key]

    def _reciprocal(self, place: Place, argument: int) -> ir.Value:
        """1 / the single scale of an argument, computed in the entry block."""
        b, key = place.e.b, (place.e, argument, place.kind.count)
        if key not in self._reciprocals:
            with b.goto_entry_block():
                scale = self._one(place, argument)
                self._reciprocals[key] = b.fdiv(vector.splat_constant(scale.type, 1.0), scale)
        return self._reciprocals[key]

    def _one(self, place: Place, argument: int) -> ir.Value:
        """The single scale of an argument, in all lanes."""
        e, operand = place.e, self._scales[argument]
        row = convert.storage(operand.data_type)
        where = e.element(place.address(operand), i64(operand.desc.offset0), row.element)
        one = e.b.load(where, typ=row.element, align=operand.data_type.size)
        return row.to_core(e, vector.splat(e, one, place.kind.count))


def _within(place: Place, quotient: ir.Value, scale: ir.Value, limit: float) -> ir.Value:
    """A quotient by a dynamic scale: clamped to the limits of the type, and zero if the scale
    underflowed to zero."""
    b, zero = place.e.b, place.constant(0.0)
    value = clamp(place.e, quotient, -limit, limit)
    return b.select(b.fcmp_ordered("==", scale, zero), zero, value)


def _values(slot: int, spec: ScaleSpec, tensor: Operand) -> Operand:
    """The operand with the scales or zero points of ``tensor``."""
    desc = spec.desc(tensor.desc.dims)
    return Operand(slot, desc, broadcast(desc, tensor.index), spec.group_sizes(desc.ndims))
