"""Contents of sums of products: sparse whole numbers whose sums no rounding changes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from math import prod

from dnnl.reference.arrays import Array
from dnnl.reference.fill import generator, integers, sparse, stored_elements
from dnnl.reference.rule import Rule
from dnnl.reference.specification import Description, Specification, Values
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.encoding import Coo, Csr, Packed

_STORED = Csr | Coo | Packed
"""The encodings that have some of the elements."""

_SMALL = {
    DataType.bf16: (-4, 4), DataType.f16: (-4, 4), DataType.s8: (-4, 4), DataType.u8: (0, 8),
    DataType.s4: (-4, 4), DataType.u4: (0, 8), DataType.f8_e5m2: (-4, 4),
    DataType.f8_e4m3: (-4, 4), DataType.f4_e2m1: (-2, 2),
}  # fmt: skip
_BIAS = 4
_FEW = (-4, 4)  # with sparse matrices, whose sums may be long as long as most terms are zero


class ProductSpecification(Specification):
    """What is exact: ``limits`` bound the numbers of src and weights, and ``zeros`` is how many
    percent of the results may be zero."""

    limits = (32, 32)
    zeros = 70.0

    @abstractmethod
    def length(self, desc: Description) -> int:
        """The number of products in a sum."""

    @abstractmethod
    def product(self, desc: Description, values: Values) -> Array:
        """The result before post-ops."""

    def fill(self, desc: Description) -> dict[int, Array]:
        """As many numbers as can be added exactly."""
        sources = (desc.src_desc, desc.weights_desc)
        ranges = [
            _SMALL.get(source.data_type, (-wide, wide))
            for source, wide in zip(sources, self.limits, strict=True)
        ]
        if any(isinstance(source.encoding, _STORED) for source in sources):
            ranges = [_SMALL.get(source.data_type, _FEW) for source in sources]
        kind = desc.dst_desc.data_type
        largest = prod(max(map(abs, bounds)) for bounds in ranges)
        density = 2.0 ** min(kind.digits, 24) / (largest * max(1, self.length(desc)))
        if kind.bits == 8:
            density *= 3
        values = {}
        for argument, source, bounds in zip((Arg.SRC, Arg.WEIGHTS), sources, ranges, strict=True):
            rng = generator("product", argument, source.dims)
            if isinstance(source.encoding, _STORED):
                values[int(argument)] = stored_elements(
                    rng, source.dims, *bounds, source.encoding.nnz
                )
                continue
            share = density if argument == Arg.SRC else 1.0
            values[int(argument)] = sparse(rng, source.dims, *bounds, share)
        if not desc.bias_desc.is_zero:
            dims = desc.bias_desc.dims
            values[int(Arg.BIAS)] = integers(generator("bias", dims), dims, -_BIAS, _BIAS)
        return values

    def compute(self, desc: Description, values: Values) -> dict[int, Array]:
        """The product and the bias."""
        return {Arg.DST: self.product(desc, values)}

    def rule(
        self, desc: Description, argument: int, values: Values, post_ops: Sequence[object] = ()
    ) -> Rule:
        """Equality."""
        return Rule(0.0, zeros=self.zeros)
