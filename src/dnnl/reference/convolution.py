"""Convolution: dst[n, oc, o] = bias[oc] + sum of src[n, ic, i(o, k)] * weights[oc, ic, k]."""

from __future__ import annotations

from collections.abc import Sequence

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
    place = {"strides": strides, "padding_l": padding_l}
    dst = correlation(src, weights, **place, padding_r=padding_r, dilations=dilations)
    return dst if bias is None else dst + f64(bias).reshape(-1, *[1] * (dst.ndim - 2))


class _Convolution(SlidingSpecification):
    """The correlation of an image with a kernel."""

    smaller = Arg.DIFF_DST

    def product(self, desc: Description, values: Values) -> Array:
        """The correlation and the bias, or a gradient."""
        place = {name: getattr(desc, name) for name in ("strides", "padding_l", "dilations")}
        if desc.propagation is PropKind.backward_data:
            spatial = desc.diff_src_desc.dims[2:]
            gradient, weights = values[Arg.DIFF_DST], values[Arg.WEIGHTS]
            return correlation_backward_data(gradient, weights, spatial=spatial, **place)
        if desc.propagation is PropKind.backward_weights:
            src, gradient = values[Arg.SRC], values[Arg.DIFF_DST]
            dims = desc.diff_weights_desc.dims
            return correlation_backward_weights(src, gradient, dims, **place)
        return convolution(
            values[Arg.SRC],
            values[Arg.WEIGHTS],
            values.get(Arg.BIAS),
            padding_r=desc.padding_r,
            **place,
        )


SPECIFICATION = _Convolution()
