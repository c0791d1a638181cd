"""oneDNN's C API, version 3, through ctypes: handles, checked calls and the constants in use."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from bench.peers.errors import PeerError

PACKAGE = "onednn-cpu-gomp"

# Values of the enumerations of dnnl_types.h and dnnl_common_types.h.
ENGINE_CPU = 1
STREAM_DEFAULT = 1
F32 = 3
TAG_ANY = 1
FORWARD_INFERENCE = 96
CONVOLUTION_DIRECT = 1
ELTWISE_RELU = 0x20
QUERY_IMPL_INFO = 8
QUERY_EXEC_ARG_MD = 255
ARG_SRC, ARG_DST, ARG_WEIGHTS, ARG_BIAS = 1, 17, 33, 41

_STATUS = {
    1: "out of memory",
    2: "invalid arguments",
    3: "unimplemented",
    4: "last implementation reached",
    5: "runtime error",
    6: "not required",
}
_MAX_NDIMS = 12
_DIMS = ctypes.c_int64 * _MAX_NDIMS


class ExecArg(ctypes.Structure):
    """dnnl_exec_arg_t."""

    _fields_ = (("arg", ctypes.c_int), ("memory", ctypes.c_void_p))


class _Version(ctypes.Structure):
    """dnnl_version_t, as far as it is read."""

    _fields_ = (("major", ctypes.c_int), ("minor", ctypes.c_int), ("patch", ctypes.c_int))


class Handle:
    """An object of the library, destroyed with this one. Keeps alive what it is ``made_of``."""

    __slots__ = ("__weakref__", "made_of", "value")

    def __init__(self, value: ctypes.c_void_p, destroy: Any, made_of: Sequence[object]) -> None:
        self.value = value
        self.made_of = made_of
        weakref.finalize(self, destroy, value).atexit = False

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        return self.value


class Library:
    """The shared library of the package ``onednn-cpu-gomp``."""

    def __init__(self) -> None:
        files = metadata.files(PACKAGE) or []
        paths = [file.locate() for file in files if file.name.startswith("libdnnl.so.")]
        if not paths:
            raise PeerError(f"package {PACKAGE} has no libdnnl.so")
        self.c: Any = ctypes.CDLL(str(paths[0]))
        self.c.dnnl_version.restype = ctypes.POINTER(_Version)
        self.c.dnnl_primitive_desc_query_md.restype = ctypes.c_void_p
        self.c.dnnl_memory_desc_get_size.restype = ctypes.c_size_t
        version = self.c.dnnl_version().contents
        self.version = f"{version.major}.{version.minor}.{version.patch}"
        if version.major != 3:
            raise PeerError(f"version {self.version} of the library; 3 is what is known here")

    def create(self, kind: str, function: str, *arguments: object) -> Handle:
        """A new object of ``kind`` made by ``function``, whose first parameter receives it."""
        value = ctypes.c_void_p()
        self.call(function, ctypes.byref(value), *arguments)
        return Handle(value, self.c[f"dnnl_{kind}_destroy"], arguments)

    def call(self, function: str, *arguments: object) -> None:
        """Call ``dnnl_<function>``; raises PeerError with the status where it fails."""
        status = self.c[f"dnnl_{function}"](*arguments)
        if status:
            reason = _STATUS.get(status, f"status {status}")
            raise PeerError(f"dnnl_{function}: {reason}")

    def set_num_threads(self, num_threads: int) -> None:
        """The threads of primitives that are made and run from now on by this thread.

        OpenMP is a dependency of the library, where the loader looks for names as well.
        """
        self.c.omp_set_num_threads(num_threads)

    def memory_desc(self, dims: Sequence[int], tag: str) -> Handle:
        """An f32 tensor in the layout ``tag``: letters (``aBcd16b``) or ``any``."""
        what = (len(dims), to_dims(dims), F32)
        if tag == "any":
            return self.create("memory_desc", "memory_desc_create_with_tag", *what, TAG_ANY)
        function = "memory_desc_create_with_string_tag"
        return self.create("memory_desc", function, *what, tag.encode())


def to_dims(values: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    """A dnnl_dims_t."""
    return _DIMS(*values)
