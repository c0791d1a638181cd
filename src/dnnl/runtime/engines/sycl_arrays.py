"""Arrays of other libraries in USM: those of dpnp, and of whoever else has its interface."""

from __future__ import annotations

from typing import Any

import numpy as np

from dnnl.errors import InvalidArguments
from dnnl.runtime.backend import Backend, Buffer, DeviceArray
from dnnl.runtime.engines import sycl_usm


class SyclArray(DeviceArray):
    """An array in USM.

    The interface of dpnp's arrays waits for all work in their queue. They say the same in
    attributes, at once: ``tensor`` is the `usm_ndarray` of one.
    """

    def __init__(self, source: Any) -> None:
        self.source = source
        tensor = source.get_array() if hasattr(source, "get_array") else source
        if hasattr(tensor, "usm_data"):
            self.dtype, self.shape = tensor.dtype, tensor.shape
            size = self.dtype.itemsize
            self.strides = tuple([step * size for step in tensor.strides])
            self.readonly = not tensor.flags.writable
            self._usm, self.queue, begin = tensor.usm_data, tensor.sycl_queue, tensor._pointer
        else:
            interface = getattr(source, sycl_usm.NAME)
            self.dtype, self.shape = np.dtype(interface["typestr"]), tuple(interface["shape"])
            self.strides = sycl_usm.byte_strides(interface, self.dtype, self.shape)
            self.readonly = bool(interface["data"][1])
            self._usm = sycl_usm.memory_of(source)
            self.queue, begin = self._usm.sycl_queue, sycl_usm.begin(interface, self.dtype)
        self._begin: int = begin

    def place(self, index: int, backend: Backend | None) -> SyclArray:
        """Set the device."""
        self.index, self.backend = index, backend
        return self

    @property
    def copying(self) -> str:  # type: ignore[override]
        library = getattr(self._namespace, "__name__", "dpnp")
        return f"{library}.asarray({{}}, sycl_queue={{}}.sycl_queue)"

    @property
    def buffer(self) -> Buffer:
        return Buffer(self._usm, self._begin - sycl_usm.address(self._usm), None, self._usm)

    @property
    def _namespace(self) -> Any:
        """The functions of the array's library."""
        return getattr(self.source, "__array_namespace__", lambda: None)()

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        try:
            kind = self._usm.get_usm_type()
            make = self._namespace.empty
            return make(shape, dtype=dtype, usm_type=kind, sycl_queue=self.queue)
        except (AttributeError, TypeError, ValueError) as error:
            rule = f"its library makes no {dtype} array for the result: {error}"
            name = type(self.source).__name__
            raise InvalidArguments("x", name, rule, "pass a dnnl.Memory, or out") from None
