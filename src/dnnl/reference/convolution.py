"""Convolution: dst[n, oc, o] = bias[oc] + sum of src[n, ic, i(o, k)] * weights[oc, ic, k]."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np
from numpy.typing import ArrayLike

from dnnl.reference.arrays import Array, f64
from dnnl.reference.product import ProductSpecification
from dnnl.reference.rule import Rule
from dnnl.reference.specification import Description, Values
from dnnl.reference.tolerance import EXACT, PRODUCT_SUM, QUANTIZED_SUM
from dnnl.reference.windows import Window
from dnnl.types.arg import Arg
from dnnl.types.kinds import Alg, PropKind

TOLERANCE = PRODUCT_SUM
# length: IC / G times the kernel's volume, of gradients of data OC / G; of those of weights the
# images times the pixels of dst
QUANTIZED_TOLERANCE = QUANTIZED_SUM
# Nothing is done to them, and dst is s32.
INTEGER_TOLERANCE = EXACT


def convolution(
    src: ArrayLike,
    weights: ArrayLike,
    bias: ArrayLike | None = None,
    *,
    strides: Sequence[int],
    padding_l: Sequence[int],
    padding_r: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
) -> Array:
    """Cross-correlation of ``src`` [N, IC, spatial...] with 1 to 3 spatial dimensions.

    ``weights`` is [OC, IC, kernel...], or [G, OC/G, IC/G, kernel...] with groups, which its rank
    tells; ``bias`` is [OC]. Dilation 0 is dense. Quantized sources come dequantized: a padded
    element then counts as zero, which is the source's zero point.
    """
    data, kernels = f64(src), f64(weights)
    if kernels.ndim == data.ndim:
        kernels = kernels[np.newaxis]
    groups, oc, ic, *kernel = kernels.shape
    window = Window.of(kernel, strides, padding_l, padding_r, dilations)
    n, _, *spatial = data.shape
    outputs = window.output_dims(spatial)
    dst = np.zeros((n, groups, oc, *outputs))
    taps_first = np.moveaxis(kernels, (0, 1, 2), (-3, -2, -1))
    for tap, pixels in window.taps(data, 0.0):
        grouped = pixels.reshape(n, groups, ic, *outputs)
        dst += np.einsum("goi,ngi...->ngo...", taps_first[tap], grouped, optimize=True)
    dst = dst.reshape(n, groups * oc, *outputs)
    if bias is not None:
        dst += f64(bias).reshape(-1, *[1] * len(outputs))
    return dst


def convolution_backward_data(
    diff_dst: ArrayLike,
    weights: ArrayLike,
    *,
    spatial: Sequence[int],
    strides: Sequence[int],
    padding_l: Sequence[int],
    dilations: Sequence[int] | None = None,
) -> Array:
    """The gradient of the src of a convolution, which has the sizes ``spatial``.

    Each element of ``diff_dst`` [N, OC, ...] spreads over what its window has seen. ``weights`` are
    those of `convolution`.
    """
    gradient, kernels = f64(diff_dst), f64(weights)
    if kernels.ndim == gradient.ndim:
        kernels = kernels[np.newaxis]
    groups, oc, ic, *kernel = kernels.shape
    n, _, *sizes = gradient.shape
    steps = [1 + d for d in dilations or [0] * len(kernel)]
    # All that any tap reaches, from the first element in front of the padding on.
    reach = [
        max((size - 1) * s + (k - 1) * step + 1, p + out)
        for size, s, k, step, p, out in zip(
            sizes, strides, kernel, steps, padding_l, spatial, strict=True
        )
    ]
    spread = np.zeros((n, groups, ic, *reach))
    grouped = gradient.reshape(n, groups, oc, *sizes)
    everywhere = (slice(None),) * 3
    taps = itertools.product(*map(range, kernel)) if prod(sizes) else ()
    for tap in taps:
        reached = tuple(
            slice(k * step, k * step + (size - 1) * s + 1, s)
            for k, step, size, s in zip(tap, steps, sizes, strides, strict=True)
        )
        values = kernels[everywhere + tap]
        spread[everywhere + reached] += np.einsum(
            "goi,ngo...->ngi...", values, grouped, optimize=True
        )
    inside = tuple(slice(p, p + size) for p, size in zip(padding_l, spatial, strict=True))
    return spread[everywhere + inside].reshape(n, groups * ic, *spatial)


def convolution_backward_weights(
    src: ArrayLike,
    diff_dst: ArrayLike,
    weights_dims: Sequence[int],
    *,
    strides: Sequence[int],
    padding_l: Sequence[int],
    dilations: Sequence[int] | None = None,
) -> Array:
    """The gradient of the weights of a convolution, of ``weights_dims``.

    Each tap sums, over images and outputs, what it has seen of ``src`` [N, IC, ...] times
    ``diff_dst`` [N, OC, ...].
    """
    data, gradient = f64(src), f64(diff_dst)
    grouped = weights_dims if len(weights_dims) > data.ndim else (1, *weights_dims)
    groups, oc, ic, *kernel = grouped
    n, _, *outputs = gradient.shape
    gaps = dilations or [0] * len(kernel)
    # What is behind the last window is not seen; padding may end within the image.
    behind = [
        (out - 1) * s + (k - 1) * (d + 1) + 1 - size - p
        for out, s, k, d, size, p in zip(
            outputs, strides, kernel, gaps, data.shape[2:], padding_l, strict=True
        )
    ]
    result = np.zeros(tuple(grouped))
    places = gradient.reshape(n, groups, oc, *outputs)
    window = Window.of(kernel, strides, padding_l, behind, gaps)
    for tap, pixels in window.taps(data, 0.0) if prod(outputs) else ():
        seen = pixels.reshape(n, groups, ic, *outputs)
        sums = np.einsum("ngo...,ngi...->goi", places, seen, optimize=True)
        result[(slice(None),) * 3 + tap] = sums
    return result.reshape(tuple(weights_dims))


_WINOGRAD = 2e-5


class SlidingSpecification(ProductSpecification):
    """A kernel that slides over images, and its gradients."""

    smaller: Arg
    """The image, or its gradient, that has an element for each place of the kernel."""

    def length(self, desc: Description) -> int:
        """The taps of one group's channels, as if each result met all of them; of weights the
        places of the kernel."""
        if desc.propagation is PropKind.backward_weights:
            image = desc.desc_of(self.smaller).dims
            return prod((image[0], *image[2:]))
        _, outputs, channels = desc.channels
        summed: int = outputs if desc.propagation is PropKind.backward_data else channels
        taps: int = prod(desc.weights_desc.dims[-len(desc.strides) :])
        return summed * taps

    def rule(
        self, desc: Description, argument: int, values: Values, post_ops: Sequence[object] = ()
    ) -> Rule:
        """Equality, but for Winograd's transforms."""
        winograd = desc.alg_kind in (Alg.convolution_winograd, Alg.deconvolution_winograd)
        exact = super().rule(desc, argument, values, post_ops)
        return replace(exact, threshold=_WINOGRAD if winograd else 0.0)


class _Convolution(SlidingSpecification):
    """The correlation of an image with a kernel."""

    smaller = Arg.DIFF_DST

    def product(self, desc: Description, values: Values) -> Array:
        """The correlation and the bias, or a gradient."""
        place = {name: getattr(desc, name) for name in ("strides", "padding_l", "dilations")}
        if desc.propagation is PropKind.backward_data:
            spatial = desc.diff_src_desc.dims[2:]
            gradient, weights = values[Arg.DIFF_DST], values[Arg.WEIGHTS]
            return convolution_backward_data(gradient, weights, spatial=spatial, **place)
        if desc.propagation is PropKind.backward_weights:
            src, gradient = values[Arg.SRC], values[Arg.DIFF_DST]
            dims = desc.diff_weights_desc.dims
            return convolution_backward_weights(src, gradient, dims, **place)
        return convolution(
            values[Arg.SRC],
            values[Arg.WEIGHTS],
            values.get(Arg.BIAS),
            padding_r=desc.padding_r,
            **place,
        )


SPECIFICATION = _Convolution()
