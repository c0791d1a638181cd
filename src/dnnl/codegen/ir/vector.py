"""Vectors of one register's width: loads, stores, masks, shuffles and reductions.

Every function takes the :class:`Emitter` first. A mask is a vector of i1, or None for all lanes.
Masked-off lanes are never touched in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from typing import TypeAlias

from llvmlite import ir

from dnnl.codegen.ir.alike import of_lanes, zeros
from dnnl.codegen.ir.builder import F32, F64, I1, I32, I64, PTR, Emitter, Values, i64

Mask: TypeAlias = ir.Value | None
# The type that fills a vector register, or the start of one, by its width in bits.
_REGISTERS = {32: F32, 64: F64, **{32 * n: ir.VectorType(F32, n) for n in (4, 8, 16)}}


class OneLane(ir.Type):  # type: ignore[misc]
    """A vector of one element. It is a scalar in IR, since devices have no vectors of one.

    Comparisons of such values give a plain i1, and so masks of one lane are i1.
    """

    count = 1

    def __init__(self, element: ir.Type) -> None:
        self.element = element
        self.null = element.null

    def wrap_constant_value(self, value: object) -> object:
        """The element's constant, unwrapped from a list; None (zero) is passed on."""
        if value is None:
            return None
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
    """The vector type of ``lanes`` elements. It has ``element`` and ``count`` even for one lane."""
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
    return _splat(kind, value, str(value))


@lru_cache(maxsize=512)
def _splat(kind: ir.VectorType, value: float | int, spelled: str) -> ir.Constant:
    """The same; numbers that are equal may be spelled differently, as 0 and -0 are."""
    if value == 0 and spelled[0] != "-":
        return zeros(kind)
    return of_lanes(kind, [value] * kind.count)


@lru_cache(maxsize=512)
def numbers(element: ir.Type, lanes: tuple[int, ...]) -> ir.Constant:
    """The vector of these integers."""
    return of_lanes(vector_type(element, len(lanes)), lanes)


@lru_cache(maxsize=512)
def _repeated(scalar: ir.Constant, lanes: int) -> ir.Constant:
    return of_lanes(vector_type(scalar.type, lanes), [scalar.constant] * lanes)


def splat(e: Emitter, scalar: ir.Value, lanes: int) -> ir.Value:
    """All lanes the same value."""
    kind = vector_type(scalar.type, lanes)
    if isinstance(scalar, ir.Constant):
        return _repeated(scalar, lanes)
    if lanes == 1:
        return e.b.bitcast(scalar, kind)
    first = e.b.insert_element(ir.Constant(kind, ir.Undefined), scalar, ir.Constant(I32, 0))
    return e.b.shuffle_vector(first, ir.Constant(kind, ir.Undefined), numbers(I32, (0,) * lanes))


def only(e: Emitter, value: ir.Value) -> ir.Value:
    """The element of a vector of one lane; a mask of one lane unchanged."""
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
    """Whether any lane of a mask is set, as an i1."""
    if not e.isa.mask_registers or not isinstance(mask.type, ir.VectorType):
        return reduce(e.b.or_, each_lane(e, mask))
    number = ir.IntType(mask.type.count)
    return e.b.icmp_unsigned("!=", e.b.bitcast(mask, number), ir.Constant(number, 0))


def iota(element: ir.Type, lanes: int) -> ir.Constant:
    """0, 1, 2, ..."""
    return numbers(element, tuple(range(lanes)))


def first_lanes(e: Emitter, count: ir.Value, lanes: int) -> ir.Value:
    """The mask of the lanes below ``count`` (i64, any value)."""
    return e.b.icmp_signed("<", iota(I64, lanes), splat(e, count, lanes))


def known_lanes(known: Sequence[bool]) -> Mask:
    """The mask of the lanes whose flag is true, known at compile time."""
    if all(known):
        return None
    if not any(known):
        return zeros(vector_type(I1, len(known)))
    return numbers(I1, tuple(map(int, known)))


def is_empty(mask: Mask) -> bool:
    """Whether a mask is known to be empty."""
    return isinstance(mask, ir.Constant) and not any(flags(mask))


def _first_known(mask: Mask) -> int:
    """The number of lanes if the mask is known and covers exactly the first lanes; else 0."""
    if not isinstance(mask, ir.Constant) or mask.constant is None:
        return 0
    known = flags(mask)
    count = sum(known)
    return count if all(known[:count]) else 0


def flags(mask: ir.Constant) -> list[bool]:
    """Which lanes of a known mask are set."""
    if mask.constant is None:
        return [False] * getattr(mask.type, "count", 1)
    return [bool(flag.constant) for flag in mask.constant]


def both(e: Emitter, a: Mask, b: Mask) -> Mask:
    """The intersection of two masks."""
    if a is None or is_empty(b):
        return b
    if b is None or is_empty(a):
        return a
    if isinstance(a, ir.Constant) and isinstance(b, ir.Constant):
        return known_lanes([x and y for x, y in zip(flags(a), flags(b), strict=True)])
    return e.b.and_(a, b)


def load(e: Emitter, pointer: ir.Value, kind: ir.VectorType, mask: Mask = None) -> ir.Value:
    """Load consecutive elements. Lanes outside ``mask`` read as zero and touch no memory."""
    if mask is None:
        return e.b.load(pointer, typ=kind, align=_align(kind))
    if is_empty(mask):
        return splat_constant(kind, 0)
    if _by_lane(e, kind):
        return _load_lanes(e, pointer, [i64(number) for number in range(kind.count)], kind, mask)
    count = _first_known(mask)
    if count and (len(_pieces(count)) == 1 or not _takes_masks(e, kind)):
        return _load_first(e, pointer, kind, count)
    name = f"llvm.masked.load.{suffix(kind)}.p0"
    align = ir.Constant(I32, _align(kind))
    loaded = e.intrinsic(name, kind, [pointer, align, mask, splat_constant(kind, 0)])
    return _in_register(e, loaded)


def _in_register(e: Emitter, loaded: ir.Value) -> ir.Value:
    """Hide ``loaded``, the result of a masked load, from instruction selection.

    LLVM 22 folds a masked load into a later instruction with the same mask. Where that instruction
    would overwrite a register that is still needed (multiply-adds, two-register shuffles), LLVM
    unfolds the operand again, as a load without the mask.
    """
    kind = loaded.type
    whole = _REGISTERS.get(bits(kind) * kind.count)
    if not e.isa.merging or whole is None:
        return loaded
    code = e.b.bitcast(loaded, whole)
    code = e.b.asm(ir.FunctionType(whole, [whole]), "", f"={e.isa.merging},0", [code], False)
    return e.b.bitcast(code, kind)


def store(
    e: Emitter, value: ir.Value, pointer: ir.Value, mask: Mask = None, *, streamed: bool = False
) -> None:
    """Store consecutive elements. Lanes outside ``mask`` touch no memory.

    ``streamed`` makes the store non-temporal. Without a mask the address must then be a multiple of
    the vector's size.
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
    count = _first_known(mask)
    if count and (count == 1 or not _takes_masks(e, kind)):
        _store_first(e, value, pointer, count)
        return
    if bits(kind) < 32 and (not isinstance(mask, ir.Constant) or sum(flags(mask)) == 1):
        mask = _unknown(e, mask)
    name = f"llvm.masked.store.{suffix(kind)}.p0"
    align = ir.Constant(I32, _align(kind))
    e.intrinsic(name, ir.VoidType(), [value, pointer, align, mask])


def _by_lane(e: Emitter, kind: ir.VectorType) -> bool:
    """Whether masked accesses are written lane by lane: on devices. For processors LLVM does it."""
    return kind.count == 1 or not e.isa.mask_registers


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


def _takes_masks(e: Emitter, kind: ir.VectorType) -> bool:
    """Whether a masked load or store of this type is one instruction."""
    return e.isa.masked and (bits(kind) >= 32 or e.isa.masked_bytes)


def _pieces(count: int) -> list[tuple[int, int]]:
    """(first lane, lanes) of runs that add up to ``count``: powers of two, the longest first."""
    pieces, first = [], 0
    for power in reversed(range(count.bit_length())):
        if count >> power & 1:
            pieces.append((first, 1 << power))
            first += 1 << power
    return pieces


def _load_first(e: Emitter, pointer: ir.Value, kind: ir.VectorType, count: int) -> ir.Value:
    """Load the first ``count`` elements in runs of powers of two; the other lanes are zero."""
    lanes = kind.count
    value = splat_constant(kind, 0)
    for first, size in _pieces(count):
        part = ir.VectorType(kind.element, size)
        where = e.element(pointer, ir.Constant(I64, first), kind.element)
        loaded = e.b.load(where, typ=part, align=_align(kind))
        wide = shuffle(e, loaded, loaded, [min(lane, size - 1) for lane in range(lanes)])
        inside = range(first, first + size)
        pick = [lanes + lane - first if lane in inside else lane for lane in range(lanes)]
        value = shuffle(e, value, wide, pick)
    return value


def _store_first(e: Emitter, value: ir.Value, pointer: ir.Value, count: int) -> None:
    """Store the first ``count`` elements in runs of powers of two."""
    kind = value.type
    for first, size in _pieces(count):
        part = shuffle(e, value, value, list(range(first, first + size)))
        where = e.element(pointer, ir.Constant(I64, first), kind.element)
        e.b.store(part, where, align=_align(kind))


def _unknown(e: Emitter, mask: ir.Value) -> ir.Value:
    """Hide from LLVM that ``mask`` is constant.

    LLVM 22 turns a masked store of one known lane of a truncated vector into a store of the whole
    wider element, which writes past the end.
    """
    number = ir.IntType(mask.type.count)
    wide = I64 if mask.type.count > 32 else I32
    code = e.b.bitcast(mask, number)
    code = code if number is wide else e.b.zext(code, wide)
    code = e.b.asm(ir.FunctionType(wide, [wide]), "", "=r,0", [code], False)
    return e.b.bitcast(code if number is wide else e.b.trunc(code, number), mask.type)


def prefetch(e: Emitter, pointer: ir.Value, *, second_level: bool = False) -> None:
    """Prefetch the cache line at an address, which need not be mapped, into the first-level cache,
    or the second-level one."""
    if not e.isa.caches.prefetches:
        return
    reading, where, data = (ir.Constant(I32, n) for n in (0, 2 if second_level else 3, 1))
    e.intrinsic("llvm.prefetch.p0", ir.VoidType(), [pointer, reading, where, data])


def _addresses(e: Emitter, pointer: ir.Value, offsets: ir.Value, element: ir.Type) -> ir.Value:
    """The vector of addresses at ``offsets`` (in elements)."""
    where = e.b.gep(pointer, [offsets], source_etype=element)
    where.type = ir.VectorType(PTR, offsets.type.count)  # llvmlite assumes the type of the base
    return where


def gather(
    e: Emitter, pointer: ir.Value, offsets: ir.Value, kind: ir.VectorType, mask: Mask = None
) -> ir.Value:
    """Load the elements at ``offsets`` (i64, one for each lane); lanes outside ``mask`` read as
    zero."""
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
    """Store each lane at its offset (i64, in elements); lanes outside ``mask`` touch no memory."""
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
    """a * b + c: rounded once where the target has FMA, twice elsewhere."""
    if e.isa.fma:
        return e.intrinsic(f"llvm.fma.{suffix(a.type)}", a.type, [a, b, c])
    return e.b.fadd(e.b.fmul(a, b), c)


def maximum(e: Emitter, a: ir.Value, b: ir.Value) -> ir.Value:
    """a > b ? a : b, which is b if either is NaN: one instruction on x86."""
    return e.b.select(e.b.fcmp_ordered(">", a, b), a, b)


def minimum(e: Emitter, a: ir.Value, b: ir.Value) -> ir.Value:
    """a < b ? a : b, which is b if either is NaN."""
    return e.b.select(e.b.fcmp_ordered("<", a, b), a, b)


def or_nan(
    e: Emitter, a: ir.Value, b: ir.Value, choose: Callable[[Emitter, ir.Value, ir.Value], ir.Value]
) -> ir.Value:
    """`maximum` or `minimum` of two vectors; NaN if either is. The latency of ``b`` excludes the
    NaN test, so ``b`` can be a loop-carried value."""
    return e.b.select(e.b.fcmp_ordered("ord", a, a), choose(e, a, b), a)


def shuffle(e: Emitter, a: ir.Value, b: ir.Value, lanes: Sequence[int]) -> ir.Value:
    """Select lanes of the concatenation of two vectors."""
    if a.type.count == 1 or len(lanes) == 1:
        count = a.type.count
        return from_lanes(e, [lane(e, a if at < count else b, at % count) for at in lanes])
    return e.b.shuffle_vector(a, b, numbers(I32, tuple(lanes)))


def split(e: Emitter, value: ir.Value, lanes: int) -> list[ir.Value]:
    """Split a vector into vectors of ``lanes`` elements."""
    count = value.type.count
    if count == lanes:
        return [value]
    firsts = range(0, count, lanes)
    return [shuffle(e, value, value, list(range(at, at + lanes))) for at in firsts]


def transpose(
    e: Emitter, lanes: int, units: int, load: Callable[[int, int], ir.Value]
) -> list[ir.Value]:
    """Transpose while loading: lane i of result j is lane j of row i.

    A row has ``units`` pieces. ``load(row, piece)`` loads one of at most ``lanes`` elements,
    preferably 128 bits. Pieces of several rows are concatenated to fill a register; then registers
    are interleaved inside the 128-bit units, one instruction a step on every target. All pieces of
    a row are loaded close to each other.
    """
    first = load(0, 0)
    unit = first.type.count
    regs: list[list[ir.Value]] = [[] for _ in range(units)]
    for k in range(unit):
        for piece in range(units):
            rows = [load(row, piece) if row or piece else first for row in range(k, lanes, unit)]
            regs[piece].append(join(e, rows))
    return [column for square in regs for column in interleave(e, square, unit)]


def interleave(e: Emitter, rows: list[ir.Value], unit: int) -> list[ir.Value]:
    """Transpose inside each unit of ``unit`` elements. The number of registers is a power of
    two."""
    regs, half_of_all = rows, len(rows) // 2
    for _ in range(len(rows).bit_length() - 1):
        pairs = zip(regs[:half_of_all], regs[half_of_all:], strict=True)
        regs = [_interleave_halves(e, a, b, unit, half) for a, b in pairs for half in (0, 1)]
    return regs


def join(e: Emitter, parts: Sequence[ir.Value]) -> ir.Value:
    """Concatenate vectors pairwise."""
    joined = list(parts)
    while len(joined) > 1:
        lanes = range(2 * joined[0].type.count)
        pairs = zip(joined[::2], joined[1::2], strict=True)
        joined = [shuffle(e, a, b, list(lanes)) for a, b in pairs]
    return joined[0]


def _interleave_halves(e: Emitter, a: ir.Value, b: ir.Value, unit: int, half: int) -> ir.Value:
    """Interleave the lower (0) or upper (1) ``half`` of each unit of ``a`` and ``b``."""
    lanes = a.type.count
    own = [lane for lane in range(lanes) if lane % unit // (unit // 2) == half]
    return shuffle(e, a, b, [lane + side for lane in own for side in (0, lanes)])
