"""Tensors of a model in external files.

Such a file is in the model's folder or below and is reached through no link, so that a model from
a stranger cannot make the library read what is not its own.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import TensorProto, helper

from dnnl.graph.graph import ModelError

_BITS = {
    "int2": 2,
    "uint2": 2,
    "int4": 4,
    "uint4": 4,
    "float4_e2m1fn": 4,
    "float6_e2m3fn": 6,
    "float6_e3m2fn": 6,
}
"""Elements smaller than a byte, which are packed."""

_DIGITS = re.compile("[0-9]{1,40}")


def load_external_data(proto: onnx.ModelProto, path: Path) -> None:
    """Bring every such tensor into the model whose file is ``path``.

    Raises ModelError with the tensor, the file and what is wrong with it.
    """
    for tensor in _tensors(proto.graph):
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        try:
            tensor.raw_data = _Part.of(tensor, entries).read(_path(location, path.parent))
        except _Refused as refused:
            where = f"tensor {tensor.name!r} is in the external file {location!r}"
            raise ModelError(f"{path}: {where}, which {refused}") from refused
        tensor.data_location = TensorProto.DEFAULT
        del tensor.external_data[:]


def external_files(path: Path) -> tuple[Path, ...]:
    """The files with external data of the model in ``path``.

    Raises ModelError if ``path`` is no ONNX model.
    """
    try:
        proto = onnx.load(path, load_external_data=False)
    except DecodeError as error:
        raise ModelError(f"{path}: not an ONNX file, or truncated") from error
    names = {
        entry.value
        for tensor in _tensors(proto.graph)
        if tensor.data_location == TensorProto.EXTERNAL
        for entry in tensor.external_data
        if entry.key == "location"
    }
    return tuple(path.parent / name for name in sorted(names))


class _Refused(Exception):
    """The rest of a sentence that begins with the file."""


def _tensors(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    """The initializers, and the tensors in attributes of nodes, in graphs within nodes too."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            for body in (*((attribute.g,) if attribute.HasField("g") else ()), *attribute.graphs):
                yield from _tensors(body)


@dataclass(frozen=True, slots=True)
class _Part:
    """``length`` bytes of a file from ``offset`` on.

    A length of 0 in a model means all that the tensor needs, as if it were not there.
    """

    offset: int
    length: int

    @classmethod
    def of(cls, tensor: TensorProto, entries: dict[str, str]) -> _Part:
        """What the entries of a tensor say; raises _Refused where that is not its size."""
        offset, needed = _number("offset", entries.get("offset", "0")), _size(tensor)
        length = _number("length", entries.get("length", "0")) or needed
        if length != needed:
            dims = tuple(tensor.dims)
            raise _Refused(f"is said to hold {length} bytes of it, but dims {dims} are {needed}")
        return cls(offset, length)

    def read(self, path: Path) -> bytes:
        """The bytes."""
        try:
            with path.open("rb") as file:
                found = os.fstat(file.fileno()).st_size - self.offset
                if found < self.length:
                    what = f"needed are {self.length} bytes from byte {self.offset} on"
                    raise _Refused(f"is too short: {what}, found {max(found, 0)}")
                file.seek(self.offset)
                return file.read(self.length)
        except OSError as error:
            raise _Refused(f"cannot be read: {error.strerror}") from error


def _number(key: str, text: object) -> int:
    if not isinstance(text, str) or not _DIGITS.fullmatch(text):  # protobuf may hand out bytes
        raise _Refused(f"has the {key} {text!r}, which must be a number of digits alone")
    return int(text)


def _size(tensor: TensorProto) -> int:
    """The bytes of a tensor's elements."""
    if min(tensor.dims, default=0) < 0:
        raise _Refused(f"has negative dims {tuple(tensor.dims)}")
    try:
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))
    except KeyError as error:
        raise _Refused(f"cannot hold elements of type {tensor.data_type}") from error
    bits: int = _BITS.get(dtype.name, 8 * dtype.itemsize)
    return -(-prod(map(int, tensor.dims)) * bits // 8)


def _path(location: object, folder: Path) -> Path:
    """The file at ``location``; raises _Refused for one that is none of the model's own."""
    if not isinstance(location, str) or "\0" in location:  # protobuf hands out bytes then
        raise _Refused("has a name that is no text")
    if not location:
        raise _Refused("has no name")
    if Path(location).is_absolute():
        raise _Refused("is absolute: it must be relative to the model's folder")
    if ".." in Path(os.path.normpath(location)).parts:
        raise _Refused(f"is outside of the model's folder {str(folder)!r}")
    try:
        return _checked(folder, Path(location).parts)  # normpath would hide the link in "link/.."
    except FileNotFoundError as error:
        raise _Refused(f"is missing in the model's folder {str(folder)!r}") from error
    except OSError as error:
        raise _Refused(f"cannot be read: {error.strerror}") from error


def _checked(folder: Path, parts: Sequence[str]) -> Path:
    """The file of these parts, none of which may be a link."""
    path, state = folder, folder.stat()
    for part in parts:
        path /= part
        state = path.lstat()
        if stat.S_ISLNK(state.st_mode):
            raise _Refused(f"is a link at {part!r}: copy what it points to into the model's folder")
    if not stat.S_ISREG(state.st_mode):
        raise _Refused("is no regular file")
    if state.st_nlink > 1:
        raise _Refused("is a hard link: its data may have a name outside of the folder; copy it")
    return path
