"""Compensation: sums behind s8 weights that correct an integer convolution.

An s8 source is multiplied as u8, which is 128 too large, and a source with a zero point as it is
stored. What that adds to a result depends on the weights alone, so the reorder that writes them
sums them up once::

    -128 * sum(w)    s8s8
          -sum(w)    zero_points: to be multiplied by the zero point of the source

The sums are s32, modulo 2**32, and begin at the first multiple of four bytes behind the weights:
those of s8s8, then those of zero points, each row-major over the padded dims and zero in the
padding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from math import prod

from dnnl.errors import InvalidArguments
from dnnl.types.dtype import DataType
from dnnl.types.kinds import FormatKind, float_text
from dnnl.types.layout import Layout, dense
from dnnl.types.layout_input import read_float, read_int

KINDS = ("s8s8", "zero_points")
"""The kinds of sums, in the order in which they are stored."""

_S8S8, _SCALE_ADJUST, _ZERO_POINTS = 1, 2, 8  # the bits of oneDNN's extra flags
_BYTES = DataType.s32.size


@dataclass(frozen=True)
class Compensation:
    """The sums of weights that a reorder appends to them; a field of their descriptor.

    ``s8s8`` and ``zero_points`` are masks, 0 for none: bit ``d`` says that there is a sum for each
    index of dimension ``d``. It is taken over all dimensions that have no bit: 1 means for each
    output channel of ``oihw``, 3 for each group and output channel of ``goihw``.

    ``scale_adjust`` is a factor on the weights as they are quantized: with 0.5 no sum of two
    products of bytes leaves 16 bits. It belongs to ``s8s8``; who uses the weights divides by it.
    """

    s8s8: int = 0
    zero_points: int = 0
    scale_adjust: float = 1.0

    def __post_init__(self) -> None:
        for kind in KINDS:
            mask = int(read_int(kind, getattr(self, kind)))  # True is a mask, but not spelled so
            if mask < 0:
                raise InvalidArguments(kind, mask, "a mask has a bit for each dimension, or is 0")
            object.__setattr__(self, kind, mask)
        if not self.masks:
            rule = "one of s8s8 and zero_points must have a mask"
            hint = "1 is for each output channel; weights without sums have no Compensation"
            raise InvalidArguments("s8s8", self.s8s8, rule, hint)
        adjust = read_float("scale_adjust", self.scale_adjust)
        if not 0 < adjust < math.inf:
            raise InvalidArguments("scale_adjust", adjust, "expected a positive number", "0.5")
        if adjust != 1 and not self.s8s8:
            rule = "goes with the compensation s8s8 alone"
            raise InvalidArguments("scale_adjust", adjust, rule, "1.0 changes nothing")
        object.__setattr__(self, "scale_adjust", adjust)

    @property
    def masks(self) -> dict[str, int]:
        """The masks by kind, for the kinds that there are."""
        masks = {kind: int(getattr(self, kind)) for kind in KINDS}
        return {kind: mask for kind, mask in masks.items() if mask}

    def layouts(self, weights: Layout, nbytes: int) -> dict[str, Layout]:
        """The offsets of the sums, by kind, behind ``nbytes`` bytes of weights.

        They have the dimensions of the weights, of size 1 where they are summed over. Everything
        counts s32 elements from the beginning of the buffer.
        """
        found = {}
        begin = -(-nbytes // _BYTES)
        for kind, mask in self.masks.items():
            dims, padded = (
                tuple(size if mask >> d & 1 else 1 for d, size in enumerate(sizes))
                for sizes in (weights.dims, weights.padded_dims)
            )
            row_major = dense(padded, range(len(padded)))
            found[kind] = row_major._replace(dims=dims, offset0=begin)
            begin += prod(padded)
        return found

    def nbytes(self, weights: Layout, nbytes: int) -> int:
        """The bytes of the weights with all that is appended to them."""
        last = list(self.layouts(weights, nbytes).values())[-1]
        return _BYTES * (last.offset0 + prod(last.padded_dims))

    def check(self, data_type: DataType, kind: FormatKind, weights: Layout) -> None:
        """Raise unless such weights can have this compensation."""
        name = "compensation"
        if data_type is not DataType.s8:
            rule = f"belongs to weights of s8, these are {data_type}"
            raise InvalidArguments(name, self, rule)
        if kind is not FormatKind.blocked or weights.has_runtime:
            rule = "needs weights whose layout and dims are known"
            raise InvalidArguments(name, self, rule, "give a tag, not 'any' or RUNTIME_DIM")
        for which, mask in self.masks.items():
            if mask >> len(weights.dims):
                rule = f"the mask {which} = {mask} has a bit above the dims = {weights.dims}"
                hint = f"expected 1..{2 ** len(weights.dims) - 1}" if weights.dims else ""
                raise InvalidArguments(name, self, rule, hint)

    @property
    def flags(self) -> int:
        """What there is, as bits: 1 s8s8, 2 an adjusted scale, 8 zero points."""
        sums = _S8S8 * bool(self.s8s8) + _ZERO_POINTS * bool(self.zero_points)
        return sums + _SCALE_ADJUST * (self.scale_adjust != 1)

    @property
    def token(self) -> str:
        """The end of a verbose line's token, as ``f9:s8m1:zpm1``."""
        parts = [f"f{self.flags}"]
        parts += [f"s8m{self.s8s8}"] if self.s8s8 else []
        parts += [f"zpm{self.zero_points}"] if self.zero_points else []
        parts += [f"sa{float_text(self.scale_adjust)}"] if self.scale_adjust != 1 else []
        return ":".join(parts)


def check_compensation(
    compensation: object, data_type: DataType, kind: FormatKind, places: Layout
) -> None:
    """Raise unless weights like these can have the compensation."""
    if isinstance(compensation, Compensation):
        compensation.check(data_type, kind, places)
    elif compensation is not None:
        rule = "expected a dnnl.Compensation or None"
        raise InvalidArguments("compensation", compensation, rule)
