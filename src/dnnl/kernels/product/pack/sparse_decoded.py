"""Panels of weights from storage without zeros (`Packed`)::

    bits      0 1 1 0 0 1 0 0 | ...     one for each element, read in order
    values    a b c ...
    decoded   0 a b 0 0 c 0 0 | ...

Neither the places of values nor their number are validated: wrong ones give wrong results, and no
read leaves the buffers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from dnnl.codegen.ir.builder import I8, I64, Emitter, Module, Value, Values, i64
from dnnl.codegen.ir.kernel import Arguments, Reason, Refusal
from dnnl.codegen.ir.vector import prefetch
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Env, Operand
from dnnl.codegen.memory.address import ZERO
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.codegen.product.brgemm import PREFETCH_DISTANCE, max_rows
from dnnl.codegen.product.multiply import Multiply
from dnnl.codegen.product.sparse_expand import Expander
from dnnl.kernels.product.base.problem import Panels
from dnnl.kernels.product.pack.on_the_fly import (
    BoundPacking,
    IndexOf,
    PanelBuffer,
    PanelPacking,
    Span,
    Writer,
)
from dnnl.kernels.shared.scratchpad import Argument
from dnnl.kernels.shared.types import BYTES
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg
from dnnl.types.dtype import any_of
from dnnl.types.encoding import STRETCH, Packed
from dnnl.types.memory_desc import MemoryDesc

_BYTE = 8  # bits
_RUN = 128
"""Elements that are decoded at a time."""


def packed(weights: MemoryDesc) -> Packed | None:
    """The encoding of packed weights, None for other weights."""
    return weights.encoding if isinstance(weights.encoding, Packed) else None


def as_panels(weights: MemoryDesc) -> MemoryDesc:
    """The panels that packed weights decode to; for a request of packed weights, a request of any
    layout."""
    encoding = packed(weights)
    assert encoding is not None, "there is nothing to unpack"
    return MemoryDesc(weights.dims, weights.data_type, encoding.tag if encoding.columns else "any")


def packed_as(weights: MemoryDesc, panels: MemoryDesc) -> MemoryDesc:
    """Packed weights for a product that reads ``panels``. K groups are rounded up to whole bytes of
    bits."""
    encoding = packed(weights)
    assert encoding is not None, "there is nothing to pack"
    (_, columns), *depth = panels.inner_blocks
    group = depth[0][1] if depth else 1
    unit = max(1, _BYTE // group)
    chosen = Packed(encoding.nnz, -(-columns // unit) * unit, group)
    return MemoryDesc.encoded(weights.dims, weights.data_type, chosen)


def refuse_packed(weights: MemoryDesc) -> Refusal | None:
    """Why a product of these packed weights cannot be generated, or None."""
    if weights.data_type not in BYTES:
        rule = f"it takes {any_of(BYTES)}; csr and coo take floats"
        return Refusal(Reason.DATA_TYPE, f"packed weights of {weights.data_type}; {rule}")
    return None


@dataclass(frozen=True)
class SparseDecodedPacking(PanelPacking):
    """Packed weights of an ``encoding`` are decoded."""

    encoding: Packed

    def bound(self, arguments: Arguments, at: IndexOf) -> BoundPacking:
        argument, desc = self.weights
        keys = [Arg.part(argument, number) for number in range(len(desc.buffers))]
        values, places, bits = (
            Operand(arguments.slot(key), own, (ZERO,))
            for key, own in zip(keys, desc.buffers, strict=True)
        )
        return BoundSparseDecoded(self, values, places, bits)

    def emit(self, module: Module, symbol: str, panels: Argument, arguments: Arguments) -> Phase:
        """Write a phase that decodes all weights into ``panels``; a work item is a stretch."""
        argument, desc = self.weights
        given = [arguments.slot(Arg.part(argument, number)) for number in range(len(desc.buffers))]
        slot = arguments.slot(panels[0])
        phase = PhaseFunction(module, symbol, (*given, slot))
        e, encoding = phase.e, self.encoding
        values, places, bits = (phase.arguments[own] for own in given)
        count, k_groups, stretches = encoding.panels(desc.dims)
        decoder = _Decoder(e, encoding, k_groups)
        start = e.element(phase.arguments[slot], i64(panels[1].offset0), I8)
        size = encoding.columns * encoding.group

        def item(number: Value) -> None:
            panel, stretch = e.divmod(number, stretches)

            def to(k_group: Value) -> Value:
                group = e.add(e.mul(panel, k_groups), k_group)
                return e.element(start, e.mul(group, size), I8)

            decoder.write((values, places, bits), panel, stretch, i64(k_groups), to)

        phase.each_item(count * stretches, item)
        return phase.end(count * stretches)


def plan_sparse_decoded(
    isa: Isa, weights: Argument, dot: Multiply, terms: int
) -> tuple[SparseDecodedPacking, Panels] | Refusal:
    """How threads decode packed weights for a dot-product kind, and the panels that they decode
    to."""
    _, desc = weights
    encoding = packed(desc)
    assert encoding is not None, "there is nothing to expand"
    vectors, rest = divmod(encoding.columns, isa.lanes)
    fits = dot.group == encoding.group and not rest
    if not fits or max_rows(isa, vectors * dot.span, dot.parts) < 1:
        detail = f"weights in K groups of {encoding.group} and panels of {encoding.columns} columns"
        rule = f"{isa.name} reads K groups of {dot.group}; MemoryDesc.packed leaves both open"
        return Refusal(Reason.LAYOUT, f"{detail}; {rule}")
    return SparseDecodedPacking(weights, terms, encoding), Panels(as_panels(desc), vectors)


@dataclass(frozen=True, eq=False)
class BoundSparseDecoded(BoundPacking):
    """The buffers of packed weights."""

    plan: SparseDecodedPacking
    values: Operand
    places: Operand
    bits: Operand

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (self.values, self.places, self.bits)

    def least_k_groups(self, dot: Multiply) -> int:
        return STRETCH

    def writer(self, buffer: PanelBuffer) -> Writer:
        return _SparseWriter(self, buffer)


class _Decoder:
    """Decodes stretch by stretch; K groups of a stretch are contiguous, as its bits and values are.
    A column has ``k_groups`` K groups."""

    def __init__(self, e: Emitter, encoding: Packed, k_groups: int) -> None:
        self.e, self._encoding, self._k_groups = e, encoding, k_groups
        self._expander = Expander(e)

    @property
    def stretches(self) -> int:
        """The stretches of a panel."""
        return -(-self._k_groups // STRETCH)

    def write(
        self, buffers: Values, panel: Value, number: Value, end: Value, to: Callable[[Value], Value]
    ) -> None:
        """Decode the K groups below ``end`` of a stretch of a panel; the first one is written to
        the address ``to(its number)``. ``buffers`` are the addresses of values, places and bits."""
        e, (values, places, bits) = self.e, buffers
        begin = e.mul(number, STRETCH)
        count = e.b.sub(e.smaller(e.add(begin, i64(STRETCH)), end), begin)
        place = e.add(e.mul(panel, self.stretches), number)
        taken = self._clamped(e.b.load(e.element(places, place, I64), typ=I64, align=8))
        k_group = e.add(e.mul(panel, self._k_groups), begin)
        self._write(k_group, count, taken, (values, bits), to(begin))

    def _write(
        self, k_group: Value, count: Value, taken: Value, buffers: Values, dst: Value
    ) -> None:
        """Decode ``count`` K groups from ``k_group`` on; ``taken`` is the index of the next
        value."""
        e, (values, bits) = self.e, buffers
        octets = self._encoding.columns * self._encoding.group // _BYTE
        bits = e.element(bits, e.mul(k_group, octets), I8)
        wide, rest = e.divmod(e.mul(count, octets), _RUN // _BYTE)

        def run(size: int, begin: Value, number: Value, taken: Value) -> Values:
            octet = e.add(begin, e.mul(number, size // _BYTE))
            following = e.element(values, taken, I8)
            if size == _RUN:
                prefetch(e, e.element(following, i64(PREFETCH_DISTANCE), I8), second_level=True)
            to = e.element(dst, e.mul(octet, _BYTE), I8)
            found = self._expander.expand(e.element(bits, octet, I8), following, to, size)
            return (self._clamped(e.add(taken, found)),)

        whole, single = partial(run, _RUN, i64(0)), partial(run, _BYTE, e.mul(wide, _RUN // _BYTE))
        (taken,) = e.loop(i64(0), wide, whole, (taken,), unroll=False, name="run")
        e.loop(i64(0), rest, single, (taken,), unroll=False, name="octet")

    def _clamped(self, place: Value) -> Value:
        """The place of a value, clamped to the padding behind all values."""
        e = self.e
        limit = i64(self._encoding.nnz)
        return e.b.select(e.b.icmp_unsigned("<", place, limit), place, limit)


class _SparseWriter(Writer):
    """Decodes the stretches of a panel, as far as they are in a buffer."""

    def __init__(self, packing: BoundSparseDecoded, buffer: PanelBuffer) -> None:
        super().__init__(buffer)
        pointers = buffer.pointers
        self._buffers = tuple(pointers[operand] for operand in packing.operands)
        self._decoder = _Decoder(self.e, packing.plan.encoding, packing.k_groups(buffer.dot))

    def write_panel(self, env: Env, k_groups: Span, start: Value) -> None:
        e, panel = self.e, env[self.buffer.columns.panel]
        (first, _), (last, rest) = (e.divmod(k_group, STRETCH) for k_group in k_groups)
        more = e.b.zext(e.b.icmp_signed("!=", rest, i64(0)), I64)

        def stretch(number: Value) -> None:
            self._decoder.write(
                self._buffers,
                panel,
                number,
                k_groups[1],
                lambda k_group: self.buffer.row(start, k_group, 0),
            )

        e.loop(first, e.add(last, more), stretch, unroll=False, name="stretch")
