"""What attributes ask of a loop nest: something is done to elements where they are loaded, and
where results are stored.

    src        scale * (stored - zero point)
    ...        what the operation computes
    dst        dropout, post-ops in order, / scale, + zero point, conversion
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dnnl.codegen.epilogue.dropout import Dropper
from dnnl.codegen.epilogue.post_ops import Epilogue, refuse
from dnnl.codegen.epilogue.quantization import Quantization, Quantizer
from dnnl.codegen.ir.builder import Value
from dnnl.codegen.ir.kernel import Arguments, Refusal
from dnnl.codegen.memory.access import Number, Operand
from dnnl.codegen.memory.place import Place
from dnnl.codegen.nest.point import Point
from dnnl.types.arg import Arg
from dnnl.types.dropout import Dropout
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp

_NONE = Quantization()


@dataclass(frozen=True)
class Attributes:
    """The attributes that every forward operation bound by memory takes, with every layout decided,
    and the dropout of those that have one."""

    post_ops: tuple[PostOp, ...] = ()
    quantization: Quantization = _NONE
    dropout: Dropout | None = None

    @property
    def plain(self) -> bool:
        """Whether elements are stored as they were computed."""
        return self == Attributes()

    def refuse(self, sources: Mapping[int, MemoryDesc], dst: MemoryDesc) -> Refusal | None:
        """Why this cannot be generated, or None."""
        tensors = {**sources, int(Arg.DST): dst}
        return refuse(self.post_ops, dst) or self.quantization.refuse(tensors)

    def quantizes(self, argument: int) -> bool:
        """Whether an argument has a scale or a zero point."""
        return self.quantization.of_arguments((argument,)) != _NONE


class Sources:
    """Sources bound to their scales and zero points. The scale of one that is ``late`` belongs to
    the result, see `Result`."""

    def __init__(
        self,
        attributes: Attributes,
        operands: Mapping[int, Operand],
        arguments: Arguments,
        *,
        late: bool = False,
    ) -> None:
        own = attributes.quantization.of_arguments(operands)
        own = Quantization((), own.zero_points) if late else own
        self._quantizer, self._given = Quantizer(own, operands, arguments), operands
        self._quantized = {arg for arg, _ in (*own.scales, *own.zero_points)}

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The sources, and what is read besides."""
        return (*self._given.values(), *self._quantizer.operands)

    def load(self, point: Point, argument: int) -> Value:
        """The elements here as they are meant; in an iteration that a fold leaves out, what it
        wants there."""
        operand = self._given[argument]
        if argument not in self._quantized:
            return point.load(operand)
        return point.or_absent(lambda bare: self.dequantized(bare, argument, bare.load(operand)))

    def load_or_zero(self, point: Point, argument: int) -> Value:
        """The elements here as they are meant, zero where there are none."""
        operand = self._given[argument]
        if argument not in self._quantized:
            return point.load_or_zero(operand)
        return point.zero_where_absent(operand, self.load(point, argument))

    def dequantized(self, place: Place, argument: int, value: Value) -> Value:
        """What elements in the core type stand for."""
        return self._quantizer.dequantize(place, argument, value)


class Result:
    """dst bound to what is done before a result is stored there. Where the scale of ``src`` is
    late, it multiplies the result before all else."""

    def __init__(
        self,
        attributes: Attributes,
        dst: Operand,
        arguments: Arguments,
        *,
        src: Operand | None = None,
    ) -> None:
        own = attributes.quantization.of_arguments((Arg.DST,))
        tensors = {int(Arg.DST): dst}
        if src is not None:
            late = attributes.quantization.of_arguments((Arg.SRC,)).scales
            own, tensors[int(Arg.SRC)] = Quantization((*late, *own.scales), own.zero_points), src
        self.dst = dst
        self._quantizer = Quantizer(own, tensors, arguments)
        self._dropper = Dropper(attributes.dropout, dst, arguments)
        self._epilogue = Epilogue(attributes.post_ops, dst, arguments)

    @property
    def inputs(self) -> tuple[Operand, ...]:
        """What is read."""
        return (*self._quantizer.operands, *self._dropper.inputs, *self._epilogue.operands)

    @property
    def outputs(self) -> tuple[Operand, ...]:
        """What is written, dst first."""
        return (self.dst, *self._dropper.outputs)

    @property
    def numbers(self) -> tuple[Number, ...]:
        """What a nest has to know of its iterations."""
        return self._dropper.numbers

    @property
    def registers(self) -> int:
        """How many registers the vectors of a nest had better fill."""
        return self._dropper.registers

    @property
    def reads_dst(self) -> bool:
        """Whether the post-ops need what the destination held before."""
        return self._epilogue.reads_dst

    @property
    def instructions(self) -> int:
        """About how many instructions the post-ops take."""
        return self._epilogue.instructions

    def finished(self, place: Place, value: Value) -> Value:
        """What is stored of a result."""
        return self._quantizer.quantize(place, Arg.DST, self._computed(place, value))

    def store(self, place: Place, value: Value) -> None:
        """Store what is to be stored of a result."""
        place.store(self.dst, self.finished(place, value))

    def unit(self, place: Place) -> Value:
        """What a result is multiplied by for the scale of dst alone."""
        return self._quantizer.divided(place, Arg.DST, place.constant(1.0))

    def store_divided(self, place: Place, value: Value) -> None:
        """Store a result, without post-ops, that has been multiplied by the `unit`."""
        place.store(self.dst, self._quantizer.shifted(place, Arg.DST, value))

    def _computed(self, place: Place, value: Value) -> Value:
        value = self._quantizer.scaled(place, Arg.SRC, value)
        return self._epilogue.apply(place, self._dropper.apply(place, value))
