"""Compiled kernels on disk: private to the user, written whole or not at all, checked when read.

A file holds an image as `image_bytes` writes it. A file that
is damaged, that belongs to somebody else or that others may write is as good as absent. A folder
that cannot be written only costs the time of building again.

What was used least recently is removed where a folder has become too large. Any number of processes
share a folder, and there is no lock: a file that is gone is built again, one that is open can be
read to its end, and of two processes that clear up each finds gone what the other removed.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from time import time

from dnnl import log
from dnnl.runtime.image import Image
from dnnl.runtime.image_bytes import DIGEST, MAGIC, decoded, encoded

_SUFFIX = ".dnnl"  # of every file of ours, as nothing else in the folder may be removed

_LONGEST = 2**20  # bytes of a header
_LOOKS = 64  # looks at the whole folder in the time in which as much as the limit is written
_ROOM = 0.75  # what is left of the limit behind a clearance, or the next one would be near
_MOMENT = 3600  # seconds in which the time of the last use is not written again

_lots = Random()  # not the one of the module random, whose numbers belong to the program


class DiskCache:
    """Images by name in one folder, of about ``limit`` bytes at most."""

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder, self.limit = folder, limit

    def load(self, name: str) -> Image | None:
        """The image stored under ``name``, or None if there is none that can be trusted."""
        try:
            with open(self._path(name), "rb") as file:
                status = os.fstat(file.fileno())
                if not _is_private(status):
                    return None
                data = file.read()
        except OSError:
            return None
        if status.st_mtime < time() - _MOMENT:
            with suppress(OSError):  # it is gone by now, or nothing can be written there
                os.utime(self._path(name))
        return decoded(data, name)

    def store(self, name: str, image: Image) -> None:
        """Keep ``image`` under ``name``; not being able to is no error."""
        data = encoded(image, name)
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(_SUFFIX, dir=self.folder)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                os.replace(temporary, self._path(name))
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(temporary)
                raise
            if self._draws(len(data)):
                self._clear()
        except OSError as error:
            log.warn(f"kernel cache {self.folder}: {error}")

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}{_SUFFIX}"

    def _draws(self, size: int) -> bool:
        """Whether it falls to this store, of ``size`` bytes, to look at the whole folder.

        A look takes milliseconds, and there may be any number of processes that store a kernel or
        two each. So stores draw lots: `_LOOKS` looks are had while ``limit`` bytes are written,
        whoever writes them.
        """
        return _lots.random() * self.limit < size * _LOOKS

    def _clear(self) -> None:
        """Remove what was used least recently, if the folder is too large."""
        files = sorted(_files(self.folder))
        total = sum(size for _, size, _ in files)
        if total <= self.limit:
            return
        for _, size, path in files:
            with suppress(FileNotFoundError):
                os.unlink(path)
            total -= size
            if total <= _ROOM * self.limit:
                return


def _files(folder: Path) -> Iterator[tuple[float, int, str]]:
    """Time of the last use, size and path of each file, also of those that a crash left behind."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(_SUFFIX) and entry.is_file(follow_symlinks=False):
                with suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    yield status.st_mtime, status.st_size, entry.path


def serves_unknown_sizes(path: Path) -> bool:
    """Whether the kernel in a file serves sizes that executions decide on; False if it is none."""
    try:
        with open(path, "rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                return False
            file.seek(DIGEST, os.SEEK_CUR)
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(length, _LONGEST)))
    except (OSError, ValueError):
        return False
    return header.get("unknowns") is not None


def _is_private(status: os.stat_result) -> bool:
    if os.name != "posix":
        return True
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
