"""Dropout: zeroes random elements of a result, before the post-ops.

An element survives if its random number exceeds probability * (2^32 - 1).
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
    """The dropout of a kernel, bound to its operands. Does nothing without an attribute."""

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
        """The operands that are read."""
        return tuple(operand for arg, operand in self._operands.items() if arg in SCALARS)

    @property
    def outputs(self) -> tuple[Operand, ...]:
        """The mask, if one is stored."""
        return tuple(operand for arg, operand in self._operands.items() if arg not in SCALARS)

    @property
    def numbers(self) -> tuple[Number, ...]:
        """The `Number` that the nest must provide."""
        return () if self._random is None else (self._random.number,)

    @property
    def registers(self) -> int:
        """The registers that the nest's vectors should fill: two, since four random numbers come
        from one 64-bit lane, and a full register of counters yields two registers of numbers."""
        return 2 if self._operands else 1

    def apply(self, place: Place, value: Value) -> Value:
        """Scale surviving elements by 1 / (1 - probability), zero the others, and store the
        mask."""
        if self._random is None:
            return value
        b = place.e.b
        parameters = self._known(place)
        survives = b.icmp_unsigned(">", self._random.of(place), parameters.limit)
        for mask in self.outputs:
            place.store(mask, b.select(survives, place.constant(1.0), place.constant(0.0)))
        return b.select(survives, b.fmul(value, parameters.scale), place.constant(0.0))

    def _known(self, place: Place) -> _Parameters:
        """What follows from the probability, computed in the entry block."""
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
    """Elements whose random number is at most ``limit`` are dropped; the others are multiplied by
    ``scale``."""

    limit: Value
    scale: Value
