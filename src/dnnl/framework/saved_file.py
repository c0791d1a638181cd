"""Files of saved models: sections behind a header, checked before use, mapped and never copied.

    header     64 bytes: magic, version of the format, where the index is, its SHA-256
    sections   bytes at multiples of 64
    index      JSON: the version of the library, what machines need, sections with their SHA-256,
               and the facts of the model

A section is checked in chunks, by several threads. What is in the file is data: JSON and numbers,
and machine code that runs where an execution calls it.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dnnl.errors import InvalidArguments
from dnnl.graph.graph import Array, ModelError
from dnnl.runtime.threads import available_cpus

MAGIC = b"\x89dnnl\r\n\x1a"
"""The first bytes of a file. A transfer as text changes them."""
VERSION = 3
"""The version of the format; there is one reader for each."""
WEIGHTS = "weights"
"""The section of constants as the model has them, which only compiling needs."""
HELD = "held"
"""The section of blobs that the reader of a file has in memory, so that the file lacks them."""
ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector."""

_HEADER = struct.Struct("<8sIIQQ32s")  # magic, version, 0, offset and length of the index, SHA-256
_CHUNK = 8 << 20  # bytes that one thread checks at a time
_LONGEST_INDEX = 1 << 28

Place = Sequence[Any]
"""Section, offset in it, and bytes of a blob."""


def opened(path: object) -> SavedFile | None:
    """The file of a saved model; None for any other file, and for what is no path.

    Raises ModelError where it is damaged, or of another version.
    """
    if not isinstance(path, str | os.PathLike):
        return None
    try:
        with open(path, "rb") as file:
            known = file.read(len(MAGIC)) == MAGIC
    except (OSError, ValueError):  # who reads it as another file says what is wrong
        return None
    return SavedFile(path) if known else None


class SavedFile:
    """A file that is mapped. The checks of all sections but `WEIGHTS` begin at once, in other
    threads. Raises ModelError where it is damaged, or of another version."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = str(path)
        try:
            with open(path, "rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise ModelError(f"{path} cannot be read: {error}") from error
        self._bytes = np.frombuffer(self._map, np.uint8)
        self.index = self._read_index()
        self._checked: set[str] = set()
        self._running: dict[str, list[Future[bool]]] = {}
        try:
            self._sections = {
                str(name): (int(begin), int(nbytes), tuple(map(str, digests)))
                for name, (begin, nbytes, digests) in self.index["sections"].items()
            }
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ModelError(f"{path} is damaged: its sections are no such: {error}") from error
        names = [name for name in self._sections if name != WEIGHTS]
        if names:
            self._start(names)

    def _read_index(self) -> dict[str, Any]:
        if len(self._map) < _HEADER.size:
            raise ModelError(f"{self.path} is truncated: it has no whole header")
        magic, version, _, offset, length, digest = _HEADER.unpack_from(self._map)
        if magic != MAGIC:
            raise ModelError(f"{self.path} is no saved model")
        if version != VERSION:
            rule = f"its format is version {version}, this library reads version {VERSION}"
            raise ModelError(f"{self.path}: {rule}; save the model with this library")
        if offset + length > len(self._map) or length > _LONGEST_INDEX:
            rule = f"it has {len(self._map)} of {offset + length} bytes"
            raise ModelError(f"{self.path} is truncated: {rule}")
        text = self._map[offset : offset + length]
        if hashlib.sha256(text).digest() != digest:
            raise ModelError(f"{self.path} is damaged: its index has another checksum")
        found = json.loads(text)
        if not isinstance(found, dict):
            raise ModelError(f"{self.path} is damaged: its index is no object")
        return found

    def check(self, name: str) -> None:
        """Raise ModelError unless the bytes of a section are those that were written."""
        if name in self._checked:
            return
        if name not in self._running:
            self._start([name])
        if not all(chunk.result() for chunk in self._running[name]):
            rule = f"section {name!r} has another checksum"
            raise ModelError(f"{self.path} is damaged: {rule}")
        self._checked.add(name)

    def stop(self) -> None:
        """Check nothing more: no thread reads the file when this returns."""
        left = [chunk for chunks in self._running.values() for chunk in chunks]
        wait([chunk for chunk in left if not chunk.cancel()])

    def _start(self, names: Iterable[str]) -> None:
        """Begin to check sections."""
        threads = ThreadPoolExecutor(available_cpus())
        for name in names:
            chunks = self._chunks(name)
            self._running[name] = [threads.submit(self._is_sound, *chunk) for chunk in chunks]
        threads.shutdown(wait=False)

    def _chunks(self, name: str) -> Iterable[tuple[int, int, str]]:
        offset, nbytes, digests = self._sections[name]
        if len(digests) != -(-nbytes // _CHUNK) or not 0 <= offset <= offset + nbytes <= len(
            self._map
        ):
            raise ModelError(f"{self.path} is damaged: section {name!r} is not within the file")
        for number, digest in enumerate(digests):
            begin = offset + number * _CHUNK
            yield begin, min(begin + _CHUNK, offset + nbytes), digest

    def _is_sound(self, begin: int, end: int, digest: str) -> bool:
        return hashlib.sha256(self._bytes[begin:end].data).hexdigest() == digest

    def blob(self, place: Place) -> npt.NDArray[np.uint8]:
        """The bytes at a place, not copied and read-only; its section is checked first."""
        name, offset, nbytes = place
        self.check(name)
        begin, length, _ = self._sections[name]
        if not 0 <= offset <= offset + nbytes <= length:
            raise ModelError(f"{self.path} is damaged: {place} is outside of its section")
        return self._bytes[begin + offset : begin + offset + nbytes]


class Writer:
    """Collects the sections of a file, without blobs whose digests are ``held`` by its reader."""

    def __init__(self, held: Sequence[str] = ()) -> None:
        self._sections: dict[str, list[npt.NDArray[np.uint8]]] = {}
        self._lengths: dict[str, int] = {}
        self._places: dict[str, Place] = {own: (HELD, n, 0) for n, own in enumerate(held)}

    def add(self, section: str, content: bytes | Array) -> Place:
        """The place of a blob in a section, or in the one that has the same bytes already."""
        if isinstance(content, bytes):
            data = np.frombuffer(content, np.uint8)
        else:
            data = np.ascontiguousarray(content).reshape(-1).view(np.uint8)
        key = digest_of(data)
        if key not in self._places:
            parts = self._sections.setdefault(section, [])
            begin = self._lengths.get(section, 0)
            parts += data, np.zeros(-data.size % ALIGNMENT, np.uint8)
            self._lengths[section] = begin + data.size + parts[-1].size
            self._places[key] = section, begin, data.size
        return self._places[key]

    def write(self, path: str | os.PathLike[str], index: dict[str, Any]) -> None:
        """Write the file, whole or not at all. Raises InvalidArguments for an unusable path."""
        try:
            target = Path(path)
            descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
            try:
                with os.fdopen(descriptor, "wb") as file:
                    self._write(file, index)
                os.chmod(temporary, 0o666 & ~_umask())
                os.replace(temporary, target)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary)
                raise
        except (OSError, TypeError, ValueError) as error:
            rule = f"cannot be written: {error}"
            raise InvalidArguments("path", str(path), rule) from error

    def _write(self, file: Any, index: dict[str, Any]) -> None:
        file.write(bytes(_HEADER.size))
        sections = {}
        for name, parts in self._sections.items():
            begin, digests = file.tell(), list[str]()
            digest, left = hashlib.sha256(), _CHUNK
            for part in parts:
                file.write(part.data)
                done = 0
                while done < part.size:
                    piece = part[done : done + left]
                    digest.update(piece.data)
                    done, left = done + piece.size, left - piece.size
                    if not left:
                        digests.append(digest.hexdigest())
                        digest, left = hashlib.sha256(), _CHUNK
            if left < _CHUNK:
                digests.append(digest.hexdigest())
            sections[name] = begin, file.tell() - begin, digests
        text = json.dumps({**index, "sections": sections}, separators=(",", ":")).encode()
        offset = file.tell()
        file.write(text)
        file.seek(0)
        own = hashlib.sha256(text).digest()
        file.write(_HEADER.pack(MAGIC, VERSION, 0, offset, len(text), own))


def digest_of(data: npt.NDArray[np.uint8]) -> str:
    """The SHA-256 and the number of bytes of ``data``, as text."""
    return f"{hashlib.sha256(data.data).hexdigest()}-{data.size}"


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
