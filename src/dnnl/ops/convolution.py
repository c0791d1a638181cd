"""Convolutions and transposed convolutions; images are [batch, channels, spatial...], or without a
batch."""

from __future__ import annotations

from collections.abc import Sequence

from dnnl.errors import InvalidArguments
from dnnl.ops.arrays import Out, Result
from dnnl.ops.call import Problem, call, present
from dnnl.ops.products import operands
from dnnl.ops.promotion import Rules, rules_of, widened
from dnnl.ops.reading import batched, check_bias, check_weight, check_window, read_sizes
from dnnl.primitives.convolution import ConvolutionDesc
from dnnl.primitives.deconvolution import DeconvolutionDesc
from dnnl.primitives.parameters import Whole
from dnnl.runtime.wrap import ArrayLike
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc

Sizes = int | Sequence[int]
_INFERENCE = "forward_inference"
_BYTE = 8


def _typed(
    descs: Sequence[MemoryDesc], dst: MemoryDesc | None, rules: Rules, shape: Sequence[int]
) -> tuple[DataType, list[MemoryDesc], MemoryDesc]:
    """The type of a convolution, its sources and dst: integers of 8 bits wrap as in `matmul`."""
    kind = widened(rules.common_type(("x", "weight", "bias"), descs), dst)
    given, left = operands(kind, descs, dst, shape)
    if not kind.is_float and given[0].data_type.bits > _BYTE:
        hint = "convert it, or pass an out of floats"
        raise InvalidArguments("x", str(kind), "expected floats, or integers of 8 bits", hint)
    return kind, given, left


def _convolved(
    count: int,
    x: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None,
    stride: Sizes,
    padding: Sizes | str,
    dilation: Sizes,
    groups: int,
    out: Out,
) -> Result:
    strides = read_sizes("stride", stride, count, 1)
    padded = _read_padding(padding, strides)
    dilated = read_sizes("dilation", dilation, count, 1)
    arrays, names = present({"x": x, "weight": weight}, bias=bias)
    params = count, strides, padded, dilated, Whole(1).read("groups", groups, 0), rules_of(*arrays)
    return call(_convolution, arrays, params, out, names)


def _read_padding(padding: Sizes | str, strides: tuple[int, ...]) -> tuple[int, ...] | None:
    """The padding on either side; None for "same", which depends on the window."""
    if not isinstance(padding, str):
        return read_sizes("padding", padding, len(strides), 0)
    if padding == "valid":
        return (0,) * len(strides)
    if padding != "same":
        raise InvalidArguments("padding", padding, 'expected numbers, "same" or "valid"')
    if max(strides) > 1:
        rule = f"the result of stride = {strides} has another size than x"
        raise InvalidArguments("padding", padding, rule, "pass numbers, or stride = 1")
    return None


def _convolution(
    descs: Sequence[MemoryDesc],
    dst: MemoryDesc | None,
    count: int,
    strides: tuple[int, ...],
    padding: tuple[int, ...] | None,
    dilation: tuple[int, ...],
    groups: int,
    rules: Rules,
) -> Problem:
    src, weights = batched(descs[0], count), descs[1]
    check_weight(count, weights)
    if weights.dims[0] % groups or src.dims[1] != weights.dims[1] * groups:
        rule = f"x has {src.dims[1]} channels, weight the shape {weights.dims}"
        raise InvalidArguments("groups", groups, f"does not fit: {rule}")
    check_bias(descs[2:], weights.dims[0])
    reach = [(k - 1) * d for k, d in zip(weights.dims[2:], dilation, strict=True)]
    before = behind = padding or ()
    if padding is None:  # of an even window the larger half is behind
        before, behind = (tuple((r + more) // 2 for r in reach) for more in (0, 1))
    window = zip(src.dims[2:], reach, strides, before, behind, strict=True)
    spatial = [(i + p + q - r - 1) // s + 1 for i, r, s, p, q in window]
    check_window("weight", weights.dims, src, spatial)
    whole = (src.dims[0], weights.dims[0], *spatial)
    shape = whole[src.ndims - descs[0].ndims :]
    left = dst and dst.reshape(whole)
    kind, (src, weights, *bias), left = _typed([src, *descs[1:]], left, rules, whole)
    if groups > 1:
        weights = weights.reshape((groups, weights.dims[0] // groups, *weights.dims[1:]))
    described = ConvolutionDesc.forward(
        _INFERENCE,
        "convolution_direct",
        src,
        weights,
        left,
        strides,
        before,
        behind,
        tuple(d - 1 for d in dilation),
        *bias,
    )
    arguments = (Arg.SRC, Arg.WEIGHTS, Arg.BIAS)[: len(descs)]
    return Problem(described, arguments, shape, result=kind)


def conv1d(
    x: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    out: Out = None,
) -> Result:
    """The convolution of x [N, C, W] with weight [K, C / groups, k], as torch has it: dilation 1 is
    dense, the padding the same on both sides, or "same" or "valid".

    >>> conv1d(np.ones((1, 1, 3), np.float32), np.ones((1, 1, 2), np.float32))
    array([[[2., 2.]]], dtype=float32)
    """
    return _convolved(1, x, weight, bias, stride, padding, dilation, groups, out)


def conv2d(
    x: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    out: Out = None,
) -> Result:
    """The convolution of x [N, C, H, W] with weight [K, C / groups, h, w], as torch has it:
    dilation 1 is dense, the padding the same on both sides, or "same" or "valid".

    >>> conv2d(np.ones((1, 1, 2, 3), np.float32), np.ones((1, 1, 2, 2), np.float32))
    array([[[[4., 4.]]]], dtype=float32)
    """
    return _convolved(2, x, weight, bias, stride, padding, dilation, groups, out)


def conv3d(
    x: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    out: Out = None,
) -> Result:
    """The convolution of x [N, C, D, H, W] with weight [K, C / groups, d, h, w], as torch has it:
    dilation 1 is dense, the padding the same on both sides, or "same" or "valid".

    >>> conv3d(np.ones((1, 1, 1, 2, 3), np.float32), np.ones((1, 1, 1, 2, 2), np.float32))
    array([[[[[4., 4.]]]]], dtype=float32)
    """
    return _convolved(3, x, weight, bias, stride, padding, dilation, groups, out)


def _transposed(
    count: int,
    x: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None,
    stride: Sizes,
    padding: Sizes,
    output_padding: Sizes,
    groups: int,
    dilation: Sizes,
    out: Out,
) -> Result:
    given = (
        ("stride", stride, 1),
        ("padding", padding, 0),
        ("output_padding", output_padding, 0),
        ("dilation", dilation, 1),
    )
    sizes = tuple(read_sizes(name, value, count, low) for name, value, low in given)
    arrays, names = present({"x": x, "weight": weight}, bias=bias)
    params = count, *sizes, Whole(1).read("groups", groups, 0), rules_of(*arrays)
    return call(_deconvolution, arrays, params, out, names)


def _deconvolution(
    descs: Sequence[MemoryDesc],
    dst: MemoryDesc | None,
    count: int,
    strides: tuple[int, ...],
    padding: tuple[int, ...],
    behind: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
    rules: Rules,
) -> Problem:
    src, weights = batched(descs[0], count), descs[1]
    check_weight(count, weights)
    channels, outputs, *kernel = weights.dims
    if channels % groups or src.dims[1] != channels:
        rule = f"x has {src.dims[1]} channels, weight the shape {weights.dims}"
        raise InvalidArguments("groups", groups, f"does not fit: {rule}")
    check_bias(descs[2:], groups * outputs)
    window = zip(src.dims[2:], kernel, strides, padding, behind, dilation, strict=True)
    spatial = [(i - 1) * s - 2 * p + (k - 1) * d + more + 1 for i, k, s, p, more, d in window]
    if min(spatial) < 1:
        raise InvalidArguments("padding", padding, f"leaves the result the size {tuple(spatial)}")
    whole = (src.dims[0], groups * outputs, *spatial)
    shape = whole[src.ndims - descs[0].ndims :]
    left = dst and dst.reshape(whole)
    kind, (src, weights, *bias), left = _typed([src, *descs[1:]], left, rules, whole)
    weights = weights.reshape((groups, channels // groups, outputs, *kernel))
    weights = weights.permute_axes((0, 2, 1, *range(3, count + 3)))
    cut = tuple(p - more for p, more in zip(padding, behind, strict=True))
    described = DeconvolutionDesc.forward(
        _INFERENCE,
        "deconvolution_direct",
        src,
        weights,
        left,
        strides,
        padding,
        cut,
        tuple(d - 1 for d in dilation),
        *bias,
    )
    arguments = (Arg.SRC, Arg.WEIGHTS, Arg.BIAS)[: len(descs)]
    return Problem(described, arguments, shape, result=kind)


def conv_transpose1d(
    x: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
    out: Out = None,
) -> Result:
    """The transpose of a convolution, of x [N, C, W] with weight [C, K / groups, k], as
    torch has it: the padding is cut off on both sides, the output padding is added behind.

    >>> conv_transpose1d(np.ones((1, 1, 2), np.float32), np.ones((1, 1, 3), np.float32))
    array([[[1., 2., 2., 1.]]], dtype=float32)
    """
    return _transposed(1, x, weight, bias, stride, padding, output_padding, groups, dilation, out)


def conv_transpose2d(
    x: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
    out: Out = None,
) -> Result:
    """The transpose of a convolution, of x [N, C, H, W] with weight [C, K / groups, h, w], as
    torch has it: the padding is cut off on both sides, the output padding is added behind.

    >>> conv_transpose2d(np.ones((1, 1, 1, 2), np.float32), np.ones((1, 1, 1, 3), np.float32))
    array([[[[1., 2., 2., 1.]]]], dtype=float32)
    """
    return _transposed(2, x, weight, bias, stride, padding, output_padding, groups, dilation, out)


def conv_transpose3d(
    x: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
    out: Out = None,
) -> Result:
    """The transpose of a convolution, of x [N, C, D, H, W] with weight [C, K / groups, d, h, w], as
    torch has it: the padding is cut off on both sides, the output padding is added behind.

    >>> conv_transpose3d(np.ones((1, 1, 1, 1, 2), np.float32), np.ones((1, 1, 1, 1, 3), np.float32))
    array([[[[[1., 2., 2., 1.]]]]], dtype=float32)
    """
    return _transposed(3, x, weight, bias, stride, padding, output_padding, groups, dilation, out)
