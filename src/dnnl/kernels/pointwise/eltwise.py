"""Apply an elementary function to every element."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from dnnl.codegen.epilogue.attributes import Attributes
from dnnl.codegen.functions import expression
from dnnl.codegen.ir.builder import Value
from dnnl.codegen.ir.kernel import Arguments, Kernel, Reason, Refusal
from dnnl.codegen.isa import Isa
from dnnl.codegen.nest.nest import Nest
from dnnl.codegen.nest.point import Point
from dnnl.kernels.shared.pointwise import build_nest, pointwise, source
from dnnl.kernels.shared.types import computed_in, refuse_forward
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.expression import Expression
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True)
class EltwiseConf:
    """dst = function(src) with ``attributes``."""

    function: Expression
    src: MemoryDesc
    dst: MemoryDesc
    attributes: Attributes


def configure(
    function: Expression, src: MemoryDesc, dst: MemoryDesc, attributes: Attributes
) -> EltwiseConf | Refusal:
    """Accept any function of any two of the supported types, in any two layouts."""
    refusal = refuse_forward({Arg.SRC: src}, dst, attributes)
    refusal = refusal or refuse_f64(function, src, dst)
    return refusal or EltwiseConf(function, src, dst, attributes)


def refuse_f64(function: Expression, *descs: MemoryDesc) -> Refusal | None:
    """A refusal where a function is computed in f64 and has a step that is not."""
    missing = expression.without_f64(function)
    if missing is None or computed_in(*descs) is not DataType.f64:
        return None
    return Refusal(Reason.DATA_TYPE, f"{missing} of f64; all tensors of f32 have it")


def build(conf: EltwiseConf, isa: Isa) -> Kernel:
    """One nest."""
    return build_nest("eltwise", isa, (conf.src, conf.dst), partial(_nests, conf))


def _nests(conf: EltwiseConf, arguments: Arguments) -> Iterator[Nest]:
    def compute(point: Point, loaded: list[Value]) -> Value:
        return expression.emit(point.e, conf.function, loaded)

    src = source(Arg.SRC, conf.src)
    taken = expression.instructions(conf.function)
    yield pointwise(arguments, [src], conf.dst, compute, conf.attributes, instructions=taken)
