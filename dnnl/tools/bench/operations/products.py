"""``--conv``, ``--ip`` and ``--matmul``: sums of products, exact by their contents."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from dnnl.errors import Unimplemented
from dnnl.primitives.convolution import ConvolutionDesc
from dnnl.primitives.desc import Desc
from dnnl.primitives.inner_product import InnerProductDesc
from dnnl.primitives.matmul import MatmulDesc
from dnnl.reference.arrays import Array
from dnnl.reference.convolution import convolution
from dnnl.reference.inner_product import inner_product
from dnnl.reference.matmul import matmul
from dnnl.tools.bench.cases import Case
from dnnl.tools.bench.compare import Rule
from dnnl.tools.bench.errors import BadValue
from dnnl.tools.bench.fill import generator, integers, sparse
from dnnl.tools.bench.operations.base import (
    INVALID,
    Operation,
    Values,
    desc_of,
    descriptor,
    forward,
    has,
    shapes,
    strides_of,
    tensor_desc,
)
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc

_SMALL = {
    DataType.bf16: (-4, 4), DataType.f16: (-4, 4), DataType.s8: (-4, 4), DataType.u8: (0, 8),
}  # fmt: skip
_WINOGRAD = 2e-5
_BIAS = 4


def _types(case: Case) -> tuple[DataType, DataType, DataType]:
    kinds = case["dt"].items
    first, second, third = kinds if len(kinds) == 3 else kinds * 3
    return first, second, third


def _range(kind: DataType, wide: int) -> tuple[int, int]:
    return _SMALL.get(kind, (-wide, wide))


class Product(Operation):
    """What the three share: sparse whole numbers whose sums no rounding changes."""

    limits = (32, 32)
    zeros = 70.0

    def _length(self, desc: Desc) -> int:
        """The number of products in a sum."""
        raise NotImplementedError

    def fill(self, case: Case, desc: Desc) -> dict[int, Array]:
        """As many numbers as can be added exactly."""
        kinds = _types(case)
        ranges = [_range(kind, limit) for kind, limit in zip(kinds[:2], self.limits, strict=True)]
        largest = prod(max(map(abs, bounds)) for bounds in ranges)
        density = 2.0 ** min(kinds[2].digits, 24) / (largest * max(1, self._length(desc)))
        if kinds[2].bits == 8:
            density *= 3
        values = {}
        for argument, bounds in zip((Arg.SRC, Arg.WEIGHTS), ranges, strict=True):
            dims = desc_of(desc, argument).dims
            rng = generator("product", argument, dims)
            share = density if argument == Arg.SRC else 1.0
            values[int(argument)] = sparse(rng, dims, *bounds, share)
        if has(desc, Arg.BIAS):
            dims = desc_of(desc, Arg.BIAS).dims
            values[int(Arg.BIAS)] = integers(generator("bias", dims), dims, -_BIAS, _BIAS)
        return values

    def rule(self, case: Case, desc: Desc, values: Values) -> Rule:
        """Equality, but for Winograd's transforms."""
        winograd = "alg" in case.values and case["alg"] == "WINO"
        return Rule(_WINOGRAD if winograd else 0.0, zeros=self.zeros)


def _bias(case: Case, dims: Sequence[int]) -> MemoryDesc | None:
    """The bias of the forward pass, f32 where its type is left to the driver."""
    kind = case["bia-dt"]
    if kind is DataType.undef and str(case["dir"]) in ("FWD_B", "BWD_WB"):
        kind = DataType.f64 if _types(case)[2] is DataType.f64 else DataType.f32
    if kind is DataType.undef or str(case["dir"]) == "FWD_D":
        return None
    return MemoryDesc(dims, kind)


class Convolution(Product):
    """``--conv``."""

    def describe(self, case: Case) -> Desc:
        """The forward computation."""
        prop = forward(case)
        problem = descriptor(case)
        source, weights, target = strides_of(case, "stag", "wtag", "dtag")
        kinds, groups, oc = _types(case), problem.groups, problem["oc"]
        channels = (oc // groups, problem["ic"] // groups)
        shape = (*channels, *problem.spatial("k"))
        if problem.grouped:
            shape = (groups, *shape)
        kernel, strides, padding, dilations = map(problem.spatial, "kspd")
        del kernel
        alg = {"DIRECT": "direct", "WINO": "winograd", "AUTO": "auto"}[case["alg"]]
        return ConvolutionDesc.forward(
            prop,
            f"convolution_{alg}",
            tensor_desc(problem.src_dims, kinds[0], case["stag"], source),
            tensor_desc(shape, kinds[1], case["wtag"], weights),
            tensor_desc((problem["mb"], oc, *problem.spatial("o")), kinds[2], case["dtag"], target),
            strides,
            padding,
            problem.padding_r,
            dilations,
            _bias(case, (oc,)),
        )

    def _length(self, desc: Desc) -> int:
        weights = desc_of(desc, Arg.WEIGHTS).dims
        grouped = len(weights) > len(desc_of(desc, Arg.SRC).dims)
        return prod(weights[2:] if grouped else weights[1:])

    def compute(self, case: Case, desc: Desc, values: Values) -> Array:
        """The correlation."""
        assert isinstance(desc, ConvolutionDesc)
        return convolution(
            values[Arg.SRC],
            values[Arg.WEIGHTS],
            values.get(Arg.BIAS),
            strides=desc.strides,
            padding_l=desc.padding_l,
            padding_r=desc.padding_r,
            dilations=desc.dilations,
        )


class InnerProduct(Product):
    """``--ip``."""

    def describe(self, case: Case) -> Desc:
        """The forward computation."""
        prop = forward(case)
        problem = descriptor(case)
        kinds, oc = _types(case), problem["oc"]
        return InnerProductDesc.forward(
            prop,
            tensor_desc(problem.src_dims, kinds[0], case["stag"]),
            tensor_desc((oc, *problem.src_dims[1:]), kinds[1], case["wtag"]),
            tensor_desc((problem["mb"], oc), kinds[2], case["dtag"]),
            _bias(case, (oc,)),
        )

    def _length(self, desc: Desc) -> int:
        return prod(desc_of(desc, Arg.WEIGHTS).dims[1:])

    def compute(self, case: Case, desc: Desc, values: Values) -> Array:
        """The product."""
        return inner_product(values[Arg.SRC], values[Arg.WEIGHTS], values.get(Arg.BIAS))


class Matmul(Product):
    """``--matmul``."""

    limits = (64, 128)
    zeros = 90.0

    def skip(self, case: Case) -> str | None:
        """What is known at execution only has no layout to choose."""
        runtime = str(case["runtime_dims_masks"]).strip("0:")
        chosen = "any" in (case["stag"], case["wtag"], case["dtag"])
        return INVALID if runtime and chosen else None

    def describe(self, case: Case) -> Desc:
        """The product of the matrices, batch by batch."""
        for name in ("encoding", "grouped", "runtime_dims_masks"):
            if str(case[name]).strip("0:"):
                raise Unimplemented(f"matmul has no {name}")
        src, weights = shapes(case).padded
        if len(src) < 2 or src[-1] != weights[-2]:
            raise BadValue(f"problem {case.problem.text!r}: the inner sizes differ")
        batch = tuple(0 if 0 in pair else max(pair) for pair in zip(src, weights, strict=True))
        dims = (*batch[:-2], src[-2], weights[-1])
        source, second, target = strides_of(case, "stag", "wtag", "dtag")
        kinds = _types(case)
        bias = None
        if case["bia-dt"] is not DataType.undef:
            mask: int = case["bia_mask"]
            full = [size if mask >> d & 1 else 1 for d, size in enumerate(dims)]
            bias = MemoryDesc(full, case["bia-dt"])
        return MatmulDesc(
            tensor_desc(src, kinds[0], case["stag"], source),
            tensor_desc(weights, kinds[1], case["wtag"], second),
            tensor_desc(dims, kinds[2], case["dtag"], target),
            bias,
        )

    def _length(self, desc: Desc) -> int:
        return desc_of(desc, Arg.SRC).dims[-1]

    def compute(self, case: Case, desc: Desc, values: Values) -> Array:
        """The product."""
        return matmul(values[Arg.SRC], values[Arg.WEIGHTS], values.get(Arg.BIAS))
