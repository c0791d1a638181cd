"""What an OpenCL driver says about a program that it does not build: dpctl does not tell."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint, c_ulong, c_void_p

_ALL_DEVICES = 0xFFFFFFFF
_DEVICE_NAME, _DRIVER_VERSION, _BUILD_LOG = 0x102B, 0x102D, 0x1183
_MOST = 64  # platforms, and devices of one


def build_log(name: str, driver: str, code: bytes) -> str:
    """The log of building a SPIR-V module on the device of a name and a driver; "" for none.

    The module is built once more: that of dpctl is out of reach.
    """
    try:
        library = ctypes.CDLL("libOpenCL.so.1")
        return next((_log(library, own, code) for own in _devices(library, name, driver)), "")
    except (OSError, AttributeError):  # there is no loader, or an old one
        return ""


def _devices(library: ctypes.CDLL, name: str, driver: str) -> list[c_void_p]:
    """Those with this name and driver."""
    platforms, count = (c_void_p * _MOST)(), c_uint()
    library.clGetPlatformIDs(_MOST, platforms, byref(count))
    found = []
    for platform in platforms[: min(count.value, _MOST)]:
        devices, own = (c_void_p * _MOST)(), c_uint()
        arguments = c_void_p(platform), c_ulong(_ALL_DEVICES), _MOST, devices, byref(own)
        if library.clGetDeviceIDs(*arguments) == 0:
            found += [c_void_p(each) for each in devices[: min(own.value, _MOST)]]
    return [
        device
        for device in found
        if (_text(library, device, _DEVICE_NAME), _text(library, device, _DRIVER_VERSION))
        == (name, driver)
    ]


def _text(library: ctypes.CDLL, device: c_void_p, what: int) -> str:
    buffer = ctypes.create_string_buffer(1024)
    library.clGetDeviceInfo(device, what, c_size_t(len(buffer)), buffer, None)
    return buffer.value.decode(errors="replace").strip()


def _log(library: ctypes.CDLL, device: c_void_p, code: bytes) -> str:
    create, from_il = library.clCreateContext, library.clCreateProgramWithIL
    create.restype = from_il.restype = c_void_p
    from_il.argtypes = c_void_p, c_char_p, c_size_t, POINTER(c_int)
    status = c_int()
    context = c_void_p(create(None, 1, byref(device), None, None, byref(status)))
    program = c_void_p(from_il(context, code, len(code), byref(status)))
    if program.value is None:
        library.clReleaseContext(context)
        return f"it is no program for OpenCL (error {status.value})"
    library.clBuildProgram(program, 1, byref(device), None, None, None)
    size = c_size_t()
    query = program, device, _BUILD_LOG
    library.clGetProgramBuildInfo(*query, c_size_t(0), None, byref(size))
    buffer = ctypes.create_string_buffer(size.value + 1)
    library.clGetProgramBuildInfo(*query, size, buffer, None)
    library.clReleaseProgram(program)
    library.clReleaseContext(context)
    return buffer.value.decode(errors="replace").strip()
