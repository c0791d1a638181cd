"""Running convolutions, matrix products and inner products on random numbers against the reference.

`verify(desc, attr)` decides the layouts that are `any`, fills every operand, post-op operands
included, runs the primitive the hard way (see `harness.execute`) and checks the destination with
the tolerance that the operation states for itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import ModuleType

import numpy as np
import pytest

from dnnl import (
    Arg,
    ConvolutionDesc,
    DeconvolutionDesc,
    InnerProductDesc,
    MatmulDesc,
    Memory,
    MemoryDesc,
    PrimitiveAttr,
    PrimitiveDesc,
)
from dnnl.primitives.desc import Desc
from dnnl.primitives.sliding import SlidingDesc
from dnnl.reference import convolution, deconvolution, inner_product, matmul, post_ops, quantization
from dnnl.reference.arrays import Array, f64
from dnnl.reference.sliding import WINOGRAD_SUM
from dnnl.reference.tolerance import Tolerance
from dnnl.types.dtype import DataType
from dnnl.types.post_ops import PostOp, PostOpBinary, PostOpPrelu, PostOpSum
from tests.check import Fill, check, logical, random_memory
from tests.primitives.harness import ENGINE, describe, execute
from tests.processor import ISAS

Dims = tuple[int, ...]
Types = tuple[str, str, str]
Layouts = tuple[str, str, str]
ANY = ("any", "any", "any")
ROWS = ("plain", "plain", "plain")

some_rows = pytest.mark.parametrize("isa", sorted({*ISAS} & {"sse41", "avx2", ISAS[-1]}))
"""Instruction sets that multiply in different ways, the best one among them."""
DIRECT = ("forward_inference", "convolution_direct")


@dataclass(frozen=True)
class Window:
    """The spatial side of a convolution, one number for each dimension; dilation 0 is dense."""

    src: Dims
    kernel: Dims
    strides: Dims = ()
    padding_l: Dims = ()
    padding_r: Dims | None = None
    dilations: Dims = ()

    @property
    def filled(self) -> tuple[Dims, Dims, Dims, Dims]:
        """Strides, both paddings and dilations, with what was left out."""
        count = len(self.src)
        left = self.padding_l or (0,) * count
        right = left if self.padding_r is None else self.padding_r
        return self.strides or (1,) * count, left, right, self.dilations or (0,) * count

    @property
    def dst(self) -> Dims:
        """The output sizes."""
        return tuple(
            (size + left + right - (kernel - 1) * (dilation + 1) - 1) // stride + 1
            for size, kernel, stride, left, right, dilation in zip(
                self.src, self.kernel, *self.filled, strict=True
            )
        )


def convolution_desc(
    window: Window,
    batch: int,
    channels: Dims,
    layouts: tuple[str, str, str] = ("any", "any", "any"),
    bias: bool = True,
) -> ConvolutionDesc:
    """A description; ``channels`` are (OC, IC), or (G, OC / G, IC / G).

    ``layouts`` are those of src, weights and dst, for `lay_out`.
    """
    groups = channels[0] if len(channels) == 3 else 1
    outputs, inputs = groups * channels[-2], groups * channels[-1]
    dims = (batch, inputs, *window.src), (*channels, *window.kernel), (batch, outputs, *window.dst)
    src, weights, dst = (lay_out(*pair) for pair in zip(dims, layouts, strict=True))
    bias_desc = MemoryDesc((outputs,), "f32") if bias else None
    strides, left, right, dilations = window.filled
    return ConvolutionDesc.forward(
        *DIRECT, src, weights, dst, strides, left, right, dilations, bias_desc
    )


def matmul_desc(
    sizes: Dims,
    types: Types,
    layouts: Layouts = ANY,
    bias: str | None = None,
    batch: Dims = (),
) -> MatmulDesc:
    """A description of sizes (M, K, N), with as many matrices of weights as ``batch`` says."""
    m, k, n = sizes
    dims = ((*batch, m, k), (*batch, k, n), (*batch, m, n))
    src, weights, dst = _descs(dims, types, layouts)
    row = (*[1] * len(batch), 1, n)
    return MatmulDesc(src, weights, dst, None if bias is None else MemoryDesc(row, bias))


def inner_product_desc(
    dims: Dims, outputs: int, types: Types, layouts: Layouts = ANY, bias: str | None = None
) -> InnerProductDesc:
    """A description for a source of ``dims``."""
    every = dims, (outputs, *dims[1:]), (dims[0], outputs)
    src, weights, dst = _descs(every, types, layouts)
    bias_desc = None if bias is None else MemoryDesc((outputs,), bias)
    return InnerProductDesc.forward("forward_inference", src, weights, dst, bias_desc)


def _descs(dims: tuple[Dims, Dims, Dims], types: Types, layouts: Layouts) -> list[MemoryDesc]:
    return [
        lay_out(size, layout).with_data_type(data_type)
        for size, layout, data_type in zip(dims, layouts, types, strict=True)
    ]


def scaled(
    scales: Mapping[Arg, tuple[int, Dims]], zero_points: Mapping[Arg, tuple[int, Dims]]
) -> PrimitiveAttr:
    """Attributes with scales and zero points of masks and groups."""
    attr = PrimitiveAttr()
    for arg, (mask, groups) in scales.items():
        attr.set_scales(arg, mask, groups)
    for arg, (mask, groups) in zero_points.items():
        attr.set_zero_points(arg, mask, groups, "s8")
    return attr


def lay_out(dims: Dims, layout: str) -> MemoryDesc:
    """An f32 descriptor for a tag or a name of `harness.describe`.

    Besides, for any rank: ``plain``, ``last`` for channels-last, ``reversed``, ``block16`` and
    ``block8`` for blocks of channels, and ``behind``, which begins in the middle of its buffer.
    """
    letters = "abcdefghijkl"[: len(dims)]
    if layout == "behind":
        strides = MemoryDesc(dims, "f32").strides
        return MemoryDesc(dims, "f32", strides, offset0=5)
    named = {
        "plain": letters,
        "last": f"a{letters[2:]}b",
        "reversed": letters[::-1],
        "block16": f"aB{letters[2:]}16b",
        "block8": f"aB{letters[2:]}8b",
    }
    return describe(dims, named.get(layout, layout))


def verify(
    desc: Desc,
    attr: PrimitiveAttr | None = None,
    fill: Fill = "integers",
    seed: int = 1,
    rounded: tuple[Arg, ...] = (),
) -> None:
    """Run ``desc`` and check the result against the reference, for which what the arguments
    ``rounded`` stand for becomes bf16.

    Sums of small integers are exact, so that with ``integers`` a single wrong term shows.
    """
    pd = PrimitiveDesc(desc, ENGINE, attr)
    verify_on(pd, inputs(pd, fill, seed), fill, seed, rounded)


def verify_on(
    pd: PrimitiveDesc,
    args: dict[int, Memory],
    fill: Fill = "integers",
    seed: int = 1,
    rounded: tuple[Arg, ...] = (),
) -> None:
    """Run ``pd`` on memories and check the result against the reference."""
    entries: tuple[PostOp, ...] = tuple(pd.attr.post_ops)
    adds = any(isinstance(entry, PostOpSum) for entry in entries)
    old = random_memory(pd.dst_desc, ENGINE, seed + 40, fill) if adds else None
    stored = {arg: logical(memory) for arg, memory in args.items()}
    values = {**stored, **dequantized(pd, stored)}
    bf16 = DataType.bf16.numpy
    values.update({arg: f64(values[arg].astype(np.float32).astype(bf16)) for arg in rounded})
    sums, length, tolerance = expected(pd, values)
    held = None if old is None else logical(old)
    want = post_ops.apply_post_ops(sums, entries, values, held)
    scale = _parameter(pd, stored, Arg.SCALES, Arg.DST)
    want = quantization.quantize(want, scale, _parameter(pd, stored, Arg.ZERO_POINTS, Arg.DST))
    got = execute(pd.desc, args, pd.attr, old)
    bound = post_ops.tolerance(tolerance, entries)(pd.dst_desc.data_type, length)
    check(got, want, bound.after(quantization.quantize(sums, scale)))


def dequantized(pd: PrimitiveDesc, stored: dict[int, Array]) -> dict[int, Array]:
    """What src and weights stand for."""
    return {
        arg: quantization.dequantize(
            stored[arg],
            _parameter(pd, stored, Arg.SCALES, arg),
            _parameter(pd, stored, Arg.ZERO_POINTS, arg),
        )
        for arg in (Arg.SRC, Arg.WEIGHTS)
    }


def _parameter(pd: PrimitiveDesc, stored: dict[int, Array], flag: Arg, arg: Arg) -> Array:
    """The scales or zero points of an argument for each of its elements."""
    specs = pd.attr.scales if flag is Arg.SCALES else pd.attr.zero_points
    if arg not in specs:
        return np.array(1.0 if flag is Arg.SCALES else 0.0)
    return quantization.expand(stored[flag | arg], pd.arg_desc(arg).dims, specs[arg])


def inputs(pd: PrimitiveDesc, fill: Fill = "normal", seed: int = 1) -> dict[int, Memory]:
    """Random numbers for all that a primitive reads, the old destination left out."""
    arguments = [tensor.argument for tensor in pd.desc.tensors if not tensor.output]
    for number, entry in enumerate(pd.attr.post_ops):
        flag = Arg.post_op(number)
        if isinstance(entry, PostOpBinary):
            arguments.append(flag | Arg.SRC_1)
        if isinstance(entry, PostOpPrelu):
            arguments.append(flag | Arg.WEIGHTS)
    given = {
        argument: random_memory(pd.arg_desc(argument), ENGINE, seed + number, fill)
        for number, argument in enumerate(arguments)
    }
    for flag, specs in ((Arg.SCALES, pd.attr.scales), (Arg.ZERO_POINTS, pd.attr.zero_points)):
        for arg, spec in specs.items():
            values: Fill = "positive" if flag is Arg.SCALES else "integers"
            desc = spec.desc(pd.desc.quantized(arg).dims)
            if not spec.computed:
                given[flag | arg] = random_memory(desc, ENGINE, seed + arg, values)
    return given


def expected(pd: PrimitiveDesc, values: dict[int, Array]) -> tuple[Array, int, Tolerance]:
    """The result before post-ops, how many terms each sum has, and the tolerance."""
    desc: Desc = pd.desc
    operands = values[Arg.SRC], values[Arg.WEIGHTS], values.get(Arg.BIAS)
    if isinstance(desc, MatmulDesc):
        length = max(1, operands[0].shape[-1])
        return matmul.matmul(*operands), length, tolerance_of(pd)
    if isinstance(desc, InnerProductDesc):
        length = max(1, prod(operands[0].shape[1:]))
        return inner_product.inner_product(*operands), length, tolerance_of(pd)
    if isinstance(desc, DeconvolutionDesc):
        want = deconvolution.deconvolution(
            *operands,
            spatial=desc.dst_desc.dims[2:],
            strides=desc.strides,
            padding_l=desc.padding_l,
            dilations=desc.dilations,
        )
        length = max(1, deconvolution.SPECIFICATION.length(desc))
        return want, length, sliding_tolerance(pd, deconvolution)
    assert isinstance(desc, ConvolutionDesc)
    outputs = desc.dst_desc.dims[2:]
    # Padding on the right may be negative, or zero where the last taps see nothing.
    right = [max(0, padding) for padding in desc.padding_r]
    want = convolution.convolution(
        *operands,
        strides=desc.strides,
        padding_l=desc.padding_l,
        padding_r=right,
        dilations=desc.dilations,
    )
    want = want[(slice(None), slice(None), *map(slice, outputs))]
    taps = desc.weights_desc.dims[desc.weights_desc.ndims - len(outputs) - 1 :]
    return want, max(1, prod(taps)), sliding_tolerance(pd, convolution)


def tolerance_of(pd: PrimitiveDesc) -> Tolerance:
    """The tolerance that matmul and inner product state for the types and attributes of ``pd``."""
    if not pd.src_desc.data_type.is_integer or _vary_along_k(pd):
        return matmul.TOLERANCE
    return matmul.INTEGER_TOLERANCE if _bare(pd) else matmul.QUANTIZED_TOLERANCE


def sliding_tolerance(pd: PrimitiveDesc, reference: ModuleType) -> Tolerance:
    """The tolerance that the module of the operation states for the types and attributes of
    ``pd``."""
    if isinstance(pd.desc, SlidingDesc) and str(pd.desc.alg_kind).endswith("winograd"):
        return WINOGRAD_SUM
    if pd.src_desc.data_type.is_integer:
        stated = reference.INTEGER_TOLERANCE if _bare(pd) else reference.QUANTIZED_TOLERANCE
    else:
        stated = reference.TOLERANCE
    assert isinstance(stated, Tolerance)
    return stated


def _bare(pd: PrimitiveDesc) -> bool:
    """Whether sums of integers are stored as they are."""
    bare = pd.bias_desc.is_zero and not pd.attr.scales and Arg.DST not in pd.attr.zero_points
    return bare and not tuple(pd.attr.post_ops) and str(pd.dst_desc.data_type) == "s32"


def _vary_along_k(pd: PrimitiveDesc) -> bool:
    """Whether scales or zero points differ from one term of a sum to the next."""
    rest = slice(1, None)
    depth = {Arg.SRC: slice(-1, None), Arg.WEIGHTS: slice(-2, -1)}
    if isinstance(pd.desc, InnerProductDesc):
        depth = {Arg.SRC: rest, Arg.WEIGHTS: rest}
    every = (*pd.attr.scales.items(), *pd.attr.zero_points.items())
    return any(
        arg in depth and prod(spec.shape(pd.arg_desc(arg).dims)[depth[Arg(arg)]]) != 1
        for arg, spec in every
    )


def attr_of(*entries: Sequence[object]) -> PrimitiveAttr:
    """Post-ops as (name of the append method, arguments...)."""
    attr = PrimitiveAttr()
    for name, *arguments in entries:
        getattr(attr.post_ops, f"append_{name}")(*arguments)
    return attr


def broadcast_dims(dims: Sequence[int], mask: int) -> Dims:
    """``dims`` with 1 where ``mask`` has no bit."""
    return tuple(size if mask >> dim & 1 else 1 for dim, size in enumerate(dims))
