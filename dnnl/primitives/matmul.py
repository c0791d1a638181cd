"""Matrix multiplication."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Recipe, Refusal
from dnnl.codegen.quantization import Quantization
from dnnl.errors import InvalidArguments
from dnnl.kernels import matmul as kernel
from dnnl.kernels.product_conf import Problem
from dnnl.primitives.desc import Desc, Tensor, check_defined, check_tensors, spelled, weighted
from dnnl.primitives.implementation import (
    Implementation,
    Plan,
    refuse_attr,
    resolve_post_ops,
)
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True)
class MatmulDesc(Desc):
    """dst[.., m, n] = bias + sum over k of src[.., m, k] * weights[.., k, n].

    All have the same number of dimensions, 2 to 12; a batch dimension of src or weights may be 1
    and is then broadcast; each dimension of bias is 1 or dst's. Arguments SRC, WEIGHTS, BIAS, DST;
    every layout may be ``any``, transposed matrices are layouts.
    """

    kind = "matmul"

    src_desc: MemoryDesc
    weights_desc: MemoryDesc
    dst_desc: MemoryDesc
    bias_desc: MemoryDesc

    def __init__(
        self,
        src_desc: MemoryDesc,
        weights_desc: MemoryDesc,
        dst_desc: MemoryDesc,
        bias_desc: MemoryDesc | None = None,
    ) -> None:
        for name, value in (
            ("src_desc", src_desc),
            ("weights_desc", weights_desc),
            ("dst_desc", dst_desc),
            ("bias_desc", bias_desc if bias_desc is not None else MemoryDesc.zero()),
        ):
            object.__setattr__(self, name, value)
        self._check()

    def _check(self) -> None:
        check_tensors(self)
        for name in ("src_desc", "weights_desc", "dst_desc"):
            check_defined(name, getattr(self, name))
        src, weights, dst = self.src_desc.dims, self.weights_desc.dims, self.dst_desc.dims
        if len(src) < 2:
            raise InvalidArguments("src_desc", src, "expected at least (M, K)")
        for name, dims in (("weights_desc", weights), ("dst_desc", dst)):
            if len(dims) != len(src):
                rule = f"expected {len(src)} dimensions, as src has"
                raise InvalidArguments(name, dims, rule, "reshape adds dimensions of size 1")
        if weights[-2] != src[-1]:
            rule = f"dimension {len(src) - 2} must be K = {src[-1]}, the last one of src"
            raise InvalidArguments("weights_desc", weights, rule)
        expected = (*map(_broadcast, src[:-2], weights[:-2]), src[-2], weights[-1])
        if dst != expected:
            rule = f"src {src} times weights {weights} is {expected}"
            raise InvalidArguments("dst_desc", dst, rule)
        bias = self.bias_desc
        if not bias.is_zero and not (
            bias.ndims == len(dst) and all(b in (1, d) for b, d in zip(bias.dims, dst, strict=True))
        ):
            rule = f"each dimension must be 1 or that of dst, which is {dst}"
            raise InvalidArguments("bias_desc", bias.dims, rule)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """SRC, WEIGHTS, BIAS if there is one, DST."""
        return weighted(self.src_desc, self.weights_desc, self.bias_desc, self.dst_desc)

    def remark(self, tensor: Tensor) -> str:
        """The dimensions along which a bias varies, a bit for each."""
        if tensor.argument != Arg.BIAS:
            return ""
        varying = sum(1 << d for d, extent in enumerate(tensor.desc.dims) if extent != 1)
        return f"_mask{varying}"

    @property
    def implementations(self) -> tuple[Implementation, ...]:
        """Who can do it, best first."""
        return IMPLS

    @property
    def problem(self) -> str:
        """The dims of src and weights."""
        return f"{spelled(self.src_desc.dims)}:{spelled(self.weights_desc.dims)}"

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        return 2 * self.dst_desc.nelems() * self.src_desc.dims[-1]


def _broadcast(a: int, b: int) -> int:
    """The extent of a batch dimension; -1 where the operands do not agree."""
    if b in (a, 1):
        return a
    return b if a == 1 else -1


def _brgemm(desc: MatmulDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    refusal = refuse_attr(attr, "post_ops", "scales", "zero_points")
    if refusal is not None:
        return refusal
    open_problem = Problem(
        desc.src_desc, desc.weights_desc, desc.bias_desc, desc.dst_desc, tuple(attr.post_ops),
        Quantization.of(attr),
    )  # fmt: skip
    problem = kernel.resolve(open_problem, isa)
    problem = replace(problem, post_ops=resolve_post_ops(problem.post_ops, problem.dst))
    conf = kernel.configure(problem, isa)
    if isinstance(conf, Refusal):
        return conf
    decided = MatmulDesc(problem.src, problem.weights, problem.dst, problem.bias)
    return Plan(decided, problem.post_ops, Recipe(conf, isa, kernel.build), conf.scratchpad)


IMPLS = (Implementation("brgemm", _brgemm),)
