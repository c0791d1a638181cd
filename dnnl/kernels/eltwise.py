"""Apply an elementary function to every element."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from dnnl.codegen import eltwise, expression
from dnnl.codegen.builder import Value
from dnnl.codegen.epilogue import Arguments, refuse
from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Kernel, Refusal
from dnnl.codegen.nest import Nest
from dnnl.codegen.point import Point
from dnnl.kernels.open_nests import OpenKernel
from dnnl.kernels.pointwise import (
    FLOATS,
    INTEGERS,
    SMALL_FLOATS,
    build_nest,
    pointwise,
    refuse_types,
    source,
)
from dnnl.types.arg import Arg
from dnnl.types.dropout import Dropout
from dnnl.types.dtype import DataType
from dnnl.types.expression import Expression
from dnnl.types.kinds import Alg
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp

ALL_FLOATS = FLOATS | SMALL_FLOATS | {DataType.f64}
_OF_INTEGERS = (
    Alg.eltwise_relu, Alg.eltwise_linear, Alg.eltwise_clip, Alg.eltwise_function,
)  # fmt: skip


@dataclass(frozen=True)
class Conf:
    """dst = post_ops(dropout(alg(src))); ``function`` is what ``eltwise_function`` computes."""

    alg: Alg
    alpha: float
    beta: float
    src: MemoryDesc
    dst: MemoryDesc
    post_ops: tuple[PostOp, ...]
    dropout: Dropout | None
    function: Expression | None


def configure(
    alg: Alg,
    alpha: float,
    beta: float,
    src: MemoryDesc,
    dst: MemoryDesc,
    dropout: Dropout | None,
    function: Expression | None,
    post_ops: tuple[PostOp, ...],
) -> Conf | Refusal:
    """Accept any function of floats, those of ``_OF_INTEGERS`` for integers too, and any two
    layouts."""
    conf = Conf(alg, alpha, beta, src, dst, post_ops, dropout, function)
    allowed = ALL_FLOATS | INTEGERS if alg in _OF_INTEGERS else ALL_FLOATS
    return refuse_types(src, dst, allowed=allowed) or refuse(post_ops, dst) or conf


def build(conf: Conf, isa: Isa) -> Kernel:
    """One nest."""
    return build_nest("eltwise", isa, (conf.src, conf.dst), partial(_nests, conf))


def build_open(conf: Conf, isa: Isa) -> Kernel:
    """One nest for all sizes."""
    return OPEN.build(conf, isa)


def _nests(conf: Conf, arguments: Arguments) -> Iterator[Nest]:
    def compute(point: Point, loaded: list[Value]) -> Value:
        if conf.function is not None:
            return expression.emit(point.e, conf.function, loaded)
        return eltwise.forward(point.e, conf.alg, loaded[0], conf.alpha, conf.beta)

    src = source(Arg.SRC, conf.src)
    taken = eltwise.instructions(conf.alg)
    if conf.function is not None:
        taken = expression.instructions(conf.function)
    yield pointwise(
        arguments, [src], conf.dst, conf.post_ops, compute, conf.dropout, instructions=taken
    )


OPEN = OpenKernel("eltwise", _nests, {"src": Arg.SRC, "dst": Arg.DST})
