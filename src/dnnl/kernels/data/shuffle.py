"""Permute the elements along one dimension as the transposition of a matrix does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dnnl.codegen.conversion import convert
from dnnl.codegen.epilogue.attributes import Attributes, Result, Sources
from dnnl.codegen.ir.builder import Module
from dnnl.codegen.ir.kernel import Arguments, Kernel, Refusal, symbol
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Bound, Operand
from dnnl.codegen.memory.address import ZERO, Affine, Axis, block_boundaries, letters
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.codegen.nest.space import divide_each_other, in_pieces
from dnnl.kernels.shared.types import WHOLE_BYTES, core_of, refuse_types
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import is_known, larger, surely_divides, surely_equal, typical

# The most rows that are interleaved in dst and stored together.
_MOST_INTERLEAVED = 6


@dataclass(frozen=True)
class ShuffleConf:
    """dst[u + v * rows] = src[u * columns + v] along ``axis``, with u below ``rows`` and v below
    ``columns``, and with ``attributes``. The gradient is the inverse permutation."""

    rows: int
    columns: int
    axis: int
    src: MemoryDesc
    dst: MemoryDesc
    attributes: Attributes
    forward: bool

    @property
    def arguments(self) -> tuple[Arg, Arg]:
        """The argument that is read, and the one that is written."""
        return (Arg.SRC, Arg.DST) if self.forward else (Arg.DIFF_DST, Arg.DIFF_SRC)

    @property
    def interleaved(self) -> bool:
        """Whether a few rows of src are interleaved in a dst that is contiguous along them."""
        dst, most = self.dst, min(_MOST_INTERLEAVED, typical(self.columns))
        few = is_known(self.rows) and 1 < self.rows <= most
        plain = not dst.inner_blocks and dst.padded_dims == dst.dims
        return few and plain and dst.strides[self.axis] == 1


def configure(
    group_size: int,
    axis: int,
    src: MemoryDesc,
    dst: MemoryDesc,
    attributes: Attributes,
    *,
    forward: bool,
) -> ShuffleConf | Refusal:
    """Accept any layouts of types of whole bytes. Without attributes, elements of equal types are
    copied bit by bit."""
    refusal = refuse_types(src, dst, allowed=WHOLE_BYTES) or attributes.refuse({Arg.SRC: src}, dst)
    if refusal is not None:
        return refusal
    rows, columns = src.dims[axis] // group_size, group_size
    if not forward:
        rows, columns = columns, rows
    if surely_equal(columns, 1):  # the identity, as with a single row
        rows, columns = columns, rows
    return ShuffleConf(rows, columns, axis, src, dst, attributes, forward)


def build(conf: ShuffleConf, isa: Isa) -> Kernel:
    """One nest."""
    arguments, name = Arguments(), "shuffle" if conf.forward else "shuffle_backward"
    walk = _interleaved_walk(conf) if conf.interleaved else _walk(conf)
    axes = letters(conf.dst.dims)
    index = tuple(Affine.of(axis) for axis in axes)
    before, behind = axes[: conf.axis], axes[conf.axis + 1 :]
    read, written = conf.arguments

    def at(argument: Arg, desc: MemoryDesc, place: Affine) -> Operand:
        own = (*index[: conf.axis], place, *index[conf.axis + 1 :])
        return Operand(arguments.slot(argument), desc, own)

    sources, results = [], []
    for row in walk.rows:
        src = at(read, conf.src, row * conf.columns + walk.column)
        dst = at(written, conf.dst, row + walk.column * conf.rows)
        sources.append(Sources(conf.attributes, {read: src}, arguments))
        results.append(Result(conf.attributes, dst, arguments))

    def body(point: Point) -> None:
        values = [
            result.finished(point, source.load(point, read))
            for source, result in zip(sources, results, strict=True)
        ]
        if conf.interleaved:
            point.store_interleaved(outputs, values)
        else:
            point.store(outputs[0], values[0])

    kinds, bare = (conf.src, conf.dst), conf.attributes.plain
    outputs = tuple(result.dst for result in results)
    inputs = tuple(
        operand
        for source, result in zip(sources, results, strict=True)
        for operand in (*source.operands, *result.inputs)
    )
    nest = Nest(
        (*before, *walk.axes, *behind),
        (),
        inputs,
        outputs,
        body,
        where=tuple(Bound(row, conf.rows) for row in walk.rows),
        filled=(Bound(walk.column, conf.columns),),
        reads_dst=results[0].reads_dst,
        core=convert.bare_core(*(desc.data_type for desc in kinds)) if bare else core_of(*kinds),
    )
    module = Module(name, isa)
    phase = emit_nest(module, symbol(name, [conf.src, conf.dst], isa), nest)
    return Kernel(module, (phase,), arguments.ids)


@dataclass(frozen=True, eq=False)
class _Walk:
    """The rows of which one iteration copies an element, and the column."""

    rows: tuple[Affine, ...]
    column: Affine

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes of both."""
        return tuple(axis for form in (self.column, *self.rows) for axis in form.strides)


def _interleaved_walk(conf: ShuffleConf) -> _Walk:
    """All rows at each column."""
    rows = tuple(ZERO + number for number in range(conf.rows))
    return _Walk(rows, Affine.of(Axis(conf.columns, "column")))


def _walk(conf: ShuffleConf) -> _Walk:
    """Each row at each column; columns extend over dst's padding. Axes are split at block
    boundaries, if blocks hold whole rows or columns, or rows and columns hold whole blocks."""
    rows, columns = conf.rows, conf.columns
    width = larger(columns, -(-conf.dst.padded_dims[conf.axis] // larger(1, rows)))
    if surely_equal(rows, 1):
        return _Walk((ZERO,), Affine.of(Axis(width, "column")))
    in_src, in_dst = (block_boundaries(desc, conf.axis) for desc in (conf.src, conf.dst))
    row = in_pieces("row", rows, _boundaries(in_dst, rows, in_src, columns))
    column = in_pieces("column", width, _boundaries(in_src, columns, in_dst, rows))
    return _Walk((row,), column)


def _boundaries(blocks: Sequence[int], extent: int, across: Sequence[int], apart: int) -> set[int]:
    """Where an axis is split: it has ``extent`` consecutive elements in one tensor, which are
    ``apart`` in the other one. ``blocks`` are those of the first tensor, ``across`` those of the
    other."""
    own = {size for size in blocks if surely_divides(size, extent)}
    every = set(own)
    if is_known(apart):
        every |= {size // apart for size in across if apart and size % apart == 0}
    return every if divide_each_other(every) else own
