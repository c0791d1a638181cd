"""Local response normalization: divide each element by a power of the sum of squares around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dnnl.codegen.epilogue.attributes import Attributes, Result, Sources
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F64, Emitter, Module, Value, Values
from dnnl.codegen.ir.kernel import Arguments, Kernel, Refusal, symbol
from dnnl.codegen.isa import Isa
from dnnl.codegen.isa.caches import LINE
from dnnl.codegen.math import f32 as math
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, Axis, letters
from dnnl.codegen.nest.fold_loop import added
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.kernels.shared.types import core_of, refuse_forward
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.kinds import Alg
from dnnl.types.memory_desc import MemoryDesc

# The powers that two reciprocal roots compute, and the least w for which these are estimated:
# smaller values may be denormal.
_QUARTERS = (0.25, 0.5, 0.75)
_MOST_APART, _MOST_REGISTERS = 4, 2
_LEAST = 2.0**-100


@dataclass(frozen=True)
class Statement:
    """dst = src * w^-beta with w = k + alpha / n * sum of src^2 over windows of ``local_size``."""

    alg: Alg
    local_size: int
    alpha: float
    beta: float
    k: float

    def dims(self, ndims: int) -> range:
        """The dimensions of the windows."""
        return range(1, 2) if self.alg is Alg.lrn_across_channels else range(2, ndims)

    def factor(self, ndims: int) -> float:
        """alpha / n."""
        return self.alpha / float(self.local_size) ** len(self.dims(ndims))


@dataclass(frozen=True)
class LrnConf:
    """The forward pass; in training ``workspace`` becomes src * w^(-beta - 1)."""

    statement: Statement
    src: MemoryDesc
    dst: MemoryDesc
    workspace: MemoryDesc | None
    attributes: Attributes


def configure(
    statement: Statement,
    src: MemoryDesc,
    dst: MemoryDesc,
    workspace: MemoryDesc | None,
    attributes: Attributes,
) -> LrnConf | Refusal:
    """Accept any layouts of supported types."""
    refusal = refuse_forward({Arg.SRC: src}, dst, attributes)
    return refusal or LrnConf(statement, src, dst, workspace, attributes)


def build(conf: LrnConf, isa: Isa) -> Kernel:
    """One nest that reduces the windows."""
    arguments, statement = Arguments(), conf.statement
    window = Window(statement, conf.dst.dims)
    slot = arguments.slot(Arg.SRC)

    def given(operand: Operand) -> Sources:
        return Sources(conf.attributes, {Arg.SRC: operand}, arguments)

    src, around = given(window.middle(slot, conf.src)), window.around(slot, conf.src)
    sources = {operand: given(operand) for operand in around}
    dst = window.middle(arguments.slot(Arg.DST), conf.dst)
    result, further = Result(conf.attributes, dst, arguments), []
    if conf.workspace is not None:
        further.append(window.middle(arguments.slot(Arg.WORKSPACE), conf.workspace))

    def load(point: Point, operand: Operand) -> Value:
        return sources[operand].load_or_zero(point, Arg.SRC)

    def body(point: Point) -> None:
        (squares,) = window.sums(point, (around, around), load=load)
        base = window.base(point, squares)
        power, inverse = powers(point.e, base, statement)
        value = point.e.b.fmul(src.load(point, Arg.SRC), power)
        result.store(point, value)
        for output in further:
            point.store(output, point.e.b.fmul(value, inverse()))

    module = Module("lrn", isa)
    entry = symbol("lrn", [conf.src, conf.dst], isa)
    nest = Nest(
        window.axes,
        window.taps,
        (*src.operands, *(op for own in sources.values() for op in own.operands), *result.inputs),
        (*result.outputs, *further),
        body,
        reads_dst=result.reads_dst,
        registers=lines(isa, conf.dst),
        core=core_of(conf.src, conf.dst),
    )
    return Kernel(module, (emit_nest(module, entry, nest),), arguments.ids)


Neighbours = tuple[Operand, ...]
Load = Callable[[Point, Operand], Value]


class Window:
    """The elements of tensors of ``dims``, with ``axes``, and their neighbours.

    A few neighbours along the channels are an operand each, so that their bounds are known at code
    generation. Many are one operand with a loop over ``taps``.
    """

    def __init__(self, statement: Statement, dims: tuple[int, ...]) -> None:
        self._statement, self._ndims = statement, len(dims)
        self._dims = statement.dims(len(dims))
        self.axes = letters(dims)
        self._index = tuple(Affine.of(axis) for axis in self.axes)
        # Neighbours beyond the other end never exist.
        half = [min((statement.local_size - 1) // 2, max(0, dims[dim] - 1)) for dim in self._dims]
        self.taps: tuple[Axis, ...] = ()
        self._shifts = [self._index]
        if len(half) == 1 and half[0] <= _MOST_APART:
            apart = range(-half[0], half[0] + 1)
            self._shifts = [self._shifted([Affine({}, distance)]) for distance in apart]
        else:
            self.taps = tuple(
                Axis(2 * reach + 1, f"k{dim}") for dim, reach in zip(self._dims, half, strict=True)
            )
            shifts = zip(self.taps, half, strict=True)
            self._shifts = [self._shifted([Affine.of(tap) + -reach for tap, reach in shifts])]

    def _shifted(self, shifts: Sequence[Affine]) -> tuple[Affine, ...]:
        """The index shifted along the dimensions of windows."""
        index = list(self._index)
        for dim, shift in zip(self._dims, shifts, strict=True):
            index[dim] = index[dim] + shift
        return tuple(index)

    def middle(self, slot: int, desc: MemoryDesc) -> Operand:
        """The element itself."""
        return Operand(slot, desc, self._index)

    def around(self, slot: int, desc: MemoryDesc) -> Neighbours:
        """The elements around it."""
        return tuple(Operand(slot, desc, index) for index in self._shifts)

    def sums(
        self,
        point: Point,
        *pairs: tuple[Neighbours, Neighbours],
        load: Load = Point.load_or_zero,
    ) -> Values:
        """The sums of products over the window around a point, of values from ``load``."""
        totals = tuple(point.constant(0.0) for _ in pairs)
        if not self.taps:
            for number in range(len(self._shifts)):
                totals = _more(point, totals, [(a[number], b[number]) for a, b in pairs], load)
            return totals

        def step(p: Point, *totals: Value) -> Values:
            return _more(p, totals, [(a, b) for (a,), (b,) in pairs], load)

        return point.fold((0.0,) * len(pairs), step, added)

    def base(self, point: Point, squares: Value) -> Value:
        """w, from the sum of squares around a point."""
        factor = point.constant(self._statement.factor(self._ndims))
        return vector.multiply_add(point.e, squares, factor, point.constant(self._statement.k))

    def slope(self, point: Point) -> Value:
        """2 * alpha * beta / n."""
        statement = self._statement
        return point.constant(2 * statement.beta * statement.factor(self._ndims))


def _more(p: Point, totals: Values, pairs: Sequence[tuple[Operand, Operand]], load: Load) -> Values:
    """The totals plus a product of each pair; elements outside of the tensor contribute 0."""
    loaded = {operand: load(p, operand) for pair in pairs for operand in pair}
    return tuple(
        vector.multiply_add(p.e, loaded[a], loaded[b], total)
        for (a, b), total in zip(pairs, totals, strict=True)
    )


def lines(isa: Isa, dst: MemoryDesc) -> int:
    """The number of registers to fill together: non-temporal stores of parts of a line, with
    cache-missing loads in between, would flush the write-combining buffers one by one."""
    return min(_MOST_REGISTERS, max(1, LINE // (isa.lanes * dst.data_type.size)))


def powers(e: Emitter, base: Value, statement: Statement) -> tuple[Value, Callable[[], Value]]:
    """w^-beta, and a function that computes 1 / w."""
    known = statement.alpha >= 0 and statement.k >= _LEAST and statement.beta in _QUARTERS
    if not known:
        return math.power(e, base, -statement.beta), lambda: math.reciprocal(e, base)
    # If squares overflow, the root of infinity would give NaN.
    core = DataType.f64 if base.type.element is F64 else DataType.f32
    base = math.at_most(e, base, core.max)
    root = math.reciprocal_root(e, base)
    if statement.beta == 0.5:
        return root, lambda: e.b.fmul(root, root)
    fourth = math.reciprocal_root(e, e.b.fmul(base, root))
    power = fourth if statement.beta == 0.25 else e.b.fmul(root, fourth)
    return power, lambda: e.b.fmul(root, root)
