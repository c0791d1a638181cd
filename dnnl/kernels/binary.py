"""Combine two tensors element by element."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from dnnl.codegen import binary
from dnnl.codegen.builder import Value
from dnnl.codegen.epilogue import Arguments, refuse
from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Kernel, Refusal
from dnnl.codegen.nest import Nest
from dnnl.codegen.point import Point
from dnnl.codegen.quantization import Quantization
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
    tensors = [desc for desc in (src0, src1, src2, dst) if not desc.is_zero]
    refusal = refuse_types(*tensors, allowed=_TYPES) or refuse(post_ops, dst)
    refusal = refusal or quantization.refuse({Arg.SRC_0: src0, Arg.SRC_1: src1})
    return refusal or Conf(alg, src0, src1, src2, dst, quantization, post_ops)


def build(conf: Conf, isa: Isa) -> Kernel:
    """One nest."""
    tensors = [desc for desc in (conf.src0, conf.src1, conf.src2, conf.dst) if not desc.is_zero]
    return build_nest("binary", isa, tensors, partial(_nests, conf))


def build_open(conf: Conf, isa: Isa) -> Kernel:
    """One nest for all sizes."""
    return OPEN.build(conf, isa)


def _nests(conf: Conf, arguments: Arguments) -> Iterator[Nest]:
    descs = {Arg.SRC_0: conf.src0, Arg.SRC_1: conf.src1, Arg.SRC_2: conf.src2}
    sources = [source(argument, desc) for argument, desc in descs.items() if not desc.is_zero]

    def compute(point: Point, loaded: list[Value]) -> Value:
        first, second, *condition = loaded
        return binary.apply(point.e, conf.alg, first, second, *condition)

    yield pointwise(
        arguments, sources, conf.dst, conf.post_ops, compute, quantization=conf.quantization
    )


OPEN = OpenKernel(
    "binary",
    _nests,
    {"src0": Arg.SRC_0, "src1": Arg.SRC_1, "src2": Arg.SRC_2, "dst": Arg.DST},
)
