"""Attributes of memory-bound kernels.

They are applied where sources are loaded and where results are stored::

    src        scale * (stored - zero point)
    ...        the operation
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
    """The attributes of a memory-bound forward operation, with all layouts decided."""

    post_ops: tuple[PostOp, ...] = ()
    quantization: Quantization = _NONE
    dropout: Dropout | None = None

    @property
    def plain(self) -> bool:
        """Whether results are stored as computed."""
        return self == Attributes()

    def refuse(self, sources: Mapping[int, MemoryDesc], dst: MemoryDesc) -> Refusal | None:
        """The reason why these attributes cannot be generated, or None."""
        tensors = {**sources, int(Arg.DST): dst}
        return refuse(self.post_ops, dst, sources.values()) or self.quantization.refuse(tensors)

    def quantizes(self, argument: int) -> bool:
        """Whether an argument has scales or zero points."""
        return self.quantization.of_arguments((argument,)) != _NONE


class Sources:
    """Sources with their scales and zero points. With ``late`` the scale multiplies the result
    instead, see `Result`."""

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
        """The sources, their scales and their zero points."""
        return (*self._given.values(), *self._quantizer.operands)

    def load(self, point: Point, argument: int) -> Value:
        """The dequantized elements. In iterations that a fold skips, the fold's ``absent``
        value."""
        operand = self._given[argument]
        if argument not in self._quantized:
            return point.load(operand)
        return point.or_absent(lambda bare: self.dequantized(bare, argument, bare.load(operand)))

    def load_or_zero(self, point: Point, argument: int) -> Value:
        """The dequantized elements, zero where there are none."""
        operand = self._given[argument]
        if argument not in self._quantized:
            return point.load_or_zero(operand)
        return point.zero_where_absent(operand, self.load(point, argument))

    def dequantized(self, place: Place, argument: int, value: Value) -> Value:
        """Dequantize elements in the core type."""
        return self._quantizer.dequantize(place, argument, value)


class Result:
    """dst with everything that is done before a result is stored. A late scale of ``src``
    multiplies the result first. As the end of a product it ``requantizes``."""

    def __init__(
        self,
        attributes: Attributes,
        dst: Operand,
        arguments: Arguments,
        *,
        src: Operand | None = None,
        requantizes: bool = False,
    ) -> None:
        own = attributes.quantization.of_arguments((Arg.DST,))
        tensors = {int(Arg.DST): dst}
        if src is not None:
            late = attributes.quantization.of_arguments((Arg.SRC,)).scales
            own, tensors[int(Arg.SRC)] = Quantization((*late, *own.scales), own.zero_points), src
        self.dst = dst
        self._quantizer = Quantizer(own, tensors, arguments, requantizes=requantizes)
        self._dropper = Dropper(attributes.dropout, dst, arguments)
        self._epilogue = Epilogue(attributes.post_ops, dst, arguments)

    @property
    def inputs(self) -> tuple[Operand, ...]:
        """The operands that are read."""
        return (*self._quantizer.operands, *self._dropper.inputs, *self._epilogue.operands)

    @property
    def outputs(self) -> tuple[Operand, ...]:
        """The operands that are written, dst first."""
        return (self.dst, *self._dropper.outputs)

    @property
    def numbers(self) -> tuple[Number, ...]:
        """The `Number` that the nest must provide."""
        return self._dropper.numbers

    @property
    def registers(self) -> int:
        """The registers that the nest's vectors should fill."""
        return self._dropper.registers

    @property
    def reads_dst(self) -> bool:
        """Whether a post-op reads the previous contents of dst."""
        return self._epilogue.reads_dst

    @property
    def instructions(self) -> int:
        """An estimate of the instructions of the post-ops, for a vector."""
        return self._epilogue.instructions

    def finished(self, place: Place, value: Value) -> Value:
        """The value to store for a result."""
        return self._quantizer.quantize(place, Arg.DST, self._computed(place, value))

    def store(self, place: Place, value: Value) -> None:
        """Finish a result and store it."""
        place.store(self.dst, self.finished(place, value))

    def unit(self, place: Place) -> Value:
        """The factor that the scale of dst multiplies results by."""
        return self._quantizer.divided(place, Arg.DST, place.constant(1.0))

    def store_divided(self, place: Place, value: Value) -> None:
        """Store a result without post-ops that was multiplied by `unit` already."""
        place.store(self.dst, self._quantizer.shifted(place, Arg.DST, value))

    def _computed(self, place: Place, value: Value) -> Value:
        value = self._quantizer.scaled(place, Arg.SRC, value)
        return self._epilogue.apply(place, self._dropper.apply(place, value))
