"""The gradient of an elementary function, element by element."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from dnnl.codegen.functions import expression
from dnnl.codegen.ir.builder import Value
from dnnl.codegen.ir.kernel import Arguments, Kernel, Refusal
from dnnl.codegen.isa import Isa
from dnnl.codegen.nest.nest import Nest
from dnnl.codegen.nest.point import Point
from dnnl.kernels.pointwise.eltwise import refuse_f64
from dnnl.kernels.shared.pointwise import build_nest, pointwise, source
from dnnl.kernels.shared.types import SMALL_FLOATS, WIDE_FLOATS, refuse_types
from dnnl.types.arg import Arg
from dnnl.types.expression import Expression
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True)
class EltwiseBackwardConf:
    """diff_src = gradient(diff_dst, data). The data are src or dst; the other one is the zero
    descriptor."""

    gradient: Expression
    diff_src: MemoryDesc
    diff_dst: MemoryDesc
    src: MemoryDesc
    dst: MemoryDesc


def configure(
    gradient: Expression,
    diff_src: MemoryDesc,
    diff_dst: MemoryDesc,
    src: MemoryDesc,
    dst: MemoryDesc,
) -> EltwiseBackwardConf | Refusal:
    """Accept any three layouts of floats."""
    conf = EltwiseBackwardConf(gradient, diff_src, diff_dst, src, dst)
    refusal = refuse_types(*_tensors(conf), allowed=WIDE_FLOATS | SMALL_FLOATS)
    return refusal or refuse_f64(gradient, *_tensors(conf)) or conf


def build(conf: EltwiseBackwardConf, isa: Isa) -> Kernel:
    """One nest."""
    return build_nest("eltwise_backward", isa, _tensors(conf), partial(_nests, conf))


def _tensors(conf: EltwiseBackwardConf) -> list[MemoryDesc]:
    every = conf.diff_dst, conf.src, conf.dst, conf.diff_src
    return [desc for desc in every if not desc.is_zero]


def _nests(conf: EltwiseBackwardConf, arguments: Arguments) -> Iterator[Nest]:
    data = source(Arg.DST, conf.dst) if conf.src.is_zero else source(Arg.SRC, conf.src)
    sources = [source(Arg.DIFF_DST, conf.diff_dst), data]

    def compute(point: Point, loaded: list[Value]) -> Value:
        return expression.emit(point.e, conf.gradient, loaded)

    taken = expression.instructions(conf.gradient)
    yield pointwise(
        arguments, sources, conf.diff_src, compute, target=Arg.DIFF_SRC, instructions=taken
    )
