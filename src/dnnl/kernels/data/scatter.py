"""Write slices or elements to places along one axis that indices say, into a copy of a tensor."""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.codegen.functions import expression
from dnnl.codegen.ir.builder import I8, I16, I32, I64, Module, Type, Value, i64
from dnnl.codegen.ir.kernel import Arguments, Kernel, Reason, Refusal, symbol
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, Axis, letters
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.codegen.nest.schedule import UNROLL
from dnnl.kernels.shared.types import WHOLE_BYTES, refuse_types
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.expression import Expression
from dnnl.types.layout import Layout
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import typical
from dnnl.types.typed import NUMBERS, expression_of

INDICES = frozenset({DataType.s32, DataType.s64})
_OF_BITS: dict[int, Type] = {8: I8, 16: I16, 32: I32, 64: I64}


@dataclass(frozen=True)
class ScatterConf:
    """dst = src, then dst[.., indices[j], ..] = updates[.., j, ..] along ``axis``, or combined with
    it by ``function``. Indices of elements have the dimensions of the updates."""

    function: str
    axis: int
    src: MemoryDesc
    indices: MemoryDesc
    updates: MemoryDesc
    dst: MemoryDesc

    @property
    def combination(self) -> Expression | None:
        """What becomes of an element and its update; None where it is replaced."""
        if self.function == "none":
            return None
        return expression_of(self.function, [self.dst.data_type] * 3)

    @property
    def core(self) -> Type:
        """The type in which elements are combined, or moved."""
        if self.combination is None:
            return _OF_BITS[self.dst.data_type.bits]
        return expression.core(self.combination, self.dst.data_type)


def configure(
    function: str,
    axis: int,
    src: MemoryDesc,
    indices: MemoryDesc,
    updates: MemoryDesc,
    dst: MemoryDesc,
) -> ScatterConf | Refusal:
    """Accept any layouts of src, indices and updates, and a dst without blocks. Numbers are
    combined, bits of any type are replaced."""
    tensors = (src, updates, dst)
    refusal = refuse_types(indices, allowed=INDICES)
    refusal = refusal or refuse_types(*tensors, allowed=WHOLE_BYTES)
    if function != "none":
        refusal = refusal or refuse_types(*tensors, allowed=NUMBERS)
    if refusal is None and len({desc.data_type for desc in tensors}) > 1:
        kinds = ", ".join(str(desc.data_type) for desc in tensors)
        refusal = Refusal(Reason.DATA_TYPE, f"src, updates and dst have {kinds}, not one type")
    if refusal is None and dst.inner_blocks:
        refusal = Refusal(Reason.LAYOUT, "dst has blocks")
    conf = ScatterConf(function, axis, src, indices, updates, dst)
    combination = None if refusal else conf.combination
    refused = None if combination is None else expression.refused(combination)
    if refused is not None:
        refusal = Refusal(Reason.DATA_TYPE, str(refused))
    return refusal or conf


def build(conf: ScatterConf, isa: Isa) -> Kernel:
    """A copy, and a nest over what is beside the axis. It walks the updates in their order, since
    several may have one place."""
    module, arguments = Module("scatter", isa), Arguments()
    name = symbol("scatter", [conf.src, conf.updates, conf.dst], isa)
    copy = emit_nest(module, f"copied_{name}", _copy(conf, arguments))
    return Kernel(module, (copy, emit_nest(module, name, _updates(conf, arguments))), arguments.ids)


def _copy(conf: ScatterConf, arguments: Arguments) -> Nest:
    axes = letters(conf.dst.dims)
    index = tuple(map(Affine.of, axes))
    src = Operand(arguments.slot(Arg.SRC), conf.src, index)
    dst = Operand(arguments.slot(Arg.DST), conf.dst, index)

    def body(point: Point) -> None:
        point.store_stored(dst, point.load_stored(src))

    core = _OF_BITS[conf.dst.data_type.bits]
    return Nest(axes, (), (src,), (dst,), body, core=core, copied=src)


def _reached(conf: ScatterConf) -> MemoryDesc:
    """The part of dst that indices of elements reach."""
    dst = conf.dst
    dims = tuple(
        extent if dim == conf.axis else count
        for dim, (count, extent) in enumerate(zip(conf.updates.dims, dst.dims, strict=True))
    )
    return MemoryDesc.of_layout(dst, Layout(dims, dims, dst.strides, (), dst.offset0))


def _updates(conf: ScatterConf, arguments: Arguments) -> Nest:
    """No loop of the nest goes along the axis, so that vectors are across it: lanes have places of
    their own. Slices share one, and so may wide vectors of them."""
    axes = letters(conf.updates.dims)
    count, extent = conf.updates.dims[conf.axis], conf.dst.dims[conf.axis]
    walked, found = Axis(count, "walked"), Axis(extent, "found")
    index = [Affine.of(axis) for axis in axes]
    index[conf.axis] = Affine.of(walked)
    place = (*index[: conf.axis], Affine.of(found), *index[conf.axis + 1 :])
    where = index if conf.indices.ndims == len(index) else index[conf.axis : conf.axis + 1]
    indices = Operand(arguments.slot(Arg.SRC_1), conf.indices, tuple(where))
    updates = Operand(arguments.slot(Arg.SRC_2), conf.updates, tuple(index))
    dst = Operand(arguments.slot(Arg.DST), _reached(conf), place)

    def write(point: Point) -> None:
        at = point.at({found: point.index(indices, extent)})
        value = at.load_stored(updates)
        if conf.combination is not None:
            before = at.load_stored(dst)
            value = expression.emit(point.e, conf.combination, [before, value])
        at.store_stored(dst, value)

    def body(point: Point) -> None:
        def step(number: Value) -> None:
            write(point.at({walked: number}))

        point.e.loop(i64(0), point.e.number(count), step, name="walked")

    rows = tuple(axis for dim, axis in enumerate(axes) if dim != conf.axis)
    return Nest(
        rows,
        (),
        (indices, updates),
        (dst,),
        body,
        reads_dst=True,
        unroll=UNROLL if conf.indices.ndims < len(axes) else 1,
        core=conf.core,
        indirect=(walked, found),
        steps=max(1, typical(count)),
    )
