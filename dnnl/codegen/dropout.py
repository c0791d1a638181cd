"""Dropout of a kernel: elements of dst become zero by chance, before its post-ops.

Whether one does follows from its number in row-major order, a seed and an offset: neither from its
layout, nor from threads or vectors. The random number of an element is a word of those that Philox
makes of a counter for its block of four neighbours, ``block`` being the number of the first::

    counter = (offset, its upper half, block, its upper half)    key = (seed, its upper half)
    counter = (block, block + 1, block + 2, block + 3)           key = (seed, seed)

the second where the offset is zero, with the lower halves of all. It is kept if that number is
greater than the probability times the greatest one.
"""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from dnnl.codegen import philox, vector
from dnnl.codegen.access import Number, Operand, Place
from dnnl.codegen.address import ZERO
from dnnl.codegen.builder import F32, F64, I32, I64, Emitter, Type, Value, Values
from dnnl.codegen.epilogue import Arguments
from dnnl.codegen.philox import BLOCK
from dnnl.types.arg import Arg
from dnnl.types.dropout import SCALARS, Dropout
from dnnl.types.dtype import DataType

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
        number, step = ZERO, 1
        for form, extent in zip(reversed(dst.index), reversed(dst.desc.dims), strict=True):
            number, step = number + form * step, step * extent
        self._number = Number(number)

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
        return (self._number,) if self._operands else ()

    @property
    def registers(self) -> int:
        """How many registers the vectors of a nest had better fill. Four numbers come from one
        lane of 64 bits, so that those of two registers are made in a whole one."""
        return 2 if self._operands else 1

    def apply(self, place: Place, value: Value) -> Value:
        """The values that are kept, divided by the probability of that, and zeros; their mask is
        stored."""
        if not self._operands:
            return value
        e, b, lanes = place.e, place.e.b, place.kind.count
        dropped = self._probability(place)
        limit = b.fmul(b.fpext(dropped, F64), ir.Constant(F64, _GREATEST))
        limit = b.trunc(b.fptoui(limit, I64), I32)
        scale = b.fdiv(ir.Constant(F32, 1.0), b.fsub(ir.Constant(F32, 1.0), dropped))
        kept = b.icmp_unsigned(">", self._random(place), vector.splat(e, limit, lanes))
        for mask in self.outputs:
            place.store(mask, b.select(kept, place.constant(1.0), place.constant(0.0)))
        return b.select(kept, b.fmul(value, vector.splat(e, scale, lanes)), place.constant(0.0))

    def _probability(self, place: Place) -> Value:
        """That of being dropped, between 0 and 1."""
        b, zero, one = place.e.b, ir.Constant(F32, 0.0), ir.Constant(F32, 1.0)
        given = self._word(place, Arg.DROPOUT_PROBABILITY, F32)
        given = b.select(b.fcmp_ordered(">", given, zero), given, zero)
        return b.select(b.fcmp_ordered("<", given, one), given, one)

    def _random(self, place: Place) -> Value:
        """The random number of each lane."""
        e, form = place.e, place.form_of(self._number)
        first, step = place.counted(form)
        lanes = place.kind.count
        source = _Source.of(e, self._seed(place), self._offset(place))
        apart = [stride for stride in form.strides.values() if stride != 1]
        aligned = len(apart) + 1 == len(form.strides) and not any(s % BLOCK for s in apart)
        if step == 1 and aligned and not form.const % BLOCK and lanes > BLOCK:
            return _of_blocks(e, source, first, lanes)
        kind = vector.vector_type(I64, lanes)
        steps = ir.Constant(kind, [step * lane for lane in range(lanes)])
        return _of_each(e, source, e.b.add(vector.splat(e, first, lanes), steps))

    def _seed(self, place: Place) -> Values:
        """Its two halves."""
        low = self._word(place, Arg.DROPOUT_SEED, I32)
        if self._operands[Arg.DROPOUT_SEED].desc.data_type is DataType.s32:
            return low, place.e.b.ashr(low, ir.Constant(I32, 31))
        return low, self._word(place, Arg.DROPOUT_SEED, I32, 1)

    def _offset(self, place: Place) -> Values:
        """Its two halves, if there is one."""
        if Arg.DROPOUT_OFFSET not in self._operands:
            return ()
        return tuple(self._word(place, Arg.DROPOUT_OFFSET, I32, half) for half in (0, 1))

    def _word(self, place: Place, argument: int, kind: Type, number: int = 0) -> Value:
        """A word of a parameter. No kernel writes it, so that LLVM may load it once."""
        e = place.e
        pointer = place.address(self._operands[argument])
        where = e.element(pointer, ir.Constant(I64, number), kind)
        word = e.b.load(where, typ=kind, align=4)
        word.set_metadata("invariant.load", e.module.ir.add_metadata([]))
        return word


@dataclass(frozen=True)
class _Source:
    """Where random numbers come from: the keys of all rounds, the halves of the offset if there is
    one, and whether it is zero."""

    keys: list[Values]
    offset: Values
    plain: Value

    @staticmethod
    def of(e: Emitter, seed: Values, offset: Values) -> _Source:
        low, high = seed
        if not offset:
            return _Source(philox.keys(e, (low, low)), (), None)
        plain = e.b.icmp_unsigned("==", e.b.or_(*offset), ir.Constant(I32, 0))
        return _Source(philox.keys(e, (low, e.b.select(plain, low, high))), offset, plain)

    def words(self, e: Emitter, block: Value) -> Values:
        """The random words of blocks (i64), the first ones of all, the second ones, ..."""
        kind, lanes = block.type, block.type.count
        plain = [e.b.add(block, vector.splat_constant(kind, n)) for n in range(BLOCK)]
        if not self.offset:
            return philox.mixed(e, plain, self.keys)
        start = [vector.splat(e, e.b.zext(half, I64), lanes) for half in self.offset]
        wide = [*start, block, e.b.lshr(block, vector.splat_constant(kind, 32))]
        chosen = [e.b.select(self.plain, *pair) for pair in zip(plain, wide, strict=True)]
        return philox.mixed(e, chosen, self.keys)


def _of_blocks(e: Emitter, source: _Source, first: Value, lanes: int) -> Value:
    """The numbers of lanes that are whole blocks, ``first`` being the number of the first."""
    count = lanes // BLOCK
    kind = vector.vector_type(I64, count)
    steps = ir.Constant(kind, [BLOCK * block for block in range(count)])
    words = source.words(e, e.b.add(vector.splat(e, first, count), steps))
    every = vector.join(e, words)
    turns = [lane % BLOCK * count + lane // BLOCK for lane in range(lanes)]
    return vector.shuffle(e, every, every, turns)


def _of_each(e: Emitter, source: _Source, numbers: Value) -> Value:
    """The random numbers of elements with these numbers: a counter for each."""
    kind = numbers.type
    words = source.words(e, e.b.and_(numbers, vector.splat_constant(kind, -BLOCK)))
    own = e.b.trunc(numbers, words[0].type)
    result = words[0]
    for place, word in enumerate(words[1:], 1):
        rest = e.b.and_(own, vector.splat_constant(own.type, BLOCK - 1))
        here = e.b.icmp_unsigned("==", rest, vector.splat_constant(own.type, place))
        result = e.b.select(here, word, result)
    return result
