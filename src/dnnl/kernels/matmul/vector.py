"""Matrix-vector and vector-vector products of floats: reductions along k.

Tiles of a product have a row for each row of src and vectors of columns. With one column most lanes
would be idle. Here vectors go along whatever is contiguous: k, rows or columns. A long k is split
into parts that threads share; their number depends on the sizes only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dnnl.codegen.epilogue.post_ops import Epilogue, refuse
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Module, Value, Values
from dnnl.codegen.ir.kernel import Arguments, Kernel, Reason, Refusal, symbol
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, broadcast, letters
from dnnl.codegen.nest.folds import Fold, emit_fold, exact_partials_desc, sums
from dnnl.codegen.nest.point import Point
from dnnl.kernels.product.base.types import refuse_tensors
from dnnl.kernels.shared.scratchpad import Scratchpad
from dnnl.kernels.shared.types import WIDE_FLOATS, computed_in, refuse_types
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp

_NONE = MemoryDesc.zero()
# With fewer terms tiles are as fast.
_LEAST_TERMS = 64
# The row length in bytes from which tiles, which read several rows at once, are faster.
_LONG_ROW = 64


@dataclass(frozen=True)
class VectorProductConf:
    """dst = post_ops(src x weights + bias), a batch of products with a vector as one operand.
    ``partial`` are the sums of parts in the ``scratchpad``, which is in bytes."""

    src: MemoryDesc
    weights: MemoryDesc
    bias: MemoryDesc
    dst: MemoryDesc
    post_ops: tuple[PostOp, ...]
    partial: MemoryDesc = _NONE
    scratchpad: int = 0


def configure(
    src: MemoryDesc,
    weights: MemoryDesc,
    bias: MemoryDesc,
    dst: MemoryDesc,
    post_ops: tuple[PostOp, ...],
    isa: Isa,
) -> VectorProductConf | Refusal:
    """Accept plain layouts of floats if k is long and vectors need no gather."""
    refusal = refuse_types(src, weights, dst, allowed=WIDE_FLOATS)
    refusal = refusal or refuse_tensors(src, weights, bias, dst) or refuse(post_ops, dst, (src,))
    if refusal is not None:
        return refusal
    if src.inner_blocks or weights.inner_blocks or dst.inner_blocks:
        return Refusal(Reason.LAYOUT, "blocks")
    if 1 not in (src.dims[-2], weights.dims[-1]) or src.dims[-1] < _LEAST_TERMS:
        return Refusal(Reason.SHAPE, f"{src.dims} by {weights.dims}: neither is a long vector")
    if not _in_order(src, weights):
        return Refusal(Reason.LAYOUT, f"a matrix that is not dense along k: {src}, {weights}")
    conf = VectorProductConf(src, weights, bias, dst, post_ops)
    scratchpad = Scratchpad()
    wanted = exact_partials_desc(isa, _fold(conf, Arguments()))
    if wanted.nelems():
        _, parts = scratchpad.take(wanted)
        conf = replace(conf, partial=parts)
    return replace(conf, scratchpad=scratchpad.size)


def _in_order(src: MemoryDesc, weights: MemoryDesc) -> bool:
    """Whether the matrix is contiguous along k, or along short rows."""
    if weights.dims[-1] == 1:
        (row, k), length, kind = src.strides[-2:], src.dims[-2], src.data_type
    else:
        (k, row), length, kind = weights.strides[-2:], weights.dims[-1], weights.data_type
    return k == 1 or (row == 1 and length * kind.size < _LONG_ROW)


def build(conf: VectorProductConf, isa: Isa) -> Kernel:
    """The reduction, in parts if that pays off."""
    module, arguments = Module("matmul", isa), Arguments()
    fold = _fold(conf, arguments)
    slot = -1 if conf.partial.is_zero else arguments.slot(Arg.SCRATCHPAD)
    entry = symbol("matmul_vector", [conf.src, conf.weights, conf.dst], isa)
    phases = emit_fold(module, entry, fold, (slot, conf.partial))
    return Kernel(module, phases, arguments.ids)


def _fold(conf: VectorProductConf, arguments: Arguments) -> Fold:
    *axes, depth = letters((*conf.dst.dims, conf.src.dims[-1]))
    *batch, row, column = map(Affine.of, axes)
    k = Affine.of(depth)

    def factor(argument: int, desc: MemoryDesc, *last: Affine) -> Operand:
        return Operand(arguments.slot(argument), desc, broadcast(desc, (*batch, *last)))

    src = factor(Arg.SRC, conf.src, row, k)
    weights = factor(Arg.WEIGHTS, conf.weights, k, column)
    dst = Operand(arguments.slot(Arg.DST), conf.dst, (*batch, row, column))
    bias = None if conf.bias.is_zero else factor(Arg.BIAS, conf.bias, row, column)
    epilogue = Epilogue(conf.post_ops, dst, arguments)

    def step(point: Point, total: Value) -> Values:
        pair = point.load(src), point.load(weights)
        return (vector.multiply_add(point.e, *pair, total),)

    def finish(point: Point, values: Values) -> None:
        (value,) = values
        if bias is not None:
            value = point.e.b.fadd(value, point.load(bias))
        point.store(dst, epilogue.apply(point, value))

    after = (*epilogue.operands, *([] if bias is None else [bias]))
    held = computed_in(conf.src, conf.weights, conf.dst)
    return Fold(
        tuple(axes),
        (depth,),
        (src, weights),
        (dst,),
        sums(step, data_type=held),
        finish,
        after,
        reads_dst=epilogue.reads_dst,
    )
