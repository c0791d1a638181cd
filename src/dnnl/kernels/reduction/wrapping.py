"""Reductions of integers of any width in the type of dst: sums and products wrap."""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.codegen.functions.expression import core, emit
from dnnl.codegen.ir.builder import Emitter, Module, Value, Values
from dnnl.codegen.ir.kernel import Arguments, Kernel, Reason, Refusal, symbol
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, Axis, letters
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.kernels.shared.types import refuse_types
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.kinds import Alg
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.typed import BOOLEAN, INTEGERS, expression_of

_TYPES = INTEGERS | BOOLEAN
_FUNCTIONS = {
    Alg.reduction_sum: "add",
    Alg.reduction_mul: "mul",
    Alg.reduction_max: "max",
    Alg.reduction_min: "min",
}
_OF_TRUTHS = (Alg.reduction_max, Alg.reduction_min)


@dataclass(frozen=True)
class WrappingReductionConf:
    """dst = src, converted to the type of dst and reduced along the dimensions in which dst has
    size 1."""

    alg: Alg
    src: MemoryDesc
    dst: MemoryDesc


def configure(alg: Alg, src: MemoryDesc, dst: MemoryDesc) -> WrappingReductionConf | Refusal:
    """Accept any layouts of integers; extremes of booleans are booleans."""
    refusal = refuse_types(src, dst, allowed=_TYPES)
    truths = dst.data_type is DataType.boolean
    if refusal is None and alg not in (_OF_TRUTHS if truths else _FUNCTIONS):
        refusal = Refusal(Reason.PARAMETER, f"{alg} of {dst.data_type}")
    return refusal or WrappingReductionConf(alg, src, dst)


def build(conf: WrappingReductionConf, isa: Isa) -> Kernel:
    """One nest."""
    module, arguments = Module("reduction", isa), Arguments()
    parallel = letters(conf.dst.dims)
    pairs = enumerate(zip(conf.src.dims, conf.dst.dims, strict=True))
    reduced = {dim: Axis(extent, f"r{dim}") for dim, (extent, left) in pairs if extent != left}
    walked = (reduced.get(dim, axis) for dim, axis in enumerate(parallel))
    src = Operand(arguments.slot(Arg.SRC), conf.src, tuple(map(Affine.of, walked)))
    dst = Operand(arguments.slot(Arg.DST), conf.dst, tuple(map(Affine.of, parallel)))
    source, held = conf.src.data_type, conf.dst.data_type
    number = DataType.u8 if held is DataType.boolean else held  # of which the cast makes 0 and 1
    combination = expression_of(_FUNCTIONS[conf.alg], [number] * 3)
    conversion = expression_of("cast", [held, source])

    def step(point: Point, result: Value) -> Values:
        term = emit(point.e, conversion, [point.load_stored(src)])
        return (emit(point.e, combination, [term, result]),)

    def merge(e: Emitter, a: Values, b: Values) -> Values:
        return (emit(e, combination, [a[0], b[0]]),)

    def body(point: Point) -> None:
        init = (_neutral(conf.alg, held),)
        point.store_stored(dst, *point.fold(init, step, merge, None, core(combination)))

    axes = parallel, tuple(reduced.values())
    nest = Nest(*axes, (src,), (dst,), body, core=core(conversion))
    entry = symbol("reduction_wrapping", [conf.src, conf.dst], isa)
    return Kernel(module, (emit_nest(module, entry, nest),), arguments.ids)


def _neutral(alg: Alg, held: DataType) -> int:
    return {
        Alg.reduction_sum: 0,
        Alg.reduction_mul: 1,
        Alg.reduction_max: int(held.min),
        Alg.reduction_min: int(held.max),
    }[alg]
