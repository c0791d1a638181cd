"""The SYCL devices of this machine, as `dpctl` finds them."""

from __future__ import annotations

import os
from functools import cache
from importlib import metadata
from typing import Any

from dnnl.errors import Error, InvalidArguments
from dnnl.runtime.engines import sycl_modules
from dnnl.runtime.engines.sycl_log import build_log

INSTALL = "pip install 'dnnl[sycl]'"
_BACKENDS = ("opencl", "level_zero")
"""The backends of SYCL whose drivers take SPIR-V."""
_LOADER = "OCL_ICD_FILENAMES"


def dpctl() -> Any:
    """The module `dpctl`; `InvalidArguments` in the name of the engine kind where there is none.

    Intel's OpenCL driver for processors, where pip installed it, is announced to the OpenCL loader,
    which reads the environment at the first query of the process.
    """
    if _LOADER not in os.environ and (driver := _processor_driver()) is not None:
        os.environ[_LOADER] = driver
    try:
        import dpctl as module
        import dpctl.memory
        import dpctl.program
        import dpctl.utils
    except ImportError as error:
        raise InvalidArguments("kind", "sycl", f"it needs dpctl: {error}", INSTALL) from None
    return module


def _processor_driver() -> str | None:
    try:
        files = metadata.files("intel-opencl-rt") or ()
    except metadata.PackageNotFoundError:
        return None
    found = (file.locate() for file in files if file.name == "libintelocl.so")
    return next((os.path.realpath(path) for path in found if os.path.exists(path)), None)


@cache
def devices() -> tuple[Any, ...]:
    """The root devices that take SPIR-V and have device memory of their own, GPUs first."""
    try:
        module = dpctl()
    except InvalidArguments:
        return ()
    found = [
        device
        for device in module.get_devices()
        if device.backend.name in _BACKENDS and device.has_aspect_usm_device_allocations
    ]
    return tuple(sorted(found, key=lambda device: (not device.is_gpu, device.is_cpu)))


def index_of(device: Any) -> int:
    """The number of a device, or of the one that a sub-device is a part of.

    Raises `InvalidArguments` where it takes no SPIR-V or has no USM.
    """
    whole = device
    while whole.parent_device is not None:
        whole = whole.parent_device
    if whole not in devices():
        names = ", ".join(own.filter_string for own in devices()) or "none"
        rule = "the library has code for devices of OpenCL and Level Zero with USM"
        raise InvalidArguments("device", device.name, rule, f"such devices: {names}")
    return devices().index(whole)


def missing() -> str:
    """Why there is no device."""
    try:
        dpctl()
    except InvalidArguments as error:
        return str(error.hint)
    return "dpctl finds none that takes SPIR-V and allocates USM; intel-opencl-rt has a driver"


@cache
def default_queue(index: int) -> Any:
    """A queue of a device's default context, in order: for copies and for building programs."""
    return dpctl().SyclQueue(devices()[index], property="in_order")


def aspects(device: Any) -> frozenset[str]:
    """The aspects that code can rely on: ``fp16``, ``fp64``, ``atomic64``, ``cpu``, ``gpu``."""
    names = ("fp16", "fp64", "atomic64", "cpu", "gpu")
    return frozenset(name for name in names if getattr(device, f"has_aspect_{name}"))


_CAPABILITIES = {9: "fp16", 10: "fp64", 12: "atomic64"}
"""Aspects of devices by the capabilities of SPIR-V that rest on them."""


def lacking(module: sycl_modules.Module, device: Any) -> list[str]:
    """The aspects that a module of SPIR-V needs and a device does not have."""
    needed = [_CAPABILITIES.get(capability) for capability in module.capabilities]
    own = aspects(device)
    return [aspect for aspect in needed if aspect is not None and aspect not in own]


def not_built(device: Any, code: bytes, error: Exception) -> Error:
    """The error for a program that a driver does not build, with the log of that."""
    log = ""
    if device.backend.name == "opencl":
        log = build_log(device.name, device.driver_version, code)
    return failed("building a program", device, RuntimeError(log) if log else error)


def failed(what: str, device: Any, error: Exception, limit: str = "") -> Error:
    """The error of a device as one of the library's, with a limit of the device that may be why."""
    log = "; ".join(filter(None, (str(error).rstrip(".\n") or "the driver gives no reason", limit)))
    return Error(f"{what} failed on {device.name} (driver {device.driver_version}): {log}")
