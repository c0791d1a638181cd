"""A src of bytes as 16 bits, for instructions that multiply those.

To widen a word of bytes in each tile that broadcasts it takes half as many instructions as to
multiply it. Where many columns meet src, a phase does it once, to all of the memory that src spans:
a word of four bytes becomes one of eight, first the bytes at even places, then those at odd ones,
as weights are widened. What lay n bytes from the beginning lies 2 n bytes from it, so that the
layout stays what it was, with elements of twice the size::

    | k0 k1 k2 k3 |   ->   | k0 . k2 . | k1 . k3 . |
"""

from __future__ import annotations

from dataclasses import replace

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import I16, I64, Emitter, Module, Value
from dnnl.codegen.ir.kernel import Arguments
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, Axis
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.shared.scratchpad import Argument, Scratchpad
from dnnl.runtime.image import Phase
from dnnl.types.dtype import DataType
from dnnl.types.kinds import FormatKind
from dnnl.types.memory_desc import MemoryDesc

_WORD = 4
_LEAST_USES = 64
"""Products of each element for which a pass over src is worth its time."""


def widened(way: Multiply, src: MemoryDesc, products: int) -> Multiply:
    """How a product of so many multiplications reads ``src``: widened, if that is faster and its
    words begin at multiples of four bytes."""
    words_of_16 = way.is_integer and way.parts == 2 and way.tiles is None
    if not words_of_16 or src.format_kind is not FormatKind.blocked:
        return way
    words = all(step == 1 or step % _WORD == 0 for step in (src.offset0, *src.strides))
    whole = words and (src.size - src.offset0) % _WORD == 0 and not src.offset0 % _WORD
    dense = src.size - src.offset0 <= 2 * src.nelems()
    many = products >= _LEAST_USES * src.nelems() > 0
    return replace(way, up_converted=True) if whole and dense and many else way


def words_of(src: MemoryDesc, widened: Argument) -> Argument:
    """The memory of a widened src as the words that it is made of."""
    count = (src.size - src.offset0) // _WORD
    return widened[0], MemoryDesc((count,), "s64", offset0=widened[1].offset0 // _WORD)


def take_widened(scratchpad: Scratchpad, src: MemoryDesc) -> Argument:
    """Room for a src that is widened: src as the product reads it."""
    slot, words = scratchpad.take(MemoryDesc(((src.size - src.offset0) // _WORD,), "s64"))
    begin = words.offset0 * _WORD  # in elements of 16 bits
    made = MemoryDesc(
        src.dims,
        src.data_type,
        src.strides,
        inner_blocks=src.inner_blocks,
        padded_dims=src.padded_dims,
        offset0=begin,
    )
    return slot, made


def emit_widened(
    module: Module,
    symbol: str,
    src: Argument,
    dst: Argument,
    flags: Argument | None,
    arguments: Arguments,
) -> Phase:
    """Write the phase that widens the memory of ``src``, unless all ``flags`` are zero."""
    slot, words = words_of(src[1], dst)
    axis = Axis(words.dims[0], "word")
    here = (Affine.of(axis),)
    narrow = MemoryDesc(words.dims, "s32", offset0=src[1].offset0 // _WORD)
    source = Operand(arguments.slot(src[0]), narrow, here)
    target = Operand(arguments.slot(slot), words, here)
    signed = src[1].data_type is DataType.s8

    def body(point: Point) -> None:
        point.store_stored(target, _widen(point.e, point.load_stored(source), signed=signed))

    needed = None if flags is None else Operand(arguments.slot(flags[0]), flags[1], ())
    nest = Nest((axis,), (), (source,), (target,), body, core=I64, skip_if_zero=needed)
    return emit_nest(module, symbol, nest)


def _widen(e: Emitter, words: Value, *, signed: bool) -> Value:
    """The bytes at even places of words below those at odd ones, in 16 bits each."""
    lanes = words.type.count
    halves = e.b.bitcast(words, vector.vector_type(I16, 2 * lanes))
    eight = vector.splat_constant(halves.type, 8)
    shift = e.b.ashr if signed else e.b.lshr
    even, odd = shift(e.b.shl(halves, eight), eight), shift(halves, eight)
    kind = vector.vector_type(I64, lanes)
    low, high = (e.b.zext(e.b.bitcast(part, words.type), kind) for part in (even, odd))
    return e.b.or_(low, e.b.shl(high, vector.splat_constant(kind, 32)))
