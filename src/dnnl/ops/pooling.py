"""Poolings; images are [batch, channels, spatial...], or without a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from dnnl.errors import InvalidArguments
from dnnl.ops.arrays import Array, Out, Result
from dnnl.ops.call import Problem, call, dense, expanded
from dnnl.ops.device import taken
from dnnl.ops.promotion import as_type, of_floats, target
from dnnl.ops.reading import batched, check_window, read_sizes
from dnnl.primitives.overhang import padded_shares
from dnnl.primitives.pooling import PoolingDesc
from dnnl.runtime.wrap import ArrayLike
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.dtype import DataType
from dnnl.types.kinds import Alg
from dnnl.types.layout_input import read_bool, read_int
from dnnl.types.memory_desc import MemoryDesc

Sizes = int | Sequence[int]
_INFERENCE = "forward_inference"
_POOLED = (DataType.s8, DataType.u8, DataType.s32)


@dataclass(frozen=True)
class _Pooling:
    """A pooling as torch has it; ``divisor`` is what sums are divided by, if that is given."""

    alg: Alg
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    ceil_mode: bool
    divisor: int | None = None

    def spatial(self, x: Sequence[int]) -> list[int]:
        """The spatial sizes of the result for an ``x`` of these dims."""
        rows = zip(x[2:], self.reach, self.strides, self.padding, strict=True)
        return [self._count(*row) for row in rows]

    @property
    def reach(self) -> list[int]:
        """How many elements a window covers in each dimension."""
        return [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True)]

    def _count(self, extent: int, reach: int, stride: int, padding: int) -> int:
        free = extent + 2 * padding - reach
        if not self.ceil_mode:
            return free // stride + 1
        number = -(-free // stride) + 1
        # A window must not begin in the padding behind.
        return number - 1 if (number - 1) * stride >= extent + padding else number

    def behind(self, x: Sequence[int], spatial: Sequence[int]) -> list[int]:
        """The padding behind x that the last windows reach over."""
        rows = zip(x[2:], spatial, self.reach, self.strides, self.padding, strict=True)
        return [(o - 1) * s + reach - i - p for i, o, reach, s, p in rows]

    @property
    def hangs(self) -> bool:
        """Whether an average counts its padding, of windows that may reach beyond it."""
        counts = self.alg is Alg.pooling_avg_include_padding and self.divisor is None
        return counts and self.ceil_mode

    def shares(self, x: Sequence[int]) -> Array | None:
        """What averages without padding are multiplied with, where windows hang over it."""
        if len(x) == len(self.kernel) + 1:
            x = (1, *x)
        spatial = self.spatial(x) if len(x) == len(self.kernel) + 2 else [0]
        if min(spatial) < 1 or not any(np.greater(self.behind(x, spatial), self.padding)):
            return None
        return padded_shares(
            x[2:], spatial, self.kernel, self.strides, self.dilation, self.padding, self.padding
        )


def pooled(
    count: int,
    alg: Alg,
    x: ArrayLike,
    kernel_size: Sizes,
    stride: Sizes | None,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool,
    out: Out,
    divisor: int | None = None,
) -> Result:
    kernel = read_sizes("kernel_size", kernel_size, count, 1)
    strides = kernel if stride is None else read_sizes("stride", stride, count, 1)
    padded, dilated = (
        read_sizes("padding", padding, count, 0),
        read_sizes("dilation", dilation, count, 1),
    )
    if any(2 * p > k for p, k in zip(padded, kernel, strict=True)):
        rule = f"at most half of kernel_size = {kernel_size}, as in PyTorch"
        raise InvalidArguments("padding", padding, rule, "pad x itself: dnnl.ops.pad")
    ceil = read_bool("ceil_mode", ceil_mode)
    pooling = _Pooling(alg, kernel, strides, padded, dilated, ceil, divisor)
    if pooling.hangs:
        place, (image,) = taken((x,), ("x",), out)
        shares = pooling.shares(image.shape)
        if shares is not None:
            given = (image, place.constant(shares))
            result = call(_pooling, given, (pooling,), out, ("x", "shares"))
            return place.returned(result, (x,), out)
    return call(_pooling, (x,), (pooling,), out)


def _pooling(descs: Sequence[MemoryDesc], dst: MemoryDesc | None, pooling: _Pooling) -> Problem:
    image = batched(descs[0], len(pooling.kernel))
    src, kind = _pooled_type(image, dst, pooling.alg)
    shares = descs[1:]
    spatial = pooling.spatial(src.dims)
    check_window("kernel_size", pooling.kernel, src, spatial)
    whole, alg, attr = (*src.dims[:2], *spatial), pooling.alg, PrimitiveAttr()
    shape = whole[src.ndims - descs[0].ndims :]
    arguments: tuple[int, ...] = (Arg.SRC,)
    if pooling.divisor is not None:
        alg = Alg.pooling_avg_include_padding  # which divides by the same number everywhere
        attr.post_ops.append_eltwise("eltwise_linear", prod(pooling.kernel) / pooling.divisor)
    given = dst and dst.reshape(whole)
    direct = given or dense(whole, src)
    left = direct if src is image else target(given, whole, src.data_type)
    for share in shares:
        alg = Alg.pooling_avg_exclude_padding
        place = attr.post_ops.append_binary("binary_mul", expanded(share, len(whole)))
        arguments = (*arguments, Arg.post_op(place) | Arg.SRC_1)
    desc = PoolingDesc.forward(
        _INFERENCE,
        alg,
        src,
        left,
        pooling.strides,
        pooling.kernel,
        pooling.padding,
        pooling.behind(src.dims, spatial),
        tuple(distance - 1 for distance in pooling.dilation),
    )
    return Problem(desc, arguments, shape, attr, result=kind)


def _pooled_type(src: MemoryDesc, dst: MemoryDesc | None, alg: Alg) -> tuple[MemoryDesc, DataType]:
    """The source in a type that can be pooled, and that of the result."""
    kind = src.data_type
    if alg is not Alg.pooling_max:
        src = of_floats(src, dst)
        return src, src.data_type
    if kind.is_float or kind in _POOLED:
        return src, kind
    if kind not in (DataType.s16, DataType.u16):
        known = "expected floats, or integers of 8, 16 or 32 bits"
        raise InvalidArguments("x", str(kind), known, "convert it")
    return as_type(src, DataType.s32), kind


def _average(count_include_pad: object) -> Alg:
    if read_bool("count_include_pad", count_include_pad):
        return Alg.pooling_avg_include_padding
    return Alg.pooling_avg_exclude_padding


def _divisor(divisor_override: object) -> int | None:
    if divisor_override is None:
        return None
    divisor = read_int("divisor_override", divisor_override)
    if not divisor:
        raise InvalidArguments("divisor_override", divisor, "sums are not divided by 0")
    return divisor


def max_pool1d(
    x: ArrayLike,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    out: Out = None,
) -> Result:
    """The maximum of each window of x [N, C, W]; ``stride`` is by default the window.

    >>> max_pool1d(np.arange(2, dtype=np.float32).reshape(1, 1, 2), 2)
    array([[[1.]]], dtype=float32)
    """
    return pooled(1, Alg.pooling_max, x, kernel_size, stride, padding, dilation, ceil_mode, out)


def avg_pool1d(
    x: ArrayLike,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    out: Out = None,
) -> Result:
    """The mean of each window of x [N, C, W]; the padding counts as zeros, or not at all.
    What ``ceil_mode`` lets a window reach beyond the padding does not count.

    >>> avg_pool1d(np.arange(2, dtype=np.float32).reshape(1, 1, 2), 2)
    array([[[0.5]]], dtype=float32)
    """
    return pooled(
        1, _average(count_include_pad), x, kernel_size, stride, padding, 1, ceil_mode, out
    )


def max_pool2d(
    x: ArrayLike,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    out: Out = None,
) -> Result:
    """The maximum of each window of x [N, C, H, W]; ``stride`` is by default the window.

    >>> max_pool2d(np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2), 2)
    array([[[[3.]]]], dtype=float32)
    """
    return pooled(2, Alg.pooling_max, x, kernel_size, stride, padding, dilation, ceil_mode, out)


def avg_pool2d(
    x: ArrayLike,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    out: Out = None,
) -> Result:
    """The mean of each window of x [N, C, H, W]; the padding counts as zeros, or not at all.
    What ``ceil_mode`` lets a window reach beyond the padding does not count.
    ``divisor_override``, if given, is what each sum is divided by instead.

    >>> avg_pool2d(np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2), 2)
    array([[[[1.5]]]], dtype=float32)
    """
    return pooled(
        2,
        _average(count_include_pad),
        x,
        kernel_size,
        stride,
        padding,
        1,
        ceil_mode,
        out,
        _divisor(divisor_override),
    )


def max_pool3d(
    x: ArrayLike,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    out: Out = None,
) -> Result:
    """The maximum of each window of x [N, C, D, H, W]; ``stride`` is by default the window.

    >>> max_pool3d(np.arange(8, dtype=np.float32).reshape(1, 1, 2, 2, 2), 2)
    array([[[[[7.]]]]], dtype=float32)
    """
    return pooled(3, Alg.pooling_max, x, kernel_size, stride, padding, dilation, ceil_mode, out)


def avg_pool3d(
    x: ArrayLike,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    out: Out = None,
) -> Result:
    """The mean of each window of x [N, C, D, H, W]; the padding counts as zeros, or not at all.
    What ``ceil_mode`` lets a window reach beyond the padding does not count.
    ``divisor_override``, if given, is what each sum is divided by instead.

    >>> avg_pool3d(np.arange(8, dtype=np.float32).reshape(1, 1, 2, 2, 2), 2)
    array([[[[[3.5]]]]], dtype=float32)
    """
    return pooled(
        3,
        _average(count_include_pad),
        x,
        kernel_size,
        stride,
        padding,
        1,
        ceil_mode,
        out,
        _divisor(divisor_override),
    )
