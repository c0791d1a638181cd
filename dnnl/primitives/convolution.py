"""Convolution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Reason, Recipe, Refusal
from dnnl.codegen.quantization import Quantization
from dnnl.errors import InvalidArguments
from dnnl.kernels import convolution as kernel
from dnnl.kernels import depthwise
from dnnl.kernels.conv_tiles import Spatial
from dnnl.language.case import CaseValues, tensor
from dnnl.language.descriptor import WINDOW, Grammar
from dnnl.language.options import (
    ATTRIBUTES,
    BIA_DT,
    DIR,
    DTAG,
    MB,
    PRODUCT_DT,
    STAG,
    WTAG,
    Driver,
    algorithm,
    operands,
    strides,
)
from dnnl.primitives import parameters
from dnnl.primitives.checks import check_dims, dilation_hint, spelled_size
from dnnl.primitives.desc import Desc
from dnnl.primitives.implementation import (
    Implementation,
    Plan,
    refuse_attr,
    resolve_post_ops,
)
from dnnl.primitives.operation import FORWARD, Operation, Parameter
from dnnl.primitives.weighted import bias_of_channels, weighted_roles
from dnnl.reference.convolution import SPECIFICATION
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.kinds import RUNTIME_DIM, Alg, FormatKind, PropKind
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True)
class ConvolutionDesc(Desc):
    """dst[n,oc,o] = bias[oc] + sum src[n,ic,o*S + k*(D+1) - P] * weights[oc,ic,k].

    src is (N, IC, [[D,] H,] W), dst (N, OC, ...), weights ([G,] OC/G, IC/G, ...) with one more
    dimension if there are groups, bias (OC). Arguments SRC, WEIGHTS, BIAS, DST; every layout may
    be ``any``. Dilation 0 is a dense kernel.
    """

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
        return cls.made(
            prop_kind=prop_kind, alg_kind=alg_kind, src_desc=src_desc, weights_desc=weights_desc,
            bias_desc=bias_desc, dst_desc=dst_desc, strides=strides, padding_l=padding_l,
            padding_r=padding_r, dilations=dilations,
        )  # fmt: skip

    def check(self) -> None:
        """The channels and the sizes of the images agree."""
        self._check_channels()
        self._check_spatial()

    def check_dims(self) -> None:
        """The tensors have the ranks of an image and its kernel."""
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

    def _check_channels(self) -> None:
        groups, outputs, channels = self.channels
        if self.src_desc.dims[1] != groups * channels:
            rule = f"weights {self.weights_desc.dims} take {groups * channels} channels"
            raise InvalidArguments("src_desc", self.src_desc.dims, rule, self._hint_of_groups())
        if self.dst_desc.dims[1] != groups * outputs:
            rule = f"weights {self.weights_desc.dims} make {groups * outputs} channels"
            raise InvalidArguments("dst_desc", self.dst_desc.dims, rule)
        if self.dst_desc.dims[0] != self.src_desc.dims[0]:
            rule = f"the batch must be that of src, which is {self.src_desc.dims[0]}"
            raise InvalidArguments("dst_desc", self.dst_desc.dims, rule)
        if not self.bias_desc.is_zero:
            check_dims("bias_desc", self.bias_desc, (groups * outputs,), "the channels of dst")

    def _hint_of_groups(self) -> str:
        """What to do with weights that have groups, but no dimension for them."""
        _, outputs, channels = self.channels
        groups, rest = divmod(self.src_desc.dims[1], max(channels, 1))
        if self.weights_desc.ndims > self.src_desc.ndims or groups < 2 or rest or outputs % groups:
            return ""
        dims = groups, outputs // groups, *self.weights_desc.dims[1:]
        return f"weights of {groups} groups have the dims (g, o, i, ...): reshape({dims})"

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
                hint = dilation_hint(self.dilations)
                raise InvalidArguments("weights_desc", self.weights_desc.dims, rule, hint)
            if self.dst_desc.dims[dim + 2] != expected:
                rule = f"spatial dimension {dim} of dst must be {expected}"
                hint = dilation_hint(self.dilations)
                raise InvalidArguments("dst_desc", self.dst_desc.dims, rule, hint)

    @property
    def channels(self) -> tuple[int, int, int]:
        """(groups, output channels of one, input channels of one)."""
        grouped = self.weights_desc.ndims > self.src_desc.ndims
        dims = self.weights_desc.dims if grouped else (1, *self.weights_desc.dims)
        return dims[0], dims[1], dims[2]

    @property
    def problem(self) -> str:
        """The sizes as benchdnn spells a convolution."""
        groups, outputs, channels = self.channels
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
        desc.src_desc, desc.weights_desc, bias, desc.dst_desc, tuple(attr.post_ops),
        Quantization.of(attr), space=desc.space,
    )  # fmt: skip


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
    refusal = refuse_attr(attr, "post_ops", "scales", "zero_points") or _refuse_winograd(desc)
    if refusal is not None:
        return refusal
    decided, problem = _decided(desc, attr, kernel.resolve(_problem(desc, attr), isa))
    conf = kernel.configure(problem, isa)
    if isinstance(conf, Refusal):
        return conf
    recipe = Recipe(conf, isa, kernel.build)
    return Plan(decided, problem.post_ops, recipe, conf.scratchpad)


def _depthwise(desc: ConvolutionDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    refusal = refuse_attr(attr, "post_ops", "scales", "zero_points") or _refuse_winograd(desc)
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


def _src(case: CaseValues) -> MemoryDesc:
    strides = case.strides(0, "stag")
    return tensor(case.sizes.src_dims, case.part("dt", 0), case["stag"], strides)


def _weights(case: CaseValues) -> MemoryDesc:
    sizes = case.sizes
    dims = (sizes["oc"] // sizes.groups, sizes["ic"] // sizes.groups, *sizes.spatial("k"))
    if sizes.grouped:
        dims = (sizes.groups, *dims)
    return tensor(dims, case.part("dt", 1), case["wtag"], case.strides(1, "wtag"))


def _dst(case: CaseValues) -> MemoryDesc:
    strides = case.strides(2, "dtag")
    return tensor(case.sizes.window_dims, case.part("dt", 2), case["dtag"], strides)


def _mask(case: CaseValues, argument: str, name: str, ndims: int) -> int | None:
    """The output channels of the weights are the first dimension, behind the groups if any."""
    if (argument, name) == ("wei", "per_oc"):
        return 3 if case.sizes.grouped else 1
    return None


def _flops(desc: ConvolutionDesc) -> int:
    """Products with padding are not counted: nobody needs to do them."""
    src, dst = desc.src_desc.dims[2:], desc.dst_desc.dims[2:]
    kernel = desc.weights_desc.dims[-len(src) :]
    geometry = zip(src, dst, kernel, desc.strides, desc.padding_l, desc.dilations, strict=True)
    channels = desc.dst_desc.dims[1] * desc.channels[2]
    return 2 * desc.src_desc.dims[0] * channels * prod(_meetings(*numbers) for numbers in geometry)


def _meetings(src: int, dst: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """How often an element of a kernel meets one of src, in one dimension and over all of dst."""
    starts = [position * stride - padding for position in range(dst)]
    offsets = [tap * (dilation + 1) for tap in range(kernel)]
    return sum(0 <= start + offset < src for start in starts for offset in offsets)


ConvolutionDesc.operation = Operation(
    kind="convolution",
    summary="convolution: each dst element is a weighted sum of a window of src",
    driver=Driver(
        "conv",
        (
            DIR.but("FWD_B"), PRODUCT_DT, BIA_DT, STAG.but("any"), WTAG, DTAG,
            strides(operands, 3),
            algorithm(
                "DIRECT",
                {
                    "DIRECT": "convolution_direct", "WINO": "convolution_winograd",
                    "AUTO": "convolution_auto",
                },
            ),
            *ATTRIBUTES, MB,
        ),
        Grammar(("g", "mb", "ic", "oc"), WINDOW, need=("ic", "oc"), lowest=3, window="down"),
    ),
    roles=weighted_roles(
        (_src, _weights, bias_of_channels, _dst), ("nc*", "[g]oi*", "o", "nc*")
    ),
    parameters=(
        Parameter(
            "alg_kind", parameters.Algorithm("convolution_"), lambda case: case["alg"].alg, "alg"
        ),
        Parameter("strides", parameters.Spatial(1), lambda case: case.sizes.spatial("s")),
        Parameter("padding_l", parameters.Spatial(0), lambda case: case.sizes.spatial("p")),
        Parameter("padding_r", parameters.Spatial(), lambda case: case.sizes.padding_r,
            default=lambda desc: desc.padding_l,
        ),
        Parameter("dilations", parameters.Spatial(0), lambda case: case.sizes.spatial("d"),
            default=lambda desc: (0,) * len(desc.strides),
        ),
    ),
    flops=_flops,
    sums=True,
    reference=SPECIFICATION,
    examples=("--attr-post-ops=sum+relu g2ic6ih7oc10kh3ph1",),
    implementations=(
        Implementation("depthwise", _depthwise, FORWARD),
        Implementation("brgemm", _brgemm, FORWARD),
    ),
    mask=_mask,
)  # fmt: skip
