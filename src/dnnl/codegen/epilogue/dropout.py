"""Dropout of a kernel: elements of dst become zero by chance, before its post-ops.

An element is kept if its random number (`random_numbers`) is greater than the probability times the
greatest one.
"""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, F64, I32, I64, Emitter, Type, Value
from dnnl.codegen.ir.kernel import Arguments
from dnnl.codegen.memory.access import Number, Operand
from dnnl.codegen.memory.address import ZERO
from dnnl.codegen.memory.place import Place
from dnnl.codegen.random.uniform import RandomNumbers, load_scalar
from dnnl.types.arg import Arg
from dnnl.types.dropout import SCALARS, Dropout

_GREATEST = float(2**32 - 1)


class Dropper:
    """The dropout of a kernel, if it has any, bound to what it reads and writes."""

    def __init__(self, dropout: Dropout | None, dst: Operand, arguments: Arguments) -> None:
        descs = {} if dropout is None else dropout.descs
        self._operands = {
            argument: Operand(
                arguments.slot(argument), desc, (ZERO,) if argument in SCALARS else dst.index
            )
            for argument, desc in descs.items()
        }
        self._random: RandomNumbers | None = None
        if self._operands:
            seed, offset = Arg.DROPOUT_SEED, Arg.DROPOUT_OFFSET
            self._random = RandomNumbers(dst, self._operands[seed], self._operands.get(offset))
        self._parameters: dict[tuple[Emitter, int, Type], _Parameters] = {}

    @property
    def inputs(self) -> tuple[Operand, ...]:
        """What is read."""
        return tuple(operand for arg, operand in self._operands.items() if arg in SCALARS)

    @property
    def outputs(self) -> tuple[Operand, ...]:
        """What is written: the mask, if there is one."""
        return tuple(operand for arg, operand in self._operands.items() if arg not in SCALARS)

    @property
    def numbers(self) -> tuple[Number, ...]:
        """What a nest has to know of its iterations."""
        return () if self._random is None else (self._random.number,)

    @property
    def registers(self) -> int:
        """How many registers the vectors of a nest had better fill. Four numbers come from one
        lane of 64 bits, so that those of two registers are made in a whole one."""
        return 2 if self._operands else 1

    def apply(self, place: Place, value: Value) -> Value:
        """The values that are kept, divided by the probability of that, and zeros; their mask is
        stored."""
        if self._random is None:
            return value
        b = place.e.b
        parameters = self._known(place)
        survives = b.icmp_unsigned(">", self._random.of(place), parameters.limit)
        for mask in self.outputs:
            place.store(mask, b.select(survives, place.constant(1.0), place.constant(0.0)))
        return b.select(survives, b.fmul(value, parameters.scale), place.constant(0.0))

    def _known(self, place: Place) -> _Parameters:
        """What follows from the probability of the execution, computed where the function
        begins."""
        key = place.e, place.kind.count, place.kind.element
        if key not in self._parameters:
            with place.e.b.goto_entry_block():
                self._parameters[key] = self._read(place)
        return self._parameters[key]

    def _read(self, place: Place) -> _Parameters:
        e, b, lanes = place.e, place.e.b, place.kind.count
        zero, one = ir.Constant(F32, 0.0), ir.Constant(F32, 1.0)
        given = load_scalar(place, self._operands[Arg.DROPOUT_PROBABILITY], F32)
        given = b.select(b.fcmp_ordered(">", given, zero), given, zero)
        given = b.select(b.fcmp_ordered("<", given, one), given, one)
        limit = b.fptoui(b.fmul(b.fpext(given, F64), ir.Constant(F64, _GREATEST)), I64)
        chance, whole = given, one
        if place.kind.element == F64:
            chance, whole = b.fpext(given, F64), ir.Constant(F64, 1.0)
        scale = b.fdiv(whole, b.fsub(whole, chance))
        return _Parameters(
            vector.splat(e, b.trunc(limit, I32), lanes), vector.splat(e, scale, lanes)
        )


@dataclass(frozen=True)
class _Parameters:
    """What an execution is told: random numbers up to ``limit`` drop an element, the others are
    scaled."""

    limit: Value
    scale: Value
