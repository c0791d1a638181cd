"""Convolution."""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Refusal
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
from dnnl.primitives.checks import dilation_hint
from dnnl.primitives.implementation import (
    Implementation,
    Plan,
)
from dnnl.primitives.operation import FORWARD, Operation
from dnnl.primitives.sliding import SlidingDesc, flops, plan, sliding_parameters
from dnnl.primitives.weighted import (
    bias_of_channels,
    kernel_dims,
    mask_of_outputs,
    weighted_roles,
)
from dnnl.reference.convolution import SPECIFICATION
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.kinds import RUNTIME_DIM
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


def _brgemm(desc: SlidingDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    return plan(desc, attr, isa, kernel.Problem, kernel.resolve, kernel.configure, kernel.build)


def _depthwise(desc: SlidingDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    return plan(
        desc, attr, isa, kernel.Problem, depthwise.resolve, depthwise.configure, depthwise.build
    )


def _src(case: CaseValues) -> MemoryDesc:
    strides = case.strides(0, "stag")
    return tensor(case.sizes.src_dims, case.part("dt", 0), case["stag"], strides)


def _weights(case: CaseValues) -> MemoryDesc:
    strides = case.strides(1, "wtag")
    return tensor(kernel_dims(case.sizes), case.part("dt", 1), case["wtag"], strides)


def _dst(case: CaseValues) -> MemoryDesc:
    strides = case.strides(2, "dtag")
    return tensor(case.sizes.window_dims, case.part("dt", 2), case["dtag"], strides)


def _flops(desc: SlidingDesc) -> int:
    return flops(desc, desc.src_desc.dims[2:], desc.dst_desc.dims[2:])


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
    parameters=sliding_parameters("convolution_"),
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
