"""Batched matrix multiplication of integers in their own type: products and sums wrap."""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.codegen.conversion.convert import bare_core
from dnnl.codegen.ir.builder import Emitter, Module, Value, Values
from dnnl.codegen.ir.kernel import Arguments, Kernel, Reason, Refusal, symbol
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import ZERO, Affine, letters
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.kernels.shared.types import refuse_types
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc

_TYPES = frozenset({DataType.s32, DataType.u32, DataType.s64, DataType.u64})
# Registers of consecutive columns, as independent sums.
_REGISTERS = 4


@dataclass(frozen=True)
class ExactMatmulConf:
    """dst = src x weights; batch dimensions of size 1 are broadcast."""

    src: MemoryDesc
    weights: MemoryDesc
    dst: MemoryDesc


def configure(
    src: MemoryDesc, weights: MemoryDesc, bias: MemoryDesc, dst: MemoryDesc
) -> ExactMatmulConf | Refusal:
    """Accept any layouts of one type of 32 or 64 bits, without bias."""
    refusal = refuse_types(src, weights, dst, allowed=_TYPES)
    if refusal is None and len({src.data_type, weights.data_type, dst.data_type}) > 1:
        detail = f"{src.data_type} by {weights.data_type} to {dst.data_type}: expected one type"
        refusal = Refusal(Reason.DATA_TYPE, detail)
    if refusal is None and not bias.is_zero:
        refusal = Refusal(Reason.PARAMETER, "bias")
    return refusal or ExactMatmulConf(src, weights, dst)


def _added(e: Emitter, a: Values, b: Values) -> Values:
    return tuple(e.b.add(x, y) for x, y in zip(a, b, strict=True))


def _batch(desc: MemoryDesc, index: list[Affine]) -> tuple[Affine, ...]:
    """The index of the matrices; dimensions of size 1 are broadcast."""
    pairs = zip(desc.dims, index, strict=False)
    return tuple(form if extent != 1 else ZERO for extent, form in pairs)


def build(conf: ExactMatmulConf, isa: Isa) -> Kernel:
    """One nest that sums along k."""
    arguments = Arguments()
    *axes, depth = letters((*conf.dst.dims, conf.src.dims[-1]))
    *batch, row, column = map(Affine.of, axes)
    k = Affine.of(depth)

    def operand(argument: int, desc: MemoryDesc, *last: Affine) -> Operand:
        index = (*_batch(desc, batch), *last)
        return Operand(arguments.slot(argument), desc, index)

    src = operand(Arg.SRC, conf.src, row, k)
    weights = operand(Arg.WEIGHTS, conf.weights, k, column)
    dst = Operand(arguments.slot(Arg.DST), conf.dst, tuple(map(Affine.of, axes)))

    def step(point: Point, total: Value) -> Values:
        b = point.e.b
        return (b.add(total, b.mul(point.load(src), point.load(weights))),)

    def body(point: Point) -> None:
        point.store(dst, point.fold((0,), step, _added)[0])

    module = Module("matmul", isa)
    entry = symbol("matmul", [conf.src, conf.weights, conf.dst], isa)
    core = bare_core(conf.dst.data_type, conf.dst.data_type)
    nest = Nest(
        tuple(axes), (depth,), (src, weights), (dst,), body, core=core, registers=_REGISTERS
    )
    return Kernel(module, (emit_nest(module, entry, nest),), arguments.ids)
