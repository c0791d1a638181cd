"""Softmax along one dimension: three passes over each row, which stays in a cache."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import inf

from dnnl.codegen.epilogue.attributes import Attributes, Result, Sources
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Emitter, Value, Values
from dnnl.codegen.ir.kernel import Arguments, Kernel, Refusal
from dnnl.codegen.isa import Isa
from dnnl.codegen.math import f32 as math
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, letters
from dnnl.codegen.nest.fold_loop import added
from dnnl.codegen.nest.nest import Nest
from dnnl.codegen.nest.point import Point
from dnnl.codegen.nest.schedule import REDUCTION_UNROLL, UNROLL
from dnnl.kernels.shared.pointwise import build_nest
from dnnl.kernels.shared.types import computed_in, core_of, refuse_forward
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.kinds import Alg
from dnnl.types.memory_desc import MemoryDesc

# The largest finite numbers of the accumulation types.
_LARGEST = {DataType.f32: 2.0**128 - 2.0**104, DataType.f64: sys.float_info.max}


@dataclass(frozen=True)
class SoftmaxConf:
    """dst = softmax of src along ``axis``, or its logarithm, with ``attributes``. A row of -inf
    gives NaN if ``undefined``, else zeros (-inf for the logarithm)."""

    alg: Alg
    axis: int
    undefined: bool
    src: MemoryDesc
    dst: MemoryDesc
    attributes: Attributes


def configure(
    alg: Alg,
    axis: int,
    undefined: bool,
    src: MemoryDesc,
    dst: MemoryDesc,
    attributes: Attributes,
) -> SoftmaxConf | Refusal:
    """Accept any axis, any two layouts and any two of the supported types."""
    refusal = refuse_forward({Arg.SRC: src}, dst, attributes)
    return refusal or SoftmaxConf(alg, axis, undefined, src, dst, attributes)


def build(conf: SoftmaxConf, isa: Isa) -> Kernel:
    """One nest that reduces ``axis``."""
    return build_nest("softmax", isa, (conf.src, conf.dst), partial(_nests, conf))


def _nests(conf: SoftmaxConf, arguments: Arguments) -> Iterator[Nest]:
    axes = letters(conf.dst.dims)
    index = tuple(Affine.of(axis) for axis in axes)
    src = Operand(arguments.slot(Arg.SRC), conf.src, index)
    dst = Operand(arguments.slot(Arg.DST), conf.dst, index)
    given = Sources(conf.attributes, {Arg.SRC: src}, arguments)
    result = Result(conf.attributes, dst, arguments)
    row = _Row(conf, given, result)
    parallel = tuple(axis for dim, axis in enumerate(axes) if dim != conf.axis)
    drops = conf.attributes.dropout is not None
    yield Nest(
        parallel,
        (axes[conf.axis],),
        (*given.operands, *result.inputs),
        result.outputs,
        row.body,
        numbers=result.numbers,
        reads_dst=row.in_dst or result.reads_dst,
        registers=result.registers,
        reduction_unroll=1 if drops else REDUCTION_UNROLL,
        unroll=1 if drops else UNROLL,
        core=core_of(conf.src, conf.dst),
        uses_row_buffer=row.buffers_row,
    )


class _Row:
    """The passes over one row, or over as many rows in parallel as a vector has lanes."""

    def __init__(self, conf: SoftmaxConf, given: Sources, result: Result) -> None:
        self.given, self.result, self.dst = given, result, result.dst
        self.log = conf.alg is Alg.softmax_log
        # The exponentials are stored in dst between the passes if it holds them without rounding
        # and no post-op reads its previous contents; otherwise, for rows that are not too long, in
        # a row buffer.
        computed = computed_in(conf.src, conf.dst)
        self.undefined, exact = conf.undefined, conf.dst.data_type is computed
        # If no row may become NaN, the maximum is finite: -inf - -inf is not computed.
        self.least = -inf if conf.undefined else -_LARGEST[computed]
        self.in_dst = exact and not self.log and not result.reads_dst
        self.buffers_row = not (self.log or self.in_dst)
        # A row is multiplied once, by the product of the reciprocals of the sum and the scale, if
        # nothing is computed in between and the row has one scale.
        own = conf.attributes
        scale = dict(own.quantization.scales).get(Arg.DST)
        single = scale is None or scale.shape(conf.dst.dims)[conf.axis] == 1
        self.at_once = single and not (self.log or own.post_ops or own.dropout)

    def body(self, point: Point) -> None:
        """Maximum, sum of exponentials, result."""
        (peak,) = point.fold((self.least,), self._maximum, self._merge_maximum)

        def exponential(p: Point) -> Value:
            return math.exp_of_negative(p.e, p.e.b.fsub(self._load(p), peak))

        row_buffer = point.row_buffer() if self.buffers_row else None

        def accumulate(p: Point, total: Value) -> Values:
            term = exponential(p)
            if self.in_dst:
                p.store(self.dst, term)
            elif row_buffer is not None:
                p.buffer_store(row_buffer, term)
            return (p.e.b.fadd(total, term),)

        (total,) = point.fold((0.0,), accumulate, added)
        total = self._divisor(point, total)
        if self.log:
            logarithm = math.log(point.e, total)
        else:
            inverse = point.e.b.fdiv(point.constant(1.0), total)
            if self.at_once:
                # The reciprocal of the scale does not depend on the sum.
                inverse = point.e.b.fmul(inverse, self.result.unit(point))

        def stored_exponential(p: Point) -> Value:
            if self.in_dst:
                return p.load(self.dst)
            return exponential(p) if row_buffer is None else p.buffer_load(row_buffer)

        def finish(p: Point) -> None:
            if self.log:
                value = p.e.b.fsub(p.e.b.fsub(self._load(p), peak), logarithm)
            else:
                value = p.e.b.fmul(stored_exponential(p), inverse)
            if self.at_once:
                self.result.store_divided(p, value)
            else:
                self.result.store(p, value)

        point.each(finish)

    def _divisor(self, point: Point, total: Value) -> Value:
        """The sum, or 1 if it is 0."""
        if self.undefined:
            return total
        zero = point.e.b.fcmp_ordered("==", total, point.constant(0.0))
        return point.e.b.select(zero, point.constant(1.0), total)

    def _load(self, p: Point) -> Value:
        return self.given.load(p, Arg.SRC)

    def _maximum(self, p: Point, peak: Value) -> Values:
        return (vector.maximum(p.e, self._load(p), peak),)

    @staticmethod
    def _merge_maximum(e: Emitter, a: Values, b: Values) -> Values:
        return (vector.maximum(e, a[0], b[0]),)
