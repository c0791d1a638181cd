"""Zero padding of images whose pixels are contiguous in memory: a byte copy, row by row.

K groups that channels do not fill are padded with zeros on the way::

    r g b r g b r g b ...    is loaded as a vector, and stored as    r g b 0 r g b 0 r g b 0 ...
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import I8, Emitter, Module, Value, Values, i64
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.address import Axis, decode
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.runtime.image import Phase
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True)
class Around:
    """A dimension outside of the rows: its size in the copy and in src, the zeros ``before`` src in
    the copy, and the bytes of one ``step`` in src."""

    copy_size: int
    src_size: int
    before: int
    step: int


@dataclass(frozen=True)
class Rows:
    """Rows of ``width`` units with ``before`` and ``behind`` units of zeros around them. A unit is
    the channels of a pixel, or of one of its groups: ``src_bytes`` in src, whose first one is at
    byte ``src_begin``, and ``copy_bytes`` in the copy."""

    around: tuple[Around, ...]
    before: int
    width: int
    behind: int
    src_bytes: int
    copy_bytes: int
    src_begin: int

    @staticmethod
    def of(isa: Isa, src: MemoryDesc, copy: MemoryDesc, before: tuple[int, ...]) -> Rows | None:
        """The rows of a copy of src with ``before`` zeros in front of its first pixel in each
        spatial dimension. None if units are not contiguous or do not fill vectors."""
        head, size = src.ndims - len(before), src.data_type.size
        src_bytes, copy_bytes = (desc.padded_dims[head - 1] * size for desc in (src, copy))
        whole = src_bytes == copy_bytes or isa.vector_bits % (8 * copy_bytes) == 0
        side_by_side = not src.inner_blocks and src.strides[head - 1] == 1
        side_by_side = side_by_side and _units(src, head) and _units(copy, head)
        lines = copy.strides[head:-1] == tuple(
            prod((*copy.dims[dim + 1 :], copy.strides[-1])) for dim in range(head, copy.ndims - 1)
        )
        if not (whole and side_by_side and lines and src.data_type is copy.data_type):
            return None
        dims, per_pixel = (0, *range(head, src.ndims - 1)), prod(src.dims[1 : head - 1])
        around = tuple(
            Around(copy.dims[dim], src.dims[dim], shift, src.strides[dim] * size)
            for dim, shift in zip(dims, (0, *before[:-1]), strict=True)
        )
        behind = copy.dims[-1] - src.dims[-1] - before[-1]
        return Rows(
            around,
            per_pixel * before[-1],
            per_pixel * src.dims[-1],
            per_pixel * behind,
            src_bytes,
            copy_bytes,
            src.offset0 * size,
        )

    @property
    def row_bytes(self) -> int:
        """The bytes of a row of the copy."""
        return (self.before + self.width + self.behind) * self.copy_bytes

    def emit(self, module: Module, symbol: str, src: int, copy: int, offset: int) -> Phase:
        """Write the phase that copies rows of slot ``src`` to byte ``offset`` of slot ``copy``."""
        phase = PhaseFunction(module, symbol, (src, copy))
        e, axes = phase.e, [Axis(own.copy_size, "row") for own in self.around]
        target = e.element(phase.arguments[copy], i64(offset), I8)

        def item(number: Value) -> None:
            env = decode(e, number, axes)
            row = e.element(target, e.mul(number, self.row_bytes), I8)
            self.write(e, phase.arguments[src], row, [env[axis] for axis in axes])

        count = prod(own.copy_size for own in self.around)
        phase.each_item(count, item)
        return phase.end(count)

    def write(self, e: Emitter, src: Value, row: Value, index: Sequence[Value]) -> None:
        """Write the row of the copy at this index of the outer dimensions."""
        src_index = [
            e.add(at, i64(-own.before)) for at, own in zip(index, self.around, strict=True)
        ]
        steps = (e.mul(at, own.step) for at, own in zip(src_index, self.around, strict=True))
        source = e.element(src, reduce(e.add, steps, i64(self.src_begin)), I8)
        inside = [
            e.b.icmp_unsigned("<", at, i64(own.src_size))
            for at, own in zip(src_index, self.around, strict=True)
        ]

        def copied() -> Values:
            begin, end = self.before * self.copy_bytes, (self.before + self.width) * self.copy_bytes
            _zero(e, row, begin)
            self._copy(e, source, e.element(row, i64(begin), I8))
            _zero(e, e.element(row, i64(end), I8), self.behind * self.copy_bytes)
            return ()

        def empty() -> Values:
            _zero(e, row, self.row_bytes)
            return ()

        e.branch(reduce(e.b.and_, inside), copied, empty)

    def _copy(self, e: Emitter, source: Value, target: Value) -> None:
        """Copy the part of a row that comes from src."""
        lanes = e.isa.vector_bits // 8
        units = lanes // self.copy_bytes if self.src_bytes != self.copy_bytes else 0
        kind = vector.vector_type(I8, lanes)
        chosen = [
            unit * self.src_bytes + byte if byte < self.src_bytes else lanes
            for unit in range(units)
            for byte in range(self.copy_bytes)
        ]

        def part(first: Value, count: int) -> None:
            if not units:
                where, known = first, _first(lanes, count)
                value = vector.load(e, e.element(source, where, I8), kind, known)
            else:
                where = e.mul(e.b.udiv(first, i64(self.copy_bytes)), self.src_bytes)
                known = _first(lanes, count // self.copy_bytes * self.src_bytes)
                loaded = vector.load(e, e.element(source, where, I8), kind, known)
                value = vector.shuffle(e, loaded, vector.splat_constant(kind, 0), chosen)
            vector.store(e, value, e.element(target, first, I8), _first(lanes, count))

        _each(e, self.width * self.copy_bytes, part)


def _units(desc: MemoryDesc, head: int) -> bool:
    """Whether pixels are contiguous, and within them the groups of channels, which are the
    dimensions up to ``head``."""
    wanted = [prod(desc.padded_dims[dim + 1 : head]) for dim in range(head - 1)]
    return [desc.strides[-1], *desc.strides[1 : head - 1]] == wanted


def _zero(e: Emitter, pointer: Value, nbytes: int) -> None:
    """Clear so many bytes."""
    lanes = e.isa.vector_bits // 8
    zeros = vector.splat_constant(vector.vector_type(I8, lanes), 0)

    def part(first: Value, count: int) -> None:
        vector.store(e, zeros, e.element(pointer, first, I8), _first(lanes, count))

    _each(e, nbytes, part)


def _each(e: Emitter, nbytes: int, part: Callable[[Value, int], None]) -> None:
    """Call ``part(first, count)`` for each vector of these bytes; the last one may be short."""
    lanes = e.isa.vector_bits // 8
    whole = nbytes // lanes * lanes
    e.loop(i64(0), i64(whole), lambda first: part(first, lanes), step=lanes, name="bytes")
    if whole < nbytes:
        part(i64(whole), nbytes - whole)


def _first(lanes: int, count: int) -> vector.Mask:
    return vector.known_lanes([lane < count for lane in range(lanes)])
