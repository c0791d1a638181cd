"""Plans of kernels that slide over images: what the problems of descriptions are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from dnnl.codegen.epilogue.quantization import Quantization
from dnnl.codegen.ir.kernel import Kernel, Reason, Recipe, Refusal
from dnnl.codegen.isa import Isa
from dnnl.kernels.convolution.direct import gradient_problem
from dnnl.kernels.convolution.direct.gradient_problem import WeightsGradient
from dnnl.kernels.convolution.direct.lines import OPEN
from dnnl.kernels.product.base.types import narrowed
from dnnl.kernels.product.plan.contraction import Contraction
from dnnl.primitives.implementation import Plan, refuse_attr, resolve_post_ops
from dnnl.primitives.sliding import SlidingDesc
from dnnl.primitives.weighted import (
    bare,
    quantization_of,
    refuse_gradient,
)
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.kinds import FormatKind, PropKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp
from dnnl.types.size import is_known


class _Conf(Protocol):
    """The configuration of a kernel: ``scratchpad`` in bytes."""

    @property
    def scratchpad(self) -> int: ...


class WeightsKernel(Protocol):
    """A module of `dnnl.kernels` for gradients of weights."""

    def resolve(self, problem: WeightsGradient, isa: Isa) -> WeightsGradient:
        """The problem with the layouts that are ``any`` decided."""

    def opens(self, problem: WeightsGradient, isa: Isa) -> bool:
        """Whether there may be code for sizes of images that only an execution knows."""

    def configure(self, problem: WeightsGradient, isa: Isa) -> Any:
        """Its configuration, or a refusal."""

    def build(self, conf: Any, isa: Isa) -> Kernel:
        """The kernel of a configuration."""


AnySliding = TypeVar("AnySliding", bound=SlidingDesc)
P = TypeVar("P", bound=Contraction)


def is_open(desc: SlidingDesc) -> bool:
    """Whether only an execution knows some size or stride."""
    known = (t.desc for t in desc.tensors if t.desc.format_kind is FormatKind.blocked)
    return not all(is_known(n) for own in known for n in (*own.dims, *own.strides, own.offset0))


def plan(
    desc: SlidingDesc,
    attr: PrimitiveAttr,
    isa: Isa,
    problem_type: Callable[..., Contraction],
    resolve: Callable[..., Contraction],
    configure: Callable[..., _Conf | Refusal],
    build: Callable[..., Kernel],
    refuse: Callable[..., Refusal | None] = lambda _: None,
    *,
    method: str = "direct",
    opens: Callable[..., bool] = lambda *_: False,
) -> Plan | Refusal:
    """The kernel of the problem that a description is, with the layouts that ``resolve`` decides,
    as ``configure`` plans it; or why there is none. ``refuse`` says so of problems whose layouts
    need not be decided for that. ``opens(problem, isa)`` says whether sizes may be open."""
    refusal = refuse_sliding(desc, attr, method)
    if refusal is not None:
        return refusal
    quantization = quantization_of(attr, desc.weights)
    given = problem_of(desc, tuple(attr.post_ops), quantization, problem_type)
    if is_open(desc) and not opens(given, isa):
        return OPEN
    refusal = refuse(given)
    if refusal is not None:
        return refusal
    types = given.src.data_type, given.weights.data_type
    given = replace(given, narrow=narrowed(attr, isa, *types))
    problem = resolve(given, isa)
    post_ops = resolve_post_ops(problem.post_ops, problem.dst)
    conf = configure(replace(problem, post_ops=post_ops), isa)
    if isinstance(conf, Refusal):
        return conf
    recipe = Recipe(conf, isa, build)
    return Plan(decided(desc, problem), post_ops, recipe, conf.scratchpad)


def plan_weights(
    desc: SlidingDesc,
    attr: PrimitiveAttr,
    isa: Isa,
    kernel: WeightsKernel,
    *,
    transposed: bool,
) -> Plan | Refusal:
    """The kernel of the gradient of weights, with the layouts that it decides, or why there is
    none. Where the operation is ``transposed``, dst has the place of src in it and vice versa."""
    refusal = refuse_sliding(desc, attr)
    if refusal is not None:
        return refusal
    weights, space = desc.diff_weights_desc, desc.space
    src, dst = (Arg.SRC, desc.src_desc), (Arg.DIFF_DST, desc.diff_dst_desc)
    if transposed:
        weights, space = exchanged(weights, desc), desc.space_back
        src, dst = dst, src
    given = WeightsGradient(
        src=src[1],
        weights=dst[1],
        bias=MemoryDesc.zero(),
        dst=weights,
        post_ops=(),
        diff_bias=_dense(desc.diff_bias_desc),
        space=space,
        narrow=narrowed(attr, isa, src[1].data_type, dst[1].data_type),
        arguments=(src[0], dst[0], Arg.DIFF_WEIGHTS),
        of_src=transposed,
    )
    if is_open(desc) and not kernel.opens(given, isa):
        return OPEN
    problem = kernel.resolve(given, isa)
    conf = kernel.configure(problem, isa)
    if isinstance(conf, Refusal):
        return conf
    own, weights = (problem.src, problem.diff_dst), problem.diff_weights
    decided_desc = desc.laid_out(
        src_desc=own[transposed],
        diff_weights_desc=exchanged(weights, desc) if transposed else weights,
        diff_bias_desc=problem.diff_bias,
        diff_dst_desc=own[not transposed],
    )
    return Plan(decided_desc, (), Recipe(conf, isa, kernel.build), conf.scratchpad)


def refuse_sliding(
    desc: SlidingDesc, attr: PrimitiveAttr, method: str = "direct"
) -> Refusal | None:
    """Why a kernel of the algorithm ``method`` is not what is asked for, or does not take these
    attributes, or None."""
    kind, _, asked = str(desc.alg_kind).rpartition("_")
    if asked not in (method, "auto"):
        return Refusal(Reason.PARAMETER, f"{desc.alg_kind}; this is {kind}_{method}")
    if not desc.propagation.is_forward:
        return refuse_gradient(desc, attr)
    return refuse_attr(attr, "post_ops", "scales", "zero_points")


def problem_of(
    desc: SlidingDesc,
    post_ops: tuple[PostOp, ...],
    quantization: Quantization,
    problem_type: Callable[..., P],
) -> P:
    """What a kernel is asked to do: the gradient of data is the transpose, with the channels of
    weights exchanged."""
    if desc.propagation is PropKind.backward_data:
        return problem_type(
            desc.diff_dst_desc,
            exchanged(desc.weights_desc, desc),
            MemoryDesc.zero(),
            desc.diff_src_desc,
            (),
            space=desc.space_back,
            arguments=(Arg.DIFF_DST, Arg.WEIGHTS, Arg.DIFF_SRC),
        )
    return problem_type(
        desc.src_desc,
        bare(desc.weights_desc),
        _dense(desc.bias_desc),
        desc.dst_desc,
        post_ops,
        quantization,
        space=desc.space,
    )


def _dense(bias: MemoryDesc) -> MemoryDesc:
    """A bias, or its gradient, with the only layout that it needs where that is open."""
    is_open = bias.format_kind is FormatKind.any
    return MemoryDesc(bias.dims, bias.data_type) if is_open else bias


def exchanged(weights: MemoryDesc, desc: SlidingDesc) -> MemoryDesc:
    """The weights with their input channels in the place of their output channels."""
    return gradient_problem.exchanged(weights, weights.ndims - len(desc.strides) - 2)


def decided(desc: AnySliding, problem: Contraction) -> AnySliding:
    """The description with the layouts of a problem."""
    if desc.propagation is PropKind.backward_data:
        return desc.laid_out(
            diff_dst_desc=problem.src,
            weights_desc=exchanged(problem.weights, desc),
            diff_src_desc=problem.dst,
        )
    weights = problem.weights if desc.weights_desc.compensation is None else desc.weights_desc
    return desc.laid_out(
        src_desc=problem.src,
        weights_desc=weights,
        bias_desc=problem.bias,
        dst_desc=problem.dst,
    )
