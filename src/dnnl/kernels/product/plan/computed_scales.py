"""Scales of dst that are computed at execution: one for each group of neighbours in a row, from the
largest magnitude in the group.

The microscaling formats have power-of-two scales: the largest power of two in the group by the
largest one that dst represents. The largest magnitude is then 1 to 2 times that, and saturates.
Other scales are small floats: the largest magnitude by the largest number of dst.
"""

from __future__ import annotations

from math import floor, log2

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, Emitter, Module, Value, Values
from dnnl.codegen.ir.kernel import Arguments, Reason, Refusal
from dnnl.codegen.math.arithmetic import absolute
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, Axis, letters
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.errors import InvalidArguments
from dnnl.kernels.product.plan.contraction import Contraction
from dnnl.kernels.shared.scratchpad import Argument
from dnnl.kernels.shared.types import SMALL_FLOATS
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType, any_of
from dnnl.types.kinds import QuantizationMode
from dnnl.types.post_ops import PostOpSum
from dnnl.types.scales import ScaleSpec

_SCALED = SMALL_FLOATS | {DataType.f4_e2m1, DataType.s8}


def refuse_computed(spec: ScaleSpec, problem: Contraction) -> Refusal | None:
    """Why no scales can be computed for dst, or None.

    Raises InvalidArguments if they do not vary along all dimensions.
    """
    dst = problem.dst
    every = (1 << dst.ndims) - 1
    if spec.mask != every:
        rule = f"scales computed at execution vary along every dimension: {every}"
        raise InvalidArguments("mask", spec.mask, rule)
    if dst.data_type not in _SCALED:
        rule = f"{dst.data_type} with scales that are computed; it takes {any_of(_SCALED)}"
        return Refusal(Reason.DATA_TYPE, rule)
    if any(isinstance(entry, PostOpSum) for entry in problem.post_ops):
        return Refusal(Reason.POST_OP, "a sum with numbers whose scale is about to change")
    unsupported = {
        "dropout": problem.dropout is not None,
        "zero points of DST": Arg.DST in dict(problem.quantization.zero_points),
    }
    found = [what for what, is_there in unsupported.items() if is_there]
    if found:
        return Refusal(Reason.ATTRIBUTE, f"{found[0]} with scales of DST that are computed")
    return None


def emit_scales(
    module: Module,
    symbol: str,
    given: Argument,
    dst: DataType,
    spec: ScaleSpec,
    arguments: Arguments,
) -> Phase:
    """Write a phase that computes the scales of ``given``, which is to become ``dst``."""
    dims, size = given[1].dims, spec.groups[-1]
    axes, term = letters((*dims[:-1], dims[-1] // size)), Axis(size, "term")
    index = tuple(map(Affine.of, axes))
    column = Affine.of(axes[-1], size) + Affine.of(term)
    src = Operand(arguments.slot(given[0]), given[1], (*index[:-1], column))
    scales = Operand(arguments.slot(Arg.SCALES | Arg.DST), spec.desc(dims), index)

    def larger(point: Point, largest: Value) -> Values:
        return (vector.maximum(point.e, absolute(point.e, point.load(src)), largest),)

    def merge(e: Emitter, a: Values, b: Values) -> Values:
        return (vector.maximum(e, a[0], b[0]),)

    def body(point: Point) -> None:
        (largest,) = point.fold((0.0,), larger, merge, 0.0)
        point.store(scales, _scale(point, largest, dst, spec))

    nest = Nest(axes, (term,), (src,), (scales,), body, core=F32)
    return emit_nest(module, symbol, nest)


def _scale(point: Point, largest: Value, dst: DataType, spec: ScaleSpec) -> Value:
    """The scale in f32; storing rounds it, to e8m0 down to a power of two."""
    e, most = point.e, float(dst.max)
    finite = vector.minimum(e, largest, point.constant(float(DataType.f32.max)))
    if spec.mode is QuantizationMode.dynamic_mx:
        return e.b.fmul(finite, point.constant(2.0 ** -floor(log2(most))))
    quotient = e.b.fdiv(finite, point.constant(most))
    return vector.minimum(e, quotient, point.constant(float(spec.data_type.max)))
