"""Convolution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from dataclasses import fields as dataclass_fields
from functools import cached_property

from dnnl.codegen.ir.kernel import Reason, Recipe, Refusal
from dnnl.codegen.isa import Isa
from dnnl.errors import InvalidArguments
from dnnl.kernels.convolution import chain as chains
from dnnl.kernels.convolution.direct.lines import OPEN
from dnnl.kernels.convolution.direct.problem import ConvolutionProblem
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
from dnnl.primitives.checks import places, spelled, window_hint, window_reach
from dnnl.primitives.desc import Stage, Tensor
from dnnl.primitives.implementation import Implementation, Plan, dense_like, resolve_post_ops
from dnnl.primitives.operation import FORWARD, Operation
from dnnl.primitives.sliding import SlidingDesc, flops, sliding_parameters
from dnnl.primitives.sliding_implementations import sliding_implementations
from dnnl.primitives.sliding_plans import decided, is_open, problem_of, refuse_sliding
from dnnl.primitives.weighted import (
    bias_of_channels,
    kernel_dims,
    mask_of_outputs,
    quantization_of,
    trained_roles,
)
from dnnl.reference.convolution import SPECIFICATION
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.dtype import DataType
from dnnl.types.kinds import RUNTIME_DIM, Alg, FormatKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp, PostOpDepthwise, PostOpSum
from dnnl.types.size import typical


@dataclass(frozen=True)
class ConvolutionDesc(SlidingDesc):
    """dst[n,oc,o] = bias[oc] + sum src[n,ic,o*S + k*(D+1) - P] * weights[oc,ic,k].

    src is (N, IC, [[D,] H,] W), dst (N, OC, ...), weights ([G,] OC/G, IC/G, ...) with one more
    dimension if there are groups, bias (OC). Arguments SRC, WEIGHTS, BIAS, DST; of the gradient of
    src DIFF_DST, WEIGHTS, DIFF_SRC; of those of weights and bias SRC, DIFF_DST, DIFF_WEIGHTS,
    DIFF_BIAS. Every layout may be ``any``. Dilation 0 is a dense kernel.
    """

    def under(self, post_ops: Sequence[PostOp]) -> ConvolutionDesc:
        """A chain, if a depthwise convolution follows a 1x1 one of images."""
        found = [entry for entry in post_ops if isinstance(entry, PostOpDepthwise)]
        plain = self.dst_desc.ndims == 4 and self.weights_desc.dims[-2:] == (1, 1)
        if len(found) != 1 or not plain or self.dst_desc.has_runtime_values:
            return self
        return ChainedDesc.of(self, tuple(post_ops).index(found[0]), found[0])

    def places_of(self, space: int, size: int, taps: int) -> int | None:
        """The places of the kernel in the padded src."""
        span = size + self.padding_l[space] + self.padding_r[space]
        span -= window_reach(taps, self.dilations[space])
        return span // self.strides[space] + 1 if typical(span) >= 0 else None

    def check_spatial(self) -> None:
        """dst has a pixel for each place of the kernel in the padded source."""
        images, kernel, outs = self._spatial
        for dim, (size, taps, out) in enumerate(zip(images, kernel, outs, strict=True)):
            if taps != RUNTIME_DIM and (size == RUNTIME_DIM) != (out == RUNTIME_DIM):
                rule = f"spatial dimension {dim} is RUNTIME_DIM in both images or in none"
                raise InvalidArguments(self.field("dst"), self.dst.dims, rule)
            if RUNTIME_DIM in (size, taps, out):
                continue
            padding = self.padding_l[dim] + self.padding_r[dim]
            expected = places(size, taps, self.strides[dim], padding, self.dilations[dim])
            if expected < 1 and size > 0:
                reach = window_reach(taps, self.dilations[dim])
                rule = f"the kernel reaches over {reach} elements, the padded source has fewer"
                hint = window_hint(self, images, kernel, outs)
                raise InvalidArguments(self.field("weights"), self.weights.dims, rule, hint)
            if out != expected:
                rule = f"spatial dimension {dim} of {self.name_of('dst')} must be {expected}"
                hint = window_hint(self, images, kernel, outs)
                raise InvalidArguments(self.field("dst"), self.dst.dims, rule, hint)


@dataclass(frozen=True)
class ChainedDesc(ConvolutionDesc):
    """A convolution, whose dst is the intermediate, and the depthwise one behind it; ``number`` is
    that of the latter among the post-ops.

    Arguments POST_OP_DW | WEIGHTS and POST_OP_DW | BIAS besides, and DST is that of ``second``.
    """

    second: ConvolutionDesc
    number: int

    @classmethod
    def of(cls, first: ConvolutionDesc, number: int, entry: PostOpDepthwise) -> ChainedDesc:
        """The chain of a convolution and of post-op ``number``, the layout of whose dst is what
        the first one asks for."""
        n, c, *sizes = first.dst_desc.dims
        places = [-(-size // entry.stride) for size in sizes]
        right = [
            (places - 1) * entry.stride + entry.kernel - size - entry.padding_l
            for size, places in zip(sizes, places, strict=True)
        ]
        between = MemoryDesc(first.dst_desc.dims, first.dst_desc.data_type, "any")
        kernel = (c, 1, 1, entry.kernel, entry.kernel)
        dst = MemoryDesc((n, c, *places), entry.dst_dt, "any")
        if first.dst_desc.format_kind is not FormatKind.any:
            dst = dense_like(dst, first.dst_desc)
        bias = None if entry.bias_dt is DataType.undef else MemoryDesc((c,), entry.bias_dt)
        second = ConvolutionDesc.forward(
            first.prop_kind,
            Alg.convolution_direct,
            between,
            MemoryDesc(kernel, entry.weights_dt, "any"),
            dst,
            [entry.stride] * 2,
            [entry.padding_l] * 2,
            right,
            bias_desc=bias,
        )
        fields = {each.name: getattr(first, each.name) for each in dataclass_fields(first)}
        return cls(**{**fields, "dst_desc": between}, second=second, number=number)

    def under(self, post_ops: Sequence[PostOp]) -> ConvolutionDesc:
        """Itself: it is a chain already."""
        return self

    def stages(self, post_ops: Sequence[PostOp]) -> Sequence[Stage]:
        """Those before the depthwise convolution, and those behind it."""
        entries, behind = tuple(post_ops), self.number + 1
        return [
            Stage(0, entries[: self.number], self.dst_desc),
            Stage(behind, entries[behind:], self.second.dst_desc),
        ]

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """What is read by both convolutions, and the last result."""
        own = [tensor for tensor in self.named if not tensor.output]
        second = [
            replace(tensor, argument=tensor.argument | Arg.POST_OP_DW)
            for tensor in self.second.named
            if tensor.argument in (Arg.WEIGHTS, Arg.BIAS)
        ]
        return (*own, *second, *self.second.outputs)

    def quantized(self, argument: int) -> MemoryDesc:
        """DST means the intermediate, and POST_OP_DW | DST the last result."""
        if argument == Arg.DST:
            return self.dst_desc
        if argument == Arg.POST_OP_DW | Arg.DST:
            return self.second.dst_desc
        return self.desc_of(argument)

    def quantizes(self, output: int) -> int:
        """DST has those of the second convolution."""
        return output | Arg.POST_OP_DW


def _chain(desc: SlidingDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    if not isinstance(desc, ChainedDesc):
        return Refusal(Reason.POST_OP, _no_chain(desc, attr.post_ops))
    refusal = OPEN if is_open(desc) else refuse_sliding(desc, attr)
    if refusal is not None:
        return refusal
    (_, before, _), (_, behind, _) = desc.stages(attr.post_ops)
    if any(isinstance(entry, PostOpSum) for entry in before):
        detail = "a sum before a depthwise convolution: there is no dst to add"
        return Refusal(Reason.POST_OP, detail)
    of_first, of_second = chains.split(quantization_of(attr, desc.weights_desc))
    first = problem_of(desc, before, of_first, ConvolutionProblem)
    second = problem_of(desc.second, behind, of_second, ConvolutionProblem)
    chain = chains.resolve(chains.Chain(first, second, desc.number), isa)
    before = resolve_post_ops(before, chain.first.dst)
    behind = resolve_post_ops(behind, chain.second.dst)
    chain = replace(
        chain,
        first=replace(chain.first, post_ops=before),
        second=replace(chain.second, post_ops=behind),
    )
    conf = chains.configure(chain, isa)
    if isinstance(conf, Refusal):
        return conf
    made = decided(replace(desc, second=decided(desc.second, chain.second)), chain.first)
    entries = (*before, attr.post_ops[desc.number], *behind)
    return Plan(made, entries, Recipe(conf, isa, chains.build), conf.scratchpad)


def _no_chain(desc: SlidingDesc, post_ops: Sequence[PostOp]) -> str:
    """Why a convolution is not the first of a chain."""
    count = sum(isinstance(entry, PostOpDepthwise) for entry in post_ops)
    if not count:
        return "none is a depthwise convolution"
    if count > 1:
        return f"{count} depthwise convolutions; one may follow a convolution"
    if desc.has_runtime_values or is_open(desc):
        return "a depthwise convolution behind one of sizes that only the execution knows"
    kernel = spelled(desc.weights_desc.dims[-len(desc.strides) :])
    rule = "it may follow a 1x1 convolution of images (N, C, H, W)"
    return f"a depthwise convolution behind one with a kernel of {kernel}; {rule}"


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
    own = flops(desc, desc.src.dims[2:], desc.dst.dims[2:])
    return own + _flops(desc.second) if isinstance(desc, ChainedDesc) else own


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
    roles=trained_roles(
        (_src, _weights, bias_of_channels, _dst), ("nc*", "[g]oi*", "o", "nc*")
    ),
    parameters=sliding_parameters("convolution_"),
    flops=_flops,
    sums=True,
    compensated=(Arg.WEIGHTS,),
    reference=SPECIFICATION,
    examples=(
        "--attr-post-ops=sum+relu g2ic6ih7oc10kh3ph1",
        "--attr-post-ops=relu+dw:k3s2p1+relu ic6ih9oc20kh1",
        "g2ic6ih7oc10kh3ph1 g19ic19iw9oc19kw3sw2pw1",
        "--alg=AUTO --stag=any ic20ih13oc24kh3ph1",
    ),
    implementations=(
        *sliding_implementations(transposed=False),
        Implementation("chain", _chain, FORWARD),
    ),
    mask=mask_of_outputs,
)  # fmt: skip
