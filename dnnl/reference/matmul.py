"""Matrix product: dst[.., m, n] = bias + sum over k of src[.., m, k] * weights[.., k, n]."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dnnl.reference.arrays import Array, f64
from dnnl.reference.product import ProductSpecification
from dnnl.reference.specification import Values
from dnnl.reference.tolerance import EXACT, PRODUCT_SUM, QUANTIZED_SUM
from dnnl.types.arg import Arg

TOLERANCE = PRODUCT_SUM  # length: K
QUANTIZED_TOLERANCE = QUANTIZED_SUM
# Nothing is done to them, and dst is s32.
INTEGER_TOLERANCE = EXACT


def matmul(src: ArrayLike, weights: ArrayLike, bias: ArrayLike | None = None) -> Array:
    """All operands have the same rank; batch dimensions of 1 broadcast, both ways. Quantized ones
    come dequantized.

    Each dimension of ``bias`` is 1 or that of the result.
    """
    dst: Array = np.matmul(f64(src), f64(weights))
    return dst if bias is None else dst + f64(bias)


class _Matmul(ProductSpecification):
    """Matrices, batch by batch."""

    limits = (64, 128)
    zeros = 90.0

    def length(self, desc: Any) -> int:
        """K."""
        k: int = desc.src_desc.dims[-1]
        return k

    def product(self, desc: Any, values: Values) -> Array:
        """The product and the bias."""
        return matmul(values[Arg.SRC], values[Arg.WEIGHTS], values.get(Arg.BIAS))


SPECIFICATION = _Matmul()
