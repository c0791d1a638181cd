"""Depthwise convolution of bytes by a dot-product instruction that sums four products: those of
four taps.

The channels that four taps read are loaded as vectors and interleaved within units of 128 bits, and
so are the weights of the taps::

    tap 0   a0 a1 a2 ..                  a0 b0 c0 d0   a1 b1 c1 d1   ..
    tap 1   b0 b1 b2 ..        ->
    tap 2   c0 c1 c2 ..           x      u0 v0 w0 x0   u1 v1 w1 x1   ..
    tap 3   d0 d1 d2 ..

A panel has as many registers of sums as vectors of channels; the sums are reordered before they are
stored. Taps outside of the image have zero channels. A signed src gets 128 added for an instruction
that takes unsigned bytes. That and the zero point are compensated by sums of the weights that an
output reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from dnnl.codegen.epilogue.product_epilogue import core_type
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import I8, I32, Module, Type, Value, Values, i64
from dnnl.codegen.ir.kernel import Arguments
from dnnl.codegen.ir.transpose import unzip
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Bound, Env
from dnnl.codegen.product.brgemm import Tile
from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.convolution.depthwise.rows import (
    DepthwiseRowsConf,
    DepthwiseRowsWriter,
    has_scalar_src_zero_point,
    load_one,
    three,
)
from dnnl.kernels.convolution.direct.problem import ConvolutionProblem
from dnnl.kernels.product.base.pixel_tiles import Spatial
from dnnl.kernels.product.base.store import Store
from dnnl.kernels.shared.scratchpad import Argument, Scratchpad
from dnnl.kernels.shared.types import BYTES
from dnnl.runtime.image import Phase
from dnnl.types.dtype import DataType
from dnnl.types.kinds import FormatKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.tag import FormatTag

_TAPS = 4  # taps of an instruction
_UNIT = 16  # bytes within which neighbours can be interleaved
_MOST_VECTORS = 4
_MOST_TAPS = 64  # all of which are unrolled
_SIGN = 128


class DepthwiseBytesConf(DepthwiseRowsConf):
    """Bytes; activations have no blocks."""

    def emit(self, module: Module, name: str, arguments: Arguments) -> list[Phase]:
        return [_BytesWriter(module, name, self, arguments).phase()]


def plan(problem: ConvolutionProblem, isa: Isa) -> DepthwiseBytesConf | None:
    """The configuration of a depthwise convolution, or None if it is left to nests."""
    instruction = next(
        (instruction for instruction in isa.dots if (instruction.a, instruction.b) == ("u8", "s8")),
        None,
    )
    src, weights, dst = problem.src, problem.weights, problem.dst
    if instruction is None or not isa.masked_bytes or problem.transposed:
        return None
    if prod(weights.dims[3:]) > _MOST_TAPS:
        return None
    bytewise = src.data_type in BYTES and weights.data_type is DataType.s8
    if not (bytewise and _in_line(src, 1) and _in_line(dst, 1)) or dst.has_zero_dim:
        return None
    if not has_scalar_src_zero_point(problem):
        return None
    scratchpad = Scratchpad()
    read: Argument = (problem.arguments[1], weights)
    if not _in_line(weights, 0):
        letters = "bcdefg"[: weights.ndims - 1]
        read = scratchpad.copy(read, weights.with_tag(FormatTag(f"{letters}a")))
    dot = Multiply(src.data_type, DataType.s8, _TAPS, instruction)
    bare = problem.bias.is_zero and not problem.post_ops
    core = core_type(dot, dst.data_type, problem.quantization, bare=bare)
    vectors = _vectors(problem.groups, isa.lanes)
    copies = tuple(scratchpad.copies)
    return DepthwiseBytesConf(problem, read, dot, core, vectors, copies, scratchpad.size)


def _vectors(channels: int, lanes: int) -> int:
    """The vectors of a panel: as many as units of a register, half of them, or one."""
    needed = min(-(-channels // lanes), _MOST_VECTORS)
    return 1 << (needed - 1).bit_length()


def _in_line(desc: MemoryDesc, dim: int) -> bool:
    """Whether elements along ``dim`` are contiguous, in a layout without blocks."""
    plain = desc.format_kind is FormatKind.blocked and not desc.inner_blocks
    return plain and desc.strides[dim] == 1 and desc.dims == desc.padded_dims


@dataclass(frozen=True)
class _Panel:
    """A full panel, or the last one: its vectors, the mask of lanes that are channels, and the
    epilogue of its sums."""

    vectors: int
    mask: vector.Mask
    store: Store

    @property
    def kind(self) -> Type:
        """The type of its channels."""
        return vector.vector_type(I8, self.vectors * _UNIT)


@dataclass(frozen=True)
class _Row:
    """A row of outputs of a panel: its position, the address that the first tap of the first column
    reads, flags of taps along depth and height that are ``inside`` the image, and the ``weights``
    by groups of four taps."""

    panel: _Panel
    env: Env
    begin: Value
    inside: tuple[Sequence[Value | None], Sequence[Value | None]]
    weights: list[list[Value]]


class _BytesWriter(DepthwiseRowsWriter):
    """Writes the convolution."""

    def __init__(
        self, module: Module, name: str, conf: DepthwiseBytesConf, arguments: Arguments
    ) -> None:
        super().__init__(module, name, conf, arguments)
        self.conf = conf
        self.places, self.columns = self.walk.places, self.walk.columns
        self.taps = list(product(*(range(s.kernel) for s in self.space)))
        self.shift = self._shift()

    def _shift(self) -> Value | None:
        """The offset to subtract from each element of src, in all lanes: the zero point, and 128
        for signed bytes."""
        signed = _SIGN if self.conf.problem.src.data_type is DataType.s8 else 0
        e, lanes = self.e, self.e.isa.lanes
        zero_point = self.tensors.zero_point
        if zero_point is None:
            kind = vector.vector_type(I32, lanes)
            return vector.splat_constant(kind, signed) if signed else None
        point = load_one(e, self.pointers[zero_point], zero_point, I32)
        return e.b.add(point, vector.splat_constant(point.type, signed))

    def item(self, env: Env) -> None:
        e, columns, panel = self.e, self.columns, self.columns.panel
        rest = columns.count - (panel.extent - 1) * columns.width

        def run(own: _Panel, number: Value) -> Values:
            self._row(own, {**env, panel: number})
            return ()

        def last() -> Values:
            vectors = _vectors(rest, columns.lane.extent)
            mask = vector.known_lanes([lane < rest for lane in range(vectors * _UNIT)])
            own = _Panel(vectors, mask, self._store_of(columns.inside))
            return run(own, i64(panel.extent - 1))

        whole = _Panel(columns.vector.extent, None, self._store_of())
        if rest == columns.width:
            run(whole, env[panel])
        elif panel.extent == 1:
            last()
        else:
            before = e.b.icmp_signed("<", env[panel], i64(panel.extent - 1))
            e.branch(before, lambda: run(whole, env[panel]), last)

    def _store_of(self, *exists: Bound) -> Store:
        return Store(
            self.e,
            self.pointers,
            self.tensors.finish,
            self.places,
            self.columns,
            (),
            exists,
            banded=False,
        )

    def _row(self, panel: _Panel, env: Env) -> None:
        """One row: outputs whose taps are all inside of the image, and those on both sides that
        miss some."""
        e, (depth, height, width) = self.e, self.places
        src = self.conf.problem.src
        offset = e.add(e.number(src.offset0), e.mul(env[self.walk.batch], src.strides[0]))
        offset = e.add(offset, e.mul(env[self.columns.panel], self.columns.width))
        inside = []
        for axis, space, step in zip((depth, height), self.space, self.steps, strict=False):
            first = e.add(e.mul(env[axis], space.stride), i64(-space.padding))
            offset = e.add(offset, e.mul(first, step))
            inside.append([self._within(first, space, tap) for tap in range(space.kernel)])
        offset = e.add(offset, e.number(-self.space[2].padding * self.steps[2]))
        begin = e.element(self.pointers[self.tensors.src], offset, I8)
        row = _Row(panel, env, begin, (inside[0], inside[1]), self._weights(panel, env))
        start, stop = map(e.number, self.space[2].inner)
        end = e.number(width.extent)
        flags = [flag for side in inside for flag in side if flag is not None]
        for flag in flags:
            start = e.b.select(flag, start, end)
            stop = e.b.select(flag, stop, end)
        sums = self._initial(row, None)
        e.loop(start, stop, lambda x: self._whole(row, x, sums), unroll=False, name="inside")
        if not flags and not self.space[2].padded:
            return

        def side(number: Value) -> None:
            left = e.b.icmp_signed("==", number, i64(0))
            first = e.b.select(left, i64(0), stop)
            last = e.b.select(left, start, end)
            e.loop(first, last, lambda x: self._partial(row, x), unroll=False, name="border")

        e.loop(i64(0), i64(2), side, unroll=False, name="side")

    def _within(self, first: Value, space: Spatial, tap: int) -> Value | None:
        """Whether a tap is inside; None if every one is."""
        if not space.padded:
            return None
        at = self.e.add(first, i64(tap * space.dilation))
        return self.e.b.icmp_unsigned("<", at, self.e.number(space.src))

    def _weights(self, panel: _Panel, env: Env) -> list[list[Value]]:
        """The weights of a panel, four taps at a time."""
        e, desc = self.e, self.conf.weights[1]
        strides = three(desc.strides[3:])
        begin = e.mul(env[self.columns.panel], self.columns.width)
        begin = e.add(begin, e.number(desc.offset0))
        pointer = self.pointers[self.tensors.weights]
        rows = []
        for tap in self.taps:
            there = sum(k * step for k, step in zip(tap, strides, strict=True))
            where = e.element(pointer, e.add(begin, e.number(there)), I8)
            rows.append(vector.load(e, where, panel.kind, panel.mask))
        return [self._interleaved(panel, rows, first) for first in self._firsts]

    @property
    def _firsts(self) -> range:
        return range(0, len(self.taps), _TAPS)

    def _interleaved(self, panel: _Panel, rows: list[Value], first: int) -> list[Value]:
        """Up to four rows, from the first on, interleaved into K groups."""
        e, own = self.e, rows[first : first + _TAPS]
        own += [vector.splat_constant(panel.kind, 0)] * (_TAPS - len(own))
        regs = vector.interleave(e, own, _UNIT)
        count = len(regs) // panel.vectors
        return [vector.join(e, regs[n : n + count]) for n in range(0, len(regs), count)]

    def _initial(self, row: _Row, inside: list[Value] | None) -> Values:
        """The initial sums: the compensation of src's offset for the taps that are inside, all of
        them if ``inside`` is None."""
        e, lanes = self.e, self.e.isa.lanes
        zero = self.conf.multiply.zero(e)
        if self.shift is None:
            return (zero,) * row.panel.vectors
        counts: Values = (zero,) * row.panel.vectors
        for first, weights in zip(self._firsts, row.weights, strict=True):
            ones_of_taps: Value = I32(0x01010101)
            if inside is not None:
                ones_of_taps = I32(0)
                for number, flag in enumerate(inside[first : first + _TAPS]):
                    one = e.b.select(flag, I32(1 << 8 * number), I32(0))
                    ones_of_taps = e.b.or_(ones_of_taps, one)
            ones = e.b.bitcast(vector.splat(e, ones_of_taps, lanes), weights[0].type)
            counts = self._add(counts, [ones] * row.panel.vectors, weights)
        return tuple(e.b.sub(zero, e.b.mul(count, self.shift)) for count in counts)

    def _add(self, sums: Values, regs: Sequence[Value], weights: Sequence[Value]) -> Values:
        add = self.conf.multiply.add
        each = zip(sums, regs, weights, strict=True)
        return tuple(add(self.e, (reg,), (own,), total) for total, reg, own in each)

    def _whole(self, row: _Row, x: Value, sums: Values) -> None:
        """An output whose taps are all inside."""
        e = self.e
        loaded = [
            vector.load(e, place, row.panel.kind, row.panel.mask)
            for place in self._addresses(row, x)
        ]
        self._store(row, x, self._sum(row, loaded, sums))

    def _partial(self, row: _Row, x: Value) -> None:
        """An output with taps outside, which are not loaded."""
        e, (_, _, width) = self.e, self.space
        first = e.add(e.mul(x, width.stride), i64(-width.padding))
        across = [self._within(first, width, tap) for tap in range(width.kernel)]
        always = e.b.icmp_signed("==", i64(0), i64(0))
        inside: list[Value] = []
        loaded: list[Value] = []
        signed = self.conf.problem.src.data_type is DataType.s8
        nothing = vector.splat_constant(row.panel.kind, -_SIGN if signed else 0)
        for (d, h, w), place in zip(self.taps, self._addresses(row, x), strict=True):
            flag: Value = always
            for one in (row.inside[0][d], row.inside[1][h], across[w]):
                flag = flag if one is None else e.b.and_(flag, one)
            inside.append(flag)

            def load(place: Value = place) -> Values:
                return (vector.load(e, place, row.panel.kind, row.panel.mask),)

            loaded.extend(e.branch(flag, load, lambda: (nothing,)))
        self._store(row, x, self._sum(row, loaded, self._initial(row, inside)))

    def _addresses(self, row: _Row, x: Value) -> list[Value]:
        """The address that each tap of an output reads."""
        e, (deep, high, wide) = self.e, self.steps
        depth, height, width = self.space
        begin = e.element(row.begin, e.mul(x, wide * width.stride), I8)
        found = []
        for d, h, w in self.taps:
            line = e.number(d * depth.dilation * deep + h * height.dilation * high)
            step = e.number(w * width.dilation * wide)
            found.append(e.element(e.element(begin, line, I8), step, I8))
        return found

    def _sum(self, row: _Row, loaded: list[Value], sums: Values) -> Values:
        e = self.e
        for first, weights in zip(self._firsts, row.weights, strict=True):
            regs = self._interleaved(row.panel, loaded, first)
            if self.conf.problem.src.data_type is DataType.s8:
                signs = vector.splat_constant(regs[0].type, -_SIGN)
                regs = [e.b.xor(reg, signs) for reg in regs]
            sums = self._add(sums, regs, weights)
        return sums

    def _store(self, row: _Row, x: Value, sums: Values) -> None:
        """Reorder the sums of one output by channels, and run the epilogue."""
        in_order = list(sums)
        for _ in range(row.panel.vectors.bit_length() - 1):
            in_order = unzip(self.e, in_order, _UNIT // _TAPS)
        env = {**row.env, self.places[2]: x}
        row.panel.store.at(env, 1, 1).finish(Tile(row.panel.vectors, tuple(in_order)))
