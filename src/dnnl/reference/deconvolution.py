"""Deconvolution: dst[n, oc, o] = bias[oc] + sum of src[n, ic, i] * weights[oc, ic, k] over all i
and k of which o = i * stride + k * (dilation + 1) - padding_l."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import ArrayLike

from dnnl.reference.arrays import Array, f64
from dnnl.reference.product import ProductSpecification
from dnnl.reference.rule import Rule
from dnnl.reference.specification import Description, Values
from dnnl.reference.tolerance import EXACT, PRODUCT_SUM, QUANTIZED_SUM
from dnnl.types.arg import Arg
from dnnl.types.kinds import Alg

TOLERANCE = PRODUCT_SUM  # length: IC / G times the kernel's volume
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
    data, kernels = f64(src), f64(weights)
    if kernels.ndim == data.ndim:
        kernels = kernels[np.newaxis]
    groups, oc, ic, *kernel = kernels.shape
    n, _, *sizes = data.shape
    steps = [1 + d for d in dilations or [0] * len(kernel)]
    # All that any tap reaches, from the first element in front of the padding on.
    reach = [
        max((size - 1) * s + (k - 1) * step + 1, p + out)
        for size, s, k, step, p, out in zip(
            sizes, strides, kernel, steps, padding_l, spatial, strict=True
        )
    ]
    spread = np.zeros((n, groups, oc, *reach))
    grouped = data.reshape(n, groups, ic, *sizes)
    everywhere = (slice(None),) * 3
    taps = itertools.product(*map(range, kernel)) if prod(sizes) else ()
    for tap in taps:
        reached = tuple(
            slice(k * step, k * step + (size - 1) * s + 1, s)
            for k, step, size, s in zip(tap, steps, sizes, strides, strict=True)
        )
        values = kernels[everywhere + tap]
        spread[everywhere + reached] += np.einsum(
            "goi,ngi...->ngo...", values, grouped, optimize=True
        )
    inside = tuple(slice(p, p + out) for p, out in zip(padding_l, spatial, strict=True))
    dst = spread[everywhere + inside].reshape(n, groups * oc, *spatial)
    if bias is not None:
        dst = dst + f64(bias).reshape(-1, *[1] * len(spatial))
    return dst


_WINOGRAD = 2e-5


class _Deconvolution(ProductSpecification):
    """The transpose of a correlation."""

    def length(self, desc: Description) -> int:
        """The taps of one group's channels, as if each output met all of them."""
        grouped = desc.weights_desc.ndims > desc.src_desc.ndims
        return prod(desc.weights_desc.dims[2 if grouped else 1 :])

    def product(self, desc: Description, values: Values) -> Array:
        """The transposed correlation and the bias."""
        return deconvolution(
            values[Arg.SRC],
            values[Arg.WEIGHTS],
            values.get(Arg.BIAS),
            spatial=desc.dst_desc.dims[2:],
            strides=desc.strides,
            padding_l=desc.padding_l,
            dilations=desc.dilations,
        )

    def rule(
        self, desc: Description, argument: int, values: Values, post_ops: Sequence[object] = ()
    ) -> Rule:
        """Equality, but for Winograd's transforms."""
        winograd = desc.alg_kind is Alg.deconvolution_winograd
        return Rule(_WINOGRAD if winograd else 0.0, zeros=self.zeros)


SPECIFICATION = _Deconvolution()
