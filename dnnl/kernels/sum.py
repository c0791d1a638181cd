"""Add tensors, each with its own factor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from dnnl.codegen import vector
from dnnl.codegen.builder import Value
from dnnl.codegen.epilogue import Arguments, refuse
from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Kernel, Refusal
from dnnl.codegen.nest import Nest
from dnnl.codegen.point import Point
from dnnl.kernels.open_nests import OpenKernel
from dnnl.kernels.pointwise import (
    INTEGERS,
    WIDE_FLOATS,
    build_nest,
    pointwise,
    refuse_types,
    source,
)
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp


@dataclass(frozen=True)
class Conf:
    """dst = post_ops(sum of scales[i] * srcs[i])."""

    scales: tuple[float, ...]
    srcs: tuple[MemoryDesc, ...]
    dst: MemoryDesc
    post_ops: tuple[PostOp, ...]


def configure(
    scales: tuple[float, ...],
    srcs: tuple[MemoryDesc, ...],
    dst: MemoryDesc,
    post_ops: tuple[PostOp, ...],
) -> Conf | Refusal:
    """Accept any layouts of supported types."""
    refusal = refuse_types(*srcs, dst, allowed=WIDE_FLOATS | INTEGERS) or refuse(post_ops, dst)
    return refusal or Conf(scales, srcs, dst, post_ops)


def build(conf: Conf, isa: Isa) -> Kernel:
    """One nest."""
    return build_nest("sum", isa, (*conf.srcs, conf.dst), partial(_nests, conf))


def build_open(conf: Conf, isa: Isa) -> Kernel:
    """One nest for all sizes."""
    return OPEN.build(conf, isa)


def _nests(conf: Conf, arguments: Arguments) -> Iterator[Nest]:
    """The sources are added in their order."""

    def compute(point: Point, loaded: list[Value]) -> Value:
        total = _scaled(point, loaded[0], conf.scales[0])
        for value, scale in zip(loaded[1:], conf.scales[1:], strict=True):
            if scale == 1.0:
                total = point.e.b.fadd(total, value)
            else:
                total = vector.multiply_add(point.e, value, point.constant(scale), total)
        return total

    sources = [source(Arg.multiple_src(i), desc) for i, desc in enumerate(conf.srcs)]
    yield pointwise(arguments, sources, conf.dst, conf.post_ops, compute)


def _scaled(point: Point, value: Value, scale: float) -> Value:
    return value if scale == 1.0 else point.e.b.fmul(value, point.constant(scale))


OPEN = OpenKernel("sum", _nests, {"srcs": Arg.MULTIPLE_SRC, "dst": Arg.DST})
