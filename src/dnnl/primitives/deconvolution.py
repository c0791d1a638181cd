"""Deconvolution: the transpose of a convolution."""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.errors import InvalidArguments
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
)
from dnnl.primitives.checks import places, source_size, window_hint, window_reach
from dnnl.primitives.operation import Operation
from dnnl.primitives.sliding import SlidingDesc, flops, sliding_parameters
from dnnl.primitives.sliding_implementations import sliding_implementations
from dnnl.primitives.weighted import (
    bias_of_channels,
    kernel_dims,
    mask_of_outputs,
    trained_roles,
)
from dnnl.reference.deconvolution import SPECIFICATION
from dnnl.types.arg import Arg
from dnnl.types.kinds import RUNTIME_DIM
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True)
class DeconvolutionDesc(SlidingDesc):
    """dst[n,oc,i*S + k*(D+1) - P] = bias[oc] + sum src[n,ic,i] * weights[oc,ic,k].

    src is (N, IC, [[D,] H,] W), dst (N, OC, ...), weights ([G,] OC/G, IC/G, ...) with one more
    dimension if there are groups, bias (OC). Arguments SRC, WEIGHTS, BIAS, DST; of the gradient of
    src DIFF_DST, WEIGHTS, DIFF_SRC; of those of weights and bias SRC, DIFF_DST, DIFF_WEIGHTS,
    DIFF_BIAS. Every layout may be ``any``. Dilation 0 is a dense kernel. A convolution of dst with
    the same strides, paddings and dilations has the size of src.
    """

    def places_of(self, space: int, size: int, taps: int) -> int | None:
        """What all taps reach, if nothing is left over at the end."""
        if self.strides[space] > 1:
            return None
        padding = self.padding_l[space] + self.padding_r[space]
        return size - 1 + window_reach(taps, self.dilations[space]) - padding

    def complete_typical(self, dims: dict[int, list[int]]) -> None:
        """dst has what taps reach from src."""
        super().complete_typical(dims)
        src, weights, dst = map(self._argument, ("src", "weights", "dst"))
        for space, (stride, dilation) in enumerate(zip(self.strides, self.dilations, strict=True)):
            dim, taps = 2 + space, dims[weights][space - len(self.strides)]
            if RUNTIME_DIM in (self.src.dims[dim], self.dst.dims[dim]):
                padding = self.padding_l[space] + self.padding_r[space]
                dims[dst][dim] = source_size(dims[src][dim], taps, stride, padding, dilation)

    def check_spatial(self) -> None:
        """src has a pixel for each place of the kernel in the padded dst."""
        images, kernel, outs = self._spatial
        for dim, (size, taps, out) in enumerate(zip(images, kernel, outs, strict=True)):
            if taps != RUNTIME_DIM and (size == RUNTIME_DIM) != (out == RUNTIME_DIM):
                rule = f"spatial dimension {dim} is RUNTIME_DIM in both images or in none"
                raise InvalidArguments(self.field("dst"), self.dst.dims, rule)
            if RUNTIME_DIM in (size, taps, out):
                continue
            stride, padding = self.strides[dim], self.padding_l[dim] + self.padding_r[dim]
            if places(out, taps, stride, padding, self.dilations[dim]) != size:
                reach = window_reach(taps, self.dilations[dim])
                least = max(0, (size - 1) * stride + reach - padding) if size else 0
                rule = f"spatial dimension {dim} of {self.name_of('dst')} must be {least}"
                if stride > 1:
                    rule += f", or up to {stride - 1} more"
                hint = window_hint(self, outs, kernel, images)
                raise InvalidArguments(self.field("dst"), self.dst.dims, rule, hint)


def _src(case: CaseValues) -> MemoryDesc:
    return tensor(case.sizes.src_dims, case.part("dt", 0), case["stag"])


def _weights(case: CaseValues) -> MemoryDesc:
    return tensor(kernel_dims(case.sizes), case.part("dt", 1), case["wtag"])


def _dst(case: CaseValues) -> MemoryDesc:
    return tensor(case.sizes.window_dims, case.part("dt", 2), case["dtag"])


def _flops(desc: SlidingDesc) -> int:
    return flops(desc, desc.dst.dims[2:], desc.src.dims[2:])


DeconvolutionDesc.operation = Operation(
    kind="deconvolution",
    summary="deconvolution: each src element spreads its weighted value over dst",
    driver=Driver(
        "deconv",
        (
            DIR.but("FWD_B"), PRODUCT_DT, BIA_DT, STAG.but("any"), WTAG, DTAG,
            algorithm(
                "DIRECT",
                {
                    "DIRECT": "deconvolution_direct", "WINO": "deconvolution_winograd",
                    "AUTO": "deconvolution_direct",
                },
            ),
            *ATTRIBUTES, MB,
        ),
        Grammar(("g", "mb", "ic", "oc"), WINDOW, need=("ic", "oc"), lowest=3, window="up"),
    ),
    roles=trained_roles(
        (_src, _weights, bias_of_channels, _dst), ("nc*", "[g]oi*", "o", "nc*")
    ),
    parameters=sliding_parameters("deconvolution_"),
    flops=_flops,
    sums=True,
    compensated=(Arg.WEIGHTS,),
    reference=SPECIFICATION,
    examples=(
        "--attr-post-ops=sum+relu g2ic6ih7oc10kh3sh2ph1",
        "g2ic6ih7oc10kh3sh2ph1 g19ic19iw9oc19kw3sw2pw1",
    ),
    implementations=sliding_implementations(transposed=True),
    mask=mask_of_outputs,
)  # fmt: skip
