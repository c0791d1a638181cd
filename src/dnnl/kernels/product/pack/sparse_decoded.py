"""Panels of weights from storage without zeros (`Packed`)::

    bits      0 1 1 0 0 1 0 0 | ...     one for each element, read in order
    values    a b c ...
    decoded   0 a b 0 0 c 0 0 | ...

Neither the places of values nor their number are validated: wrong ones give wrong results, and no
read leaves the buffers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from dnnl.codegen.ir.builder import I8, I64, Emitter, Value, Values, i64
from dnnl.codegen.ir.kernel import Arguments, Reason, Refusal
from dnnl.codegen.ir.vector import prefetch
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Env, Operand
from dnnl.codegen.memory.address import ZERO
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


def refuse_packed(isa: Isa, weights: MemoryDesc) -> Refusal | None:
    """Why a product of these packed weights cannot be generated, or None."""
    if weights.data_type not in BYTES:
        rule = f"it takes {any_of(BYTES)}; csr and coo take floats"
        return Refusal(Reason.DATA_TYPE, f"packed weights of {weights.data_type}; {rule}")
    if isa.device is not None:
        return Refusal(Reason.ISA, f"packed weights on the device {isa.name}")
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


class _SparseWriter(Writer):
    """Decodes stretch by stretch; K groups of a stretch are contiguous, as its bits and values
    are."""

    def __init__(self, packing: BoundSparseDecoded, buffer: PanelBuffer) -> None:
        super().__init__(buffer)
        self._packing, self._encoding = packing, packing.plan.encoding
        self._k_groups = packing.k_groups(buffer.dot)
        self._expander = Expander(self.e)

    def write_panel(self, env: Env, k_groups: Span, start: Value) -> None:
        e, stretches = self.e, -(-self._k_groups // STRETCH)
        panel = env[self.buffer.columns.panel]
        (first, _), (last, rest) = (e.divmod(k_group, STRETCH) for k_group in k_groups)
        more = e.b.zext(e.b.icmp_signed("!=", rest, i64(0)), I64)

        def stretch(number: Value) -> None:
            begin = e.mul(number, STRETCH)
            count = e.b.sub(e.smaller(e.add(begin, i64(STRETCH)), k_groups[1]), begin)
            place = e.add(e.mul(panel, stretches), number)
            where = e.element(self.buffer.pointers[self._packing.places], place, I64)
            taken = self._clamped(e.b.load(where, typ=I64, align=8))
            self._write(
                e.add(e.mul(panel, self._k_groups), begin),
                count,
                taken,
                self.buffer.row(start, begin, 0),
            )

        e.loop(first, e.add(last, more), stretch, unroll=False, name="stretch")

    def _write(self, k_group: Value, count: Value, taken: Value, dst: Value) -> None:
        """Decode ``count`` K groups from ``k_group`` on; ``taken`` is the index of the next
        value."""
        e, pointers = self.e, self.buffer.pointers
        octets = self._encoding.columns * self._encoding.group // _BYTE
        bits = e.element(pointers[self._packing.bits], e.mul(k_group, octets), I8)
        wide, rest = e.divmod(e.mul(count, octets), _RUN // _BYTE)

        def run(size: int, begin: Value, number: Value, taken: Value) -> Values:
            octet = e.add(begin, e.mul(number, size // _BYTE))
            values = e.element(pointers[self._packing.values], taken, I8)
            if size == _RUN:
                prefetch(e, e.element(values, i64(PREFETCH_DISTANCE), I8), second_level=True)
            to = e.element(dst, e.mul(octet, _BYTE), I8)
            found = self._expander.expand(e.element(bits, octet, I8), values, to, size)
            return (self._clamped(e.add(taken, found)),)

        whole, single = partial(run, _RUN, i64(0)), partial(run, _BYTE, e.mul(wide, _RUN // _BYTE))
        (taken,) = e.loop(i64(0), wide, whole, (taken,), unroll=False, name="run")
        e.loop(i64(0), rest, single, (taken,), unroll=False, name="octet")

    def _clamped(self, place: Value) -> Value:
        """The place of a value, clamped to the padding behind all values."""
        e: Emitter = self.e
        limit = i64(self._encoding.nnz)
        return e.b.select(e.b.icmp_unsigned("<", place, limit), place, limit)
