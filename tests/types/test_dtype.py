"""Data types: every row against what NumPy and ml_dtypes know of the type."""

from __future__ import annotations

import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from dnnl.errors import InvalidArguments
from dnnl.types.dtype import DataType
from dnnl.types.kinds import coerce
from dnnl.types.memory_desc import MemoryDesc

TYPES = [dtype for dtype in DataType if dtype is not DataType.undef]
FLOATS = [dtype for dtype in TYPES if dtype.is_float]
INTEGERS = [dtype for dtype in TYPES if dtype.is_integer and dtype is not DataType.boolean]


def test_ids_of_the_specification() -> None:
    names = [
        "undef",
        "f16",
        "bf16",
        "f32",
        "s32",
        "s8",
        "u8",
        "f64",
        "boolean",
        "f8_e5m2",
        "f8_e4m3",
        "s4",
        "u4",
        "e8m0",
        "f4_e2m1",
        "-",
        "s64",
    ]
    expected = {name: code for code, name in enumerate(names) if name != "-"}
    expected |= {name: 0x101 + number for number, name in enumerate(("s16", "u16", "u32", "u64"))}
    assert {dtype.name: dtype.value for dtype in DataType} == expected
    assert {code: DataType(code) for code in expected.values()} == {
        member.value: member for member in DataType
    }


@pytest.mark.parametrize("dtype", FLOATS)
def test_float_rows(dtype: DataType) -> None:
    info = ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]
    assert dtype.bits == info.bits
    assert dtype.digits == info.nmant + 1
    assert dtype.max == float(info.max)
    assert dtype.min == float(info.min)
    assert dtype.eps == float(info.eps)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_rows(dtype: DataType) -> None:
    info = ml_dtypes.iinfo(dtype.numpy)  # type: ignore[no-untyped-call]
    assert (dtype.min, dtype.max) == (int(info.min), int(info.max))
    assert dtype.digits == int(info.max).bit_length()
    assert dtype.eps == 0
    assert dtype.bits == info.bits


@pytest.mark.parametrize("dtype", TYPES)
def test_sizes_and_conversions(dtype: DataType) -> None:
    assert dtype.size == dtype.numpy.itemsize
    assert dtype.nbytes(0) == 0
    assert dtype.nbytes(7) == (4 if dtype.bits == 4 else 7 * dtype.size)
    assert DataType.from_numpy(dtype.numpy) is dtype
    assert coerce(DataType, dtype.name, "data_type") is dtype
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert dtype.is_float != dtype.is_integer


def test_a_boolean_is_0_or_1_in_a_byte() -> None:
    row = DataType.boolean
    assert (row.min, row.max, row.bits, row.digits) == (0, 1, 8, 1)
    assert DataType.from_numpy(np.bool_) is row


def test_undef_is_neither() -> None:
    assert not DataType.undef.is_float
    assert not DataType.undef.is_integer
    assert DataType.undef.bits == 0


def test_from_numpy_reads_what_numpy_reads() -> None:
    assert DataType.from_numpy(np.float32) is DataType.f32
    assert DataType.from_numpy("int8") is DataType.s8
    assert DataType.from_numpy(ml_dtypes.bfloat16) is DataType.bf16


@pytest.mark.parametrize("wrong", [np.str_, np.complex64, ">f4", "no such type"])
def test_from_numpy_refuses(wrong: object) -> None:
    with pytest.raises(InvalidArguments) as caught:
        DataType.from_numpy(wrong)
    assert caught.value.argument == "dtype"


def test_types_of_other_libraries_stand_for_theirs() -> None:
    for row in DataType:
        if row.bits:
            theirs = [row.numpy, row.numpy.type, getattr(torch, row.numpy.name, row)]
            for other in theirs:
                assert DataType(other) is row
                assert MemoryDesc((2,), other).data_type is row
    assert MemoryDesc((2,), "f32").with_data_type(torch.bfloat16).data_type is DataType.bf16
    wrong: list[Any] = [np.complex64, torch.complex64, np.dtype(">f4"), np.floating, float, None]
    for other in wrong:
        with pytest.raises(InvalidArguments, match=r"data_type = .*expected DataType, as a member"):
            MemoryDesc((2,), other)


def test_a_type_is_found_by_its_name() -> None:
    assert DataType("f8_e4m3") is DataType.f8_e4m3 is DataType(10)
    with pytest.raises(InvalidArguments, match=r"value = 'fp32'.*did you mean 'f32'"):
        DataType("fp32")


def test_unknown_name_hints() -> None:
    with pytest.raises(InvalidArguments, match="'f32'"):
        coerce(DataType, "fp32", "data_type")
