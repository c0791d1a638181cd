"""Compute elements in their own types: integers, truth values, floats, and casts between them."""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.codegen.functions import expression
from dnnl.codegen.ir.builder import Module
from dnnl.codegen.ir.kernel import Arguments, Kernel, Reason, Refusal, symbol
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, broadcast, letters
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.kernels.shared.pointwise import unroll_factor
from dnnl.kernels.shared.types import refuse_types
from dnnl.types.arg import Arg
from dnnl.types.expression import Expression
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.typed import TYPES


@dataclass(frozen=True)
class ExactConf:
    """dst = function(srcs), all sources broadcast where they have size 1."""

    function: Expression
    srcs: tuple[MemoryDesc, ...]
    dst: MemoryDesc


def configure(
    function: Expression, srcs: tuple[MemoryDesc, ...], dst: MemoryDesc
) -> ExactConf | Refusal:
    """Accept any layouts of the function's types."""
    refused = expression.refused(function)
    if refused is not None:
        return Refusal(Reason.DATA_TYPE, str(refused))
    return refuse_types(*srcs, dst, allowed=TYPES) or ExactConf(function, srcs, dst)


def build(conf: ExactConf, isa: Isa) -> Kernel:
    """One nest."""
    arguments = Arguments()
    axes = letters(conf.dst.dims)
    index = tuple(Affine.of(axis) for axis in axes)
    sources = [
        Operand(arguments.slot(Arg.multiple_src(number)), desc, broadcast(desc, index))
        for number, desc in enumerate(conf.srcs)
    ]
    output = Operand(arguments.slot(Arg.DST), conf.dst, index)
    core = expression.core(conf.function, *(desc.data_type for desc in conf.srcs))
    unroll = unroll_factor(expression.instructions(conf.function))

    def body(point: Point) -> None:
        stored = [point.load_stored(source) for source in sources]
        point.store_stored(output, expression.emit(point.e, conf.function, stored))

    module = Module("exact", isa)
    entry = symbol("exact", [*conf.srcs, conf.dst], isa)
    nest = Nest(axes, (), tuple(sources), (output,), body, core=core, unroll=unroll)
    return Kernel(module, (emit_nest(module, entry, nest),), arguments.ids)
