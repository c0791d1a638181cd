"""Inner product: dst[n, oc] = bias[oc] + sum over ic, x of src[n, ic, x] * weights[oc, ic, x]."""

from __future__ import annotations

from math import prod

from numpy.typing import ArrayLike

from dnnl.reference.arrays import Array, f64
from dnnl.reference.product import ProductSpecification
from dnnl.reference.specification import Description, Values
from dnnl.reference.tolerance import PRODUCT_SUM
from dnnl.types.arg import Arg

TOLERANCE = PRODUCT_SUM  # length: IC times the spatial volume


def inner_product(src: ArrayLike, weights: ArrayLike, bias: ArrayLike | None = None) -> Array:
    """``src`` [N, IC, spatial...], ``weights`` [OC, IC, spatial...], ``bias`` [OC] -> [N, OC]."""
    data, rows = f64(src), f64(weights)
    volume = prod(data.shape[1:])
    dst: Array = data.reshape(len(data), volume) @ rows.reshape(len(rows), volume).T
    return dst if bias is None else dst + f64(bias)


class _InnerProduct(ProductSpecification):
    """Rows of src with rows of weights."""

    def length(self, desc: Description) -> int:
        """The inputs of one output."""
        return prod(desc.weights_desc.dims[1:])

    def product(self, desc: Description, values: Values) -> Array:
        """The product and the bias."""
        return inner_product(values[Arg.SRC], values[Arg.WEIGHTS], values.get(Arg.BIAS))


SPECIFICATION = _InnerProduct()
