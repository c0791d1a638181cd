"""Convolution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Reason, Recipe, Refusal
from dnnl.errors import InvalidArguments
from dnnl.kernels import convolution as kernel
from dnnl.kernels import depthwise
from dnnl.kernels.conv_tiles import Spatial
from dnnl.primitives.checks import read_spatial
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
from dnnl.types.kinds import RUNTIME_DIM, Alg, FormatKind, PropKind, coerce
from dnnl.types.layout_input import read_integers
from dnnl.types.memory_desc import MemoryDesc

_DIRECT = (Alg.convolution_direct, Alg.convolution_auto)


@dataclass(frozen=True)
class ConvolutionDesc(Desc):
    """dst[n,oc,o] = bias[oc] + sum src[n,ic,o*S + k*(D+1) - P] * weights[oc,ic,k].

    src is (N, IC, [[D,] H,] W), dst (N, OC, ...), weights ([G,] OC/G, IC/G, ...) with one more
    dimension if there are groups, bias (OC). Arguments SRC, WEIGHTS, BIAS, DST; every layout may
    be ``any``. Dilation 0 is a dense kernel.
    """

    kind = "convolution"

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

    @classmethod
    def forward(
        cls,
        prop_kind: PropKind | str,
        alg_kind: Alg | str,
        src_desc: MemoryDesc,
        weights_desc: MemoryDesc,
        dst_desc: MemoryDesc,
        strides: Sequence[int],
        padding_l: Sequence[int],
        padding_r: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None,
        bias_desc: MemoryDesc | None = None,
    ) -> ConvolutionDesc:
        """Describe a forward convolution; raises InvalidArguments where sizes do not agree.

        ``padding_r`` is ``padding_l`` by default, ``dilations`` are 0.
        """
        steps = read_integers("strides", strides)
        left = read_integers("padding_l", padding_l)
        return cls(
            coerce(PropKind, prop_kind, "prop_kind"),
            coerce(Alg, alg_kind, "alg_kind"),
            src_desc,
            weights_desc,
            bias_desc if bias_desc is not None else MemoryDesc.zero(),
            dst_desc,
            steps,
            left,
            left if padding_r is None else read_integers("padding_r", padding_r),
            (0,) * len(steps) if dilations is None else read_integers("dilations", dilations),
        )

    def __post_init__(self) -> None:
        read_kinds(self)
        check_tensors(self)
        check_prop_forward(self.prop_kind)
        for name in ("src_desc", "weights_desc", "dst_desc"):
            check_defined(name, getattr(self, name))
        if self.alg_kind not in (*_DIRECT, Alg.convolution_winograd):
            rule = "expected convolution_direct, convolution_winograd or convolution_auto"
            raise InvalidArguments("alg_kind", str(self.alg_kind), rule)
        self._check_ranks()
        self._check_channels()
        self._check_spatial()

    def _check_ranks(self) -> None:
        ndims = self.src_desc.ndims
        if not 3 <= ndims <= 5:
            rule = "expected (N, C, W), (N, C, H, W) or (N, C, D, H, W)"
            raise InvalidArguments("src_desc", self.src_desc.dims, rule)
        if self.dst_desc.ndims != ndims:
            rule = f"expected {ndims} dimensions, as src has"
            raise InvalidArguments("dst_desc", self.dst_desc.dims, rule)
        if self.weights_desc.ndims not in (ndims, ndims + 1):
            rule = f"expected {ndims} dimensions, or {ndims + 1} with groups first"
            raise InvalidArguments("weights_desc", self.weights_desc.dims, rule)
        for name, low in (("strides", 1), ("padding_l", 0), ("padding_r", None), ("dilations", 0)):
            value = read_spatial(name, getattr(self, name), ndims - 2, low)
            object.__setattr__(self, name, value)

    def _check_channels(self) -> None:
        groups, outputs, channels = self._channels()
        if self.src_desc.dims[1] != groups * channels:
            rule = f"weights {self.weights_desc.dims} take {groups * channels} channels"
            raise InvalidArguments("src_desc", self.src_desc.dims, rule)
        if self.dst_desc.dims[1] != groups * outputs:
            rule = f"weights {self.weights_desc.dims} make {groups * outputs} channels"
            raise InvalidArguments("dst_desc", self.dst_desc.dims, rule)
        if self.dst_desc.dims[0] != self.src_desc.dims[0]:
            rule = f"the batch must be that of src, which is {self.src_desc.dims[0]}"
            raise InvalidArguments("dst_desc", self.dst_desc.dims, rule)
        if not self.bias_desc.is_zero:
            check_dims("bias_desc", self.bias_desc, (groups * outputs,), "the channels of dst")

    def _check_spatial(self) -> None:
        for dim in range(self.src_desc.ndims - 2):
            size = self.src_desc.dims[dim + 2]
            kernel = self.weights_desc.dims[dim - (self.src_desc.ndims - 2)]
            if RUNTIME_DIM in (size, kernel, self.dst_desc.dims[dim + 2]):
                continue
            reach = (kernel - 1) * (self.dilations[dim] + 1) + 1
            room = size + self.padding_l[dim] + self.padding_r[dim] - reach
            expected = room // self.strides[dim] + 1 if room >= 0 else 0
            if expected < 1 and size > 0:
                rule = f"the kernel reaches over {reach} elements, the padded source has fewer"
                raise InvalidArguments("weights_desc", self.weights_desc.dims, rule)
            if self.dst_desc.dims[dim + 2] != expected:
                rule = f"spatial dimension {dim} of dst must be {expected}"
                raise InvalidArguments("dst_desc", self.dst_desc.dims, rule)

    def _channels(self) -> tuple[int, int, int]:
        """(groups, output channels of one, input channels of one)."""
        grouped = self.weights_desc.ndims > self.src_desc.ndims
        dims = self.weights_desc.dims if grouped else (1, *self.weights_desc.dims)
        return dims[0], dims[1], dims[2]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """SRC, WEIGHTS, BIAS if there is one, DST."""
        return weighted(self.src_desc, self.weights_desc, self.bias_desc, self.dst_desc)

    @property
    def implementations(self) -> tuple[Implementation, ...]:
        """Who can do it, best first."""
        return IMPLS

    @property
    def auxiliary(self) -> str:
        """The algorithm."""
        return f"alg:{self.alg_kind}"

    @property
    def problem(self) -> str:
        """The sizes as benchdnn spells a convolution."""
        groups, outputs, channels = self._channels()
        group = f"g{spelled_size(groups)}" if self.weights_desc.ndims > self.src_desc.ndims else ""
        text = f"{group}mb{spelled_size(self.src_desc.dims[0])}"
        text += f"_ic{spelled_size(groups, channels)}oc{spelled_size(groups, outputs)}"
        spatial = "dhw"[3 - len(self.strides) :]
        kernel = self.weights_desc.dims[-len(self.strides) :]
        for dim, letter in enumerate(spatial):
            sizes = {
                "i": self.src_desc.dims[dim + 2], "o": self.dst_desc.dims[dim + 2],
                "k": kernel[dim], "s": self.strides[dim],
                "d": self.dilations[dim], "p": self.padding_l[dim],
            }  # fmt: skip
            text += "_" + "".join(f"{k}{letter}{spelled_size(n)}" for k, n in sizes.items())
        return text

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        taps = prod(self.weights_desc.dims[-len(self.strides) :])
        return 2 * self.dst_desc.nelems() * self._channels()[2] * taps

    @property
    def space(self) -> tuple[Spatial, Spatial, Spatial]:
        """Depth, height and width; a missing one has size 1."""
        count = len(self.strides)
        given = [
            Spatial(
                self.src_desc.dims[dim + 2],
                self.dst_desc.dims[dim + 2],
                self.weights_desc.dims[dim - count],
                self.strides[dim],
                self.padding_l[dim],
                self.dilations[dim] + 1,
            )
            for dim in range(count)
        ]
        one = Spatial(1, 1, 1, 1, 0, 1)
        d, h, w = [one] * (3 - count) + given
        return d, h, w


def _problem(desc: ConvolutionDesc, attr: PrimitiveAttr) -> kernel.Problem:
    bias = desc.bias_desc
    if bias.format_kind is FormatKind.any:
        bias = MemoryDesc(bias.dims, bias.data_type)
    return kernel.Problem(
        desc.src_desc, desc.weights_desc, bias, desc.dst_desc, desc.space, tuple(attr.post_ops)
    )


def _decided(
    desc: ConvolutionDesc, attr: PrimitiveAttr, problem: kernel.Problem
) -> tuple[ConvolutionDesc, kernel.Problem]:
    """The description and the problem with the layouts of ``problem`` and of its post-ops."""
    post_ops = resolve_post_ops(tuple(attr.post_ops), problem.dst)
    decided = replace(
        desc, src_desc=problem.src, weights_desc=problem.weights,
        bias_desc=problem.bias, dst_desc=problem.dst,
    )  # fmt: skip
    return decided, replace(problem, post_ops=post_ops)


def _brgemm(desc: ConvolutionDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    refusal = refuse_attr(attr, "post_ops") or _refuse_winograd(desc)
    if refusal is not None:
        return refusal
    decided, problem = _decided(desc, attr, kernel.resolve(_problem(desc, attr), isa))
    conf = kernel.configure(problem, isa)
    if isinstance(conf, Refusal):
        return conf
    recipe = Recipe(conf, isa, kernel.build)
    return Plan(decided, problem.post_ops, recipe, conf.scratchpad)


def _depthwise(desc: ConvolutionDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    refusal = refuse_attr(attr, "post_ops") or _refuse_winograd(desc)
    if refusal is not None:
        return refusal
    decided, problem = _decided(desc, attr, depthwise.resolve(_problem(desc, attr), isa))
    conf = depthwise.configure(problem)
    if isinstance(conf, Refusal):
        return conf
    return Plan(decided, problem.post_ops, Recipe(conf, isa, depthwise.build))


def _refuse_winograd(desc: ConvolutionDesc) -> Refusal | None:
    if desc.alg_kind is Alg.convolution_winograd:
        return Refusal(Reason.PARAMETER, "no Winograd kernel; take convolution_auto")
    return None


IMPLS = (Implementation("depthwise", _depthwise), Implementation("brgemm", _brgemm))
