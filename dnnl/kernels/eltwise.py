"""Apply an elementary function to every element."""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.codegen import eltwise
from dnnl.codegen.epilogue import refuse
from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Kernel, Refusal
from dnnl.kernels.pointwise import build_pointwise, refuse_types, source
from dnnl.types.arg import Arg
from dnnl.types.kinds import Alg
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp


@dataclass(frozen=True)
class Conf:
    """dst = post_ops(alg(src))."""

    alg: Alg
    alpha: float
    beta: float
    src: MemoryDesc
    dst: MemoryDesc
    post_ops: tuple[PostOp, ...]


def configure(
    alg: Alg,
    alpha: float,
    beta: float,
    src: MemoryDesc,
    dst: MemoryDesc,
    post_ops: tuple[PostOp, ...],
) -> Conf | Refusal:
    """Accept any function and any two layouts of supported types."""
    conf = Conf(alg, alpha, beta, src, dst, post_ops)
    return refuse_types(src, dst) or refuse(post_ops, dst) or conf


def build(conf: Conf, isa: Isa) -> Kernel:
    """One nest."""
    return build_pointwise(
        "eltwise", isa, [source(Arg.SRC, conf.src)], conf.dst, conf.post_ops,
        lambda point, loaded: eltwise.forward(
            point.e, conf.alg, loaded[0], conf.alpha, conf.beta
        ),
    )  # fmt: skip
