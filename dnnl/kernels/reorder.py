"""Copy a tensor from one layout to another."""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.codegen.epilogue import refuse
from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Kernel, Refusal
from dnnl.kernels.pointwise import build_pointwise, refuse_types, source
from dnnl.types.arg import Arg
from dnnl.types.post_ops import PostOp
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True)
class Conf:
    """Both ends of the copy and what happens on the way."""

    src: MemoryDesc
    dst: MemoryDesc
    post_ops: tuple[PostOp, ...]


def configure(src: MemoryDesc, dst: MemoryDesc, post_ops: tuple[PostOp, ...]) -> Conf | Refusal:
    """Accept any two layouts of supported types."""
    return refuse_types(src, dst) or refuse(post_ops, dst) or Conf(src, dst, post_ops)


def build(conf: Conf, isa: Isa) -> Kernel:
    """One nest that loads, converts and stores."""
    sources = [source(Arg.SRC, conf.src)]
    return build_pointwise(
        "reorder", isa, sources, conf.dst, conf.post_ops, lambda _, loaded: loaded[0]
    )
