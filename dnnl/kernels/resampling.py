"""Elements that are weighted sums of a few others, whose places tables say for each dimension."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dnnl.codegen import vector
from dnnl.codegen.access import Operand
from dnnl.codegen.address import Affine, Axis
from dnnl.codegen.builder import F64, Module, Type, Value, Values
from dnnl.codegen.convert import bare_core
from dnnl.codegen.epilogue import Arguments, Epilogue, refuse
from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Kernel, Reason, Refusal
from dnnl.codegen.nest import Nest, emit_nest
from dnnl.codegen.point import Point, added
from dnnl.kernels.pointwise import (
    INTEGERS,
    WIDE_FLOATS,
    computed_in,
    core_of,
    letters,
    refuse_types,
    symbol,
)
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp

Taps = tuple[tuple[int, float], ...]
_TABLE = -1  # the slot of what no argument holds
# So many registers share what is looked up for a pixel.
_SIDE_BY_SIDE = 4
# Elements along an axis, for which a kernel is built in some ten seconds.
_LONGEST = 2**20


@dataclass(frozen=True)
class Conf:
    """dst = post_ops(the sum of weighted elements of src): of those that an element is made of,
    the nearest one or with ``linear`` interpolation those beside it. In a ``gradient`` they are
    diff_src and diff_dst, and the elements of which one is a part.
    """

    linear: bool
    gradient: bool
    src: MemoryDesc
    dst: MemoryDesc
    post_ops: tuple[PostOp, ...]

    @property
    def ends(self) -> tuple[Arg, Arg]:
        """The arguments that are read and written."""
        return (Arg.DIFF_DST, Arg.DIFF_SRC) if self.gradient else (Arg.SRC, Arg.DST)

    @property
    def dims(self) -> tuple[Table, ...]:
        """The taps along each spatial dimension."""
        pairs = zip(self.src.dims[2:], self.dst.dims[2:], strict=True)
        if self.gradient:
            return tuple(Table.backward(old, new, self.linear) for new, old in pairs)
        return tuple(Table.forward(old, new, self.linear) for old, new in pairs)


def taps(at: int, old: int, new: int, linear: bool) -> Taps:
    """The elements of ``old`` that element ``at`` of ``new`` is made of, with their weights.

    Its place is ``x = (at + 1/2) * old / new - 1/2``; all is computed with whole numbers, as
    multiples of 1 / (2 * new).
    """
    unit = 2 * new
    if not linear:
        return (((2 * at + 1) * old // unit, 1.0),)
    place = (2 * at + 1) * old - new
    first = max(place // unit, 0)
    last = min(-(-place // unit), old - 1)
    weight = abs(place - first * unit) / unit
    return (first, 1.0 - weight), (last, weight)


@dataclass(frozen=True)
class Table:
    """The places and the weights of as many taps for each element: tap by tap. Where an element
    has fewer, the weights of others are 0 and ``gaps`` is true."""

    taps: int
    places: tuple[int, ...]
    weights: tuple[float, ...]
    gaps: bool

    @staticmethod
    def forward(old: int, new: int, linear: bool) -> Table:
        """Those of each element of ``new``."""
        rows = [taps(at, old, new, linear) for at in range(new)]
        if all(weight == 0.0 for row in rows for _, weight in row[1:]):
            rows = [row[:1] for row in rows]
        return Table._of(rows)

    @staticmethod
    def backward(old: int, new: int, linear: bool) -> Table:
        """Those of each element of ``old``: the elements of ``new`` of which it is a part."""
        rows: list[dict[int, float]] = [{} for _ in range(old)]
        for at in range(new):
            for place, weight in taps(at, old, new, linear):
                if weight:
                    rows[place][at] = rows[place].get(at, 0.0) + weight
        return Table._of([tuple(row.items()) for row in rows])

    @staticmethod
    def _of(rows: Sequence[Taps]) -> Table:
        count = max([1, *map(len, rows)])
        full = [(*row, *([(row[0][0] if row else 0, 0.0)] * (count - len(row)))) for row in rows]
        places = tuple(row[tap][0] for tap in range(count) for row in full)
        weights = tuple(row[tap][1] for tap in range(count) for row in full)
        return Table(count, places, weights, any(len(row) < count for row in rows))

    @property
    def weighted(self) -> bool:
        """Whether any weight is not 1."""
        return set(self.weights) != {1.0}


def configure(
    linear: bool,
    gradient: bool,
    src: MemoryDesc,
    dst: MemoryDesc,
    post_ops: tuple[PostOp, ...],
) -> Conf | Refusal:
    """Accept any two layouts of supported types; those of gradients are floats."""
    allowed = WIDE_FLOATS if gradient else WIDE_FLOATS | INTEGERS
    longest = max(*src.dims[2:], *dst.dims[2:])
    if longest > _LONGEST:
        rule = f"at most {_LONGEST}, as the places of all elements are part of the code"
        return Refusal(Reason.SHAPE, f"{longest} elements along an axis; {rule}")
    refusal = refuse_types(src, dst, allowed=allowed) or refuse(post_ops, dst)
    return refusal or Conf(linear, gradient, src, dst, post_ops)


def build(conf: Conf, isa: Isa) -> Kernel:
    """One nest that folds over the taps of each element."""
    module, arguments = Module("resampling", isa), Arguments()
    read, written = conf.ends
    axes = letters(conf.dst.dims)
    index = tuple(map(Affine.of, axes))
    spatial = zip(conf.dims, axes[2:], conf.src.dims[2:], strict=True)
    sides = [_Side(*side, computed_in(conf.src, conf.dst)) for side in spatial]
    seen = (Affine.of(side.found) for side in sides)
    src = Operand(arguments.slot(read), conf.src, (*index[:2], *seen))
    dst = Operand(arguments.slot(written), conf.dst, index)
    epilogue = Epilogue(conf.post_ops, dst, arguments)
    moved = _moved(conf, sides)

    def load(p: Point) -> tuple[Point, list[Value]]:
        here = p.at({side.found: p.place(side.places) for side in sides})
        return here, [p.load(side.weights) for side in sides if side.weights is not None]

    def step(p: Point, total: Value) -> Values:
        here, weights = load(p)
        value = here.load(src)
        if not weights:
            return (p.e.b.fadd(total, value),)
        weight = weights[0]
        for other in weights[1:]:
            weight = p.e.b.fmul(weight, other)
        if any(side.gaps for side in sides):
            some = p.e.b.fcmp_ordered("!=", weight, p.constant(0.0))
            value = p.e.b.select(some, value, p.constant(0.0))
        return (vector.multiply_add(p.e, weight, value, total),)

    def body(point: Point) -> None:
        if moved:
            here, _ = load(point)
            point.store_stored(dst, here.load_stored(src))
            return
        if any(side.taps for side in sides):
            (value,) = point.fold((0.0,), step, added)
        else:
            (value,) = step(point, point.constant(-0.0))
        point.store(dst, epilogue.apply(point, value))

    tables = [table for side in sides for table in side.tables]
    nest = Nest(
        axes, tuple(tap for side in sides for tap in side.taps),
        (src, *tables, *epilogue.operands), (dst,), body, reads_dst=epilogue.reads_dst,
        core=_core(conf, moved), registers=1 if moved else _SIDE_BY_SIDE,
        found=tuple(side.found for side in sides),
    )  # fmt: skip
    entry = symbol("resampling", [conf.src, conf.dst], isa)
    return Kernel(module, (emit_nest(module, entry, nest),), arguments.ids)


class _Side:
    """One spatial dimension: the axis of what is found there, that of taps, if there are several,
    and the tables of both as operands, that of weights with elements of ``kind``."""

    def __init__(self, table: Table, axis: Axis, extent: int, kind: DataType) -> None:
        self.found = Axis(extent, f"{axis.name}_found")
        self.taps = (Axis(table.taps, f"{axis.name}_tap"),) if table.taps > 1 else ()
        self.gaps = table.gaps
        dims: tuple[int, ...] = (axis.extent,)
        index: tuple[Affine, ...] = (Affine.of(axis),)
        if self.taps:
            dims, index = (table.taps, *dims), (Affine.of(self.taps[0]), *index)

        def operand(own: DataType, contents: tuple[float, ...]) -> Operand:
            return Operand(_TABLE, MemoryDesc(dims, own), index, contents=contents)

        self.places = operand(DataType.s32, table.places)
        self.weights = operand(kind, table.weights) if table.weighted else None

    @property
    def tables(self) -> tuple[Operand, ...]:
        """What is read besides src."""
        return (self.places,) if self.weights is None else (self.places, self.weights)


def _moved(conf: Conf, sides: Sequence[_Side]) -> bool:
    """Whether elements become those of dst as they are."""
    alike = conf.src.data_type is conf.dst.data_type and not conf.post_ops
    return alike and not any(side.taps or side.weights for side in sides)


def _core(conf: Conf, moved: bool) -> Type:
    """What is computed in: f64 where f32 would not tell integers apart."""
    if moved:
        return bare_core(conf.src.data_type, conf.dst.data_type)
    wide = conf.src.data_type is DataType.s32 and not conf.post_ops
    return F64 if wide else core_of(conf.src, conf.dst)
