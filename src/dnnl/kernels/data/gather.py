"""Gather slices or elements along one axis by indices."""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.codegen.ir.builder import I8, I16, I32, I64, Module
from dnnl.codegen.ir.kernel import Arguments, Kernel, Reason, Refusal, symbol
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, Axis, letters
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.kernels.shared.types import WHOLE_BYTES, refuse_types
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc

INDICES = frozenset({DataType.s32, DataType.s64})
_OF_BITS = {8: I8, 16: I16, 32: I32, 64: I64}


@dataclass(frozen=True)
class GatherConf:
    """dst[.., j, ..] = src[.., indices[j], ..] along ``axis``. Indices of elements have the
    dimensions of dst."""

    axis: int
    src: MemoryDesc
    indices: MemoryDesc
    dst: MemoryDesc


def configure(
    axis: int, src: MemoryDesc, indices: MemoryDesc, dst: MemoryDesc
) -> GatherConf | Refusal:
    """Accept any layouts, of types of whole bytes."""
    refusal = refuse_types(indices, allowed=INDICES)
    refusal = refusal or refuse_types(src, dst, allowed=WHOLE_BYTES)
    if refusal is None and src.data_type is not dst.data_type:
        refusal = Refusal(Reason.DATA_TYPE, f"{src.data_type} to {dst.data_type}: bits are copied")
    return refusal or GatherConf(axis, src, indices, dst)


def build(conf: GatherConf, isa: Isa) -> Kernel:
    """One nest. No loop goes over the axis of src: indices give the position on it."""
    arguments = Arguments()
    axes = letters(conf.dst.dims)
    index = tuple(Affine.of(axis) for axis in axes)
    extent = conf.src.dims[conf.axis]
    found = Axis(extent, "found")
    place = (*index[: conf.axis], Affine.of(found), *index[conf.axis + 1 :])
    src = Operand(arguments.slot(Arg.SRC), conf.src, place)
    where = index if conf.indices.ndims == len(index) else (index[conf.axis],)
    indices = Operand(arguments.slot(Arg.SRC_1), conf.indices, where)
    dst = Operand(arguments.slot(Arg.DST), conf.dst, index)

    def body(point: Point) -> None:
        at = point.at({found: point.index(indices, extent)})
        point.store_stored(dst, at.load_stored(src))

    module = Module("gather", isa)
    entry = symbol("gather", [conf.src, conf.indices, conf.dst], isa)
    nest = Nest(
        axes,
        (),
        (src, indices),
        (dst,),
        body,
        core=_OF_BITS[conf.dst.data_type.bits],
        indirect=(found,),
    )
    return Kernel(module, (emit_nest(module, entry, nest),), arguments.ids)
