"""The gradient of an elementary function, element by element."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from dnnl.codegen.functions import eltwise, eltwise_backward, expression
from dnnl.codegen.ir.builder import Value
from dnnl.codegen.ir.kernel import Arguments, Kernel, Refusal
from dnnl.codegen.isa import Isa
from dnnl.codegen.nest.nest import Nest
from dnnl.codegen.nest.point import Point
from dnnl.kernels.shared.open_nests import OpenKernel
from dnnl.kernels.shared.pointwise import build_nest, pointwise, source
from dnnl.kernels.shared.types import SMALL_FLOATS, WIDE_FLOATS, refuse_types
from dnnl.types.arg import Arg
from dnnl.types.derivative import derivative
from dnnl.types.expression import Expression
from dnnl.types.kinds import Alg
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True)
class EltwiseBackwardConf:
    """diff_src = diff_dst * f'(data). The data are ``dst`` for an algorithm that uses it, else
    ``src``, and there is no other; ``function`` is what ``eltwise_function`` computes."""

    alg: Alg
    alpha: float
    beta: float
    diff_src: MemoryDesc
    diff_dst: MemoryDesc
    src: MemoryDesc
    dst: MemoryDesc
    function: Expression | None


def configure(
    alg: Alg,
    alpha: float,
    beta: float,
    diff_src: MemoryDesc,
    diff_dst: MemoryDesc,
    src: MemoryDesc,
    dst: MemoryDesc,
    function: Expression | None,
) -> EltwiseBackwardConf | Refusal:
    """Accept any three layouts of floats."""
    conf = EltwiseBackwardConf(alg, alpha, beta, diff_src, diff_dst, src, dst, function)
    return refuse_types(*_tensors(conf), allowed=WIDE_FLOATS | SMALL_FLOATS) or conf


def build(conf: EltwiseBackwardConf, isa: Isa) -> Kernel:
    """One nest."""
    return build_nest("eltwise_backward", isa, _tensors(conf), partial(_nests, conf))


def build_open(conf: EltwiseBackwardConf, isa: Isa) -> Kernel:
    """One nest for all sizes."""
    return OPEN.build(conf, isa)


def _tensors(conf: EltwiseBackwardConf) -> list[MemoryDesc]:
    every = conf.diff_dst, conf.src, conf.dst, conf.diff_src
    return [desc for desc in every if not desc.is_zero]


def _nests(conf: EltwiseBackwardConf, arguments: Arguments) -> Iterator[Nest]:
    data = source(Arg.DST, conf.dst) if conf.alg.uses_dst else source(Arg.SRC, conf.src)
    sources = [source(Arg.DIFF_DST, conf.diff_dst), data]
    slope = None if conf.function is None else derivative(conf.function)

    def compute(point: Point, loaded: list[Value]) -> Value:
        gradient, given = loaded
        if slope is not None:
            return point.e.b.fmul(gradient, expression.emit(point.e, slope, [given]))
        return eltwise_backward.backward(point.e, conf.alg, gradient, given, conf.alpha, conf.beta)

    taken = 1 if conf.alg.uses_dst else eltwise.instructions(conf.alg)
    if slope is not None:
        taken = expression.instructions(slope)
    yield pointwise(
        arguments, sources, conf.diff_src, compute, target=Arg.DIFF_SRC, instructions=taken
    )


OPEN = OpenKernel(
    "eltwise_backward",
    _nests,
    {"diff_dst": Arg.DIFF_DST, "src": Arg.SRC, "dst": Arg.DST, "diff_src": Arg.DIFF_SRC},
)
