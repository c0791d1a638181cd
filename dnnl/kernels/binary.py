"""Combine two tensors element by element."""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.codegen import binary
from dnnl.codegen.builder import Value
from dnnl.codegen.epilogue import refuse
from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Kernel, Refusal
from dnnl.codegen.point import Point
from dnnl.codegen.quantization import Quantization
from dnnl.kernels.pointwise import (
    FLOATS,
    INTEGERS,
    SMALL_FLOATS,
    build_pointwise,
    refuse_types,
    source,
)
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.kinds import Alg
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp

_TYPES = FLOATS | SMALL_FLOATS | INTEGERS | {DataType.f64}


@dataclass(frozen=True)
class Conf:
    """dst = post_ops(src0 alg src1), the sources scaled and broadcast where they have size 1; the
    zero descriptor for src2 where there is no condition."""

    alg: Alg
    src0: MemoryDesc
    src1: MemoryDesc
    src2: MemoryDesc
    dst: MemoryDesc
    quantization: Quantization
    post_ops: tuple[PostOp, ...]


def configure(
    alg: Alg,
    src0: MemoryDesc,
    src1: MemoryDesc,
    src2: MemoryDesc,
    dst: MemoryDesc,
    quantization: Quantization,
    post_ops: tuple[PostOp, ...],
) -> Conf | Refusal:
    """Accept any layouts of supported types."""
    conditions = () if src2.is_zero else (src2,)
    refusal = refuse_types(src0, src1, *conditions, dst, allowed=_TYPES) or refuse(post_ops, dst)
    refusal = refusal or quantization.refuse({Arg.SRC_0: src0, Arg.SRC_1: src1})
    return refusal or Conf(alg, src0, src1, src2, dst, quantization, post_ops)


def build(conf: Conf, isa: Isa) -> Kernel:
    """One nest."""
    descs = {Arg.SRC_0: conf.src0, Arg.SRC_1: conf.src1, Arg.SRC_2: conf.src2}
    sources = [source(argument, desc) for argument, desc in descs.items() if not desc.is_zero]

    def compute(point: Point, loaded: list[Value]) -> Value:
        first, second, *condition = loaded
        return binary.apply(point.e, conf.alg, first, second, *condition)

    return build_pointwise(
        "binary", isa, sources, conf.dst, conf.post_ops, compute, quantization=conf.quantization
    )
