"""Inner product: dst[n, oc] = bias[oc] + sum over ic, x of src[n, ic, x] * weights[oc, ic, x]."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import ArrayLike

from dnnl.reference.arrays import Array, f64
from dnnl.reference.product import ProductSpecification
from dnnl.reference.specification import Description, Values
from dnnl.reference.tolerance import PRODUCT_SUM
from dnnl.types.arg import Arg
from dnnl.types.kinds import PropKind

TOLERANCE = PRODUCT_SUM  # length: IC times the spatial volume; OC, N for gradients


def inner_product(src: ArrayLike, weights: ArrayLike, bias: ArrayLike | None = None) -> Array:
    """``src`` [N, IC, spatial...], ``weights`` [OC, IC, spatial...], ``bias`` [OC] -> [N, OC]."""
    data, rows = f64(src), f64(weights)
    volume = prod(data.shape[1:])
    dst: Array = data.reshape(len(data), volume) @ rows.reshape(len(rows), volume).T
    return dst if bias is None else dst + f64(bias)


def inner_product_backward_data(diff_dst: ArrayLike, weights: ArrayLike) -> Array:
    """``diff_dst`` [N, OC], ``weights`` [OC, IC, spatial...] -> diff_src [N, IC, spatial...]."""
    return np.tensordot(f64(diff_dst), f64(weights), 1)


def inner_product_backward_weights(src: ArrayLike, diff_dst: ArrayLike) -> Array:
    """``src`` [N, IC, spatial...], ``diff_dst`` [N, OC] -> diff_weights [OC, IC, spatial...]."""
    return np.tensordot(f64(diff_dst).T, f64(src), 1)


class _InnerProduct(ProductSpecification):
    """Rows of src with rows of weights."""

    def length(self, desc: Description) -> int:
        """The inputs of one output, the outputs of one input, or the batch."""
        if desc.propagation is PropKind.backward_weights:
            return prod(desc.src_desc.dims[:1])
        if desc.propagation is PropKind.backward_data:
            return prod(desc.weights_desc.dims[:1])
        return prod(desc.weights_desc.dims[1:])

    def product(self, desc: Description, values: Values) -> Array:
        """The product and the bias, or a gradient."""
        if desc.propagation is PropKind.backward_data:
            return inner_product_backward_data(values[Arg.DIFF_DST], values[Arg.WEIGHTS])
        if desc.propagation is PropKind.backward_weights:
            return inner_product_backward_weights(values[Arg.SRC], values[Arg.DIFF_DST])
        return inner_product(values[Arg.SRC], values[Arg.WEIGHTS], values.get(Arg.BIAS))


SPECIFICATION = _InnerProduct()
