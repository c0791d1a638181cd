"""The scales, zero points and sums of one argument: how they vary, and their type."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass

from dnnl.errors import InvalidArguments
from dnnl.types.arg import Arg, name_of
from dnnl.types.dtype import DataType, DataTypeLike
from dnnl.types.kinds import RUNTIME_DIM, QuantizationMode, coerce
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import read_mask

_COMPUTED = {
    QuantizationMode.dynamic_mx: (DataType.e8m0, (1, 32)),
    QuantizationMode.dynamic_fp: (DataType.f8_e4m3, (1, 16)),
}
"""The type and the groups of scales that the library computes."""


@dataclass(frozen=True, slots=True)
class ScaleSpec:
    """The shape and type of the scales or zero points of one argument.

    Bit ``d`` of ``mask`` says that they vary along dimension ``d``. ``groups`` (none, or one size
    for each of the last two dimensions) says how many neighbours share one. ``mode`` says whether
    an execution reads or writes them.
    """

    mask: int
    groups: tuple[int, ...]
    data_type: DataType
    mode: QuantizationMode = QuantizationMode.static_sazp

    @property
    def computed(self) -> bool:
        """Whether an execution computes the values, and writes them."""
        return self.mode is not QuantizationMode.static_sazp

    def shape(self, dims: Sequence[int]) -> tuple[int, ...]:
        """Return the dims of the dense, row-major tensor of values for a tensor of ``dims``.

        A dimension that only execution knows stays RUNTIME_DIM.
        """
        if self.mask >> len(dims):
            rule = f"has a bit above the {len(dims)} dimensions of {tuple(dims)}"
            raise InvalidArguments("mask", self.mask, rule)
        if len(self.groups) > len(dims):
            raise InvalidArguments("groups", self.groups, f"more than dims = {tuple(dims)} has")
        sizes = self.group_sizes(len(dims))
        for d, (size, group) in enumerate(zip(dims, sizes, strict=True)):
            if group > 1 and not self.mask >> d & 1:
                rule = f"mask = {self.mask} has no bit for dimension {d}, so it has no groups"
                raise InvalidArguments("groups", self.groups, rule)
            if size != RUNTIME_DIM and size % group:
                rule = f"{group} does not divide dimension {d}, which is {size}"
                raise InvalidArguments("groups", self.groups, rule)
        counts = [
            size if size == RUNTIME_DIM else size // group
            for size, group in zip(dims, sizes, strict=True)
        ]
        return tuple(count if self.mask >> d & 1 else 1 for d, count in enumerate(counts))

    def group_sizes(self, ndims: int) -> tuple[int, ...]:
        """Return how many neighbours share a value, for each dimension of a tensor."""
        return (1,) * (ndims - len(self.groups)) + self.groups

    def desc(self, dims: Sequence[int]) -> MemoryDesc:
        """Return the descriptor of the values for a tensor of ``dims``."""
        return MemoryDesc(self.shape(dims), self.data_type)

    def __str__(self) -> str:
        text = f"{self.mask}:{self.data_type}"
        groups = f":{'x'.join(map(str, self.groups))}" if self.groups else ""
        return f"{text}{groups}:{self.mode}" if self.computed else text + groups


def check_computed(argument: int, spec: ScaleSpec) -> None:
    """Raise unless scales can be computed by the library."""
    if argument != Arg.DST:
        rule = "scales that an execution computes are those of DST"
        raise InvalidArguments("arg", name_of(argument), rule)
    data_type, groups = _COMPUTED[spec.mode]
    for name, given, wanted in (
        ("data_type", spec.data_type, data_type),
        ("groups", spec.groups, groups),
    ):
        if given != wanted:
            raise InvalidArguments(name, given, f"{spec.mode} has {name} = {wanted}")


def read_spec(
    mask: object, groups: Sequence[int], data_type: DataTypeLike, allowed: tuple[str, ...]
) -> ScaleSpec:
    """Return a checked spec whose type is one of ``allowed``."""
    bits = read_mask(mask)
    dtype = coerce(DataType, data_type, "data_type")
    if dtype.name not in allowed:
        raise InvalidArguments("data_type", str(dtype), f"expected one of {', '.join(allowed)}")
    try:
        sizes = tuple(operator.index(size) for size in groups)
    except TypeError:
        raise InvalidArguments("groups", groups, "expected two integers, or none") from None
    if sizes and (len(sizes) != 2 or min(sizes) < 1):
        rule = "expected one size, 1 or more, for each of the last two dimensions"
        raise InvalidArguments("groups", sizes, rule, "for example (32, 1)")
    if sizes and not bits:
        rule = "one value for the whole tensor has no groups"
        raise InvalidArguments("groups", sizes, rule, "set the mask's bits of the last dimensions")
    return ScaleSpec(bits, sizes, dtype)
