"""Matrix product: dst[.., m, n] = bias + sum over k of src[.., m, k] * weights[.., k, n]."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dnnl.reference.arrays import Array, f64
from dnnl.reference.product import ProductSpecification
from dnnl.reference.specification import Description, Values
from dnnl.reference.tolerance import EXACT, PRODUCT_SUM, QUANTIZED_SUM
from dnnl.types.arg import Arg

TOLERANCE = PRODUCT_SUM  # length: K
QUANTIZED_TOLERANCE = QUANTIZED_SUM
# Nothing is done to them, and dst is s32.
INTEGER_TOLERANCE = EXACT


def matmul(src: ArrayLike, weights: ArrayLike, bias: ArrayLike | None = None) -> Array:
    """All operands have the same rank; batch dimensions of 1 broadcast. Quantized operands
    come dequantized.

    Each dimension of ``bias`` is 1 or that of the result.
    """
    dst: Array = np.matmul(f64(src), f64(weights))
    return dst if bias is None else dst + f64(bias)


def grouped(
    src: ArrayLike, weights: ArrayLike, bias: ArrayLike | None, ends: ArrayLike, *, of_terms: bool
) -> Array:
    """A product for each group, which ends where ``ends`` say: of rows [T, K] of ``src`` with the
    weights [G, K, N] of the group, behind each other; or, ``of_terms``, of columns of ``src`` with
    rows of ``weights``, one matrix a group."""
    stops = np.asarray(ends, np.int64)
    parts = [slice(*pair) for pair in zip([0, *stops[:-1]], stops, strict=True)]
    if of_terms:
        return np.stack([matmul(f64(src)[:, part], f64(weights)[part]) for part in parts])
    own = zip(parts, f64(weights), strict=True)
    made = np.concatenate([matmul(f64(src)[part], matrix) for part, matrix in own])
    return made if bias is None else made + np.repeat(f64(bias), np.diff(stops, prepend=0), axis=0)


class _Matmul(ProductSpecification):
    """Matrices, batch by batch."""

    limits = (64, 128)
    zeros = 90.0

    def length(self, desc: Description) -> int:
        """K."""
        k: int = desc.src_desc.dims[-1]
        return k

    def product(self, desc: Description, values: Values) -> Array:
        """The product and the bias."""
        ends = values.get(Arg.part(Arg.SRC, 1))
        if ends is not None:
            of_terms = desc.dst_desc.ndims == 3
            return grouped(
                values[Arg.SRC], values[Arg.WEIGHTS], values.get(Arg.BIAS), ends, of_terms=of_terms
            )
        return matmul(values[Arg.SRC], values[Arg.WEIGHTS], values.get(Arg.BIAS))


SPECIFICATION = _Matmul()
