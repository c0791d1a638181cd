"""Convolution: dst[n, oc, o] = bias[oc] + sum of src[n, ic, i(o, k)] * weights[oc, ic, k]."""

from __future__ import annotations

from collections.abc import Sequence
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
from dnnl.types.kinds import Alg

TOLERANCE = PRODUCT_SUM  # length: IC / G times the kernel's volume
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


_WINOGRAD = 2e-5


class _Convolution(ProductSpecification):
    """The correlation of an image with a kernel."""

    def length(self, desc: Description) -> int:
        """The taps of one group's channels."""
        grouped = desc.weights_desc.ndims > desc.src_desc.ndims
        return prod(desc.weights_desc.dims[2 if grouped else 1 :])

    def product(self, desc: Description, values: Values) -> Array:
        """The correlation and the bias."""
        return convolution(
            values[Arg.SRC],
            values[Arg.WEIGHTS],
            values.get(Arg.BIAS),
            strides=desc.strides,
            padding_l=desc.padding_l,
            padding_r=desc.padding_r,
            dilations=desc.dilations,
        )

    def rule(
        self, desc: Description, argument: int, values: Values, post_ops: Sequence[object] = ()
    ) -> Rule:
        """Equality, but for Winograd's transforms."""
        winograd = desc.alg_kind is Alg.convolution_winograd
        return Rule(_WINOGRAD if winograd else 0.0, zeros=self.zeros)


SPECIFICATION = _Convolution()
