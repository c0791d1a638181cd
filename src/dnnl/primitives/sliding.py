"""Descriptions of kernels that slide over images: a convolution, and its transpose."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Protocol, Self, TypeVar

from dnnl.codegen.epilogue.quantization import Quantization
from dnnl.codegen.ir.kernel import Kernel, Reason, Recipe, Refusal
from dnnl.codegen.isa import Isa
from dnnl.errors import InvalidArguments
from dnnl.kernels.convolution.direct import gradient_problem
from dnnl.kernels.convolution.direct.gradient_problem import WeightsGradient
from dnnl.kernels.product.base.pixel_tiles import Spatial
from dnnl.kernels.product.base.types import narrowed
from dnnl.kernels.product.plan.contraction import Contraction
from dnnl.primitives import parameters
from dnnl.primitives.checks import check_dims, check_forward, spelled_size
from dnnl.primitives.implementation import Plan, refuse_attr, resolve_post_ops
from dnnl.primitives.operation import Parameter
from dnnl.primitives.weighted import (
    GRADIENTS,
    WeightedDesc,
    bare,
    order_hint,
    quantization_of,
    refuse_gradient,
)
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.kinds import Alg, FormatKind, PropKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp


@dataclass(frozen=True)
class SlidingDesc(WeightedDesc):
    """src (N, IC, [[D,] H,] W), dst (N, OC, ...), weights ([G,] OC/G, IC/G, ...) with one more
    dimension if there are groups, bias (OC); a gradient has the dims of its tensor."""

    prop_kind: PropKind
    alg_kind: Alg
    src_desc: MemoryDesc
    weights_desc: MemoryDesc
    bias_desc: MemoryDesc
    dst_desc: MemoryDesc
    strides: tuple[int, ...]
    padding_l: tuple[int, ...]
    padding_r: tuple[int, ...]
    dilations: tuple[int, ...]
    diff_src_desc: MemoryDesc
    diff_weights_desc: MemoryDesc
    diff_bias_desc: MemoryDesc
    diff_dst_desc: MemoryDesc

    @classmethod
    def forward(
        cls,
        prop_kind: PropKind | str,
        alg_kind: Alg | str,
        src_desc: MemoryDesc,
        weights_desc: MemoryDesc,
        dst_desc: MemoryDesc,
        strides: parameters.Numbers,
        padding_l: parameters.Numbers,
        padding_r: parameters.Numbers | None = None,
        dilations: parameters.Numbers | None = None,
        bias_desc: MemoryDesc | None = None,
    ) -> Self:
        """Describe a forward pass; raises InvalidArguments where sizes do not agree.

        One number is that of all spatial dimensions. ``padding_r`` is ``padding_l`` by default,
        ``dilations`` are 0.
        """
        check_forward(prop_kind, GRADIENTS)
        return cls.made(
            prop_kind=prop_kind,
            alg_kind=alg_kind,
            src_desc=src_desc,
            weights_desc=weights_desc,
            bias_desc=bias_desc,
            dst_desc=dst_desc,
            strides=strides,
            padding_l=padding_l,
            padding_r=padding_r,
            dilations=dilations,
        )

    @classmethod
    def backward_data(
        cls,
        alg_kind: Alg | str,
        diff_src_desc: MemoryDesc,
        weights_desc: MemoryDesc,
        diff_dst_desc: MemoryDesc,
        strides: parameters.Numbers,
        padding_l: parameters.Numbers,
        padding_r: parameters.Numbers | None = None,
        dilations: parameters.Numbers | None = None,
    ) -> Self:
        """Describe the gradient of src; raises InvalidArguments where sizes do not agree.

        The window is that of the forward computation. Arguments DIFF_DST, WEIGHTS, DIFF_SRC.
        """
        return cls.made(
            prop_kind=PropKind.backward_data,
            alg_kind=alg_kind,
            diff_src_desc=diff_src_desc,
            weights_desc=weights_desc,
            diff_dst_desc=diff_dst_desc,
            strides=strides,
            padding_l=padding_l,
            padding_r=padding_r,
            dilations=dilations,
        )

    @classmethod
    def backward_weights(
        cls,
        alg_kind: Alg | str,
        src_desc: MemoryDesc,
        diff_weights_desc: MemoryDesc,
        diff_dst_desc: MemoryDesc,
        strides: parameters.Numbers,
        padding_l: parameters.Numbers,
        padding_r: parameters.Numbers | None = None,
        dilations: parameters.Numbers | None = None,
        diff_bias_desc: MemoryDesc | None = None,
    ) -> Self:
        """Describe the gradients of the weights and, with ``diff_bias_desc``, of the bias; raises
        InvalidArguments where sizes do not agree.

        The window is that of the forward computation. Arguments SRC, DIFF_DST, DIFF_WEIGHTS,
        DIFF_BIAS.
        """
        return cls.made(
            prop_kind=PropKind.backward_weights,
            alg_kind=alg_kind,
            src_desc=src_desc,
            diff_weights_desc=diff_weights_desc,
            diff_bias_desc=diff_bias_desc,
            diff_dst_desc=diff_dst_desc,
            strides=strides,
            padding_l=padding_l,
            padding_r=padding_r,
            dilations=dilations,
        )

    def check(self) -> None:
        """The channels and the sizes of the images agree."""
        self._check_channels()
        self.check_spatial()

    def check_dims(self) -> None:
        """The tensors have the ranks of an image and its kernel."""
        ndims = self.src.ndims
        if not 3 <= ndims <= 5:
            rule = "expected (N, C, W), (N, C, H, W) or (N, C, D, H, W)"
            raise InvalidArguments(self.field("src"), self.src.dims, rule)
        if self.dst.ndims != ndims:
            rule = f"expected {ndims} dimensions, as {self.name_of('src')} has"
            hint = order_hint(self.dst, self.bias, ())
            raise InvalidArguments(self.field("dst"), self.dst.dims, rule, hint)
        if self.weights.ndims not in (ndims, ndims + 1):
            rule = f"expected {ndims} dimensions, or {ndims + 1} with groups first"
            raise InvalidArguments(self.field("weights"), self.weights.dims, rule)

    def _check_channels(self) -> None:
        groups, outputs, channels = self.channels
        weights = self.name_of("weights")
        if self.src.dims[1] != groups * channels:
            rule = f"{weights} {self.weights.dims} take {groups * channels} channels"
            raise InvalidArguments(self.field("src"), self.src.dims, rule, self._hint_of_groups())
        if self.dst.dims[1] != groups * outputs:
            rule = f"{weights} {self.weights.dims} make {groups * outputs} channels"
            raise InvalidArguments(self.field("dst"), self.dst.dims, rule)
        if self.dst.dims[0] != self.src.dims[0]:
            rule = f"the batch must be that of {self.name_of('src')}, which is {self.src.dims[0]}"
            raise InvalidArguments(self.field("dst"), self.dst.dims, rule)
        if not self.bias.is_zero:
            check_dims(
                self.field("bias"),
                self.bias,
                (groups * outputs,),
                f"the channels of {self.name_of('dst')}",
            )

    def _hint_of_groups(self) -> str:
        """What to do with weights that have groups, but no dimension for them."""
        _, outputs, channels = self.channels
        groups, rest = divmod(self.src.dims[1], max(channels, 1))
        if self.weights.ndims > self.src.ndims or groups < 2 or rest or outputs % groups:
            return ""
        dims = groups, outputs // groups, *self.weights.dims[1:]
        return f"weights of {groups} groups have the dims (g, o, i, ...): reshape({dims})"

    @abstractmethod
    def check_spatial(self) -> None:
        """Raise unless the sizes of src, kernel and dst agree."""

    @property
    def _spatial(self) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
        """The sizes of src, of the kernel and of dst, in the dimensions of space."""
        count = self.src.ndims - 2
        return self.src.dims[2:], self.weights.dims[-count:], self.dst.dims[2:]

    @property
    def channels(self) -> tuple[int, int, int]:
        """(groups, output channels of one, input channels of one)."""
        grouped = self.weights.ndims > self.src.ndims
        dims = self.weights.dims if grouped else (1, *self.weights.dims)
        return dims[0], dims[1], dims[2]

    @property
    def problem(self) -> str:
        """The sizes as benchdnn spells a convolution."""
        groups, outputs, channels = self.channels
        group = f"g{spelled_size(groups)}" if self.weights.ndims > self.src.ndims else ""
        text = f"{group}mb{spelled_size(self.src.dims[0])}"
        text += f"_ic{spelled_size(groups, channels)}oc{spelled_size(groups, outputs)}"
        spatial = "dhw"[3 - len(self.strides) :]
        kernel = self.weights.dims[-len(self.strides) :]
        for dim, letter in enumerate(spatial):
            sizes = {
                "i": self.src.dims[dim + 2],
                "o": self.dst.dims[dim + 2],
                "k": kernel[dim],
                "s": self.strides[dim],
                "d": self.dilations[dim],
                "p": self.padding_l[dim],
            }
            text += "_" + "".join(f"{k}{letter}{spelled_size(n)}" for k, n in sizes.items())
        return text

    @property
    def space(self) -> tuple[Spatial, Spatial, Spatial]:
        """Depth, height and width, from src to dst; a missing one has size 1."""
        return self._space(self.src, self.dst)

    @property
    def space_back(self) -> tuple[Spatial, Spatial, Spatial]:
        """The same from dst to src, as gradients of data go."""
        return self._space(self.dst, self.src)

    def _space(self, src: MemoryDesc, dst: MemoryDesc) -> tuple[Spatial, Spatial, Spatial]:
        count = len(self.strides)
        given = [
            Spatial(
                src.dims[dim + 2],
                dst.dims[dim + 2],
                self.weights.dims[dim - count],
                self.strides[dim],
                self.padding_l[dim],
                self.dilations[dim] + 1,
            )
            for dim in range(count)
        ]
        one = Spatial(1, 1, 1, 1, 0, 1)
        d, h, w = [one] * (3 - count) + given
        return d, h, w


class _Conf(Protocol):
    """The configuration of a kernel: ``scratchpad`` in bytes."""

    @property
    def scratchpad(self) -> int: ...


class WeightsKernel(Protocol):
    """A module of `dnnl.kernels` for gradients of weights."""

    def resolve(self, problem: WeightsGradient, isa: Isa) -> WeightsGradient:
        """The problem with the layouts that are ``any`` decided."""

    def configure(self, problem: WeightsGradient, isa: Isa) -> Any:
        """Its configuration, or a refusal."""

    def build(self, conf: Any, isa: Isa) -> Kernel:
        """The kernel of a configuration."""


AnySliding = TypeVar("AnySliding", bound=SlidingDesc)
P = TypeVar("P", bound=Contraction)


def sliding_parameters(prefix: str) -> tuple[Parameter, ...]:
    """What a description has besides its tensors; names of its algorithms begin with ``prefix``."""
    return (
        Parameter("alg_kind", parameters.Algorithm(prefix), lambda case: case["alg"].alg, "alg"),
        Parameter("strides", parameters.Spatial(1), lambda case: case.sizes.spatial("s")),
        Parameter("padding_l", parameters.Spatial(0), lambda case: case.sizes.spatial("p")),
        Parameter(
            "padding_r",
            parameters.Spatial(),
            lambda case: case.sizes.padding_r,
            default=lambda desc: desc.padding_l,
        ),
        Parameter(
            "dilations",
            parameters.Spatial(0),
            lambda case: case.sizes.spatial("d"),
            default=lambda desc: (0,) * len(desc.strides),
        ),
    )


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
) -> Plan | Refusal:
    """The kernel of the problem that a description is, with the layouts that ``resolve`` decides,
    as ``configure`` plans it; or why there is none. ``refuse`` says so of problems whose layouts
    need not be decided for that."""
    refusal = refuse_sliding(desc, attr, method)
    if refusal is not None:
        return refusal
    quantization = quantization_of(attr, desc.weights)
    given = problem_of(desc, tuple(attr.post_ops), quantization, problem_type)
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


def flops(desc: SlidingDesc, elements: Sequence[int], places: Sequence[int]) -> int:
    """Twice the products of taps that meet one of ``elements`` from one of their ``places``: those
    with padding are excluded, as nobody needs to compute them."""
    kernel = desc.weights.dims[-len(elements) :]
    geometry = zip(
        elements, places, kernel, desc.strides, desc.padding_l, desc.dilations, strict=True
    )
    channels = desc.dst.dims[1] * desc.channels[2]
    return 2 * desc.src.dims[0] * channels * prod(_meetings(*numbers) for numbers in geometry)


def _meetings(src: int, dst: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """How often a tap meets an element of src, in one dimension and over all places of a window."""
    starts = [position * stride - padding for position in range(dst)]
    offsets = [tap * (dilation + 1) for tap in range(kernel)]
    return sum(0 <= start + offset < src for start in starts for offset in offsets)
