"""Operands of a matrix unit: rows of bf16, and pairs of rows side by side, in whole K blocks.

row     | k0 k1 k2 .. | 0 ..                 A, of which tiles have 16
pair    | a0 b0 a1 b1 .. | 0 ..              B, the K groups of all columns of two rows
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import I16, I32, Emitter, Type, Value, i64
from dnnl.codegen.ir.transpose import interleave_registers, transpose_registers
from dnnl.codegen.ir.vector import Mask
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.kernels.attention.problem import GROUP, K_BLOCK, AttentionConf
from dnnl.kernels.attention.rows import Lanes, Rows
from dnnl.kernels.attention.scores import Slots, rows_of
from dnnl.runtime.image import Phase
from dnnl.types.memory_desc import MemoryDesc

Job = tuple[int, MemoryDesc, bool]
"""What a phase packs: the argument of keys or values, where to, and whether in pairs."""


@dataclass(frozen=True)
class Packer:
    """Packs the first ``count`` rows of ``columns`` elements."""

    e: Emitter
    source: Rows
    count: Value
    columns: int

    @property
    def _kind(self) -> Type:
        return vector.vector_type(I16, self.e.isa.vector_bits // 16)

    def row(self, number: Value, to: Value, pitch: int) -> None:
        """Write a row of ``pitch`` elements."""
        e, lanes = self.e, self._kind.count
        for column in range(0, pitch, lanes):
            vector.store(e, self._loaded(number, column), e.element(to, i64(column), I16))

    def pair(self, number: Value, to: Value, pitch: int) -> None:
        """Write a pair of rows of ``pitch`` elements each."""
        e, lanes = self.e, self._kind.count
        first = e.mul(number, GROUP)
        for column in range(0, pitch, lanes):
            rows = [self._loaded(e.add(first, i64(n)), column) for n in range(GROUP)]
            for n, made in enumerate(interleave_registers(e, rows)):
                vector.store(e, made, e.element(to, i64(GROUP * column + n * lanes), I16))

    def _loaded(self, row: Value, column: int) -> Value:
        """A vector of a row, zeros behind its end, and behind the last row."""
        e, kind = self.e, self._kind
        mask = vector.known_lanes([column + lane < self.columns for lane in range(kind.count)])
        present = e.b.icmp_signed("<", row, self.count)
        at = e.smaller(row, e.b.sub(self.count, i64(1)))
        start = e.element(self.source.row(e, at), i64(column), I16)
        return e.b.select(
            present, vector.load(e, start, kind, mask), vector.splat_constant(kind, 0)
        )


def _packed(
    write: Callable[[Value, Value, int], None], e: Emitter, to: Rows, pitch: int, row: Value
) -> None:
    write(row, to.row(e, row), pitch)


def pack_columns(lanes: Lanes, source: Rows, count: Value, columns: int, to: Value) -> None:
    """Write pairs of elements, with rows in lanes: B of products along the elements of rows. Rows
    behind the last one are copies of it."""
    e, width = lanes.e, lanes.e.isa.lanes
    kind, last = vector.vector_type(I16, GROUP * width), e.b.sub(count, i64(1))
    packed = vector.vector_type(I32, width)
    starts = [source.row(e, e.smaller(i64(row), last)) for row in range(lanes.count)]

    def piece(column: Value, mask: Mask) -> None:
        group, _ = e.divmod(column, GROUP)
        for v in range(lanes.vectors):
            loaded = (
                vector.load(e, e.element(start, column, I16), kind, mask)
                for start in starts[v * width : (v + 1) * width]
            )
            rows = transpose_registers(e, [e.b.bitcast(own, packed) for own in loaded])
            for number, own in enumerate(rows):
                vector.store(e, own, lanes.at(to, e.add(group, i64(number)), v))

    whole = columns - columns % kind.count
    e.loop(i64(0), i64(whole), lambda at: piece(at, None), step=kind.count, unroll=False)
    if whole < columns:
        present = [lane < columns - whole for lane in range(kind.count)]
        piece(i64(whole), vector.known_lanes(present))


def pack_heads(
    conf: AttentionConf, phase: PhaseFunction, slots: Slots, scratchpad: int, jobs: Sequence[Job]
) -> Phase:
    """Finish a phase that packs keys and values of all heads, by K blocks of rows."""
    e, blocks, heads = phase.e, -(-conf.keys // K_BLOCK), conf.key.dims[1]

    def item(number: Value) -> None:
        pair, block = e.divmod(number, blocks)
        batch, head = e.divmod(pair, heads)
        first = e.mul(block, K_BLOCK)
        for argument, desc, in_pairs in jobs:
            source = rows_of(phase, *slots[argument], batch, head)
            to = rows_of(phase, scratchpad, desc, batch, head)
            packer = Packer(e, source, e.number(conf.keys), slots[argument][1].dims[3])
            group = GROUP if in_pairs else 1
            begin, _ = e.divmod(first, group)
            end = e.add(begin, i64(K_BLOCK // group))
            write, pitch = packer.pair if in_pairs else packer.row, desc.dims[3] // group

            e.loop(begin, end, partial(_packed, write, e, to, pitch), unroll=False, name="row")

    count = conf.key.dims[0] * heads * blocks
    phase.each_item(count, item)
    return phase.end(count)
