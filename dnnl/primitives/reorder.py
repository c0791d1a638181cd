"""Copy a tensor into another layout and type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Reason, Recipe, Refusal
from dnnl.codegen.quantization import Quantization
from dnnl.kernels import reorder as kernel
from dnnl.kernels import reorder_nibbles, reorder_runtime
from dnnl.primitives.desc import (
    Desc,
    Tensor,
    check_dims,
    check_not_any,
    check_tensors,
    spelled,
    src_dst,
)
from dnnl.primitives.implementation import Implementation, Plan, refuse_attr, resolve_post_ops
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True)
class ReorderDesc(Desc):
    """dst = src, the same tensor in another layout and type.

    With attributes, dst = (src_scale * (src - src_zero_point) + sum_scale * dst) / dst_scale +
    dst_zero_point, in f32 (f64 where dst is f64). Arguments FROM (SRC), TO (DST). Both layouts are
    given, the dims are equal: there is no broadcasting. The padding of dst is zero afterwards.

    If dst has a :class:`Compensation`, its weights are multiplied by ``scale_adjust`` before the
    division by dst_scale, and their sums are written behind them. Such weights cannot be src.

    Dims, strides and offsets may be RUNTIME_DIM: one kernel serves all of them, and the memories
    of an execution say what they are.

    src may lie on another engine than dst, if the host can touch the memory of one of them.
    """

    kind = "reorder"
    across_engines = True
    compensated = (Arg.DST,)

    src_desc: MemoryDesc
    dst_desc: MemoryDesc

    def __post_init__(self) -> None:
        check_tensors(self)
        check_not_any("src_desc", self.src_desc)
        check_not_any("dst_desc", self.dst_desc)
        check_dims("dst_desc", self.dst_desc, self.src_desc.dims, "the dims of src")

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """SRC and DST."""
        return src_dst(self.src_desc, self.dst_desc)

    @property
    def implementations(self) -> tuple[Implementation, ...]:
        """Who can do it, best first."""
        return IMPLS

    @property
    def problem(self) -> str:
        """The dims."""
        return spelled(self.src_desc.dims)


def _nest(desc: ReorderDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    conf = _configure(desc, attr, kernel.configure)
    if isinstance(conf, Refusal):
        return conf
    packed = reorder_nibbles.configure(conf, isa)
    if packed is not None:
        recipe = Recipe(packed, isa, reorder_nibbles.build)
        return Plan(desc, conf.post_ops, recipe, packed.scratchpad)
    return Plan(desc, conf.post_ops, Recipe(conf, isa, kernel.build))


def _boxes(desc: ReorderDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    conf = _configure(desc, attr, reorder_runtime.configure)
    if isinstance(conf, Refusal):
        return conf
    if isa.device is not None:
        return Refusal(Reason.ISA, f"run-time sizes on the device {isa.name}")
    recipe = Recipe(reorder_runtime.shared(conf), isa, reorder_runtime.build)
    return Plan(desc, conf.post_ops, recipe, sizes=partial(reorder_runtime.sizes, conf, isa))


def _configure(
    desc: ReorderDesc, attr: PrimitiveAttr, configure: Callable[..., kernel.Conf | Refusal]
) -> kernel.Conf | Refusal:
    refusal = refuse_attr(attr, "post_ops", "scales", "zero_points")
    if refusal is not None:
        return refusal
    post_ops = resolve_post_ops(tuple(attr.post_ops), desc.dst_desc)
    return configure(desc.src_desc, desc.dst_desc, post_ops, Quantization.of(attr))


IMPLS = (Implementation("nest", _nest), Implementation("boxes", _boxes))
