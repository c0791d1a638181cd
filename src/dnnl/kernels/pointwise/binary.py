"""Combine two tensors element by element."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from dnnl.codegen.epilogue.attributes import Attributes
from dnnl.codegen.functions import expression
from dnnl.codegen.ir.builder import Value
from dnnl.codegen.ir.kernel import Arguments, Kernel, Refusal
from dnnl.codegen.isa import Isa
from dnnl.codegen.nest.nest import Nest
from dnnl.codegen.nest.point import Point
from dnnl.kernels.shared.pointwise import build_nest, pointwise, source
from dnnl.kernels.shared.types import refuse_forward
from dnnl.types.arg import Arg
from dnnl.types.expression import Expression
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True)
class BinaryConf:
    """dst = function(sources) with ``attributes``, the sources broadcast where they have size 1;
    the zero descriptor for src2 where there is no condition."""

    function: Expression
    src0: MemoryDesc
    src1: MemoryDesc
    src2: MemoryDesc
    dst: MemoryDesc
    attributes: Attributes

    @property
    def sources(self) -> dict[int, MemoryDesc]:
        """The sources that there are."""
        given = {Arg.SRC_0: self.src0, Arg.SRC_1: self.src1, Arg.SRC_2: self.src2}
        return {int(argument): desc for argument, desc in given.items() if not desc.is_zero}


def configure(
    function: Expression,
    src0: MemoryDesc,
    src1: MemoryDesc,
    src2: MemoryDesc,
    dst: MemoryDesc,
    attributes: Attributes,
) -> BinaryConf | Refusal:
    """Accept any layouts of supported types."""
    conf = BinaryConf(function, src0, src1, src2, dst, attributes)
    return refuse_forward(conf.sources, dst, attributes) or conf


def build(conf: BinaryConf, isa: Isa) -> Kernel:
    """One nest."""
    return build_nest("binary", isa, [*conf.sources.values(), conf.dst], partial(_nests, conf))


def _nests(conf: BinaryConf, arguments: Arguments) -> Iterator[Nest]:
    def compute(point: Point, loaded: list[Value]) -> Value:
        return expression.emit(point.e, conf.function, loaded)

    sources = [source(argument, desc) for argument, desc in conf.sources.items()]
    yield pointwise(arguments, sources, conf.dst, compute, conf.attributes)
