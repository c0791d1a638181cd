"""Reduce dimensions to size 1: sums, products, extremes, means and norms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf, prod

from dnnl.codegen.conversion.convert import storage
from dnnl.codegen.epilogue.attributes import Attributes, Result, Sources
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import I32, Emitter, Module, Value, Values
from dnnl.codegen.ir.kernel import Arguments, Kernel, Refusal, symbol
from dnnl.codegen.isa import Isa
from dnnl.codegen.math import f32
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, Axis, letters
from dnnl.codegen.nest import extreme
from dnnl.codegen.nest.folds import Fold, Reduction, emit_fold, exact_partials_desc
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.kernels.shared.scratchpad import Scratchpad
from dnnl.kernels.shared.types import computed_in, core_of, refuse_forward
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.kinds import Alg
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import surely_equal

_NONE = MemoryDesc.zero()
_CACHED = 256  # cached plans
_WHOLE = frozenset({Alg.reduction_sum, Alg.reduction_mean, Alg.reduction_max, Alg.reduction_min})
_LARGER = frozenset({Alg.reduction_norm_lp_max, Alg.reduction_norm_lp_power_p_max})
_ROOTS = frozenset({Alg.reduction_norm_lp_max, Alg.reduction_norm_lp_sum})
_S32 = DataType.s32

Combine = Callable[[Emitter, Value, Value], Value]


@dataclass(frozen=True)
class ReductionConf:
    """dst = src reduced along the dimensions ``reduces``, along which dst has size 1, with
    ``attributes``.

    If several work items share a reduction, ``partial`` results are in the ``scratchpad``, whose
    size is in bytes. So are the results before conversion, as ``total``, if blocks of dst pad a
    reduced dimension.
    """

    alg: Alg
    p: float
    eps: float
    src: MemoryDesc
    dst: MemoryDesc
    reduces: tuple[int, ...]
    attributes: Attributes
    total: MemoryDesc = _NONE
    partial: MemoryDesc = _NONE
    scratchpad: int = 0

    @property
    def reduced(self) -> dict[int, int]:
        """The extent of each reduced dimension."""
        return {dim: self.src.dims[dim] for dim in self.reduces}

    @property
    def exact(self) -> bool:
        """Whether integers are reduced to integers, by sums or comparisons in s32."""
        whole = self.alg in _WHOLE and not self.attributes.quantizes(Arg.SRC)
        return whole and self.src.data_type.is_integer and self.dst.data_type.is_integer

    @property
    def held(self) -> DataType:
        """The type of the accumulator."""
        return _S32 if self.exact else computed_in(self.src, self.dst)

    @property
    def norm(self) -> bool:
        """Whether powers of magnitudes are summed."""
        return "norm" in self.alg.name


def configure(
    alg: Alg,
    p: float,
    eps: float,
    src: MemoryDesc,
    dst: MemoryDesc,
    isa: Isa,
    attributes: Attributes,
) -> ReductionConf | Refusal:
    """Accept any two layouts of supported types."""
    pairs = enumerate(zip(src.dims, dst.dims, strict=True))
    reduces = tuple(dim for dim, (extent, left) in pairs if not surely_equal(extent, left))
    conf = ReductionConf(alg, p, eps, src, dst, reduces, attributes)
    refusal = refuse_forward({Arg.SRC: src}, dst, attributes)
    return refusal or _with_scratchpad(conf, isa)


@lru_cache(_CACHED)
def _with_scratchpad(conf: ReductionConf, isa: Isa) -> ReductionConf:
    """The configuration with its scratchpad; cached, as planning takes a millisecond."""
    scratchpad = Scratchpad()
    if any(conf.dst.padded_dims[dim] > 1 for dim in conf.reduced):
        _, total = scratchpad.take(MemoryDesc(conf.dst.dims, conf.held))
        conf = replace(conf, total=total)
    wanted = exact_partials_desc(isa, _Reducer(conf, Arguments()).fold)
    if wanted.nelems():
        _, parts = scratchpad.take(wanted)
        conf = replace(conf, partial=parts)
    return replace(conf, scratchpad=scratchpad.size)


def build(conf: ReductionConf, isa: Isa) -> Kernel:
    """A reduction, shared among threads if that pays off; then the conversion of separate
    totals."""
    module, arguments = Module("reduction", isa), Arguments()
    own = _Reducer(conf, arguments)
    # -1: no partial results.
    slot = -1 if conf.partial.is_zero else arguments.slot(Arg.SCRATCHPAD)
    entry = symbol("reduction", [conf.src, conf.dst], isa)
    phases = emit_fold(module, entry, own.fold, (slot, conf.partial))
    if own.total is not None:
        phases = (*phases, emit_nest(module, f"finished_{entry}", own.finished(own.total)))
    return Kernel(module, phases, arguments.ids)


class _Reducer:
    """The operands of a reduction, and its steps."""

    def __init__(self, conf: ReductionConf, arguments: Arguments) -> None:
        self._conf = conf
        self._parallel = letters(conf.dst.dims)
        self._reduced = {dim: Axis(extent, f"r{dim}") for dim, extent in conf.reduced.items()}
        index = tuple(map(Affine.of, self._parallel))
        walked = (self._reduced.get(dim, axis) for dim, axis in enumerate(self._parallel))
        src = tuple(map(Affine.of, walked))
        self._src = Operand(arguments.slot(Arg.SRC), conf.src, src)
        self._given = Sources(conf.attributes, {Arg.SRC: self._src}, arguments)
        dst = Operand(arguments.slot(Arg.DST), conf.dst, index)
        self._result = Result(conf.attributes, dst, arguments)
        self.total: Operand | None = None
        if not conf.total.is_zero:
            self.total = Operand(arguments.slot(Arg.SCRATCHPAD), conf.total, index)

    @property
    def fold(self) -> Fold:
        """The reduction to dst, or to the separate totals."""
        parallel, reduced = self._parallel, tuple(self._reduced.values())
        total, result = self.total, self._result
        if total is None:
            return Fold(
                parallel,
                reduced,
                self._given.operands,
                result.outputs,
                self._reduction,
                lambda point, values: self._finish(point, *values),
                result.inputs,
                reads_dst=result.reads_dst,
            )

        def store_total(point: Point, values: Values) -> None:
            point.store_stored(total, *values)

        return Fold(parallel, reduced, self._given.operands, (total,), self._reduction, store_total)

    def finished(self, total: Operand) -> Nest:
        """The conversion of separate totals to dst."""

        def body(point: Point) -> None:
            self._finish(point, point.load_stored(total))

        inputs, core, result = (total, *self._result.inputs), core_of(total.desc), self._result
        return Nest(
            self._parallel, (), inputs, result.outputs, body, reads_dst=result.reads_dst, core=core
        )

    @property
    def _reduction(self) -> Reduction:
        return self._of_integers if self._conf.exact else self._of_floats

    @property
    def _of_integers(self) -> Reduction:
        low, high = float(_S32.min), float(_S32.max)
        neutral, combine = {
            Alg.reduction_max: (low, _larger),
            Alg.reduction_min: (high, _smaller),
        }.get(self._conf.alg, (0.0, _added))
        widen = storage(self._conf.src.data_type, I32).to_core

        def term(point: Point) -> Value:
            return widen(point.e, point.load_stored(self._src))

        return _reduction(int(neutral), combine, term, _S32)

    @property
    def _of_floats(self) -> Reduction:
        alg, held = self._conf.alg, self._conf.held
        if alg is Alg.reduction_max:
            return self._extreme(-inf, vector.maximum)
        if alg is Alg.reduction_min:
            return self._extreme(inf, vector.minimum)
        if alg is Alg.reduction_mul:
            return _reduction(1.0, lambda e, a, b: e.b.fmul(a, b), self._load, held)
        term = self._power if self._conf.norm else self._load
        return _reduction(0.0, lambda e, a, b: e.b.fadd(a, b), term, held)

    def _extreme(self, neutral: float, choose: Combine) -> Reduction:
        held = self._conf.held
        if not self._conf.src.data_type.is_float:
            return _reduction(neutral, choose, self._load, held)

        def partial(point: Point) -> Values:
            return (extreme.fold(point, self._load, choose, neutral, absent=neutral),)

        def merge(e: Emitter, a: Values, b: Values) -> Values:
            return (vector.or_nan(e, a[0], b[0], choose),)

        return Reduction(partial, merge, (neutral,), held)

    def _load(self, point: Point) -> Value:
        return self._given.load(point, Arg.SRC)

    def _power(self, point: Point) -> Value:
        return f32.power(point.e, f32.absolute(point.e, self._load(point)), self._conf.p)

    def _finish(self, point: Point, total: Value) -> None:
        """Convert a total, and store it."""
        e, conf = point.e, self._conf
        if self._bare:
            point.store_stored(self._result.dst, total)
            return
        if conf.exact:
            total = e.b.sitofp(total, point.kind)
        if conf.alg is Alg.reduction_mean:
            total = e.b.fdiv(total, point.real(prod(conf.reduced.values())))
        elif conf.norm:
            total = self._settled(point, total)
        self._result.store(point, total)

    def _settled(self, point: Point, total: Value) -> Value:
        """The norm of a sum of powers."""
        e, conf = point.e, self._conf
        if conf.alg in _LARGER:
            total = vector.maximum(e, total, point.constant(conf.eps))
        elif conf.eps:
            total = e.b.fadd(total, point.constant(conf.eps))
        return f32.power(e, total, 1.0 / conf.p) if conf.alg in _ROOTS else total

    @property
    def _bare(self) -> bool:
        """Whether sums of integers are stored in dst unchanged."""
        conf = self._conf
        plain = conf.attributes.plain and conf.alg is not Alg.reduction_mean
        return conf.exact and plain and conf.dst.data_type is _S32


def _reduction(
    neutral: float,
    combine: Combine,
    term: Callable[[Point], Value],
    data_type: DataType,
) -> Reduction:
    """Combine the terms of all iterations. Masked-off iterations are skipped; for floats they load
    the ``neutral`` element."""

    def step(point: Point, result: Value) -> Values:
        return (combine(point.e, term(point), result),)

    def merge(e: Emitter, a: Values, b: Values) -> Values:
        return (combine(e, a[0], b[0]),)

    def fold(point: Point) -> Values:
        absent = neutral if data_type.is_float else None
        return point.fold((neutral,), step, merge, absent, storage(data_type).element)

    return Reduction(fold, merge, (neutral,), data_type)


def _added(e: Emitter, a: Value, b: Value) -> Value:
    return e.b.add(a, b)


def _larger(e: Emitter, a: Value, b: Value) -> Value:
    return e.b.select(e.b.icmp_signed(">", a, b), a, b)


def _smaller(e: Emitter, a: Value, b: Value) -> Value:
    return e.b.select(e.b.icmp_signed("<", a, b), a, b)
