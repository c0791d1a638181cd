"""USM as other libraries hold it: what `__sycl_usm_array_interface__` says."""

from __future__ import annotations

import ctypes
import mmap
import sys
from math import prod
from typing import Any

import numpy as np

from dnnl.errors import InvalidArguments
from dnnl.runtime import dlpack
from dnnl.runtime.engines import sycl_devices
from dnnl.runtime.wrap import Described, exports

Interface = dict[str, Any]
NAME = "__sycl_usm_array_interface__"
_HUGE_PAGES = 14  # MADV_HUGEPAGE


class UsmArray:
    """USM with a shape, for whoever reads `__sycl_usm_array_interface__`; ``owner`` is alive with
    it."""

    def __init__(self, interface: Interface, owner: object) -> None:
        self.__sycl_usm_array_interface__ = interface
        self.owner = owner


def address(usm: Any) -> int:
    """Where a USM allocation begins."""
    pointer: int = usm.__sycl_usm_array_interface__["data"][0]
    return pointer


def described(buffer: object, queue: Any) -> Described | None:
    """The USM of an object that has some, as arrays of dpnp and tensors of DLPack on SYCL devices;
    None for any other. Its owner is the USM memory of dpctl.

    DLPack names no context: that of ``queue`` is meant, which must be its platform's default.
    """
    if hasattr(buffer, NAME):
        return _of_interface(buffer, getattr(buffer, NAME))
    has_device = hasattr(buffer, "__dlpack_device__")
    if exports(buffer) and has_device and buffer.__dlpack_device__()[0] == dlpack.ONE_API:
        tensor = dlpack.read(buffer, "buffer", (dlpack.ONE_API,))
        steps = tuple(stride * tensor.dtype.itemsize for stride in tensor.strides)
        nbytes = _extent(tensor.shape, steps, tensor.dtype.itemsize)
        usm = _usm_at(tensor.address, nbytes, queue, tensor.capsule)
        return Described(usm, tensor.address, tensor.dtype, tensor.shape, steps, tensor.readonly)
    return None


def _of_interface(buffer: object, interface: Interface) -> Described:
    usm = memory_of(buffer)
    dtype = np.dtype(interface["typestr"])
    shape = tuple(interface["shape"])
    steps = byte_strides(interface, dtype, shape)
    return Described(usm, begin(interface, dtype), dtype, shape, steps, False)


def memory_of(buffer: object) -> Any:
    """The USM memory of dpctl that an object with the interface has its elements in."""
    try:
        return sycl_devices.dpctl().memory.as_usm_memory(buffer)
    except Exception as error:  # of several classes, after what is wrong with the interface
        rule = f"dpctl does not take its {NAME}: {error}"
        raise InvalidArguments("buffer", type(buffer).__name__, rule) from None


def begin(interface: Interface, dtype: np.dtype) -> int:
    """The address of the first element."""
    first: int = interface["data"][0] + interface.get("offset", 0) * dtype.itemsize
    return first


def byte_strides(interface: Interface, dtype: np.dtype, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides in bytes."""
    strides = interface.get("strides") or _dense(shape)
    return tuple(stride * dtype.itemsize for stride in strides)


def part(usm: Any, offset: int, nbytes: int) -> Any:
    """The bytes of a USM memory from an offset on, as a USM memory."""
    return _usm_at(address(usm) + offset, nbytes, usm.sycl_queue, usm)


def _usm_at(pointer: int, nbytes: int, queue: Any, owner: object) -> Any:
    interface = {
        "data": (pointer, False),
        "shape": (nbytes,),
        "strides": None,
        "typestr": "|u1",
        "version": 1,
        "syclobj": queue,
    }
    return sycl_devices.dpctl().memory.as_usm_memory(UsmArray(interface, owner))


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(shape[dim + 1 :]) for dim in range(len(shape)))


def _extent(shape: tuple[int, ...], steps: tuple[int, ...], itemsize: int) -> int:
    """The bytes from the first element to the end of the last one; at least one."""
    if 0 in shape:
        return 1
    last = sum((size - 1) * step for size, step in zip(shape, steps, strict=True))
    return last + itemsize


def advise_huge_pages(usm: Any) -> None:
    """Ask Linux for huge pages where a processor's memory is large, as NumPy does for arrays."""
    page, huge = mmap.PAGESIZE, 1 << 21
    if sys.platform == "linux" and usm.nbytes >= 2 * huge:
        begin = -(-address(usm) // page) * page
        nbytes = (address(usm) + usm.nbytes - begin) // page * page
        ctypes.CDLL(None).madvise(ctypes.c_void_p(begin), ctypes.c_size_t(nbytes), _HUGE_PAGES)
