"""Products of a sparse matrix and a dense one: sums over the stored elements of each row of src.

    csr  row m stores the elements pointers[m] .. pointers[m + 1] - 1
    coo  a first phase computes these pointers, as the elements are sorted by rows

Vectors go along the columns of the dense matrix, so that each stored element is loaded once for
many columns. If they go along rows, as with a single column, each lane processes its own row.

Indices are not validated. Pointers are clamped to the buffers and columns to the dense matrix:
wrong ones give wrong results and access nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dnnl.codegen.conversion.convert import storage
from dnnl.codegen.epilogue.post_ops import Epilogue, refuse
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import I32, I64, Emitter, Module, Value, Values, i64
from dnnl.codegen.ir.kernel import Arguments, Kernel, Reason, Refusal, symbol
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, Axis, broadcast, letters
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.codegen.nest.point import Point
from dnnl.kernels.shared.scratchpad import Argument
from dnnl.kernels.shared.types import SMALL_FLOATS, WIDE_FLOATS, core_of, refuse_types
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.encoding import Coo, Csr
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp

Term = Callable[[Point, Value], tuple[Value, Value]]
TYPES = WIDE_FLOATS | SMALL_FLOATS
# Registers of consecutive columns for which an element is loaded once.
_REGISTERS = 8


@dataclass(frozen=True)
class SparseMatmulConf:
    """dst = post_ops(bias + src x weights), one of which is sparse; ``bias`` may be the zero
    descriptor. ``scratchpad`` is in bytes."""

    src: MemoryDesc
    weights: MemoryDesc
    bias: MemoryDesc
    dst: MemoryDesc
    post_ops: tuple[PostOp, ...]
    scratchpad: int = 0


def refuse_sparse(conf: SparseMatmulConf) -> Refusal | None:
    """Why a product with one sparse operand cannot be generated, or None."""
    given = [desc for desc in (conf.src, conf.weights, conf.dst, conf.bias) if not desc.is_zero]
    refusal = refuse_types(*given, allowed=TYPES)
    f64 = {desc.data_type is DataType.f64 for desc in (conf.src, conf.weights, conf.dst)}
    if refusal is None and len(f64) > 1:
        refusal = Refusal(Reason.DATA_TYPE, "f64 and another type")
    return refusal or refuse(conf.post_ops, conf.dst)


def configure(conf: SparseMatmulConf) -> SparseMatmulConf | Refusal:
    """Accept a sparse src, and dense weights and dst in any layout, of any floats."""
    refusal = refuse_sparse(conf)
    if refusal is not None:
        return refusal
    pointers = _pointers(conf)
    size = pointers[1].size if pointers[0] == Arg.SCRATCHPAD else 0
    return SparseMatmulConf(conf.src, conf.weights, conf.bias, conf.dst, conf.post_ops, size)


def _pointers(conf: SparseMatmulConf) -> Argument:
    """Where the kernel finds the row pointers."""
    if isinstance(conf.src.encoding, Csr):
        return Arg.part(Arg.SRC, 2), conf.src.buffers[2]
    return Arg.SCRATCHPAD, MemoryDesc((conf.src.dims[0] + 1,), DataType.s32)


def build(conf: SparseMatmulConf, isa: Isa) -> Kernel:
    """The row pointers, if they must be computed, and one nest."""
    arguments, module = Arguments(), Module("matmul", isa)
    phases = []
    if isinstance(conf.src.encoding, Coo):
        phases.append(_emit_pointers(module, conf, arguments))
    entry = symbol("matmul_sparse", [conf.src, conf.weights, conf.dst], isa)
    phases.append(emit_nest(module, entry, _product(conf, isa, arguments)))
    return Kernel(module, tuple(phases), arguments.ids)


def _product(conf: SparseMatmulConf, isa: Isa, arguments: Arguments) -> Nest:
    rows, columns = letters(conf.dst.dims)
    row, column = Affine.of(rows), Affine.of(columns)
    nnz, terms = conf.src.buffers[0].dims[0], conf.src.dims[1]
    stored, found = Axis(nnz, "stored"), Axis(terms, "found")
    values_desc, columns_desc, _ = conf.src.buffers
    indices = Arg.part(Arg.SRC, 2 if isinstance(conf.src.encoding, Coo) else 1)
    pointers = _pointers(conf)
    slot = arguments.slot(pointers[0])
    first, last = (Operand(slot, pointers[1], (row + step,)) for step in (0, 1))
    values = Operand(arguments.slot(Arg.SRC), values_desc, (Affine.of(stored),))
    where = Operand(arguments.slot(indices), columns_desc, (Affine.of(stored),))
    weights = Operand(arguments.slot(Arg.WEIGHTS), conf.weights, (Affine.of(found), column))
    dst = Operand(arguments.slot(Arg.DST), conf.dst, (row, column))
    bias = bias_of(conf, arguments, dst)
    epilogue = Epilogue(conf.post_ops, dst, arguments)

    def term(point: Point, place: Value) -> tuple[Value, Value]:
        """A stored element and the weights that it multiplies."""
        at = point.at({stored: place})
        met = at.at({found: clamped(point.e, at.lookup(where), terms - 1)})
        return at.load(values), met.load(weights)

    def body(point: Point) -> None:
        total: Value = point.constant(0.0)
        if nnz:
            begin, end = (clamped(point.e, point.lookup(edge), nnz) for edge in (first, last))
            total = _sum(point, begin, end, nnz, term)
        if bias is not None:
            total = point.e.b.fadd(total, point.load(bias))
        point.store(dst, epilogue.apply(point, total))

    extra = () if bias is None else (bias,)
    read = (first, last, *((values, where, weights) if nnz else ()), *extra, *epilogue.operands)
    width = max(1, conf.dst.dims[1] // isa.lanes)
    return Nest(
        (rows, columns),
        (),
        read,
        (dst,),
        body,
        reads_dst=epilogue.reads_dst,
        registers=min(_REGISTERS, 1 << (width.bit_length() - 1)),
        core=core_of(conf.dst),
        indirect=(stored, found),
        steps=max(1, nnz // max(1, conf.src.dims[0])),
    )


def _sum(point: Point, first: Value, last: Value, nnz: int, term: Term) -> Value:
    """The sum over the stored elements ``first`` .. ``last - 1``: those of one row, or of as many
    rows as there are lanes."""
    e, zero = point.e, point.constant(0.0)
    if first.type == I64:

        def add(place: Value, total: Value) -> Values:
            value, met = term(point, place)
            return (vector.multiply_add(e, value, met, total),)

        return e.loop(first, last, add, (zero,), unroll=False, name="stored")[0]
    lanes = first.type.count
    counts = e.b.sub(last, first)
    most = e.intrinsic(f"llvm.vector.reduce.smax.{vector.suffix(counts.type)}", I64, [counts])

    def add_some(step: Value, total: Value) -> Values:
        steps = vector.splat(e, step, lanes)
        value, met = term(point, clamped(e, e.b.add(first, steps), nnz - 1))
        valid = e.b.icmp_signed("<", steps, counts)
        return (vector.multiply_add(e, e.b.select(valid, value, zero), met, total),)

    return e.loop(i64(0), most, add_some, (zero,), unroll=False, name="stored")[0]


def clamped(e: Emitter, value: Value, most: int) -> Value:
    """A number, or one in each lane, that is at most ``most``. Negative signed 32-bit numbers
    arrive as large numbers."""
    limit: Value = i64(most)
    if value.type != I64:
        limit = vector.splat_constant(value.type, most)
    return e.b.select(e.b.icmp_signed("<", value, limit), value, limit)


def bias_of(conf: SparseMatmulConf, arguments: Arguments, dst: Operand) -> Operand | None:
    """The bias of each element of dst, if there is one."""
    if conf.bias.is_zero:
        return None
    return Operand(arguments.slot(Arg.BIAS), conf.bias, broadcast(conf.bias, dst.index))


def _emit_pointers(module: Module, conf: SparseMatmulConf, arguments: Arguments) -> Phase:
    """Write the phase that finds the first stored element of each row by binary search."""
    desc = conf.src.buffers[1]
    (nnz,), count = desc.dims, conf.src.dims[0] + 1
    slots = arguments.slot(Arg.part(Arg.SRC, 1)), arguments.slot(Arg.SCRATCHPAD)
    phase = PhaseFunction(module, f"matmul_pointers__s32__1x1__{module.isa.name}", slots)
    e, element = phase.e, storage(DataType.s32, I32).element
    rows, pointers = (phase.arguments[slot] for slot in slots)

    def item(row: Value) -> None:
        wanted = e.b.trunc(row, I32)
        found: Value = i64(0)  # the number of elements known to be in rows above
        for power in reversed(range(nnz.bit_length())):
            more = e.add(found, i64(1 << power))
            last = e.add(clamped(e, more, nnz), i64(-1))
            seen = e.b.load(e.element(rows, last, element), typ=element, align=4)
            above = e.b.icmp_signed("<", seen, wanted)
            inside = e.b.icmp_signed("<=", more, i64(nnz))
            found = e.b.select(e.b.and_(above, inside), more, found)
        e.b.store(e.b.trunc(found, I32), e.element(pointers, row, element), align=4)

    phase.each_item(count, item)
    return phase.end(count)
