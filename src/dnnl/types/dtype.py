"""Data types: one frozen row each, from which everything else derives.

Adding a type is adding a row, here and (where LLVM has no conversion) a pair in ``convert.py``.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import ml_dtypes
import numpy as np

from dnnl.errors import InvalidArguments
from dnnl.types.kinds import Kind


@dataclass(frozen=True)
class Row:
    """The facts of a data type.

    ``digits`` counts the bits of the significand of a float (the hidden one included) and the
    value bits of an integer. ``min`` and ``max`` are the finite limits, exact as Python floats.
    """

    code: int
    bits: int
    is_float: bool
    digits: int
    min: float
    max: float
    numpy: np.dtype


def _float(
    code: int, bits: int, digits: int, maximum: float, numpy: object, minimum: float | None = None
) -> Row:
    lowest = -maximum if minimum is None else minimum
    return Row(code, bits, True, digits, lowest, maximum, np.dtype(numpy))  # type: ignore[call-overload]


def _integer(code: int, bits: int, signed: bool, numpy: object) -> Row:
    digits = bits - signed
    low = -(2**digits) if signed else 0
    return Row(code, bits, False, digits, low, 2**digits - 1, np.dtype(numpy))  # type: ignore[call-overload]


class _TorchType(Protocol):
    """A ``torch.dtype``."""

    @property
    def is_floating_point(self) -> bool:
        """Whether it is one of floats."""


class DataType(Kind):
    """The type of a tensor's elements; the value is the id of the specification.

    Those from 0x100 on are ONNX's integers that oneDNN lacks. They, s64 and ``boolean`` (a byte, 0
    or 1) are moved, a reorder converts every type to every other, and the operation ``exact``
    computes with them; matmul takes the integers of 32 and 64 bits.
    """

    undef = Row(0, 0, False, 0, 0, 0, np.dtype("V"))
    f16 = _float(1, 16, 11, 65504.0, np.float16)
    bf16 = _float(2, 16, 8, (2 - 2.0**-7) * 2.0**127, ml_dtypes.bfloat16)
    f32 = _float(3, 32, 24, (2 - 2.0**-23) * 2.0**127, np.float32)
    s32 = _integer(4, 32, True, np.int32)
    s8 = _integer(5, 8, True, np.int8)
    u8 = _integer(6, 8, False, np.uint8)
    f64 = _float(7, 64, 53, (2 - 2.0**-52) * 2.0**1023, np.float64)
    boolean = Row(8, 8, False, 1, 0, 1, np.dtype(np.bool_))
    f8_e5m2 = _float(9, 8, 3, 57344.0, ml_dtypes.float8_e5m2)
    f8_e4m3 = _float(10, 8, 4, 448.0, ml_dtypes.float8_e4m3fn)
    s4 = _integer(11, 4, True, ml_dtypes.int4)
    u4 = _integer(12, 4, False, ml_dtypes.uint4)
    e8m0 = _float(13, 8, 1, 2.0**127, ml_dtypes.float8_e8m0fnu, 2.0**-127)
    f4_e2m1 = _float(14, 4, 2, 6.0, ml_dtypes.float4_e2m1fn)
    s64 = _integer(16, 64, True, np.int64)
    s16 = _integer(0x101, 16, True, np.int16)
    u16 = _integer(0x102, 16, False, np.uint16)
    u32 = _integer(0x103, 32, False, np.uint32)
    u64 = _integer(0x104, 64, False, np.uint64)

    row: Row
    bits: int
    is_float: bool
    is_integer: bool
    digits: int
    min: float
    max: float
    eps: float
    numpy: np.dtype

    # `Any`, as type checkers take this for the signature of DataType("f32") as well.
    def __new__(cls, row: Any) -> DataType:
        member = object.__new__(cls)
        member._value_ = row.code
        member.row = row
        member.bits = row.bits
        member.is_float = row.is_float
        member.is_integer = not row.is_float and row.bits > 0
        member.digits = row.digits
        member.min, member.max = row.min, row.max
        member.eps = 2.0 ** (1 - row.digits) if row.is_float else 0.0
        member.numpy = row.numpy
        return member

    @property
    def size(self) -> int:
        """Bytes of one element held alone; two 4-bit elements share a byte: :meth:`nbytes`."""
        return self.nbytes(1)

    def nbytes(self, count: int) -> int:
        """Bytes that ``count`` consecutive elements take."""
        return (count * self.bits + 7) // 8

    @classmethod
    def foreign(cls, value: object) -> DataType | None:
        """The data type of a type of NumPy, ml_dtypes or PyTorch, if it has one."""
        if isinstance(value, np.dtype):
            return _BY_NUMPY.get(value)
        if isinstance(value, type):
            return _BY_SCALAR.get(value)
        kind = type(value)  # which is looked at by name, as PyTorch may not be there
        if (kind.__module__, kind.__name__) == ("torch", "dtype"):
            return _BY_NAME.get(str(value).removeprefix("torch."))
        return None

    @classmethod
    def from_numpy(cls, dtype: object) -> DataType:
        """Return the data type of a NumPy (or ml_dtypes) type, or of anything NumPy reads as one.

        Byte order must be the machine's. Types without a counterpart raise InvalidArguments.
        """
        try:
            wanted: np.dtype = np.dtype(dtype)  # type: ignore[call-overload]
        except TypeError:
            raise InvalidArguments("dtype", dtype, "expected a NumPy type") from None
        found = _BY_NUMPY.get(wanted)
        if found is None:
            known = ", ".join(str(other) for other in _BY_NUMPY)
            rule = "no data type stores this NumPy type"
            raise InvalidArguments("dtype", wanted, rule, f"convert the array to one of {known}")
        return found


_BY_NUMPY = {member.numpy: member for member in DataType if member.bits}
DataTypeLike: TypeAlias = "DataType | str | np.dtype | type[np.generic] | _TorchType"
"""What is read as a data type: a member, its name, or a type of NumPy, ml_dtypes or PyTorch."""

_BY_SCALAR: dict[type, DataType] = {numpy.type: member for numpy, member in _BY_NUMPY.items()}
_BY_NAME = {numpy.name: member for numpy, member in _BY_NUMPY.items()}


def any_of(types: Container[DataType]) -> str:
    """Return data types as a rule names them, ``f16, bf16 or f32``, in the order of their ids."""
    *names, last = (str(each) for each in DataType if each in types)
    return f"{', '.join(names)} or {last}" if names else last
