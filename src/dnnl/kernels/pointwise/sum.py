"""Add tensors, each with its own factor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from dnnl.codegen.epilogue.attributes import Attributes
from dnnl.codegen.ir import vector
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
class SumConf:
    """dst = sum of scales[i] * srcs[i] with ``attributes``."""

    scales: tuple[float, ...]
    srcs: tuple[MemoryDesc, ...]
    dst: MemoryDesc
    attributes: Attributes


def configure(
    scales: tuple[float, ...],
    srcs: tuple[MemoryDesc, ...],
    dst: MemoryDesc,
    attributes: Attributes,
) -> SumConf | Refusal:
    """Accept any layouts of supported types."""
    sources = {Arg.multiple_src(number): desc for number, desc in enumerate(srcs)}
    refusal = refuse_forward(sources, dst, attributes)
    return refusal or SumConf(scales, srcs, dst, attributes)


def build(conf: SumConf, isa: Isa) -> Kernel:
    """One nest."""
    return build_nest("sum", isa, (*conf.srcs, conf.dst), partial(_nests, conf))


def _nests(conf: SumConf, arguments: Arguments) -> Iterator[Nest]:
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
    yield pointwise(arguments, sources, conf.dst, compute, conf.attributes)


def _scaled(point: Point, value: Value, scale: float) -> Value:
    return value if scale == 1.0 else point.e.b.fmul(value, point.constant(scale))
