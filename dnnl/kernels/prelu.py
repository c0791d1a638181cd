"""Multiply each negative element by a weight, which elements may share."""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.codegen.builder import Value
from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Kernel, Refusal
from dnnl.codegen.point import Point
from dnnl.kernels.pointwise import INTEGERS, WIDE_FLOATS, build_pointwise, refuse_types, source
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc

TYPES = WIDE_FLOATS | INTEGERS


@dataclass(frozen=True)
class Conf:
    """dst = src where src > 0, else src * weights, which are broadcast where they have size 1."""

    src: MemoryDesc
    weights: MemoryDesc
    dst: MemoryDesc


def configure(src: MemoryDesc, weights: MemoryDesc, dst: MemoryDesc) -> Conf | Refusal:
    """Accept any three layouts of supported types."""
    return refuse_types(src, weights, dst, allowed=TYPES) or Conf(src, weights, dst)


def build(conf: Conf, isa: Isa) -> Kernel:
    """One nest."""
    sources = [source(Arg.SRC, conf.src), source(Arg.WEIGHTS, conf.weights)]
    return build_pointwise("prelu", isa, sources, conf.dst, (), _apply)


def _apply(point: Point, loaded: list[Value]) -> Value:
    src, weights = loaded
    return where_positive(point, src, src, point.e.b.fmul(src, weights))


def where_positive(point: Point, src: Value, value: Value, other: Value) -> Value:
    """``value`` in the lanes in which src is positive, else ``other``."""
    positive = point.e.b.fcmp_ordered(">", src, point.constant(0.0))
    return point.e.b.select(positive, value, other)
