"""The gradient of an elementary function, element by element."""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.codegen import eltwise_backward, expression
from dnnl.codegen.builder import Value
from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Kernel, Refusal
from dnnl.codegen.point import Point
from dnnl.kernels.eltwise import ALL_FLOATS
from dnnl.kernels.pointwise import build_pointwise, refuse_types, source
from dnnl.types.arg import Arg
from dnnl.types.derivative import derivative
from dnnl.types.expression import Expression
from dnnl.types.kinds import Alg
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True)
class Conf:
    """diff_src = diff_dst * f'(data); data is dst for an algorithm that uses it, else src.

    ``function`` is what ``eltwise_function`` computes.
    """

    alg: Alg
    alpha: float
    beta: float
    diff_src: MemoryDesc
    diff_dst: MemoryDesc
    data: MemoryDesc
    function: Expression | None


def configure(
    alg: Alg,
    alpha: float,
    beta: float,
    diff_src: MemoryDesc,
    diff_dst: MemoryDesc,
    data: MemoryDesc,
    function: Expression | None,
) -> Conf | Refusal:
    """Accept any three layouts of floats."""
    refusal = refuse_types(diff_src, diff_dst, data, allowed=ALL_FLOATS)
    return refusal or Conf(alg, alpha, beta, diff_src, diff_dst, data, function)


def build(conf: Conf, isa: Isa) -> Kernel:
    """One nest."""
    data = Arg.DST if conf.alg.uses_dst else Arg.SRC
    sources = [source(Arg.DIFF_DST, conf.diff_dst), source(data, conf.data)]
    slope = None if conf.function is None else derivative(conf.function)

    def compute(point: Point, loaded: list[Value]) -> Value:
        gradient, given = loaded
        if slope is not None:
            return point.e.b.fmul(gradient, expression.emit(point.e, slope, [given]))
        return eltwise_backward.backward(point.e, conf.alg, gradient, given, conf.alpha, conf.beta)

    return build_pointwise(
        "eltwise_backward", isa, sources, conf.diff_src, (), compute, target=Arg.DIFF_SRC
    )
