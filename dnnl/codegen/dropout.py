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
from dnnl.codegen.access import Number, Operand
from dnnl.codegen.address import ZERO, Affine
from dnnl.codegen.builder import F32, F64, I32, I64, Emitter, Type, Value, Values
from dnnl.codegen.epilogue import Arguments
from dnnl.codegen.philox import BLOCK
from dnnl.codegen.place import Place
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
        self._told: dict[tuple[Emitter, int, Type, int], _Told] = {}

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
        b, form = place.e.b, place.form_of(self._number)
        first, step = place.counted(form)
        lanes = place.kind.count
        blocks = step == 1 and lanes > BLOCK and _at_blocks(form)
        told = self._what_is_told(place, lanes // BLOCK if blocks else lanes)
        if blocks:
            random = _of_blocks(place.e, told, first, lanes)
        else:
            kind = vector.vector_type(I64, lanes)
            steps = ir.Constant(kind, [step * lane for lane in range(lanes)])
            random = _of_each(place.e, told, b.add(vector.splat(place.e, first, lanes), steps))
        kept = b.icmp_unsigned(">", random, told.limit)
        for mask in self.outputs:
            place.store(mask, b.select(kept, place.constant(1.0), place.constant(0.0)))
        return b.select(kept, b.fmul(value, told.scale), place.constant(0.0))

    def _what_is_told(self, place: Place, counters: int) -> _Told:
        """What follows from the parameters of the execution, computed where the function begins:
        for vectors of so many lanes, whose numbers come from so many counters."""
        key = place.e, place.kind.count, place.kind.element, counters
        if key not in self._told:
            with place.e.b.goto_entry_block():
                self._told[key] = self._read(place, counters)
        return self._told[key]

    def _read(self, place: Place, counters: int) -> _Told:
        e, b, lanes = place.e, place.e.b, place.kind.count
        zero, one = ir.Constant(F32, 0.0), ir.Constant(F32, 1.0)
        given = self._word(place, Arg.DROPOUT_PROBABILITY, F32)
        given = b.select(b.fcmp_ordered(">", given, zero), given, zero)
        given = b.select(b.fcmp_ordered("<", given, one), given, one)
        limit = b.fptoui(b.fmul(b.fpext(given, F64), ir.Constant(F64, _GREATEST)), I64)
        chance, whole = given, one
        if place.kind.element == F64:
            chance, whole = b.fpext(given, F64), ir.Constant(F64, 1.0)
        scale = b.fdiv(whole, b.fsub(whole, chance))
        low = high = self._word(place, Arg.DROPOUT_SEED, I32)
        offset: Values = ()
        plain = None
        if Arg.DROPOUT_OFFSET in self._operands:
            halves = [self._word(place, Arg.DROPOUT_OFFSET, I32, half) for half in (0, 1)]
            plain = b.icmp_unsigned("==", b.or_(*halves), ir.Constant(I32, 0))
            offset = tuple(vector.splat(e, b.zext(half, I64), counters) for half in halves)
            high = b.select(plain, low, self._upper_seed(place, low))
        return _Told(
            vector.splat(e, b.trunc(limit, I32), lanes), vector.splat(e, scale, lanes),
            philox.keys(e, (low, high), counters), offset, plain,
        )  # fmt: skip

    def _upper_seed(self, place: Place, low: Value) -> Value:
        if self._operands[Arg.DROPOUT_SEED].desc.data_type is DataType.s32:
            return place.e.b.ashr(low, ir.Constant(I32, 31))
        return self._word(place, Arg.DROPOUT_SEED, I32, 1)

    def _word(self, place: Place, argument: int, kind: Type, number: int = 0) -> Value:
        """A word of a parameter."""
        e, pointer = place.e, place.address(self._operands[argument])
        return e.b.load(e.element(pointer, ir.Constant(I64, number), kind), typ=kind, align=4)


def _at_blocks(form: Affine) -> bool:
    """Whether what counts by one begins at a multiple of a block."""
    apart = [stride for stride in form.strides.values() if stride != 1]
    single = len(apart) + 1 == len(form.strides)
    return single and not any(stride % BLOCK for stride in (*apart, form.const))


@dataclass(frozen=True)
class _Told:
    """What an execution is told: random numbers up to ``limit`` drop an element, the others are
    scaled; and where these come from: the keys of all rounds, the halves of the offset if there is
    one, and whether it is zero."""

    limit: Value
    scale: Value
    keys: list[Values]
    offset: Values
    plain: Value

    def words(self, e: Emitter, block: Value) -> Values:
        """The random words of blocks (i64), the first ones of all, the second ones, ..."""
        kind = block.type
        plain = [e.b.add(block, vector.splat_constant(kind, n)) for n in range(BLOCK)]
        if not self.offset:
            return philox.mixed(e, plain, self.keys)
        wide = [*self.offset, block, e.b.lshr(block, vector.splat_constant(kind, 32))]
        chosen = [e.b.select(self.plain, *pair) for pair in zip(plain, wide, strict=True)]
        return philox.mixed(e, chosen, self.keys)


def _of_blocks(e: Emitter, told: _Told, first: Value, lanes: int) -> Value:
    """The numbers of lanes that are whole blocks, ``first`` being the number of the first."""
    count = lanes // BLOCK
    kind = vector.vector_type(I64, count)
    steps = ir.Constant(kind, [BLOCK * block for block in range(count)])
    words = told.words(e, e.b.add(vector.splat(e, first, count), steps))
    every = vector.join(e, words)
    turns = [lane % BLOCK * count + lane // BLOCK for lane in range(lanes)]
    return vector.shuffle(e, every, every, turns)


def _of_each(e: Emitter, told: _Told, numbers: Value) -> Value:
    """The random numbers of elements with these numbers: a counter for each."""
    kind = numbers.type
    words = told.words(e, e.b.and_(numbers, vector.splat_constant(kind, -BLOCK)))
    own = e.b.trunc(numbers, words[0].type)
    result = words[0]
    for place, word in enumerate(words[1:], 1):
        rest = e.b.and_(own, vector.splat_constant(own.type, BLOCK - 1))
        here = e.b.icmp_unsigned("==", rest, vector.splat_constant(own.type, place))
        result = e.b.select(here, word, result)
    return result
