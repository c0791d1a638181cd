"""Running convolutions, matrix products and inner products on random numbers against the reference.

`verify(desc, attr)` decides the layouts that are `any`, fills every operand, post-op operands
included, runs the primitive the hard way (see `harness.execute`) and checks the destination with
the tolerance that the operation states for itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

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
from dnnl.reference import convolution, deconvolution, inner_product, matmul, post_ops, quantization
from dnnl.reference.arrays import Array
from dnnl.reference.tolerance import Tolerance
from dnnl.types.post_ops import PostOp, PostOpBinary, PostOpPrelu, PostOpSum
from tests.check import Fill, check, logical, random_memory
from tests.primitives.harness import ENGINE, describe, execute

Dims = tuple[int, ...]
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
    desc: Desc, attr: PrimitiveAttr | None = None, fill: Fill = "integers", seed: int = 1
) -> None:
    """Run ``desc`` and check the result against the reference.

    Sums of small integers are exact, so that with ``integers`` a single wrong term shows.
    """
    pd = PrimitiveDesc(desc, ENGINE, attr)
    verify_on(pd, inputs(pd, fill, seed), fill, seed)


def verify_on(
    pd: PrimitiveDesc, args: dict[int, Memory], fill: Fill = "integers", seed: int = 1
) -> None:
    """Run ``pd`` on memories and check the result against the reference."""
    entries: tuple[PostOp, ...] = tuple(pd.attr.post_ops)
    adds = any(isinstance(entry, PostOpSum) for entry in entries)
    old = random_memory(pd.dst_desc, ENGINE, seed + 40, fill) if adds else None
    stored = {arg: logical(memory) for arg, memory in args.items()}
    values = {**stored, **dequantized(pd, stored)}
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
            desc = spec.desc(pd.arg_desc(arg).dims)
            given[flag | arg] = random_memory(desc, ENGINE, seed + arg, values)
    return given


def expected(pd: PrimitiveDesc, values: dict[int, Array]) -> tuple[Array, int, Tolerance]:
    """The result before post-ops, how many terms each sum has, and the tolerance."""
    desc: Desc = pd.desc
    operands = values[Arg.SRC], values[Arg.WEIGHTS], values.get(Arg.BIAS)
    if isinstance(desc, MatmulDesc):
        length = max(1, operands[0].shape[-1])
        return matmul.matmul(*operands), length, matmul_tolerance(pd)
    if isinstance(desc, InnerProductDesc):
        length = max(1, prod(operands[0].shape[1:]))
        return inner_product.inner_product(*operands), length, inner_product.TOLERANCE
    if isinstance(desc, DeconvolutionDesc):
        want = deconvolution.deconvolution(
            *operands, spatial=desc.dst_desc.dims[2:], strides=desc.strides,
            padding_l=desc.padding_l, dilations=desc.dilations,
        )  # fmt: skip
        return want, max(1, deconvolution.SPECIFICATION.length(desc)), deconvolution.TOLERANCE
    assert isinstance(desc, ConvolutionDesc)
    outputs = desc.dst_desc.dims[2:]
    # Padding on the right may be negative, or zero where the last taps see nothing.
    right = [max(0, padding) for padding in desc.padding_r]
    want = convolution.convolution(
        *operands, strides=desc.strides, padding_l=desc.padding_l, padding_r=right,
        dilations=desc.dilations,
    )  # fmt: skip
    want = want[(slice(None), slice(None), *map(slice, outputs))]
    taps = desc.weights_desc.dims[desc.weights_desc.ndims - len(outputs) - 1 :]
    return want, max(1, prod(taps)), convolution.TOLERANCE


def matmul_tolerance(pd: PrimitiveDesc) -> Tolerance:
    """The tolerance that the operation states for the types and attributes of ``pd``."""
    if not pd.src_desc.data_type.is_integer or _vary_along_k(pd):
        return matmul.TOLERANCE
    bare = pd.bias_desc.is_zero and not pd.attr.scales and Arg.DST not in pd.attr.zero_points
    if bare and not tuple(pd.attr.post_ops) and str(pd.dst_desc.data_type) == "s32":
        return matmul.INTEGER_TOLERANCE
    return matmul.QUANTIZED_TOLERANCE


def _vary_along_k(pd: PrimitiveDesc) -> bool:
    """Whether scales or zero points differ from one term of a sum to the next."""
    depth = {Arg.SRC: -1, Arg.WEIGHTS: -2}
    every = (*pd.attr.scales.items(), *pd.attr.zero_points.items())
    return any(
        arg in depth and spec.shape(pd.arg_desc(arg).dims)[depth[Arg(arg)]] != 1
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
