"""Softmax along one dimension: three passes over each row, which a cache holds."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import inf

from dnnl.codegen import math, vector
from dnnl.codegen.access import Operand
from dnnl.codegen.address import Affine
from dnnl.codegen.builder import Emitter, Value, Values
from dnnl.codegen.dropout import Dropper
from dnnl.codegen.epilogue import Arguments, Epilogue, refuse
from dnnl.codegen.fold_loop import added
from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Kernel, Refusal
from dnnl.codegen.nest import Nest
from dnnl.codegen.point import Point
from dnnl.codegen.quantization import Quantization, Quantizer
from dnnl.codegen.schedule import ABREAST, BESIDE
from dnnl.kernels.open_nests import OpenKernel
from dnnl.kernels.pointwise import (
    SMALL_FLOATS,
    WIDE_FLOATS,
    build_nest,
    computed_in,
    core_of,
    letters,
    refuse_types,
)
from dnnl.types.arg import Arg
from dnnl.types.dropout import Dropout
from dnnl.types.dtype import DataType
from dnnl.types.kinds import Alg
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp, PostOpSum

# The largest numbers of the types that are computed in.
_LARGEST = {DataType.f32: 2.0**128 - 2.0**104, DataType.f64: sys.float_info.max}
_TYPES = WIDE_FLOATS | SMALL_FLOATS | {DataType.s8, DataType.u8}


@dataclass(frozen=True)
class Conf:
    """dst = post_ops(softmax of src along ``axis``), or its logarithm, with the scales of both and
    what ``dropout`` leaves out before the post-ops. A row of -inf gives NaN if ``undefined``, else
    zeros (-inf of the logarithm)."""

    alg: Alg
    axis: int
    undefined: bool
    src: MemoryDesc
    dst: MemoryDesc
    post_ops: tuple[PostOp, ...]
    quantization: Quantization
    dropout: Dropout | None


def configure(
    alg: Alg,
    axis: int,
    undefined: bool,
    src: MemoryDesc,
    dst: MemoryDesc,
    quantization: Quantization,
    dropout: Dropout | None,
    post_ops: tuple[PostOp, ...],
) -> Conf | Refusal:
    """Accept any axis, any two layouts and any two of the supported types."""
    refusal = refuse_types(src, dst, allowed=_TYPES) or refuse(post_ops, dst)
    refusal = refusal or quantization.refuse({Arg.SRC: src, Arg.DST: dst})
    return refusal or Conf(alg, axis, undefined, src, dst, post_ops, quantization, dropout)


def build(conf: Conf, isa: Isa) -> Kernel:
    """One nest that reduces ``axis``."""
    return build_nest("softmax", isa, (conf.src, conf.dst), partial(_nests, conf))


def build_open(conf: Conf, isa: Isa) -> Kernel:
    """One nest for all sizes."""
    return OPEN.build(conf, isa)


def _nests(conf: Conf, arguments: Arguments) -> Iterator[Nest]:
    axes = letters(conf.dst.dims)
    index = tuple(Affine.of(axis) for axis in axes)
    src = Operand(arguments.slot(Arg.SRC), conf.src, index)
    dst = Operand(arguments.slot(Arg.DST), conf.dst, index)
    quantizer = Quantizer(conf.quantization, {Arg.SRC: src, Arg.DST: dst}, arguments)
    dropper = Dropper(conf.dropout, dst, arguments)
    row = _Row(conf, src, dst, quantizer, dropper, Epilogue(conf.post_ops, dst, arguments))
    parallel = tuple(axis for dim, axis in enumerate(axes) if dim != conf.axis)
    inputs = (src, *quantizer.operands, *dropper.inputs, *row.epilogue.operands)
    outputs = (dst, *dropper.outputs)
    yield Nest(
        parallel, (axes[conf.axis],), inputs, outputs, row.body,
        numbers=dropper.numbers, reads_dst=row.keep or row.epilogue.reads_dst,
        registers=dropper.registers, beside=1 if conf.dropout else BESIDE,
        abreast=1 if conf.dropout else ABREAST,
        core=core_of(conf.src, conf.dst), keeps=row.puts_by,
    )  # fmt: skip


OPEN = OpenKernel("softmax", _nests, {"src": Arg.SRC, "dst": Arg.DST})


class _Row:
    """The passes over one row, or over as many rows side by side as a vector has lanes."""

    def __init__(
        self,
        conf: Conf,
        src: Operand,
        dst: Operand,
        quantizer: Quantizer,
        dropper: Dropper,
        epilogue: Epilogue,
    ) -> None:
        self.src, self.dst, self.quantizer = src, dst, quantizer
        self.dropper, self.epilogue = dropper, epilogue
        self.log = conf.alg is Alg.softmax_log
        # The exponentials wait in dst for their sum if that holds them without rounding, unless a
        # post-op still needs what is there; or else, of rows that are not too long, beside it.
        computed = computed_in(conf.src, conf.dst)
        self.undefined, exact = conf.undefined, conf.dst.data_type is computed
        # Where no row is to be NaN, the maximum is finite: -inf - -inf is not computed.
        self.least = -inf if conf.undefined else -_LARGEST[computed]
        sums = any(isinstance(op, PostOpSum) for op in conf.post_ops)
        self.keep = exact and not self.log and not sums
        self.puts_by = not (self.log or self.keep)
        # A row is multiplied once, by the reciprocals of the sum and the scale, if nothing comes
        # between them and the row has one scale.
        scale = quantizer.scale(Arg.DST)
        single = scale is None or scale.desc.dims[conf.axis] == 1
        self.at_once = single and not (self.log or conf.post_ops or conf.dropout)

    def body(self, point: Point) -> None:
        """Maximum, sum of exponentials, result."""
        (peak,) = point.fold((self.least,), self._maximum, self._merge_maximum)

        def exponential(p: Point) -> Value:
            return math.exp_of_negative(p.e, p.e.b.fsub(self._load(p), peak))

        room = point.room() if self.puts_by else None

        def accumulate(p: Point, total: Value) -> Values:
            term = exponential(p)
            if self.keep:
                p.store(self.dst, term)
            elif room is not None:
                p.keep(room, term)
            return (p.e.b.fadd(total, term),)

        (total,) = point.fold((0.0,), accumulate, added)
        total = self._divisor(point, total)
        if self.log:
            logarithm = math.log(point.e, total)
        else:
            one = point.constant(1.0)
            inverse = point.e.b.fdiv(one, total)
            if self.at_once:
                # The reciprocal of the scale does not wait for the sum.
                unit = self.quantizer.quantize(point, Arg.DST, one)
                inverse = point.e.b.fmul(inverse, unit)

        def waiting(p: Point) -> Value:
            if self.keep:
                return p.load(self.dst)
            return exponential(p) if room is None else p.kept(room)

        def finish(p: Point) -> None:
            if self.log:
                value = p.e.b.fsub(p.e.b.fsub(self._load(p), peak), logarithm)
            else:
                value = p.e.b.fmul(waiting(p), inverse)
            value = self.epilogue.apply(p, self.dropper.apply(p, value))
            if not self.at_once:
                value = self.quantizer.quantize(p, Arg.DST, value)
            p.store(self.dst, value)

        point.each(finish)

    def _divisor(self, point: Point, total: Value) -> Value:
        """The sum, 1 where it is 0."""
        if self.undefined:
            return total
        zero = point.e.b.fcmp_ordered("==", total, point.constant(0.0))
        return point.e.b.select(zero, point.constant(1.0), total)

    def _load(self, p: Point) -> Value:
        return self.quantizer.dequantize(p, Arg.SRC, p.load(self.src))

    def _maximum(self, p: Point, peak: Value) -> Values:
        return (vector.maximum(p.e, self._load(p), peak),)

    @staticmethod
    def _merge_maximum(e: Emitter, a: Values, b: Values) -> Values:
        return (vector.maximum(e, a[0], b[0]),)
