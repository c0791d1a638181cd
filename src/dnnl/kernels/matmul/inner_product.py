"""Inner product on register tiles: rows are the batch, everything else of src is summed."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from dnnl.codegen.epilogue.product_epilogue import Depth
from dnnl.codegen.ir.kernel import Arguments, Kernel, Refusal
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import ZERO, Affine, Axis, block_boundaries
from dnnl.codegen.product.decompress import PackedMultiply
from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.product.base.problem import LETTERS, Panels, given_panels, plain, planned
from dnnl.kernels.product.base.store import Columns
from dnnl.kernels.product.loops import phases
from dnnl.kernels.product.loops.form import Product, along_line
from dnnl.kernels.product.plan import plan as planner
from dnnl.kernels.product.plan.conf import ProductConf
from dnnl.kernels.product.plan.contraction import Contraction
from dnnl.kernels.product.plan.dot_kind import panel_vectors
from dnnl.kernels.product.plan.plan import plan
from dnnl.kernels.product.plan.refusals import refuse_matrices
from dnnl.types.kinds import FormatKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import typical
from dnnl.types.tag import FormatTag


@dataclass(frozen=True)
class InnerProductProblem(Contraction):
    """dst[n, o] = sum over i of src[n, i] * weights[o, i], with one index i for all dimensions but
    the first ones: dst is (N, OC), bias (OC), weights have the dimensions of src with OC for N."""

    @property
    def terms(self) -> int:
        """Channels and pixels."""
        return prod(self.src.dims[1:])

    @property
    def summed(self) -> tuple[slice, slice]:
        """All but the batch, and the output channels."""
        return slice(1, None), slice(1, None)

    def reads(self, src: MemoryDesc, dot: Multiply) -> bool:
        """Whether all offsets are affine, blocks are of channels only and belong to src as a whole,
        and contiguous elements are whole K groups."""
        sizes = block_boundaries(src, 1)
        whole = not sizes or src.padded_dims[1] % sizes[-1] == 0
        if not (len(src.inner_blocks) == len(sizes) <= 1 and whole):
            return False
        if dot.group == 1:
            return True
        inner = _innermost(src)
        line, step = (sizes[-1], 1) if sizes else (src.dims[inner], src.strides[inner])
        return step == 1 and line % dot.group == 0

    def packed(self, src: MemoryDesc, dot: Multiply) -> MemoryDesc:
        """Row-major, or channels in K groups."""
        src = src.with_data_type(dot.a)
        if dot.group == 1:
            return plain(src)
        return src.with_tag(FormatTag(f"a{LETTERS[2 : src.ndims]}B{dot.group}b"))

    def panels(
        self, isa: Isa, src: MemoryDesc, weights: MemoryDesc, dot: Multiply, *, ones: bool = False
    ) -> Panels:
        """Panels of a tile's output channels, each with all of K in one stream."""
        if isinstance(dot, PackedMultiply) and dot.column_stride:
            return Panels(weights, 1)
        step = typical(src.strides[0]) * src.data_type.size
        vectors = panel_vectors(isa, dot, weights, 0, planned(isa, src.dims[0]), step)
        given = given_panels(isa, weights, dot, lambda v: self._panels(isa, src, weights, dot, v))
        return given or self._panels(isa, src, weights, dot, vectors)

    def _panels(
        self, isa: Isa, src: MemoryDesc, weights: MemoryDesc, dot: Multiply, vectors: int
    ) -> Panels:
        group, block, inner = dot.group, _block(src), _innermost(src)
        cut = bool(block) or group > 1
        names = "".join(
            LETTERS[dim].upper() if cut and dim == inner else LETTERS[dim] for dim in _order(src)
        )
        groups = f"{block // group}{LETTERS[inner]}" if block > group else ""
        k_group = f"{group}{LETTERS[inner]}" if group > 1 else ""
        tag = FormatTag(f"A{names}{groups}{vectors * isa.lanes}a{k_group}")
        return Panels(weights.with_data_type(dot.b).with_tag(tag), vectors)

    def stores(self, width: int) -> bool:
        """Whether dst has neither blocks nor padding."""
        return _is_plain(self.dst)

    def column_stride(self, weights: MemoryDesc) -> int:
        """The stride of output channels in weights that are contiguous along K, else 0."""
        plain = weights.format_kind is FormatKind.blocked and _is_plain(weights)
        if not plain or weights.ndims != 2 or weights.strides[1] != 1:
            return 0
        return weights.strides[0] if weights.strides[0] > 1 else 0

    def line(self, dot: Multiply) -> int:
        """The contiguous elements of src, or of its copy."""
        src = self.as_read(dot)
        block = _block(src)
        if block and src.strides[1] == block:
            return src.padded_dims[1]
        return block or src.dims[_innermost(src)]


InnerProductConf = ProductConf[InnerProductProblem]


def resolve(problem: InnerProductProblem, isa: Isa) -> InnerProductProblem:
    """Decide the layouts that are ``any``: activations plain, weights in panels in src's order."""
    return planner.resolve(problem, isa)


def _order(src: MemoryDesc) -> tuple[int, ...]:
    """The summed dimensions in the memory order of src, outermost first; those of size 1, whose
    strides are arbitrary, before all others."""
    return tuple(
        sorted(range(1, src.ndims), key=lambda dim: (src.dims[dim] != 1, -src.strides[dim], dim))
    )


def _block(src: MemoryDesc) -> int:
    """The size of src's channel blocks, 0 without."""
    sizes = block_boundaries(src, 1)
    return sizes[-1] if sizes else 0


def _innermost(src: MemoryDesc) -> int:
    """The dimension whose elements are contiguous."""
    return 1 if _block(src) else _order(src)[-1]


def _is_plain(desc: MemoryDesc) -> bool:
    """Whether a tensor has neither blocks nor padding."""
    return not desc.inner_blocks and desc.dims == desc.padded_dims


def configure(problem: InnerProductProblem, isa: Isa) -> InnerProductConf | Refusal:
    """Plan an inner product whose layouts are all decided (see :func:`resolve`)."""
    return refuse_matrices(problem) or plan(problem, isa)


def build(conf: InnerProductConf, isa: Isa) -> Kernel:
    """One product."""
    return phases.build("inner_product", conf, isa, _products)


def _products(conf: InnerProductConf, isa: Isa, arguments: Arguments) -> tuple[Product]:
    src, weights = conf.src[1], conf.weights[1]
    group, block, inner = conf.multiply.group, _block(src), _innermost(src)
    row = Axis(src.dims[0], "n")
    columns = Columns.of(weights.dims[0], conf.blocking.tile, isa.lanes)
    terms = prod(src.dims[1:])
    size = conf.segment or terms
    part = Axis(terms // size if conf.segment else 1, "segment")
    summed: list[Axis] = [part] if conf.segment else []
    begin = Affine.of(part, size) if part.extent > 1 else ZERO
    forms: dict[int, Affine] = {}
    for dim in _order(src):
        step = (block or group) if dim == inner else 1
        extent = size if part.extent > 1 else src.dims[dim]
        axis = Axis(-(-extent // step), LETTERS[dim])
        summed.append(axis)
        forms[dim] = begin + Affine.of(axis, step)
    if block:
        groups = Axis(block // group, "block")
        summed.append(groups)
        forms[inner] = forms[inner] + Affine.of(groups, group)
    depth = Depth(size, prod(axis.extent for axis in summed) // part.extent * group)
    tail = tuple(forms[dim] for dim in range(1, src.ndims))
    rows, first = Affine.of(row), (begin,) * len(tail)
    dst = Operand(arguments.slot(conf.dst[0]), conf.dst[1], (rows, columns.form))
    at = phases.Indices(
        bias=(columns.form,),
        src=(rows, *first),
        weights=(columns.form, *first),
        row_sums=(rows, Affine.of(part)) if conf.segment else (rows,),
    )
    read = Operand(arguments.slot(conf.read[0]), conf.read[1], (rows, *tail))
    space, places, taps = along_line(row)
    product = Product(
        (),
        space,
        places,
        taps,
        (),
        tuple(summed),
        columns,
        read,
        Operand(arguments.slot(conf.weights[0]), weights, (columns.form, *tail)),
        conf.multiply,
        phases.finish(conf, arguments, dst, at, depth),
        conf.blocking,
        domain=(columns.inside,) if columns.inside.needed else (),
        segments=phases.segments(conf, arguments, dst, at, depth, part),
        narrow=phases.narrow_path(conf, arguments, read, isa),
        packing=phases.packing(conf, arguments, lambda k: (columns.form, k)),
    )
    return (product,)
