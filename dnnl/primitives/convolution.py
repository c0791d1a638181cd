"""Convolution."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Reason, Recipe, Refusal
from dnnl.codegen.quantization import Quantization
from dnnl.errors import InvalidArguments
from dnnl.kernels import convolution as kernel
from dnnl.kernels import depthwise
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
from dnnl.primitives.checks import dilation_hint
from dnnl.primitives.implementation import (
    Implementation,
    Plan,
    refuse_attr,
    resolve_post_ops,
)
from dnnl.primitives.operation import FORWARD, Operation, Parameter
from dnnl.primitives.sliding import SlidingDesc, meetings
from dnnl.primitives.weighted import (
    bias_of_channels,
    kernel_dims,
    mask_of_outputs,
    weighted_roles,
)
from dnnl.reference.convolution import SPECIFICATION
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.kinds import RUNTIME_DIM, Alg, FormatKind
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True)
class ConvolutionDesc(SlidingDesc):
    """dst[n,oc,o] = bias[oc] + sum src[n,ic,o*S + k*(D+1) - P] * weights[oc,ic,k].

    src is (N, IC, [[D,] H,] W), dst (N, OC, ...), weights ([G,] OC/G, IC/G, ...) with one more
    dimension if there are groups, bias (OC). Arguments SRC, WEIGHTS, BIAS, DST; every layout may
    be ``any``. Dilation 0 is a dense kernel.
    """

    def check_spatial(self) -> None:
        """dst has a pixel for each place of the kernel in the padded source."""
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
    strides = case.strides(1, "wtag")
    return tensor(kernel_dims(case.sizes), case.part("dt", 1), case["wtag"], strides)


def _dst(case: CaseValues) -> MemoryDesc:
    strides = case.strides(2, "dtag")
    return tensor(case.sizes.window_dims, case.part("dt", 2), case["dtag"], strides)


def _flops(desc: ConvolutionDesc) -> int:
    """Products with padding are not counted: nobody needs to do them."""
    src, dst = desc.src_desc.dims[2:], desc.dst_desc.dims[2:]
    kernel = desc.weights_desc.dims[-len(src) :]
    geometry = zip(src, dst, kernel, desc.strides, desc.padding_l, desc.dilations, strict=True)
    channels = desc.dst_desc.dims[1] * desc.channels[2]
    return 2 * desc.src_desc.dims[0] * channels * prod(meetings(*numbers) for numbers in geometry)


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
    mask=mask_of_outputs,
)  # fmt: skip
