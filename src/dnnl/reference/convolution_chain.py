"""A 1x1 convolution and the depthwise one behind it: what becomes of the result of the first."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dnnl.reference.arrays import Array, f64
from dnnl.reference.conversions import convert
from dnnl.reference.convolution import convolution
from dnnl.reference.fill import generator, integers
from dnnl.reference.quantization import dequantize, quantize
from dnnl.reference.specification import Description
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOpDepthwise

# How far the first result may be off, relative to it and as a part of the largest.
_ERROR = 2e-5
WEIGHTS, BIAS = Arg.POST_OP_DW | Arg.WEIGHTS, Arg.POST_OP_DW | Arg.BIAS


class Between(NamedTuple):
    """The intermediate as it is stored and as it is meant, and where its rounding may go either
    way."""

    stored: Array
    meant: Array
    open: NDArray[np.bool_]


def intermediate(
    result: ArrayLike,
    data_type: DataType,
    scale: ArrayLike = 1.0,
    zero_point: ArrayLike = 0.0,
    *,
    exact: bool = True,
) -> Between:
    """What the first convolution's ``result``, post-ops included, is stored as: quantized, in a
    type of its own. Unless it is ``exact``, its last bits are not known."""
    values = quantize(result, scale, zero_point)
    stored = convert(values, data_type)
    off = 0.0 if exact else _ERROR * np.maximum(np.abs(values), np.abs(values).max(initial=0.0))
    low, high = (convert(values + side, data_type) for side in (-off, off))
    open_at = (low != high) & (data_type.bits < DataType.f32.bits)
    return Between(stored, dequantize(stored, scale, zero_point), open_at)


def depthwise(
    values: ArrayLike, weights: ArrayLike, bias: ArrayLike | None, entry: PostOpDepthwise
) -> Array:
    """The convolution of each channel of ``values``, [N, C, H, W], with its own of ``weights``,
    [C, 1, 1, k, k]; dst has ceil(size / stride) positions in each direction."""
    image = f64(values)
    places = [-(-size // entry.stride) for size in image.shape[2:]]
    right = [
        (count - 1) * entry.stride + entry.kernel - size - entry.padding_l
        for count, size in zip(places, image.shape[2:], strict=True)
    ]
    return convolution(
        image,
        weights,
        bias,
        strides=[entry.stride] * 2,
        padding_l=[entry.padding_l] * 2,
        padding_r=right,
    )


def reached(where: NDArray[np.bool_], entry: PostOpDepthwise) -> NDArray[np.bool_]:
    """The results that one of the elements has a part in."""
    ones = np.ones((where.shape[1], 1, 1, entry.kernel, entry.kernel))
    hit: NDArray[np.bool_] = depthwise(where, ones, None, entry) > 0
    return hit


def size(values: Mapping[int, Array], between: Between, entry: PostOpDepthwise) -> Array:
    """The sizes of the terms that add up to each result."""
    return depthwise(np.abs(between.meant), np.abs(values[WEIGHTS]), None, entry)


def fill(second: Description) -> dict[int, Array]:
    """Few small numbers, whose sums stay exact with those of the first convolution."""
    values = {}
    for argument, desc in ((WEIGHTS, second.weights_desc), (BIAS, second.bias_desc)):
        if not desc.is_zero:
            values[int(argument)] = _small(argument, desc)
    return values


def _small(argument: int, desc: MemoryDesc) -> Array:
    low = 0 if desc.data_type is DataType.u8 else -2
    return integers(generator("depthwise", argument, prod(desc.dims)), desc.dims, low, 2)
