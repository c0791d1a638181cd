"""Divide each element by a power of the sum of squares around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dnnl.codegen import math, vector
from dnnl.codegen.access import Operand
from dnnl.codegen.address import Affine, Axis
from dnnl.codegen.builder import Emitter, Module, Value, Values
from dnnl.codegen.epilogue import Arguments
from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Kernel, Refusal
from dnnl.codegen.nest import Nest, emit_nest
from dnnl.codegen.point import Point
from dnnl.kernels.pointwise import FLOATS, letters, refuse_types, symbol
from dnnl.types.arg import Arg
from dnnl.types.kinds import Alg
from dnnl.types.memory_desc import MemoryDesc

# The powers that two reciprocal roots make, and the least w for which these are estimated: what is
# less may be denormal.
_QUARTERS = (0.25, 0.5, 0.75)
_LEAST, _LARGEST = 2.0**-100, 3.4028235e38


@dataclass(frozen=True)
class Statement:
    """dst = src * w^-beta with w = k + alpha / n * sum of src^2 over windows of ``local_size``."""

    alg: Alg
    local_size: int
    alpha: float
    beta: float
    k: float

    def dims(self, ndims: int) -> range:
        """The dimensions along which windows lie."""
        return range(1, 2) if self.alg is Alg.lrn_across_channels else range(2, ndims)

    def factor(self, ndims: int) -> float:
        """alpha / n."""
        return self.alpha / float(self.local_size) ** len(self.dims(ndims))


@dataclass(frozen=True)
class Conf:
    """The forward pass; in training ``workspace`` becomes src * w^(-beta - 1)."""

    statement: Statement
    src: MemoryDesc
    dst: MemoryDesc
    workspace: MemoryDesc | None


def configure(
    statement: Statement, src: MemoryDesc, dst: MemoryDesc, workspace: MemoryDesc | None
) -> Conf | Refusal:
    """Accept any layouts of floats."""
    refusal = refuse_types(src, dst, allowed=FLOATS)
    return refusal or Conf(statement, src, dst, workspace)


def build(conf: Conf, isa: Isa) -> Kernel:
    """One nest that reduces the windows."""
    arguments, statement = Arguments(), conf.statement
    window = Window(statement, conf.dst.dims)
    src = window.middle(arguments.slot(Arg.SRC), conf.src)
    around = window.around(arguments.slot(Arg.SRC), conf.src)
    outputs = [window.middle(arguments.slot(Arg.DST), conf.dst)]
    if conf.workspace is not None:
        outputs.append(window.middle(arguments.slot(Arg.WORKSPACE), conf.workspace))

    def body(point: Point) -> None:
        (squares,) = sums(point, square_of(around))
        base = window.base(squares, point)
        power, inverse = powers(point.e, base, statement)
        value = point.e.b.fmul(point.load(src), power)
        for output in outputs:
            point.store(output, value)
            value = point.e.b.fmul(value, inverse())

    module = Module("lrn", isa)
    entry = symbol("lrn", [conf.src, conf.dst], isa)
    nest = Nest(window.axes, window.taps, (src, around), tuple(outputs), body)
    return Kernel(module, (emit_nest(module, entry, nest),), arguments.ids)


class Window:
    """The elements of tensors of ``dims``, ``axes``, and those around each of them, ``taps``."""

    def __init__(self, statement: Statement, dims: tuple[int, ...]) -> None:
        self._statement, self._ndims = statement, len(dims)
        self.axes = letters(dims)
        self._index = [Affine.of(axis) for axis in self.axes]
        self._seen, taps = list(self._index), []
        for dim in statement.dims(len(dims)):
            # What lies further away than the other end is never there.
            half = min((statement.local_size - 1) // 2, max(0, dims[dim] - 1))
            tap = Axis(2 * half + 1, f"k{dim}")
            self._seen[dim] = self._index[dim] + Affine.of(tap) + -half
            taps.append(tap)
        self.taps = tuple(taps)

    def middle(self, slot: int, desc: MemoryDesc) -> Operand:
        """The element itself."""
        return Operand(slot, desc, tuple(self._index))

    def around(self, slot: int, desc: MemoryDesc) -> Operand:
        """One of the elements around it, each of which an iteration of a fold has."""
        bare = frozenset(self._statement.dims(self._ndims))  # what pads a block is no neighbour
        return Operand(slot, desc, tuple(self._seen), bare=bare)

    def base(self, squares: Value, point: Point) -> Value:
        """w, of the sum of squares around a point."""
        factor = point.constant(self._statement.factor(self._ndims))
        return vector.multiply_add(point.e, squares, factor, point.constant(self._statement.k))

    def slope(self, point: Point) -> Value:
        """2 * alpha * beta / n."""
        statement = self._statement
        return point.constant(2 * statement.beta * statement.factor(self._ndims))


def sums(point: Point, *terms: Callable[[Point], tuple[Value, Value]]) -> Values:
    """The sums of products over the window around a point."""

    def step(p: Point, *totals: Value) -> Values:
        pairs = zip(terms, totals, strict=True)
        return tuple(vector.multiply_add(p.e, *term(p), total) for term, total in pairs)

    return point.fold((0.0,) * len(terms), step, _merge)


def square_of(operand: Operand) -> Callable[[Point], tuple[Value, Value]]:
    """The term that squares an operand."""

    def term(p: Point) -> tuple[Value, Value]:
        value = p.load(operand)
        return value, value

    return term


def _merge(e: Emitter, a: Values, b: Values) -> Values:
    return tuple(e.b.fadd(x, y) for x, y in zip(a, b, strict=True))


def powers(e: Emitter, base: Value, statement: Statement) -> tuple[Value, Callable[[], Value]]:
    """w^-beta, and what computes 1 / w."""
    known = statement.alpha >= 0 and statement.k >= _LEAST and statement.beta in _QUARTERS
    if not known:
        return math.power(e, base, -statement.beta), lambda: math.reciprocal(e, base)
    # Where squares overflow, the root of infinity would make NaN.
    base = math.at_most(e, base, _LARGEST)
    root = math.reciprocal_root(e, base)
    if statement.beta == 0.5:
        return root, lambda: e.b.fmul(root, root)
    fourth = math.reciprocal_root(e, e.b.fmul(base, root))
    power = fourth if statement.beta == 0.25 else e.b.fmul(root, fourth)
    return power, lambda: e.b.fmul(root, root)
