"""Inner product: a fully connected layer."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Recipe, Refusal
from dnnl.errors import InvalidArguments
from dnnl.kernels import inner_product as kernel
from dnnl.kernels.product_conf import Problem
from dnnl.primitives.desc import (
    Desc,
    Tensor,
    check_defined,
    check_dims,
    check_prop_forward,
    check_tensors,
    read_kinds,
    spelled_size,
    weighted,
)
from dnnl.primitives.implementation import (
    Implementation,
    Plan,
    refuse_attr,
    resolve_post_ops,
)
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.kinds import PropKind, coerce
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True)
class InnerProductDesc(Desc):
    """dst[n, oc] = bias[oc] + sum over the rest of src[n, ...] * weights[oc, ...].

    src is (N, IC, [[D,] H,] W) or (N, IC), weights (OC, IC, ...) of the same sizes, dst (N, OC),
    bias (OC). Arguments SRC, WEIGHTS, BIAS, DST; every layout may be ``any``.
    """

    kind = "inner_product"

    prop_kind: PropKind
    src_desc: MemoryDesc
    weights_desc: MemoryDesc
    bias_desc: MemoryDesc
    dst_desc: MemoryDesc

    @classmethod
    def forward(
        cls,
        prop_kind: PropKind | str,
        src_desc: MemoryDesc,
        weights_desc: MemoryDesc,
        dst_desc: MemoryDesc,
        bias_desc: MemoryDesc | None = None,
    ) -> InnerProductDesc:
        """Describe a forward computation; raises InvalidArguments where sizes do not agree."""
        bias = bias_desc if bias_desc is not None else MemoryDesc.zero()
        prop = coerce(PropKind, prop_kind, "prop_kind")
        return cls(prop, src_desc, weights_desc, bias, dst_desc)

    def __post_init__(self) -> None:
        read_kinds(self)
        check_tensors(self)
        check_prop_forward(self.prop_kind)
        for name in ("src_desc", "weights_desc", "dst_desc"):
            check_defined(name, getattr(self, name))
        src, weights = self.src_desc.dims, self.weights_desc.dims
        if not 2 <= len(src) <= 5:
            raise InvalidArguments("src_desc", src, "expected (N, IC) and up to 3 spatial sizes")
        if weights[1:] != src[1:]:
            rule = f"after the output channels it must be as src, {src[1:]}"
            raise InvalidArguments("weights_desc", weights, rule)
        check_dims("dst_desc", self.dst_desc, (src[0], weights[0]), "batch and output channels")
        if not self.bias_desc.is_zero:
            check_dims("bias_desc", self.bias_desc, weights[:1], "the output channels")

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """SRC, WEIGHTS, BIAS if there is one, DST."""
        return weighted(self.src_desc, self.weights_desc, self.bias_desc, self.dst_desc)

    @property
    def implementations(self) -> tuple[Implementation, ...]:
        """Who can do it, best first."""
        return IMPLS

    @property
    def problem(self) -> str:
        """The sizes as benchdnn spells an inner product."""
        batch, channels, *spatial = self.src_desc.dims
        names = ("id", "ih", "iw")[3 - len(spatial) :]
        parts = [("mb", batch), ("ic", channels), *zip(names, spatial, strict=True)]
        parts.append(("oc", self.weights_desc.dims[0]))
        return "".join(f"{name}{spelled_size(size)}" for name, size in parts)

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        return 2 * self.src_desc.dims[0] * self.weights_desc.nelems()


def _brgemm(desc: InnerProductDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    refusal = refuse_attr(attr, "post_ops")
    if refusal is not None:
        return refusal
    open_problem = Problem(
        desc.src_desc, desc.weights_desc, desc.bias_desc, desc.dst_desc, tuple(attr.post_ops)
    )
    problem = kernel.resolve(open_problem, isa)
    problem = replace(problem, post_ops=resolve_post_ops(problem.post_ops, problem.dst))
    conf = kernel.configure(problem, isa)
    if isinstance(conf, Refusal):
        return conf
    decided = replace(
        desc, src_desc=problem.src, weights_desc=problem.weights,
        bias_desc=problem.bias, dst_desc=problem.dst,
    )  # fmt: skip
    return Plan(decided, problem.post_ops, Recipe(conf, isa, kernel.build), conf.scratchpad)


IMPLS = (Implementation("brgemm", _brgemm),)
