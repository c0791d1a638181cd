"""Packed copies of the parts of operands that a K block reads, in scratch memory of the thread.

If each element of a part is used by many tiles, but by no other K block, a packed copy of the whole
operand would go through memory in vain. The thread copies the parts when a block begins, and finds
them in its second-level cache::

    for each K block of the sums:
        copy its part of src and of weights        any layout, any strides  ->  rows, panels
        for each panel, for each tile:  sums += rows x panel

A part has the same shape in each block, and the strides of the whole tensor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dnnl.codegen.ir.builder import I8, Emitter, Value, i64
from dnnl.codegen.ir.kernel import Arguments
from dnnl.codegen.isa.caches import LINE
from dnnl.codegen.memory.access import Env, Operand
from dnnl.codegen.nest.calls import PhaseCalls
from dnnl.codegen.product.brgemm import Level, Stream, merge_levels
from dnnl.kernels.shared.copies import emit_k_groups
from dnnl.types.memory_desc import MemoryDesc

_SOURCE, _COPY = 0, 1


@dataclass(frozen=True, eq=False)
class BlockCopy:
    """A product reads ``copy``. Its element 0 is that of ``source`` at the source's index, which
    depends on the work item and the K block. ``part`` describes a part of the source from there
    on."""

    source: Operand
    part: MemoryDesc
    copy: Operand

    @property
    def nbytes(self) -> int:
        """The bytes of the copy, in whole cache lines."""
        return _in_lines(self.copy.desc.size)


class BlockCopies:
    """Writes the ``copies`` of a product, with functions of their own."""

    def __init__(
        self,
        e: Emitter,
        copies: Sequence[BlockCopy],
        pointers: Mapping[Operand, Value],
    ) -> None:
        self.e, self._copies, self._pointers = e, copies, pointers
        self._phases = [
            emit_k_groups(
                e.module,
                f"{e.function.name}_block{number}",
                (_SOURCE, copy.part),
                (_COPY, copy.copy.desc),
                Arguments(),
            )
            for number, copy in enumerate(copies)
        ]
        self._places: list[Value] = []

    @property
    def nbytes(self) -> int:
        """The bytes of the copies, and of what the functions take."""
        scratch = max(phase.scratch for phase in self._phases)
        return sum(copy.nbytes for copy in self._copies) + _CALLS + scratch

    def at(self, buffer: Value) -> dict[Operand, Value]:
        """Place the copies one behind the other in ``buffer``. Returns their addresses."""
        end = 0
        for copy in self._copies:
            self._places.append(self.e.element(buffer, i64(end), I8))
            end += copy.nbytes
        calls, scratch = (self.e.element(buffer, i64(at), I8) for at in (end, end + _CALLS))
        self._calls = PhaseCalls(self.e, calls, scratch)
        copies = (copy.copy for copy in self._copies)
        return dict(zip(copies, self._places, strict=True))

    def write(self, env: Env) -> None:
        """Copy the parts that belong to ``env``."""
        for copy, phase, place in zip(self._copies, self._phases, self._places, strict=True):
            self._calls.use((self._part(copy, env), place))
            self._calls.call(phase, phase.count)

    def _part(self, copy: BlockCopy, env: Env) -> Value:
        """The address of the part that belongs to ``env``."""
        source = copy.source
        offset = source.offset(source.index)
        assert offset is not None, "planned so"
        distance = (offset + -source.desc.offset0) * source.desc.data_type.size
        return self.e.element(self._pointers[source], distance.emit(self.e, env), I8)

    def look_ahead(self, env: Env) -> None:
        """Let tiles prefetch the parts that belong to ``env``."""
        self._ahead = [self._part(copy, env) for copy in self._copies]

    def stream(self, tile: Value) -> Stream | None:
        """What a tile prefetches: one of the streams of both parts."""
        e, b, first = self.e, self.e.b, 0
        start, step = self._ahead[0], i64(0)
        for begin, streams in zip(self._ahead, map(_Streams.of, self._copies), strict=True):
            if streams is not None:
                number = e.b.sub(tile, i64(first))
                inside = b.icmp_unsigned("<", number, i64(streams.count))
                own = e.element(begin, streams.offset(e, number), I8)
                start = b.select(inside, own, start)
                step = b.select(inside, i64(streams.step), step)
                first += streams.count
        return Stream(start, step) if first else None


@dataclass(frozen=True)
class _Streams:
    """A part of a tensor as streams of lines. Each has a line of each K group, ``step`` bytes from
    one to the next: ``lines`` of each of the ``members`` of a group, at these distances."""

    step: int
    begin: int
    lines: int
    between_lines: int
    members: int
    between_members: int

    @staticmethod
    def of(copy: BlockCopy) -> _Streams | None:
        """The streams of a part. None if K groups are not evenly apart, or not by half a line, or
        if channels are neither contiguous nor in blocks of up to a line."""
        part, size = copy.part, copy.part.data_type.size
        (images, channels, *pixels), (image, channel, *strides) = part.dims, part.strides
        blocks = copy.copy.desc.inner_blocks
        members = blocks[-1][1] if blocks and blocks[-1][0] == 0 else 1
        walked = zip((images // members, *pixels), (image * members, *strides), strict=True)
        levels = merge_levels([Level.over(extent, step, step) for extent, step in walked])
        step = levels[0].a_step * size
        line, between = LINE // size, LINE
        if len(part.inner_blocks) == 1:
            line, between = part.inner_blocks[0][1], channel * size
        elif part.inner_blocks or channel != 1:
            return None
        if len(levels) > 1 or 2 * step < LINE or line * size > LINE:
            return None
        lines = -(-channels // line)
        return _Streams(step, part.offset0 * size, lines, between, members, image * size)

    @property
    def count(self) -> int:
        """The number of streams."""
        return self.lines * self.members

    def offset(self, e: Emitter, number: Value) -> Value:
        """The byte at which a stream begins."""
        line, member = e.divmod(number, self.members)
        distance = e.add(e.mul(line, self.between_lines), e.mul(member, self.between_members))
        return e.add(distance, i64(self.begin))


def _in_lines(nbytes: int) -> int:
    return -(-nbytes // LINE) * LINE


_CALLS = _in_lines(PhaseCalls.nbytes(2))
