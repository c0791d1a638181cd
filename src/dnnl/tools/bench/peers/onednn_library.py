"""oneDNN's C interface through ctypes: objects, checked calls, memory descriptors."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar

from dnnl.errors import Unimplemented
from dnnl.language.errors import BadValue
from dnnl.types.compensation import Compensation
from dnnl.types.dtype import DataType
from dnnl.types.encoding import Coo, Csr, Encoding
from dnnl.types.kinds import FormatKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.tag import MAX_NDIMS

CPU = 1
DEFAULT_STREAM = 1
QUERY_IMPL_INFO = 8
QUERY_EXEC_ARG_MD = 255
_TAG_ANY = 1
_MAJOR = 3
_UNIMPLEMENTED = 3
_STATUS = {1: "out of memory", 2: "invalid arguments", 3: "unimplemented", 5: "runtime error"}
_EXTRA_AT = {(3, 2): 616, (3, 13): 640}
"""Where a descriptor has its extra fields, in bytes, by version: no function sets these."""
_DIMS = ctypes.c_int64 * MAX_NDIMS


class ExecArg(ctypes.Structure):
    """dnnl_exec_arg_t."""

    _fields_ = (("arg", ctypes.c_int), ("memory", ctypes.c_void_p))


class _Extra(ctypes.Structure):
    """The beginning of memory_extra_desc_t."""

    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("compensation_mask", ctypes.c_int),
        ("scale_adjust", ctypes.c_float),
        ("asymm_compensation_mask", ctypes.c_int),
    )


class _Version(ctypes.Structure):
    """The beginning of dnnl_version_t."""

    _fields_ = (("major", ctypes.c_int), ("minor", ctypes.c_int), ("patch", ctypes.c_int))


class Handle:
    """An object of the library that lives as long as this one and owns ``parts``."""

    __slots__ = ("__weakref__", "parts", "value")

    def __init__(self, value: ctypes.c_void_p, destroy: Any, parts: Sequence[object]) -> None:
        self.value = value
        self.parts = tuple(parts)
        weakref.finalize(self, destroy, value).atexit = False

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        return self.value


class Library:
    """The shared library of a package; raises BadValue where that is not installed.

    A build knows how the library is loaded and what decides on its threads.
    """

    package: ClassVar[str]
    runtime: ClassVar[str]
    """What runs its work on processors."""
    asynchronous: ClassVar[bool] = False
    """Whether an execution returns before its work is done."""

    def __init__(self) -> None:
        self.c: Any = self._load()
        self.c.dnnl_version.restype = ctypes.POINTER(_Version)
        self.c.dnnl_primitive_desc_query_md.restype = ctypes.c_void_p
        self.c.dnnl_memory_desc_get_size.restype = ctypes.c_size_t
        version = self.c.dnnl_version().contents
        self._extra_at = _EXTRA_AT.get((version.major, version.minor))
        self.version = f"{version.major}.{version.minor}.{version.patch}"
        if version.major != _MAJOR:
            raise BadValue(f"{self.package}: version {self.version}, expected {_MAJOR}")

    def _load(self) -> ctypes.CDLL:
        return ctypes.CDLL(str(self.path("libdnnl.so.")))

    def path(self, prefix: str, package: str | None = None) -> Path:
        """The file of the package whose name begins so, the one with most of a version behind it:
        the packages of two versions share the names with less."""
        package = package or self.package
        try:
            files = metadata.files(package) or []
        except metadata.PackageNotFoundError:
            raise BadValue(f"{package} is not installed") from None
        found = [file for file in files if file.name.startswith(prefix) and ".py" not in file.name]
        if not found:
            raise BadValue(f"{package} has no {prefix}")
        return Path(str(max(found, key=lambda file: len(file.name)).locate())).absolute()

    @contextmanager
    def starting(self, num_threads: int) -> Iterator[None]:
        """Around the creation of the engine, which a first execution follows."""
        yield

    def set_num_threads(self, num_threads: int) -> None:
        """Set the threads of what this thread creates and runs from now on; raises Unimplemented
        where that cannot be."""
        raise NotImplementedError

    def create(self, kind: str, function: str, *arguments: object) -> Handle:
        """An object made by ``dnnl_<function>``, whose first parameter receives it."""
        value = ctypes.c_void_p()
        self.call(function, ctypes.byref(value), *arguments)
        return Handle(value, self.c[f"dnnl_{kind}_destroy"], arguments)

    def call(self, function: str, *arguments: object) -> None:
        """Call ``dnnl_<function>``; raises Unimplemented with its status where that is not 0."""
        status = self.c[f"dnnl_{function}"](*arguments)
        if status:
            reason = _STATUS.get(status, f"status {status}")
            raise Unimplemented(f"oneDNN {self.version}: {function}: {reason}")

    def memory_desc(self, desc: MemoryDesc) -> Handle | None:
        """oneDNN's descriptor of a tensor; None for an absent one."""
        if desc.is_zero:
            return None
        if desc.compensation is not None:
            return self._compensated(desc, desc.compensation)
        what = (desc.ndims, dims(desc.dims), desc.data_type.value)
        if desc.encoding is not None:
            return self._encoded(desc.encoding, what)
        if desc.format_kind is FormatKind.any:
            return self.create("memory_desc", "memory_desc_create_with_tag", *what, _TAG_ANY)
        if not desc.inner_blocks:
            function = "memory_desc_create_with_strides"
            return self.create("memory_desc", function, *what, dims(desc.strides))
        if desc.tag is None:
            raise Unimplemented(f"oneDNN {self.version} has no name for {desc}")
        name = desc.tag.name.encode()
        return self.create("memory_desc", "memory_desc_create_with_string_tag", *what, name)

    def _encoded(self, encoding: Encoding, what: tuple[object, ...]) -> Handle:
        function = f"memory_desc_create_with_{encoding.name}_encoding"
        index = DataType.s32.value
        if not isinstance(encoding, Csr | Coo) or not hasattr(self.c, f"dnnl_{function}"):
            raise Unimplemented(f"oneDNN {self.version} has no encoding {encoding.name} here")
        types = (index, index) if isinstance(encoding, Csr) else (index,)
        nnz = ctypes.c_int64(encoding.nnz)
        return self.create("memory_desc", function, *what, nnz, *types)

    def _compensated(self, desc: MemoryDesc, compensation: Compensation) -> Handle | None:
        made = self.memory_desc(desc.with_compensation(None))
        if made is None or made.value.value is None or self._extra_at is None:
            raise Unimplemented(f"oneDNN {self.version} takes no compensation from outside")
        extra = _Extra.from_address(made.value.value + self._extra_at)
        extra.flags = compensation.flags
        extra.compensation_mask = compensation.s8s8
        extra.scale_adjust = compensation.scale_adjust
        extra.asymm_compensation_mask = compensation.zero_points
        return made


def dims(values: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    """A dnnl_dims_t."""
    return _DIMS(*values)
