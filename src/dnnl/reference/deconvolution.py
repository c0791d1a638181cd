"""Deconvolution: dst[n, oc, o] = bias[oc] + sum of src[n, ic, i] * weights[oc, ic, k] over all i
and k of which o = i * stride + k * (dilation + 1) - padding_l."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from dnnl.reference.arrays import Array, f64
from dnnl.reference.sliding import (
    SlidingSpecification,
    correlation,
    correlation_backward_data,
    correlation_backward_weights,
)
from dnnl.reference.specification import Description, Values
from dnnl.reference.tolerance import EXACT, PRODUCT_SUM, QUANTIZED_SUM
from dnnl.types.arg import Arg
from dnnl.types.kinds import PropKind

TOLERANCE = PRODUCT_SUM
# length: IC / G times the kernel's volume, of gradients of data OC / G; of those of weights the
# images times the pixels of src
QUANTIZED_TOLERANCE = QUANTIZED_SUM
# Nothing is done to them, and dst is s32.
INTEGER_TOLERANCE = EXACT


def deconvolution(
    src: ArrayLike,
    weights: ArrayLike,
    bias: ArrayLike | None = None,
    *,
    spatial: Sequence[int],
    strides: Sequence[int],
    padding_l: Sequence[int],
    dilations: Sequence[int] | None = None,
) -> Array:
    """The transpose of a convolution of ``src`` [N, IC, ...] with 1 to 3 spatial dimensions, whose
    result has the sizes ``spatial``.

    ``weights`` is [OC, IC, kernel...], or [G, OC/G, IC/G, kernel...] with groups, which its rank
    tells; ``bias`` is [OC]. Dilation 0 is dense.
    """
    kernels = _exchanged(f64(weights), f64(src).ndim - 2)
    dst = correlation_backward_data(
        src, kernels, spatial=spatial, strides=strides, padding_l=padding_l, dilations=dilations
    )
    if bias is not None:
        dst = dst + f64(bias).reshape(-1, *[1] * len(spatial))
    return dst


def deconvolution_backward_data(
    diff_dst: ArrayLike,
    weights: ArrayLike,
    *,
    strides: Sequence[int],
    padding_l: Sequence[int],
    padding_r: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
) -> Array:
    """The gradient of the src of a deconvolution: the convolution of ``diff_dst`` that it is the
    transpose of."""
    kernels = _exchanged(f64(weights), f64(diff_dst).ndim - 2)
    return correlation(
        diff_dst,
        kernels,
        strides=strides,
        padding_l=padding_l,
        padding_r=padding_r,
        dilations=dilations,
    )


def deconvolution_backward_weights(
    src: ArrayLike,
    diff_dst: ArrayLike,
    weights_dims: Sequence[int],
    *,
    strides: Sequence[int],
    padding_l: Sequence[int],
    dilations: Sequence[int] | None = None,
) -> Array:
    """The gradient of the weights of a deconvolution, of ``weights_dims``: that of the convolution
    that has read ``diff_dst`` and made ``src``, with the channels exchanged."""
    space = f64(src).ndim - 2
    head, (oc, ic) = weights_dims[: -space - 2], weights_dims[-space - 2 : -space]
    exchanged = *head, ic, oc, *weights_dims[-space:]
    gradient = correlation_backward_weights(
        diff_dst, src, exchanged, strides=strides, padding_l=padding_l, dilations=dilations
    )
    return _exchanged(gradient, space)


def _exchanged(weights: Array, space: int) -> Array:
    """Weights with output channels in the place of input channels, before ``space`` dimensions of
    the kernel."""
    return np.swapaxes(weights, -space - 2, -space - 1)


class _Deconvolution(SlidingSpecification):
    """The transpose of a correlation."""

    smaller = Arg.SRC

    def product(self, desc: Description, values: Values) -> Array:
        """The transposed correlation and the bias, or a gradient."""
        place = {name: getattr(desc, name) for name in ("strides", "padding_l", "dilations")}
        if desc.propagation is PropKind.backward_data:
            factors = values[Arg.DIFF_DST], values[Arg.WEIGHTS]
            return deconvolution_backward_data(*factors, padding_r=desc.padding_r, **place)
        if desc.propagation is PropKind.backward_weights:
            src, gradient = values[Arg.SRC], values[Arg.DIFF_DST]
            dims = desc.diff_weights_desc.dims
            return deconvolution_backward_weights(src, gradient, dims, **place)
        operands = values[Arg.SRC], values[Arg.WEIGHTS], values.get(Arg.BIAS)
        return deconvolution(*operands, spatial=desc.dst_desc.dims[2:], **place)


SPECIFICATION = _Deconvolution()
