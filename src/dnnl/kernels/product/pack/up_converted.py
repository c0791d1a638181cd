"""A src of bytes up-converted to 16 bits, for instructions that multiply 16-bit integers.

Up-converting a K group in each tile that broadcasts it takes half as many instructions as
multiplying it. If N is large, a phase does it once for the whole memory span of src. A group of
four bytes becomes eight bytes, first the bytes at even places, then those at odd ones, as weights
are converted. Byte n moves to byte 2 n, so that the layout is the same with elements of twice the
size::

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
from dnnl.types.size import typical

_GROUP = 4
_LEAST_USES = 64
"""The products per element from which a pass over src pays off."""


def with_up_conversion(dot: Multiply, src: MemoryDesc, products: int) -> Multiply:
    """The dot-product kind of a product with ``products`` multiplications: one that reads an
    up-converted ``src`` if that is faster and its K groups begin at multiples of four bytes, else
    ``dot``."""
    multiplies_16_bits = dot.is_integer and dot.parts == 2 and dot.tiles is None
    if not multiplies_16_bits or src.format_kind is not FormatKind.blocked:
        return dot
    elements = all(step == 1 or step % _GROUP == 0 for step in (src.offset0, *src.strides))
    whole = elements and (src.size - src.offset0) % _GROUP == 0 and not src.offset0 % _GROUP
    dense = typical(src.size - src.offset0) <= 2 * typical(src.nelems())
    many = products >= _LEAST_USES * typical(src.nelems()) > 0
    return replace(dot, up_converted=True) if whole and dense and many else dot


def as_s64(src: MemoryDesc, up_converted: Argument) -> Argument:
    """The memory of an up-converted src as s64, one element for each K group."""
    count = (src.size - src.offset0) // _GROUP
    return up_converted[0], MemoryDesc((count,), "s64", offset0=up_converted[1].offset0 // _GROUP)


def take_up_converted(scratchpad: Scratchpad, src: MemoryDesc) -> Argument:
    """Scratchpad for an up-converted src: src as the product reads it."""
    slot, elements = scratchpad.take(MemoryDesc(((src.size - src.offset0) // _GROUP,), "s64"))
    begin = elements.offset0 * _GROUP  # in elements of 16 bits
    return slot, MemoryDesc.of_layout(src, src._layout._replace(offset0=begin))


def emit_up_conversion(
    module: Module,
    symbol: str,
    src: Argument,
    dst: Argument,
    flags: Argument | None,
    arguments: Arguments,
) -> Phase:
    """Write the phase that up-converts the memory of ``src``; it does nothing if all ``flags`` are
    zero."""
    slot, elements = as_s64(src[1], dst)
    axis = Axis(elements.dims[0], "k_group")
    here = (Affine.of(axis),)
    narrow = MemoryDesc(elements.dims, "s32", offset0=src[1].offset0 // _GROUP)
    source = Operand(arguments.slot(src[0]), narrow, here)
    target = Operand(arguments.slot(slot), elements, here)
    signed = src[1].data_type is DataType.s8

    def body(point: Point) -> None:
        point.store_stored(target, _up_convert(point.e, point.load_stored(source), signed=signed))

    needed = None if flags is None else Operand(arguments.slot(flags[0]), flags[1], ())
    nest = Nest((axis,), (), (source,), (target,), body, core=I64, skip_if_zero=needed)
    return emit_nest(module, symbol, nest)


def _up_convert(e: Emitter, elements: Value, *, signed: bool) -> Value:
    """The bytes at even places of 32-bit elements below those at odd places, in 16 bits each."""
    lanes = elements.type.count
    halves = e.b.bitcast(elements, vector.vector_type(I16, 2 * lanes))
    eight = vector.splat_constant(halves.type, 8)
    shift = e.b.ashr if signed else e.b.lshr
    even, odd = shift(e.b.shl(halves, eight), eight), shift(halves, eight)
    kind = vector.vector_type(I64, lanes)
    low, high = (e.b.zext(e.b.bitcast(part, elements.type), kind) for part in (even, odd))
    return e.b.or_(low, e.b.shl(high, vector.splat_constant(kind, 32)))
