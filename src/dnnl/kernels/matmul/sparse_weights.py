"""Products of a dense matrix and a sparse one: every stored element is accumulated into a column of
sums.

Vectors go along the rows of src, which is copied so that the elements of one k are contiguous
within a block of rows. A work item has a block; its sums are stored column by column, so that an
element (k, n) is one multiply-add of vectors in memory::

    src          [rows / W][k][W]
    sums         [rows / W][n][W]     n of the element: sums[n] += src[k] * value

A last phase applies the epilogue to the sums and stores them in the layout of dst.

Indices are not validated: elements outside of the matrix are skipped, pointers are clamped to the
buffers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dnnl.codegen.conversion.convert import storage
from dnnl.codegen.epilogue.attributes import Attributes
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import I32, I64, Emitter, Module, Value, Values, i64
from dnnl.codegen.ir.kernel import Arguments, Kernel, Refusal, symbol
from dnnl.codegen.isa import Isa
from dnnl.codegen.nest.nest import emit_nest
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.codegen.nest.point import Point
from dnnl.kernels.matmul.sparse import SparseMatmulConf, clamped, refuse_sparse
from dnnl.kernels.shared.copies import emit_copies
from dnnl.kernels.shared.pointwise import pointwise, source
from dnnl.kernels.shared.scratchpad import Argument, Relayout, Scratchpad
from dnnl.kernels.shared.types import computed_in
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg
from dnnl.types.encoding import Csr
from dnnl.types.tag import FormatTag

# Registers of rows that one element is multiplied with.
_REGISTERS = 4


@dataclass(frozen=True)
class SparseWeightsConf:
    """``product`` with the copy of src, and ``sums`` in the scratchpad."""

    product: SparseMatmulConf
    src: Argument
    sums: Argument
    copies: tuple[Relayout, ...]
    width: int
    scratchpad: int


def configure(product: SparseMatmulConf, isa: Isa) -> SparseWeightsConf | Refusal:
    """Accept sparse weights, and dense src and dst in any layout, of any floats."""
    refusal = refuse_sparse(product)
    if refusal is not None:
        return refusal
    core, rows = computed_in(product.dst), product.dst.dims[0]
    most = _REGISTERS * isa.lanes
    width = min(most, isa.most_lanes or most, 1 << (max(1, rows) - 1).bit_length())
    tag = FormatTag(f"Ab{width}a" if width > 1 else "ab")
    scratchpad = Scratchpad()
    src = scratchpad.copy((Arg.SRC, product.src), product.src.with_data_type(core).with_tag(tag))
    sums = scratchpad.take(product.dst.with_data_type(core).with_tag(tag))
    return SparseWeightsConf(product, src, sums, tuple(scratchpad.copies), width, scratchpad.size)


def build(conf: SparseWeightsConf, isa: Isa) -> Kernel:
    """The copy of src, the sums, and their epilogue."""
    arguments, module = Arguments(), Module("matmul", isa)
    phases = emit_copies(module, "matmul", conf.copies, arguments)
    phases.append(_emit_sums(module, conf, arguments))
    product = conf.product
    sources = [source(*conf.sums)]
    if not product.bias.is_zero:
        sources.append(source(Arg.BIAS, product.bias))

    def biased(point: Point, loaded: list[Value]) -> Value:
        return loaded[0] if len(loaded) == 1 else point.e.b.fadd(*loaded)

    finish = pointwise(arguments, sources, product.dst, biased, Attributes(product.post_ops))
    entry = symbol("matmul_out", [conf.sums[1], product.dst], isa)
    phases.append(emit_nest(module, entry, finish))
    return Kernel(module, tuple(phases), arguments.ids)


def _emit_sums(module: Module, conf: SparseWeightsConf, arguments: Arguments) -> Phase:
    """Write the phase that accumulates the stored elements; a work item is a block of rows."""
    weights, isa = conf.product.weights, module.isa
    slots = [arguments.slot(Arg.part(Arg.WEIGHTS, number)) for number in range(3)]
    scratch = arguments.slot(Arg.SCRATCHPAD)
    name = symbol("matmul_sums", [conf.src[1], weights], isa)
    phase = PhaseFunction(module, name, (*slots, scratch))
    buffers = [phase.arguments[slot] for slot in slots]
    columns = _Columns(phase.e, conf, buffers, phase.arguments[scratch])
    blocks = -(-conf.product.dst.dims[0] // conf.width)
    phase.each_item(blocks, columns.item)
    return phase.end(blocks)


class _Columns:
    """Writes the sums of one block of rows."""

    def __init__(
        self, e: Emitter, conf: SparseWeightsConf, buffers: list[Value], scratch: Value
    ) -> None:
        weights = conf.product.weights
        self._e, self._conf, self._buffers, self._scratch = e, conf, buffers, scratch
        self._core = storage(conf.sums[1].data_type).element
        self._stored = storage(weights.data_type, self._core)
        self._kind = vector.vector_type(self._core, conf.width)
        self._k, self._n = weights.dims
        self._nnz = weights.buffers[0].dims[0]

    def item(self, number: Value) -> None:
        """The sums of block ``number``."""
        e, zero = self._e, vector.splat_constant(self._kind, 0.0)
        src = self._block(self._conf.src, number, self._k)
        sums = self._block(self._conf.sums, number, self._n)

        def clear(column: Value) -> None:
            vector.store(e, zero, self._vector(sums, column))

        e.loop(i64(0), i64(self._n), clear, unroll=False, name="column")
        if isinstance(self._conf.product.weights.encoding, Csr):
            self._by_rows(src, sums)
        else:
            self._one_by_one(src, sums)

    def _by_rows(self, src: Value, sums: Value) -> None:
        """The elements of each k, between two pointers."""
        e = self._e

        def row(k: Value) -> None:
            first, last = (
                clamped(e, self._index(2, place), self._nnz) for place in (k, e.add(k, i64(1)))
            )
            rows = vector.load(e, self._vector(src, k), self._kind)

            def element(place: Value) -> None:
                self._add(sums, place, self._index(1, place), lambda: rows)

            e.loop(first, last, element, unroll=False, name="stored")

        e.loop(i64(0), i64(self._k), row, unroll=False, name="k")

    def _one_by_one(self, src: Value, sums: Value) -> None:
        """Elements that store their k."""
        e = self._e

        def element(place: Value) -> None:
            k, column = self._index(1, place), self._index(2, place)
            inside = e.b.icmp_unsigned("<", k, i64(self._k))
            column = e.b.select(inside, column, i64(self._n))
            self._add(sums, place, column, lambda: vector.load(e, self._vector(src, k), self._kind))

        e.loop(i64(0), i64(self._nnz), element, unroll=False, name="stored")

    def _add(self, sums: Value, place: Value, column: Value, rows: Callable[[], Value]) -> None:
        """Add ``rows`` times a stored element to the sums of its column, if that exists."""
        e = self._e

        def into() -> Values:
            where = self._vector(sums, column)
            total = vector.load(e, where, self._kind)
            updated = vector.multiply_add(e, rows(), self._value(place), total)
            vector.store(e, updated, where)
            return ()

        e.branch(e.b.icmp_unsigned("<", column, i64(self._n)), into, lambda: ())

    def _value(self, place: Value) -> Value:
        """A stored element in every lane."""
        e, element = self._e, self._stored.element
        where = e.element(self._buffers[0], place, element)
        raw = e.b.load(where, typ=element, align=self._conf.product.weights.data_type.size)
        core = self._stored.to_core(e, vector.splat(e, raw, 1))
        return vector.splat(e, vector.only(e, core), self._conf.width)

    def _index(self, buffer: int, place: Value) -> Value:
        """An element of a buffer of indices, as i64; negative ones are large."""
        e = self._e
        where = e.element(self._buffers[buffer], place, I32)
        return e.b.zext(e.b.load(where, typ=I32, align=4), I64)

    def _block(self, part: Argument, number: Value, extent: int) -> Value:
        """The address of the vectors of one block."""
        e = self._e
        first = e.add(e.mul(number, extent * self._conf.width), i64(part[1].offset0))
        return e.opaque(e.element(self._scratch, first, self._core))

    def _vector(self, block: Value, number: Value) -> Value:
        """The address of a vector of a block."""
        return self._e.element(block, self._e.mul(number, self._conf.width), self._core)
