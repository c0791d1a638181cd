"""Combine two tensors element by element."""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.codegen import binary
from dnnl.codegen.epilogue import refuse
from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Kernel, Reason, Refusal
from dnnl.kernels.pointwise import FLOATS, INTEGERS, build_pointwise, refuse_types, source
from dnnl.types.arg import Arg
from dnnl.types.kinds import Alg
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp


@dataclass(frozen=True)
class Conf:
    """dst = post_ops(src0 alg src1), both sources broadcast where they have size 1."""

    alg: Alg
    src0: MemoryDesc
    src1: MemoryDesc
    dst: MemoryDesc
    post_ops: tuple[PostOp, ...]


def configure(
    alg: Alg,
    src0: MemoryDesc,
    src1: MemoryDesc,
    dst: MemoryDesc,
    post_ops: tuple[PostOp, ...],
) -> Conf | Refusal:
    """Accept any three layouts of supported types."""
    if not binary.supported(alg):
        return Refusal(Reason.PARAMETER, str(alg))
    conf = Conf(alg, src0, src1, dst, post_ops)
    refusal = refuse_types(src0, src1, dst, allowed=FLOATS | INTEGERS)
    return refusal or refuse(post_ops, dst) or conf


def build(conf: Conf, isa: Isa) -> Kernel:
    """One nest."""
    sources = [source(Arg.SRC, conf.src0), source(Arg.SRC_1, conf.src1)]
    return build_pointwise(
        "binary", isa, sources, conf.dst, conf.post_ops,
        lambda point, loaded: binary.apply(point.e, conf.alg, loaded[0], loaded[1]),
    )  # fmt: skip
