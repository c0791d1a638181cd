"""Copy a tensor into another layout and type."""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.codegen import convert
from dnnl.codegen.access import Operand
from dnnl.codegen.address import Affine
from dnnl.codegen.builder import Module
from dnnl.codegen.epilogue import Arguments, Epilogue, refuse
from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Kernel, Refusal
from dnnl.codegen.nest import Nest, Point, emit_nest
from dnnl.kernels.pointwise import letters, refuse_types, symbol
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp


@dataclass(frozen=True)
class Conf:
    """Both ends of the copy and what happens on the way."""

    src: MemoryDesc
    dst: MemoryDesc
    post_ops: tuple[PostOp, ...]


def configure(src: MemoryDesc, dst: MemoryDesc, post_ops: tuple[PostOp, ...]) -> Conf | Refusal:
    """Accept any two layouts of supported types."""
    refusal = refuse_types(src, dst, allowed=convert.supported) or refuse(post_ops, dst)
    return refusal or Conf(src, dst, post_ops)


def build(conf: Conf, isa: Isa) -> Kernel:
    """One nest that loads, converts and stores."""
    arguments = Arguments()
    axes = letters(conf.dst.dims)
    index = tuple(Affine.of(axis) for axis in axes)
    src = Operand(arguments.slot(Arg.SRC), conf.src, index)
    dst = Operand(arguments.slot(Arg.DST), conf.dst, index)
    epilogue = Epilogue(conf.post_ops, dst, arguments)

    def body(point: Point) -> None:
        point.store(dst, epilogue.apply(point, point.load(src)))

    module = Module("reorder", isa)
    entry = symbol("reorder", [conf.src, conf.dst], isa)
    bare = not conf.post_ops
    core = convert.core_type(conf.src.data_type, conf.dst.data_type, bare)
    operands = (src, dst, *epilogue.operands)
    count = emit_nest(module, entry, Nest(axes, (), operands, dst, body, core=core))
    return Kernel(module, (Phase(entry, count),), arguments.ids)
