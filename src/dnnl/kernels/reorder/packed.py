"""Reorder dense weights to weights without zeros (`Packed`).

Weights are copied into panels first. Then a work item is a stretch of a panel: it writes a bit for
each element and counts the nonzero ones. One item computes the prefix sums of the counts, which are
the places of the values of each stretch. Each stretch then copies its values there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import I8, I64, Emitter, Module, Value, Values, i64
from dnnl.codegen.ir.kernel import Arguments, Kernel, Reason, Refusal
from dnnl.codegen.isa import Isa
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.kernels.product.pack.sparse_decoded import as_panels, refuse_packed
from dnnl.kernels.shared.copies import emit_copies
from dnnl.kernels.shared.scratchpad import Argument, Relayout, Scratchpad
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg
from dnnl.types.encoding import STRETCH, Packed
from dnnl.types.memory_desc import MemoryDesc

_BYTE = 8  # bits


@dataclass(frozen=True)
class PackedConf:
    """Dense weights ``src``, copied as ``panels``, to be packed as ``dst``."""

    src: MemoryDesc
    dst: MemoryDesc
    panels: Argument
    copies: tuple[Relayout, ...]
    scratchpad: int

    @property
    def encoding(self) -> Packed:
        """How dst is packed."""
        encoding = self.dst.encoding
        assert isinstance(encoding, Packed), "configure takes no others"
        return encoding


def configure(src: MemoryDesc, dst: MemoryDesc, isa: Isa) -> PackedConf | Refusal:
    """Accept dense weights in any layout, of the type of packed weights whose panels are known."""
    if src.encoding is not None or not isinstance(dst.encoding, Packed):
        return Refusal(Reason.LAYOUT, f"{src} to {dst}; dense weights become packed ones")
    if not dst.encoding.columns:
        detail = f"{dst} leaves panels open; a matmul decides on them"
        return Refusal(Reason.LAYOUT, detail)
    if src.data_type is not dst.data_type:
        rule = "packing keeps the data type"
        return Refusal(Reason.DATA_TYPE, f"{src.data_type} to {dst.data_type}; {rule}")
    refusal = refuse_packed(dst)
    if refusal is not None:
        return refusal
    scratchpad = Scratchpad()
    panels = scratchpad.copy((Arg.FROM, src), as_panels(dst))
    return PackedConf(src, dst, panels, tuple(scratchpad.copies), scratchpad.size)


def build(conf: PackedConf, isa: Isa) -> Kernel:
    """The copy, the bits, the places, and the values."""
    module, arguments = Module("reorder", isa), Arguments()
    phases = emit_copies(module, "reorder", conf.copies, arguments)
    if conf.dst.nelems():
        phases += [
            emit(module, conf, arguments) for emit in (_emit_bits, _emit_places, _emit_values)
        ]
    return Kernel(module, tuple(phases), arguments.ids)


class _Stretches:
    """A phase whose work items are stretches of panels."""

    def __init__(self, module: Module, name: str, conf: PackedConf, arguments: Arguments) -> None:
        parts = [arguments.slot(Arg.part(Arg.TO, number)) for number in range(3)]
        panels = arguments.slot(conf.panels[0])
        symbol = f"reorder_{name}__{conf.dst.data_type}__1x1__{module.isa.name}"
        self.phase = PhaseFunction(module, symbol, (*parts, panels))
        self.e = self.phase.e
        self.values, self.places, self.bits = (self.phase.arguments[slot] for slot in parts)
        begin = i64(conf.panels[1].offset0)
        self._panels = self.e.element(self.phase.arguments[panels], begin, I8)
        encoding = conf.encoding
        self.count, self._k_groups, self._stretches = encoding.panels(conf.dst.dims)
        self._group_elements = encoding.columns * encoding.group

    @property
    def items(self) -> int:
        """The number of stretches."""
        return self.count * self._stretches

    def octets(self, item: Value) -> tuple[Value, Value]:
        """The first group of eight elements of a stretch, and the one behind its last."""
        e = self.e
        panel, number = e.divmod(item, self._stretches)
        k_group = e.mul(number, STRETCH)
        end = e.smaller(e.add(k_group, i64(STRETCH)), i64(self._k_groups))
        before, each = e.mul(panel, self._k_groups), self._group_elements // _BYTE
        return e.mul(e.add(before, k_group), each), e.mul(e.add(before, end), each)

    def elements(self, octet: Value) -> Value:
        """The address of eight elements."""
        return self.e.element(self._panels, self.e.mul(octet, _BYTE), I8)

    def place(self, number: Value) -> Value:
        """The address of the place of a stretch."""
        return self.e.element(self.places, number, I64)


def _emit_bits(module: Module, conf: PackedConf, arguments: Arguments) -> Phase:
    """Write the phase that computes the bits of each stretch, and counts them."""
    own = _Stretches(module, "bits", conf, arguments)
    e, kind = own.e, vector.vector_type(I8, _BYTE)

    def item(number: Value) -> None:
        def octet(at: Value, found: Value) -> Values:
            elements = vector.load(e, own.elements(at), kind)
            there = e.b.icmp_signed("!=", elements, vector.splat_constant(kind, 0))
            bits = _as_bits(e, there)
            e.b.store(bits, e.element(own.bits, at, I8))
            more = e.intrinsic("llvm.ctpop.i64", I64, [e.b.zext(bits, I64)])
            return (e.add(found, more),)

        (found,) = e.loop(*own.octets(number), octet, (i64(0),), unroll=False, name="octet")
        e.b.store(found, own.place(number), align=8)

    own.phase.each_item(own.items, item)
    return own.phase.end(own.items)


def _as_bits(e: Emitter, lanes: Value) -> Value:
    """The bits of a byte that say which of eight lanes are set."""
    if e.isa.mask_registers:
        return e.b.bitcast(lanes, I8)
    each = enumerate(vector.each_lane(e, lanes))
    return reduce(e.b.or_, (e.b.shl(e.b.zext(lane, I8), I8(number)) for number, lane in each))


def _emit_places(module: Module, conf: PackedConf, arguments: Arguments) -> Phase:
    """Write the phase that computes the prefix sums of the counts."""
    own = _Stretches(module, "places", conf, arguments)
    e = own.e

    def item(_: Value) -> None:
        def stretch(number: Value, before: Value) -> Values:
            count = e.b.load(own.place(number), typ=I64, align=8)
            e.b.store(before, own.place(number), align=8)
            return (e.add(before, count),)

        ends = i64(0), i64(own.items)
        (total,) = e.loop(*ends, stretch, (i64(0),), unroll=False, name="stretch")
        e.b.store(total, own.place(i64(own.items)), align=8)

    own.phase.each_item(1, item)
    return own.phase.end(1)


def _emit_values(module: Module, conf: PackedConf, arguments: Arguments) -> Phase:
    """Write the phase that copies values. Zeros, and values beyond the capacity, go to the padding
    behind all values, so that threads do not overwrite each other's values."""
    own = _Stretches(module, "values", conf, arguments)
    e, limit = own.e, i64(conf.encoding.nnz)

    def item(number: Value) -> None:
        def octet(at: Value, place: Value) -> Values:
            elements = own.elements(at)
            for lane in range(_BYTE):
                value = e.b.load(e.element(elements, i64(lane), I8), typ=I8)
                there = e.b.icmp_signed("!=", e.b.zext(value, I64), i64(0))
                to = e.b.select(there, e.smaller(place, limit), limit)
                e.b.store(value, e.element(own.values, to, I8))
                place = e.add(place, e.b.zext(there, I64))
            return (place,)

        begin = e.b.load(own.place(number), typ=I64, align=8)
        e.loop(*own.octets(number), octet, (begin,), unroll=False, name="octet")

    own.phase.each_item(own.items, item)
    return own.phase.end(own.items)
