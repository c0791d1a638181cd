"""Operators of ONNX that are products, in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import onnx
from onnx import helper

from dnnl.graph.graph import Attributes
from dnnl.reference.arrays import Array
from dnnl.reference.convolution import convolution
from dnnl.tools.quantcheck.layer import Product


def product_of(node: onnx.NodeProto) -> Product | None:
    """The product that a node is; None for any other, and where factors are scaled or the first
    one is transposed."""
    made = _PRODUCTS.get(node.op_type)
    given = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    return None if made is None else made(given)


def _matmul(_: Attributes) -> Product:
    return Product(np.matmul, "kn")


def _gemm(given: Attributes) -> Product | None:
    if given.get("transA") or given.get("alpha", 1.0) != 1 or given.get("beta", 1.0) != 1:
        return None
    if given.get("transB"):
        return Product(lambda src, weights: src @ weights.T, "oi")
    return Product(np.matmul, "kn")


def _conv(given: Attributes) -> Product:
    return Product(partial(_correlated, given), "oi*", given.get("group", 1))


def _correlated(given: Attributes, src: Array, weights: Array) -> Array:
    groups = given.get("group", 1)
    space = src.ndim - 2
    if weights.ndim == src.ndim and groups > 1:
        weights = weights.reshape(groups, -1, *weights.shape[1:])
    kernel = weights.shape[-space:]
    strides = given.get("strides", [1] * space)
    dilations = given.get("dilations", [1] * space)
    low, high = _padding(given, src.shape[2:], kernel, strides, dilations)
    return convolution(
        src,
        weights,
        strides=strides,
        padding_l=low,
        padding_r=high,
        dilations=[dilation - 1 for dilation in dilations],
    )


def _padding(
    given: Attributes,
    image: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> tuple[list[int], list[int]]:
    """The padding before and behind each dimension of space."""
    mode = given.get("auto_pad", b"NOTSET").decode()
    space = len(image)
    if mode in ("NOTSET", "VALID"):
        pads = given.get("pads", [0] * 2 * space) if mode == "NOTSET" else [0] * 2 * space
        return list(pads[:space]), list(pads[space:])
    low, high = [], []
    for size, taps, stride, dilation in zip(image, kernel, strides, dilations, strict=True):
        reach = (taps - 1) * dilation + 1
        both = max(0, (-(-size // stride) - 1) * stride + reach - size)
        small, large = both // 2, both - both // 2
        low.append(small if mode == "SAME_UPPER" else large)
        high.append(large if mode == "SAME_UPPER" else small)
    return low, high


_PRODUCTS: dict[str, Callable[[Attributes], Product | None]] = {
    "MatMul": _matmul, "Gemm": _gemm, "Conv": _conv,
}  # fmt: skip
