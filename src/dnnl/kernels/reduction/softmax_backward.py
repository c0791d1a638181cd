"""The gradient of softmax along one dimension: a sum over each row, then its elements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Value, Values
from dnnl.codegen.ir.kernel import Arguments, Kernel, Refusal
from dnnl.codegen.isa import Isa
from dnnl.codegen.math import f32
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, letters
from dnnl.codegen.nest.fold_loop import added
from dnnl.codegen.nest.nest import Nest
from dnnl.codegen.nest.point import Point
from dnnl.codegen.nest.schedule import REDUCTION_UNROLL
from dnnl.kernels.shared.pointwise import build_nest
from dnnl.kernels.shared.types import WIDE_FLOATS, core_of, refuse_types
from dnnl.types.arg import Arg
from dnnl.types.kinds import Alg
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True)
class SoftmaxBackwardConf:
    """diff_src = dst * (diff_dst - sum of diff_dst * dst) along ``axis``, or of the logarithm
    diff_dst - e^dst * sum of diff_dst."""

    alg: Alg
    axis: int
    diff_src: MemoryDesc
    diff_dst: MemoryDesc
    dst: MemoryDesc


def configure(
    alg: Alg, axis: int, diff_src: MemoryDesc, diff_dst: MemoryDesc, dst: MemoryDesc
) -> SoftmaxBackwardConf | Refusal:
    """Accept any axis and any layouts of floats."""
    refusal = refuse_types(diff_src, diff_dst, dst, allowed=WIDE_FLOATS)
    return refusal or SoftmaxBackwardConf(alg, axis, diff_src, diff_dst, dst)


def build(conf: SoftmaxBackwardConf, isa: Isa) -> Kernel:
    """One nest that reduces ``axis``."""
    return build_nest("softmax_backward", isa, _tensors(conf), partial(_nests, conf))


def _tensors(conf: SoftmaxBackwardConf) -> tuple[MemoryDesc, ...]:
    return conf.diff_src, conf.diff_dst, conf.dst


def _nests(conf: SoftmaxBackwardConf, arguments: Arguments) -> Iterator[Nest]:
    axes = letters(conf.dst.dims)
    index = tuple(Affine.of(axis) for axis in axes)

    def operand(arg: Arg, desc: MemoryDesc) -> Operand:
        return Operand(arguments.slot(arg), desc, index)

    dst, diff_dst = operand(Arg.DST, conf.dst), operand(Arg.DIFF_DST, conf.diff_dst)
    diff_src = operand(Arg.DIFF_SRC, conf.diff_src)
    log = conf.alg is Alg.softmax_log

    def accumulate(p: Point, total: Value) -> Values:
        gradient = p.load(diff_dst)
        if log:
            return (p.e.b.fadd(total, gradient),)
        return (vector.multiply_add(p.e, gradient, p.load(dst), total),)

    def body(point: Point) -> None:
        (total,) = point.fold((0.0,), accumulate, added)

        def finish(p: Point) -> None:
            gradient, result = p.load(diff_dst), p.load(dst)
            if log:
                share = f32.exp_of_negative(p.e, result)
                value = vector.multiply_add(p.e, share, p.e.b.fneg(total), gradient)
            else:
                value = p.e.b.fmul(result, p.e.b.fsub(gradient, total))
            p.store(diff_src, value)

        point.each(finish)

    parallel = tuple(axis for dim, axis in enumerate(axes) if dim != conf.axis)
    reduced, core = (axes[conf.axis],), core_of(*_tensors(conf))
    yield Nest(
        parallel,
        reduced,
        (diff_dst, dst),
        (diff_src,),
        body,
        reduction_unroll=REDUCTION_UNROLL,
        core=core,
    )
