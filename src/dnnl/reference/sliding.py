"""What an operation whose kernel slides over images, its transpose, and their gradients share."""

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
from dnnl.reference.tolerance import Tolerance
from dnnl.reference.windows import Window
from dnnl.types.arg import Arg
from dnnl.types.encoding import TRANSFORMED
from dnnl.types.kinds import Alg, PropKind


def correlation(
    src: ArrayLike,
    weights: ArrayLike,
    *,
    strides: Sequence[int],
    padding_l: Sequence[int],
    padding_r: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
) -> Array:
    """Cross-correlation of ``src`` [N, IC, spatial...] with 1 to 3 spatial dimensions.

    ``weights`` is [OC, IC, kernel...], or [G, OC/G, IC/G, kernel...] with groups, which its rank
    tells. Dilation 0 is dense.
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
    return dst.reshape(n, groups * oc, *outputs)


def correlation_backward_data(
    diff_dst: ArrayLike,
    weights: ArrayLike,
    *,
    spatial: Sequence[int],
    strides: Sequence[int],
    padding_l: Sequence[int],
    dilations: Sequence[int] | None = None,
) -> Array:
    """The gradient of the src of a correlation, which has the sizes ``spatial``.

    Each element of ``diff_dst`` [N, OC, ...] spreads over what its window has seen. ``weights`` are
    those of `correlation`.
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


def correlation_backward_weights(
    src: ArrayLike,
    diff_dst: ArrayLike,
    weights_dims: Sequence[int],
    *,
    strides: Sequence[int],
    padding_l: Sequence[int],
    dilations: Sequence[int] | None = None,
) -> Array:
    """The gradient of the weights of a correlation, of ``weights_dims``.

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


WINOGRAD_SUM = Tolerance(ulps=48, growth=4, floor=None)
"""A sum of products by Winograd's algorithm, whose transforms add and subtract numbers that are
larger than the result."""

_WINOGRAD = 2e-5
_INEXACT = (Alg.convolution_winograd, Alg.deconvolution_winograd)


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
        """Equality. Winograd's algorithm, which the library may choose too, has errors of the size
        of the largest result."""
        exact = super().rule(desc, argument, values, post_ops)
        kind = desc.desc_of(argument).data_type
        chosen = desc.alg_kind is Alg.convolution_auto and kind in TRANSFORMED
        if desc.propagation is PropKind.backward_weights or not (
            chosen or desc.alg_kind in _INEXACT
        ):
            return exact
        largest = float(np.abs(self.product(desc, values)).max(initial=0.0))
        return replace(exact, threshold=_WINOGRAD, relative=_WINOGRAD, before=_WINOGRAD * largest)
