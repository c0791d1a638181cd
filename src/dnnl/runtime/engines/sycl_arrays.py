"""Arrays of other libraries in USM: those of dpnp, and of whoever else has its interface."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from dnnl.errors import InvalidArguments
from dnnl.runtime.backend import Backend, Buffer, DeviceArray
from dnnl.runtime.engines import sycl_usm


class SyclArray(DeviceArray):
    """An array with `__sycl_usm_array_interface__`, ``interface``."""

    def __init__(self, source: Any, interface: sycl_usm.Interface) -> None:
        self.source = source
        self.dtype = np.dtype(interface["typestr"])
        self.shape = tuple(interface["shape"])
        self.strides = sycl_usm.byte_strides(interface, self.dtype, self.shape)
        self.readonly = bool(interface["data"][1])
        self._begin = sycl_usm.begin(interface, self.dtype)

    def place(self, index: int, backend: Backend | None) -> SyclArray:
        """Set the device."""
        self.index, self.backend = index, backend
        return self

    @property
    def copying(self) -> str:  # type: ignore[override]
        library = getattr(self._namespace, "__name__", "dpnp")
        return f"{library}.asarray({{}}, sycl_queue={{}}.sycl_queue)"

    @cached_property
    def usm(self) -> Any:
        """The allocation, as the memory of dpctl: one object for all arrays that share it."""
        whole = self.source.get_array() if hasattr(self.source, "get_array") else self.source
        own = getattr(whole, "usm_data", None)
        return sycl_usm.memory_of(self.source) if own is None else own

    @property
    def buffer(self) -> Buffer:
        return Buffer(self.usm, self._begin - sycl_usm.address(self.usm), None, self.usm)

    @cached_property
    def queue(self) -> Any:
        own = getattr(self.source, "sycl_queue", None)
        return self.usm.sycl_queue if own is None else own

    @property
    def _namespace(self) -> Any:
        """The functions of the array's library."""
        return getattr(self.source, "__array_namespace__", lambda: None)()

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        try:
            kind = self.usm.get_usm_type()
            make = self._namespace.empty
            return make(shape, dtype=dtype, usm_type=kind, sycl_queue=self.queue)
        except (AttributeError, TypeError, ValueError) as error:
            rule = f"its library makes no {dtype} array for the result: {error}"
            name = type(self.source).__name__
            raise InvalidArguments("x", name, rule, "pass a dnnl.Memory, or out") from None
