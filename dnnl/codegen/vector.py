"""Vectors of one register's width: loads, stores, masks, shuffles and reductions.

Every function takes the :class:`Emitter` first. A mask is a vector of i1, or None for all lanes.
Masked-off lanes are never touched in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import TypeAlias

from llvmlite import ir

from dnnl.codegen.builder import I1, I32, I64, PTR, Emitter, Values, i64

Mask: TypeAlias = ir.Value | None


class OneLane(ir.Type):  # type: ignore[misc]
    """A vector of one element, which is a scalar in IR: a device has no vectors of one.

    Comparisons of such values give a plain i1, and so are masks of one lane.
    """

    count = 1

    def __init__(self, element: ir.Type) -> None:
        self.element = element
        self.null = element.null

    def wrap_constant_value(self, value: object) -> object:
        """The element's value, out of a list if it is in one."""
        if isinstance(value, list):
            (value,) = value
        return self.element.wrap_constant_value(value)

    def format_constant(self, value: object) -> str:
        """As the element."""
        return str(self.element.format_constant(value))

    def _to_string(self) -> str:
        return str(self.element)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OneLane) and self.element == other.element

    def __hash__(self) -> int:
        return hash((OneLane, self.element))


def vector_type(element: ir.Type, lanes: int) -> ir.Type:
    """The type of ``lanes`` elements; it has ``element`` and ``count`` with one lane as well."""
    return ir.VectorType(element, lanes) if lanes > 1 else OneLane(element)


def suffix(kind: ir.Type) -> str:
    """How LLVM spells a type in the name of an overloaded intrinsic."""
    if isinstance(kind, OneLane):
        return suffix(kind.element)
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{suffix(kind.element)}"
    names = {"float": "f32", "double": "f64", "half": "f16", "ptr": "p0", "bfloat": "bf16"}
    return names.get(str(kind), str(kind))


def bits(kind: ir.Type) -> int:
    """The width of one element."""
    element = kind.element if isinstance(kind, ir.VectorType | OneLane) else kind
    return {"float": 32, "double": 64}.get(str(element)) or int(element.width)


def splat_constant(kind: ir.VectorType, value: float | int) -> ir.Constant:
    """All lanes the same constant."""
    if value == 0 and str(value)[0] != "-":
        return ir.Constant(kind, None)  # prints as zeroinitializer, which is soon read
    return ir.Constant(kind, [value] * kind.count)


def splat(e: Emitter, scalar: ir.Value, lanes: int) -> ir.Value:
    """All lanes the same value."""
    kind = vector_type(scalar.type, lanes)
    if isinstance(scalar, ir.Constant):
        return ir.Constant(kind, [scalar.constant] * lanes)
    if lanes == 1:
        return e.b.bitcast(scalar, kind)
    first = e.b.insert_element(ir.Constant(kind, ir.Undefined), scalar, ir.Constant(I32, 0))
    return e.b.shuffle_vector(
        first, ir.Constant(kind, ir.Undefined), ir.Constant(ir.VectorType(I32, lanes), [0] * lanes)
    )


def only(e: Emitter, value: ir.Value) -> ir.Value:
    """The element of a vector of one lane; a mask of one lane as it is."""
    return e.b.bitcast(value, value.type.element) if isinstance(value.type, OneLane) else value


def lane(e: Emitter, value: ir.Value, number: int) -> ir.Value:
    """One element of a vector."""
    if isinstance(value.type, ir.VectorType):
        return e.b.extract_element(value, ir.Constant(I32, number))
    return only(e, value)


def each_lane(e: Emitter, value: ir.Value) -> list[ir.Value]:
    """The elements of a vector."""
    if not isinstance(value.type, ir.VectorType):
        return [only(e, value)]
    return [lane(e, value, number) for number in range(value.type.count)]


def from_lanes(e: Emitter, elements: Sequence[ir.Value]) -> ir.Value:
    """The vector of these elements."""
    if len(elements) == 1:
        return splat(e, elements[0], 1)
    result = ir.Constant(ir.VectorType(elements[0].type, len(elements)), ir.Undefined)
    for number, element in enumerate(elements):
        result = e.b.insert_element(result, element, ir.Constant(I32, number))
    return result


def any_lane(e: Emitter, mask: ir.Value) -> ir.Value:
    """Whether a mask has any lane, as an i1."""
    if e.isa.device is not None or not isinstance(mask.type, ir.VectorType):
        return reduce(e.b.or_, each_lane(e, mask))
    number = ir.IntType(mask.type.count)
    return e.b.icmp_unsigned("!=", e.b.bitcast(mask, number), ir.Constant(number, 0))


def iota(element: ir.Type, lanes: int) -> ir.Constant:
    """0, 1, 2, ..."""
    return ir.Constant(vector_type(element, lanes), list(range(lanes)))


def first_lanes(e: Emitter, count: ir.Value, lanes: int) -> ir.Value:
    """The mask of the lanes whose number is below ``count`` (i64, any value)."""
    return e.b.icmp_signed("<", iota(I64, lanes), splat(e, count, lanes))


def both(e: Emitter, a: Mask, b: Mask) -> Mask:
    """The lanes that are in both masks."""
    if a is None:
        return b
    return a if b is None else e.b.and_(a, b)


def load(e: Emitter, pointer: ir.Value, kind: ir.VectorType, mask: Mask = None) -> ir.Value:
    """Load neighbouring elements; masked-off lanes read as zero and touch no memory."""
    if mask is None:
        return e.b.load(pointer, typ=kind, align=_align(kind))
    if _by_lane(e, kind):
        return _load_lanes(e, pointer, [i64(number) for number in range(kind.count)], kind, mask)
    name = f"llvm.masked.load.{suffix(kind)}.p0"
    align = ir.Constant(I32, _align(kind))
    return e.intrinsic(name, kind, [pointer, align, mask, splat_constant(kind, 0)])


def store(
    e: Emitter, value: ir.Value, pointer: ir.Value, mask: Mask = None, *, streamed: bool = False
) -> None:
    """Store to neighbouring elements; masked-off lanes touch no memory.

    ``streamed`` stores pass the caches by; without a mask their address is then a multiple of the
    vector's size.
    """
    kind = value.type
    if mask is None:
        align = _align(kind)
        written = e.b.store(value, pointer, align=align * kind.count if streamed else align)
        if streamed:
            mark = e.module.ir.add_metadata([ir.Constant(I32, 1)])
            written.set_metadata("nontemporal", mark)
        return
    if _by_lane(e, kind):
        _store_lanes(e, value, pointer, [i64(number) for number in range(kind.count)], mask)
        return
    if bits(kind) < 32:
        mask = _unknown(e, mask)
    name = f"llvm.masked.store.{suffix(kind)}.p0"
    align = ir.Constant(I32, _align(kind))
    e.intrinsic(name, ir.VoidType(), [value, pointer, align, mask])


def _by_lane(e: Emitter, kind: ir.VectorType) -> bool:
    """Whether what reaches some elements only is written out for each of them: LLVM does it for
    processors."""
    return kind.count == 1 or e.isa.device is not None


def _load_lanes(
    e: Emitter, pointer: ir.Value, offsets: Sequence[ir.Value], kind: ir.VectorType, mask: Mask
) -> ir.Value:
    return from_lanes(
        e, [_load_lane(e, pointer, kind, mask, number, at) for number, at in enumerate(offsets)]
    )


def _load_lane(
    e: Emitter, pointer: ir.Value, kind: ir.VectorType, mask: Mask, number: int, offset: ir.Value
) -> ir.Value:
    def read() -> Values:
        where = e.element(pointer, offset, kind.element)
        return (e.b.load(where, typ=kind.element, align=_align(kind)),)

    if mask is None:
        return read()[0]
    zero = ir.Constant(kind.element, 0)
    return e.branch(lane(e, mask, number), read, lambda: (zero,))[0]


def _store_lanes(
    e: Emitter, value: ir.Value, pointer: ir.Value, offsets: Sequence[ir.Value], mask: Mask
) -> None:
    for number, offset in enumerate(offsets):
        _store_lane(e, value, pointer, mask, number, offset)


def _store_lane(
    e: Emitter, value: ir.Value, pointer: ir.Value, mask: Mask, number: int, offset: ir.Value
) -> None:
    def write() -> Values:
        where = e.element(pointer, offset, value.type.element)
        e.b.store(lane(e, value, number), where, align=_align(value.type))
        return ()

    if mask is None:
        write()
    else:
        e.branch(lane(e, mask, number), write, lambda: ())


def _unknown(e: Emitter, mask: ir.Value) -> ir.Value:
    """The same mask, which LLVM cannot know to be constant.

    Of a masked store of one known lane, LLVM 22 makes a store of the whole wider element from which
    that was truncated: it writes behind the end.
    """
    number = ir.IntType(mask.type.count)
    wide = I64 if mask.type.count > 32 else I32
    code = e.b.bitcast(mask, number)
    code = code if number is wide else e.b.zext(code, wide)
    code = e.b.asm(ir.FunctionType(wide, [wide]), "", "=r,0", [code], False)
    return e.b.bitcast(code if number is wide else e.b.trunc(code, number), mask.type)


def prefetch(e: Emitter, pointer: ir.Value) -> None:
    """Ask for the cache line at an address, which need not exist."""
    if not e.isa.caches:
        return
    reading, everywhere, data = (ir.Constant(I32, number) for number in (0, 3, 1))
    e.intrinsic("llvm.prefetch.p0", ir.VoidType(), [pointer, reading, everywhere, data])


def _addresses(e: Emitter, pointer: ir.Value, offsets: ir.Value, element: ir.Type) -> ir.Value:
    """The vector of the addresses at ``offsets``."""
    where = e.b.gep(pointer, [offsets], source_etype=element)
    where.type = ir.VectorType(PTR, offsets.type.count)  # llvmlite takes the base's type for it
    return where


def gather(
    e: Emitter, pointer: ir.Value, offsets: ir.Value, kind: ir.VectorType, mask: Mask = None
) -> ir.Value:
    """Load the elements at ``offsets`` (i64, one for each lane); masked-off lanes read as zero."""
    lanes = kind.count
    if _by_lane(e, kind):
        return _load_lanes(e, pointer, each_lane(e, offsets), kind, mask)
    name = f"llvm.masked.gather.{suffix(kind)}.v{lanes}p0"
    where = _addresses(e, pointer, offsets, kind.element)
    align = ir.Constant(I32, _align(kind))
    full = mask if mask is not None else splat_constant(ir.VectorType(I1, lanes), 1)
    return e.intrinsic(name, kind, [where, align, full, splat_constant(kind, 0)])


def scatter(
    e: Emitter, value: ir.Value, pointer: ir.Value, offsets: ir.Value, mask: Mask = None
) -> None:
    """Store the lanes to the elements at ``offsets``; masked-off ones touch no memory."""
    kind = value.type
    if _by_lane(e, kind):
        _store_lanes(e, value, pointer, each_lane(e, offsets), mask)
        return
    name = f"llvm.masked.scatter.{suffix(kind)}.v{kind.count}p0"
    where = _addresses(e, pointer, offsets, kind.element)
    align = ir.Constant(I32, _align(kind))
    full = mask if mask is not None else splat_constant(ir.VectorType(I1, kind.count), 1)
    e.intrinsic(name, ir.VoidType(), [value, where, align, full])


def _align(kind: ir.VectorType) -> int:
    return bits(kind) // 8


def multiply_add(e: Emitter, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """a * b + c: one rounding where the target has the instruction, two where it has not."""
    if e.isa.fma:
        return e.intrinsic(f"llvm.fma.{suffix(a.type)}", a.type, [a, b, c])
    return e.b.fadd(e.b.fmul(a, b), c)


def maximum(e: Emitter, a: ir.Value, b: ir.Value) -> ir.Value:
    """a > b ? a : b, which is b where either is NaN: the form that is one instruction on x86."""
    return e.b.select(e.b.fcmp_ordered(">", a, b), a, b)


def minimum(e: Emitter, a: ir.Value, b: ir.Value) -> ir.Value:
    """a < b ? a : b, which is b where either is NaN."""
    return e.b.select(e.b.fcmp_ordered("<", a, b), a, b)


def shuffle(e: Emitter, a: ir.Value, b: ir.Value, lanes: Sequence[int]) -> ir.Value:
    """Pick lanes out of the two vectors laid one behind the other."""
    if a.type.count == 1 or len(lanes) == 1:
        count = a.type.count
        return from_lanes(e, [lane(e, a if at < count else b, at % count) for at in lanes])
    return e.b.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, len(lanes)), list(lanes)))


def across(
    e: Emitter, value: ir.Value, combine: Callable[[Emitter, ir.Value, ir.Value], ir.Value]
) -> ir.Value:
    """Combine all lanes with each other; every lane of the result holds the answer."""
    lanes = value.type.count
    step = lanes // 2
    while step:
        turned = shuffle(e, value, value, [(lane + step) % lanes for lane in range(lanes)])
        value = combine(e, value, turned)
        step //= 2
    return value


def transpose(e: Emitter, rows: Sequence[ir.Value]) -> list[ir.Value]:
    """Transpose a square of registers: lane i of result j is lane j of row i.

    Elements are first paired inside units of four lanes, which are one instruction each on every
    128-bit unit of x86 and aarch64; then whole units are exchanged. 16 x 16 takes 64 shuffles.
    Elements below 32 bits are interleaved over the whole register, which is one instruction as
    long as that has 128 bits.
    """
    lanes = len(rows)
    if bits(rows[0].type) < 32:
        return _interleave(e, rows)
    unit = min(4, lanes)
    regs = list(rows)
    step = 1
    while step < unit:
        regs = _pair_within_units(e, regs, unit, step)
        step *= 2
    groups = [regs[j::unit] for j in range(unit)]
    columns = [_exchange_units(e, group, unit) for group in groups]
    return [columns[j % unit][j // unit] for j in range(lanes)]


def _interleave(e: Emitter, rows: Sequence[ir.Value]) -> list[ir.Value]:
    """Interleave each row with the one half the square away until the rows have become columns."""
    lanes = len(rows)
    regs = list(rows)
    pick = [lane + side for lane in range(lanes) for side in (0, lanes)]
    for _ in range(lanes.bit_length() - 1):
        pairs = zip(regs[: lanes // 2], regs[lanes // 2 :], strict=True)
        regs = [shuffle(e, a, b, half) for a, b in pairs for half in (pick[:lanes], pick[lanes:])]
    return regs


def _pair_within_units(e: Emitter, regs: list[ir.Value], unit: int, step: int) -> list[ir.Value]:
    """One stage: registers ``step`` apart exchange runs of ``step`` lanes inside each unit."""
    lanes = len(regs)
    result = list(regs)
    for base in range(0, lanes, unit):
        for low in range(0, unit, 2 * step):
            for k in range(step):
                a, b = regs[base + low + k], regs[base + low + k + step]
                halves = []
                for half in (0, 1):
                    pick = []
                    for lane in range(0, lanes, unit):
                        run = [lane + half * (unit // 2) + i for i in range(unit // 2)]
                        pairs = [run[i : i + step] for i in range(0, unit // 2, step)]
                        for pair in pairs:
                            pick += pair + [lanes + i for i in pair]
                    halves.append(shuffle(e, a, b, pick))
                result[base + low + 2 * k], result[base + low + 2 * k + 1] = halves
    return result


def _exchange_units(e: Emitter, regs: list[ir.Value], unit: int) -> list[ir.Value]:
    """Transpose a square whose elements are units of ``unit`` lanes."""
    if len(regs) == 1:
        return regs
    lanes = regs[0].type.count
    units = [list(range(i, i + unit)) for i in range(0, 2 * lanes, unit)]
    halves = []
    for parity in (0, 1):
        pick = [lane for chosen in units[parity::2] for lane in chosen]
        pairs = zip(regs[0::2], regs[1::2], strict=True)
        halves.append(_exchange_units(e, [shuffle(e, a, b, pick) for a, b in pairs], unit))
    return [reg for pair in zip(*halves, strict=True) for reg in pair]
