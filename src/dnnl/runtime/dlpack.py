"""DLPack capsules, read and written at the level of their C structure.

NumPy knows DLPack but not the types of `ml_dtypes`, and takes every capsule without a version for
read-only; so what a capsule says is read here. See github.com/dmlc/dlpack, ``dlpack.h``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Container
from math import prod
from typing import Any, NamedTuple, Protocol

import ml_dtypes
import numpy as np

from dnnl.errors import InvalidArguments

CPU, ONE_API = 1, 14
# Memory that the host can address, by the ids of `DLDeviceType`: cpu, and what CUDA and ROCm pin.
_HOST_DEVICES = frozenset((CPU, 3, 11, 13))
_READ_ONLY = 1

# (type code, bits) of what NumPy has no code for.
_EXTRA_TYPES: dict[tuple[int, int], np.dtype] = {
    (4, 16): np.dtype(ml_dtypes.bfloat16),
    (10, 8): np.dtype(ml_dtypes.float8_e4m3fn),
    (12, 8): np.dtype(ml_dtypes.float8_e5m2),
    (14, 8): np.dtype(ml_dtypes.float8_e8m0fnu),
}
_EXTRA_CODES = {dtype: code for (code, _), dtype in _EXTRA_TYPES.items()}
_KINDS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}
_SIZES = {"i": (8, 16, 32, 64), "u": (8, 16, 32, 64), "f": (16, 32, 64), "c": (64, 128), "b": (8,)}


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.argtypes, _is_valid.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_int
_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.argtypes, _get_pointer.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p


class Exporter(Protocol):
    """An array of a library that exports DLPack."""

    def __dlpack__(self, *args: Any, **options: Any) -> object: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...


class DLPackTensor(NamedTuple):
    """What a capsule says; ``strides`` in elements. The capsule owns the memory while it lives."""

    capsule: object
    address: int
    dtype: np.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    readonly: bool


def read(
    exporter: Exporter, argument: str, devices: Container[int] = _HOST_DEVICES
) -> DLPackTensor:
    """Ask an object with ``__dlpack__`` for its memory, without copy.

    Raises `InvalidArguments` in the name of ``argument`` where that is no memory of one of the
    ``devices``, by default the host, has no NumPy type, or holds the numbers with the opposite
    sign, of which a capsule says nothing.
    """
    name = type(exporter).__name__
    if getattr(exporter, "is_neg", bool)():
        rule = "its memory holds the negated numbers, as that of z.conj().imag does"
        raise InvalidArguments(argument, name, rule, "pass tensor.resolve_neg(), a copy")
    try:
        device = int(exporter.__dlpack_device__()[0])
        capsule = _export(exporter) if device in devices else None
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
        rule = f"its DLPack export failed: {error}"
        raise InvalidArguments(argument, name, rule) from error
    if capsule is None:
        rule = f"the tensor lives on DLPack device {device}, not in the host's memory"
        raise InvalidArguments(argument, name, rule, "move it to the cpu")
    tensor, readonly = _tensor_of(capsule)
    shape = tuple(tensor.shape[: tensor.ndim])
    if not tensor.data and prod(shape):
        rule = "its DLPack capsule has elements, but no memory"
        raise InvalidArguments(argument, name, rule, "tensors of tracing and 'meta' have none")
    return DLPackTensor(
        capsule,
        (tensor.data or 0) + tensor.byte_offset,
        _dtype_of(tensor, argument),
        shape,
        tuple(tensor.strides[: tensor.ndim]) if tensor.strides else _dense(shape),
        readonly,
    )


def _export(exporter: Exporter) -> object:
    try:
        return exporter.__dlpack__(max_version=(1, 0))
    except TypeError:  # an exporter from before versions
        return exporter.__dlpack__()


def export(array: np.ndarray, device: tuple[int, int] = (CPU, 0), **options: Any) -> Any:
    """The capsule of an array, of which the address is on a ``device``; ``options`` as in
    ``__dlpack__``.

    NumPy makes the capsule. What it cannot say is written into that afterwards: the device, and the
    types that it lacks, of which it exports the bits as integers.
    """
    stream = options.get("stream")
    if stream is not None and device[0] == CPU:
        raise InvalidArguments("stream", stream, "memory of the host has no streams", "pass None")
    code = _EXTRA_CODES.get(array.dtype)
    source = array if code is None else array.view(f"u{array.itemsize}")
    capsule = source.__dlpack__(**options)
    tensor, _ = _tensor_of(capsule)
    tensor.device_type, tensor.device_id = device
    if code is not None:
        tensor.code = code
    return capsule


def _tensor_of(capsule: object) -> tuple[_Tensor, bool]:
    """The tensor in a capsule that nobody has consumed, and whether it is read-only."""
    if _is_valid(capsule, b"dltensor_versioned"):
        pointer = _get_pointer(capsule, b"dltensor_versioned")
        managed = _Versioned.from_address(pointer)
        return managed.tensor, bool(managed.flags & _READ_ONLY)
    return _Tensor.from_address(_get_pointer(capsule, b"dltensor")), False


def _dtype_of(tensor: _Tensor, argument: str) -> np.dtype:
    extra = _EXTRA_TYPES.get((tensor.code, tensor.bits))
    if extra is not None and tensor.lanes == 1:
        return extra
    kind = _KINDS.get(tensor.code)
    sizes = _SIZES.get(kind or "", ())
    if kind is None or tensor.lanes != 1 or tensor.bits not in sizes:
        rule = f"DLPack type code {tensor.code} with {tensor.bits} bits is not supported"
        raise InvalidArguments(argument, "DLPack tensor", rule)
    dtype: np.dtype = np.dtype(f"{kind}{tensor.bits // 8}")
    return dtype


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = [1] * len(shape)
    for d in reversed(range(len(shape) - 1)):
        strides[d] = strides[d + 1] * shape[d + 1]
    return tuple(strides)
