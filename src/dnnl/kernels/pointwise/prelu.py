"""Multiply each negative element by a weight, which elements may share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from dnnl.codegen.epilogue.attributes import Attributes
from dnnl.codegen.ir.builder import Value
from dnnl.codegen.ir.kernel import Arguments, Kernel, Refusal
from dnnl.codegen.isa import Isa
from dnnl.codegen.nest.nest import Nest
from dnnl.codegen.nest.point import Point
from dnnl.kernels.shared.pointwise import build_nest, pointwise, source
from dnnl.kernels.shared.types import refuse_forward
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True)
class PreluConf:
    """dst = src where src > 0, else src * weights, which are broadcast where they have size 1, with
    ``attributes``."""

    src: MemoryDesc
    weights: MemoryDesc
    dst: MemoryDesc
    attributes: Attributes


def configure(
    src: MemoryDesc, weights: MemoryDesc, dst: MemoryDesc, attributes: Attributes
) -> PreluConf | Refusal:
    """Accept any three layouts of supported types."""
    refusal = refuse_forward({Arg.SRC: src, Arg.WEIGHTS: weights}, dst, attributes)
    return refusal or PreluConf(src, weights, dst, attributes)


def build(conf: PreluConf, isa: Isa) -> Kernel:
    """One nest."""
    return build_nest("prelu", isa, (conf.src, conf.weights, conf.dst), partial(_nests, conf))


def _nests(conf: PreluConf, arguments: Arguments) -> Iterator[Nest]:
    sources = [source(Arg.SRC, conf.src), source(Arg.WEIGHTS, conf.weights)]
    yield pointwise(arguments, sources, conf.dst, _apply, conf.attributes)


def _apply(point: Point, loaded: list[Value]) -> Value:
    src, weights = loaded
    return where_positive(point, src, src, point.e.b.fmul(src, weights))


def where_positive(point: Point, src: Value, value: Value, other: Value) -> Value:
    """``value`` in the lanes in which src is positive, else ``other``."""
    positive = point.e.b.fcmp_ordered(">", src, point.constant(0.0))
    return point.e.b.select(positive, value, other)
