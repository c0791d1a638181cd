"""USM as other libraries hold it: what `__sycl_usm_array_interface__` says."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from dnnl.errors import InvalidArguments
from dnnl.runtime import dlpack
from dnnl.runtime.engines import sycl_devices
from dnnl.runtime.wrap import Described, exports

Interface = dict[str, Any]
_NAME = "__sycl_usm_array_interface__"


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
    if hasattr(buffer, _NAME):
        return _of_interface(buffer, getattr(buffer, _NAME))
    has_device = hasattr(buffer, "__dlpack_device__")
    if exports(buffer) and has_device and buffer.__dlpack_device__()[0] == dlpack.ONE_API:
        tensor = dlpack.read(buffer, "buffer", (dlpack.ONE_API,))
        steps = tuple(stride * tensor.dtype.itemsize for stride in tensor.strides)
        nbytes = _extent(tensor.shape, steps, tensor.dtype.itemsize)
        usm = _usm_at(tensor.address, nbytes, queue, tensor.capsule)
        return Described(usm, tensor.address, tensor.dtype, tensor.shape, steps, tensor.readonly)
    return None


def _of_interface(buffer: object, interface: Interface) -> Described:
    try:
        usm = sycl_devices.dpctl().memory.as_usm_memory(buffer)
    except Exception as error:  # of several classes, after what is wrong with the interface
        rule = f"dpctl does not take its {_NAME}: {error}"
        raise InvalidArguments("buffer", type(buffer).__name__, rule) from None
    dtype = np.dtype(interface["typestr"])
    shape = tuple(interface["shape"])
    strides = interface.get("strides") or _dense(shape)
    begin = interface["data"][0] + interface.get("offset", 0) * dtype.itemsize
    steps = tuple(stride * dtype.itemsize for stride in strides)
    return Described(usm, begin, dtype, shape, steps, False)


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
