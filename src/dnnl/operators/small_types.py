"""Types without arithmetic: floats of 4 to 8 bits, and integers of less than 8.

An element takes a byte, as in NumPy, and is moved as one. Conversions from and to other types are
functions of the byte, which `ExactDesc` computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import ml_dtypes
import numpy as np

from dnnl.errors import Unimplemented
from dnnl.graph.graph import EXACT, ModelError
from dnnl.graph.writer import Writer
from dnnl.types.dtype import DataType
from dnnl.types.scalar import Scalar, apply, traced
from dnnl.types.typed import TYPES

_F32 = DataType.f32
_F32_DIGITS, _F32_BIAS = 23, 127
_F32_MAGNITUDE, _F32_INFINITY, _F32_NAN = 0x7FFFFFFF, 0x7F800000, 0x7FC00000
_LAST_EXPONENT = 255  # of infinity and NaN


class SmallType(Protocol):
    """How a small type is stored in a byte."""

    def decoded(self, byte: Scalar) -> Scalar:
        """The value of a byte, in s8, u8 or f32."""

    def encoded(self, number: Scalar, saturates: bool, round_mode: str) -> Scalar:
        """The byte of a number of any type of `TYPES`; the arguments are those of ONNX's Cast."""


@dataclass(frozen=True)
class SmallInteger:
    """An integer in the lower bits. Upper bits are ignored when read, and written as 0."""

    dtype: np.dtype[Any]

    @cached_property
    def limits(self) -> tuple[int, int]:
        """The smallest and the largest value."""
        info = ml_dtypes.iinfo(self.dtype)  # type: ignore[no-untyped-call]
        return int(info.min), int(info.max)

    @property
    def _unused(self) -> int:
        low, high = self.limits
        return 8 - (high - low).bit_length()

    def decoded(self, byte: Scalar) -> Scalar:
        """The value in s8 or u8, as the type is signed or not."""
        wide = byte.astype(DataType.s8 if self.limits[0] < 0 else DataType.u8)
        return (wide << self._unused) >> self._unused

    def encoded(self, number: Scalar, saturates: bool = True, round_mode: str = "") -> Scalar:
        """The lower bits of an integer; floats are truncated first."""
        whole = number.astype(DataType.s32) if _type_of(number).is_float else number
        return whole.astype(DataType.u8) & (255 >> self._unused)


@dataclass(frozen=True)
class SmallFloat:
    """A sign, an exponent and a significand. Types without infinity have NaN in its place, and
    types without NaN the largest number."""

    dtype: np.dtype[Any]

    @cached_property
    def _info(self) -> Any:
        return ml_dtypes.finfo(self.dtype)  # type: ignore[no-untyped-call]

    @property
    def _bits(self) -> int:
        return int(self._info.bits)

    @property
    def _digits(self) -> int:
        return int(self._info.nmant)

    @property
    def _least_exponent(self) -> int:
        return int(self._info.minexp)

    def _code(self, number: float) -> int:
        return int(np.array(number, np.float32).astype(self.dtype).view(np.uint8))

    @property
    def _limit(self) -> int:
        return self._code(float(self._info.max))

    def decoded(self, byte: Scalar) -> Scalar:
        """The value in f32, which is exact."""
        sign_place = self._bits - 1
        code = byte.astype(DataType.s32)
        magnitude = code & ((1 << sign_place) - 1)
        bias = (_F32_BIAS - 1 + self._least_exponent) << _F32_DIGITS
        normal = (magnitude << (_F32_DIGITS - self._digits)) + bias
        tiny = magnitude.astype(_F32) * 2.0 ** (self._least_exponent - self._digits)
        bits = apply("where", magnitude < (1 << self._digits), tiny.view(DataType.s32), normal)
        if np.isinf(np.array(np.inf, np.float32).astype(self.dtype)):
            infinite = self._code(np.inf)
            bits = apply("where", magnitude == infinite, _F32_INFINITY, bits)
            bits = apply("where", magnitude > infinite, _F32_NAN, bits)
        elif self._limit < (1 << sign_place) - 1:
            bits = apply("where", magnitude > self._limit, _F32_NAN, bits)
        bits = bits | ((code >> sign_place) << 31)
        if not self._has_negative_zero:
            bits = apply("where", code == self._code(np.nan), _F32_NAN - 2**31, bits)
        return bits.view(_F32)

    @property
    def _has_negative_zero(self) -> bool:
        return self._code(-0.0) != 0

    def encoded(self, number: Scalar, saturates: bool, round_mode: str = "") -> Scalar:
        """The number, rounded to f32 and then to nearest, ties to even. With ``saturates`` numbers
        that are too large, and infinity, become the largest number, else infinity or
        NaN."""
        number = number.astype(_F32)
        bits = number.view(DataType.s32)
        magnitude, size = bits & _F32_MAGNITUDE, abs(number)
        dropped = _F32_DIGITS - self._digits
        nearest = (magnitude + ((1 << (dropped - 1)) - 1) + ((magnitude >> dropped) & 1)) >> dropped
        normal = nearest - ((_F32_BIAS - 1 + self._least_exponent) << self._digits)
        tiny = round(size * 2.0 ** (self._digits - self._least_exponent)).astype(DataType.s32)
        code = apply("where", size < 2.0**self._least_exponent, tiny, normal)
        beyond = self._limit if saturates else self._code(np.inf)
        code = apply("where", code > self._limit, beyond, code)
        code = apply("where", magnitude > _F32_INFINITY, self._code(np.nan), code)
        place = self._bits - 1
        signed = code ^ (((bits >> 31) & 1) << place)
        if not self._has_negative_zero:  # the code of -0 is NaN
            signed = apply("where", code & ((1 << place) - 1) == 0, code, signed)
        return signed.astype(DataType.u8)


@dataclass(frozen=True)
class Exponent:
    """A power of two without a sign."""

    dtype: np.dtype[Any]

    def decoded(self, byte: Scalar) -> Scalar:
        """The value in f32."""
        code = byte.astype(DataType.s32)
        bits = apply("where", code == 0, 1 << (_F32_DIGITS - 1), code << _F32_DIGITS)
        return apply("where", code == _LAST_EXPONENT, _F32_NAN, bits).view(_F32)

    def encoded(self, number: Scalar, saturates: bool, round_mode: str) -> Scalar:
        """The power of two of the number's magnitude, in f32: rounded ``up``, ``down`` or to
        ``nearest``, ties up. Infinity and NaN become NaN."""
        if round_mode not in ("up", "down", "nearest"):
            rule = "none of up, down, nearest"
            raise ModelError(f"attribute 'round_mode' = {round_mode!r} is {rule}")
        bits = number.astype(_F32).view(DataType.s32) & _F32_MAGNITUDE
        exponent, rest = bits >> _F32_DIGITS, bits & ((1 << _F32_DIGITS) - 1)
        half = 1 << (_F32_DIGITS - 1)
        if round_mode == "down":
            upper = exponent
        elif round_mode == "up":
            upper = apply("where", rest > 0, exponent + 1, exponent)
        else:
            tie = apply("where", exponent > 0, rest >= half, rest > half)
            upper = apply("where", tie, exponent + 1, exponent)
        if saturates:
            upper = apply("minimum", upper, _LAST_EXPONENT - 1)
        code = apply("where", exponent == _LAST_EXPONENT, _LAST_EXPONENT, upper)
        return code.astype(DataType.u8)


_INTEGERS = ("int2", "int4", "uint2", "uint4")
_FLOATS = (
    *("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
)
SMALL: Mapping[np.dtype[Any], SmallType] = {
    **{np.dtype(name): SmallInteger(np.dtype(name)) for name in _INTEGERS},
    **{np.dtype(name): SmallFloat(np.dtype(name)) for name in _FLOATS},
    np.dtype("float8_e8m0fnu"): Exponent(np.dtype("float8_e8m0fnu")),
}
"""Small types by NumPy type."""


def stored_type(dtype: np.dtype[Any]) -> DataType:
    """The data type in which elements are stored: u8 for small types.

    Raises Unimplemented for types that are neither small nor computed.
    """
    kind = DataType.u8 if dtype in SMALL else DataType.foreign(dtype)
    if kind is None or kind not in TYPES:
        raise Unimplemented(f"elements of type {dtype} are not computed")
    return kind


def number_of(dtype: np.dtype[Any], stored: Scalar) -> Scalar:
    """The value of a stored element of ``dtype``, in a type of `TYPES`."""
    return SMALL[dtype].decoded(stored) if dtype in SMALL else stored


def element_of(
    dtype: np.dtype[Any], number: Scalar, saturates: bool = True, round_mode: str = "up"
) -> Scalar:
    """A number as a stored element of ``dtype``, converted as Cast does."""
    if dtype in SMALL:
        return SMALL[dtype].encoded(number, saturates, round_mode)
    return number.astype(stored_type(dtype))


def widened(writer: Writer, value: str) -> str:
    """``value`` as f32 if it has small floats, else unchanged."""
    own = writer.graph.type_of(value)
    if own.dtype not in SMALL:
        return value
    function = traced(SMALL[own.dtype].decoded, 1, [stored_type(own.dtype)])
    return writer.add(EXACT, (value,), own.sizes, {"function": function}, _F32.numpy)


def _type_of(number: Scalar) -> DataType:
    assert number.step.data_type is not None, "these functions are traced with types"
    return number.step.data_type
