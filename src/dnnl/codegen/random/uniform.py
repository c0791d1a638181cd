"""The random number of each element of a tensor, for dropout and stochastic rounding.

It depends on the element's number in row-major order, a seed and an offset only: not on layout,
threads or vectors. Philox yields four numbers from each counter, one for each of four neighbouring
elements. ``block`` is the number of the first of them::

    counter = (offset, its upper half, block, its upper half)    key = (seed, its upper half)
    counter = (block, block + 1, block + 2, block + 3)           key = (seed, seed)

The second form is used if the offset is zero, with the lower halves of all.
"""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import I32, I64, Emitter, Type, Value, Values
from dnnl.codegen.memory.access import Number, Operand
from dnnl.codegen.memory.address import ZERO, Affine
from dnnl.codegen.memory.place import Place
from dnnl.codegen.random import philox
from dnnl.codegen.random.philox import BLOCK
from dnnl.types.dtype import DataType


class RandomNumbers:
    """The random numbers of the elements of ``dst``. ``seed`` (s32 or s64) and ``offset`` (s64,
    optional) are operands of one element, read at execution."""

    def __init__(self, dst: Operand, seed: Operand, offset: Operand | None = None) -> None:
        self._seed, self._offset = seed, offset
        number, step = ZERO, 1
        for form, extent in zip(reversed(dst.index), reversed(dst.desc.dims), strict=True):
            number, step = number + form * step, step * extent
        self.number = Number(number)
        self._keys: dict[tuple[Emitter, int], _Keys] = {}

    def of(self, place: Place) -> Value:
        """The random number of each lane (i32)."""
        b, form, lanes = place.e.b, place.form_of(self.number), place.kind.count
        first, step = place.start_and_step(form)
        blocks = step == 1 and lanes > BLOCK and _at_blocks(form)
        keys = self._known(place, lanes // BLOCK if blocks else lanes)
        if blocks:
            return _of_blocks(place.e, keys, first, lanes)
        kind = vector.vector_type(I64, lanes)
        steps = ir.Constant(kind, [step * lane for lane in range(lanes)])
        return _of_each(place.e, keys, b.add(vector.splat(place.e, first, lanes), steps))

    def _known(self, place: Place, counters: int) -> _Keys:
        """The keys for vectors of ``counters`` counters, computed in the entry block."""
        key = place.e, counters
        if key not in self._keys:
            with place.e.b.goto_entry_block():
                self._keys[key] = self._read(place, counters)
        return self._keys[key]

    def _read(self, place: Place, counters: int) -> _Keys:
        e, b = place.e, place.e.b
        low = high = load_scalar(place, self._seed, I32)
        offset: Values = ()
        plain = None
        if self._offset is not None:
            halves = [load_scalar(place, self._offset, I32, half) for half in (0, 1)]
            plain = b.icmp_unsigned("==", b.or_(*halves), ir.Constant(I32, 0))
            offset = tuple(vector.splat(e, b.zext(half, I64), counters) for half in halves)
            high = b.select(plain, low, self._upper_seed(place, low))
        return _Keys(philox.keys(e, (low, high), counters), offset, plain)

    def _upper_seed(self, place: Place, low: Value) -> Value:
        if self._seed.desc.data_type is DataType.s32:
            return place.e.b.ashr(low, ir.Constant(I32, 31))
        return load_scalar(place, self._seed, I32, 1)


def load_scalar(place: Place, operand: Operand, kind: Type, number: int = 0) -> Value:
    """Load the scalar ``number`` of an operand that consists of one element."""
    e, pointer = place.e, place.address(operand)
    return e.b.load(e.element(pointer, ir.Constant(I64, number), kind), typ=kind, align=4)


def _at_blocks(form: Affine) -> bool:
    """Whether a form with stride 1 always starts at a multiple of a block."""
    apart = [stride for stride in form.strides.values() if stride != 1]
    single = len(apart) + 1 == len(form.strides)
    return single and not any(stride % BLOCK for stride in (*apart, form.const))


@dataclass(frozen=True)
class _Keys:
    """The keys of all rounds, the halves of the offset if there is one, and whether it is zero."""

    keys: list[Values]
    offset: Values
    plain: Value

    def random(self, e: Emitter, block: Value) -> Values:
        """The four random numbers of each block (i64): the first ones of all blocks, the second
        ones, ..."""
        kind = block.type
        plain = [e.b.add(block, vector.splat_constant(kind, n)) for n in range(BLOCK)]
        if not self.offset:
            return philox.mixed(e, plain, self.keys)
        wide = [*self.offset, block, e.b.lshr(block, vector.splat_constant(kind, 32))]
        chosen = [e.b.select(self.plain, *pair) for pair in zip(plain, wide, strict=True)]
        return philox.mixed(e, chosen, self.keys)


def _of_blocks(e: Emitter, keys: _Keys, first: Value, lanes: int) -> Value:
    """The random numbers of lanes that are whole blocks. ``first`` is the number of the first
    lane."""
    count = lanes // BLOCK
    kind = vector.vector_type(I64, count)
    steps = ir.Constant(kind, [BLOCK * block for block in range(count)])
    drawn = keys.random(e, e.b.add(vector.splat(e, first, count), steps))
    every = vector.join(e, drawn)
    order = [lane % BLOCK * count + lane // BLOCK for lane in range(lanes)]
    return vector.shuffle(e, every, every, order)


def _of_each(e: Emitter, keys: _Keys, numbers: Value) -> Value:
    """The random numbers of elements ``numbers``, with one counter for each lane."""
    kind = numbers.type
    drawn = keys.random(e, e.b.and_(numbers, vector.splat_constant(kind, -BLOCK)))
    own = e.b.trunc(numbers, drawn[0].type)
    result = drawn[0]
    for place, each in enumerate(drawn[1:], 1):
        rest = e.b.and_(own, vector.splat_constant(own.type, BLOCK - 1))
        here = e.b.icmp_unsigned("==", rest, vector.splat_constant(own.type, place))
        result = e.b.select(here, each, result)
    return result
