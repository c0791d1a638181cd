"""The packages that have oneDNN, and how each is loaded, limited to threads and waited for."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dnnl.errors import Unimplemented
from dnnl.language.errors import BadValue
from dnnl.tools.bench.peers.onednn_library import Library

_TASKS = Path("/proc/self/task")
_DRIVER = "libintelocl.so"
_DRIVERS = "OCL_ICD_FILENAMES"
"""What names the drivers that OpenCL loads."""

_COMPILER = "intel-cmplr-lib-rt"
_NEEDED = (
    (_COMPILER, "libintlc.so."),
    (_COMPILER, "libimf.so"),
    (_COMPILER, "libsvml.so"),
    (_COMPILER, "libirng.so"),
    ("tbb", "libtbb.so."),
    ("intel-sycl-rt", "libsycl.so."),
)
"""What it depends on, in this order: no search path of the loader leads there."""


class OpenMp(Library):
    """The last build for OpenMP that a package index has: version 3.2 of 2023."""

    package = "onednn-cpu-gomp"
    runtime = "OpenMP"

    def set_num_threads(self, num_threads: int) -> None:
        # OpenMP is among the library's dependencies, where the loader searches as well.
        self.c.omp_set_num_threads(num_threads)


class Sycl(Library):
    """The newest build, whose processor engine is a device of OpenCL behind SYCL.

    The number of its threads is fixed when the device starts: one for each cpu on which the
    thread that starts it may run.
    """

    package = "onednn"
    runtime = "SYCL"
    asynchronous = True

    def __init__(self) -> None:
        self._threads = 0
        super().__init__()

    def _load(self) -> ctypes.CDLL:
        if not hasattr(os, "sched_setaffinity"):
            raise BadValue(f"{self.package} is limited to threads on Linux alone")
        for package, prefix in _NEEDED:
            ctypes.CDLL(str(self.path(prefix, package)), mode=ctypes.RTLD_GLOBAL)
        return super()._load()

    @contextmanager
    def starting(self, num_threads: int) -> Iterator[None]:
        driver = self.path(_DRIVER, "intel-opencl-rt").with_name(_DRIVER)
        before = os.environ.get(_DRIVERS)
        cpus = os.sched_getaffinity(0)
        self._threads = min(num_threads, len(cpus))
        os.environ[_DRIVERS] = str(driver)
        os.sched_setaffinity(0, sorted(cpus)[: self._threads])
        known = set(_TASKS.iterdir())
        try:
            yield
        finally:
            os.sched_setaffinity(0, cpus)
            for task in set(_TASKS.iterdir()) - known:
                os.sched_setaffinity(int(task.name), cpus)
            if before is None:
                del os.environ[_DRIVERS]
            else:
                os.environ[_DRIVERS] = before

    def set_num_threads(self, num_threads: int) -> None:
        if num_threads != self._threads:
            rule = f"has {self._threads} threads in this process, where it began with them"
            raise Unimplemented(f"oneDNN {self.version} {rule}: not {num_threads}")


BUILDS: tuple[type[Library], ...] = (Sycl, OpenMp)
"""The newest first."""
