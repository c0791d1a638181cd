"""Compiled kernels on disk: private to the user, written whole or not at all, checked when read.

A file holds a magic word, the SHA-256 of the rest, a JSON header and the object code. A file that
is damaged, that belongs to somebody else or that others may write is as good as absent. A folder
that cannot be written only costs the time of building again.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
from pathlib import Path

from dnnl import log
from dnnl.runtime.image import Image, Phase

_MAGIC = b"dnnlobj2"
_DIGEST = hashlib.sha256().digest_size


class DiskCache:
    """Images by name in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self, name: str) -> Image | None:
        """The image stored under ``name``, or None if there is none that can be trusted."""
        try:
            with open(self.folder / name, "rb") as file:
                if not _is_private(os.fstat(file.fileno())):
                    return None
                data = file.read()
        except OSError:
            return None
        return _decode(name, data)

    def store(self, name: str, image: Image) -> None:
        """Keep ``image`` under ``name``; not being able to is no error."""
        data = _encode(name, image)
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(dir=self.folder)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                os.replace(temporary, self.folder / name)
            except BaseException:
                os.unlink(temporary)
                raise
        except OSError as error:
            if log.enabled("warn"):
                log.line("common", "warn", f"kernel cache {self.folder}: {error}")


def _is_private(status: os.stat_result) -> bool:
    if os.name != "posix":
        return True
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _encode(name: str, image: Image) -> bytes:
    header = {
        "name": name,
        "target": image.target,
        "phases": [[phase.symbol, phase.count, phase.slots] for phase in image.phases],
        "arguments": list(image.arguments),
    }
    text = json.dumps(header).encode()
    body = len(text).to_bytes(8, "little") + text + image.code
    return _MAGIC + hashlib.sha256(body).digest() + body


def _decode(name: str, data: bytes) -> Image | None:
    body = data[len(_MAGIC) + _DIGEST :]
    if (
        not data.startswith(_MAGIC)
        or hashlib.sha256(body).digest() != data[len(_MAGIC) :][:_DIGEST]
    ):
        return None
    length = int.from_bytes(body[:8], "little")
    header = json.loads(body[8 : 8 + length])
    if header["name"] != name:  # another kernel's file under this name
        return None
    phases = tuple(Phase(symbol, count, tuple(slots)) for symbol, count, slots in header["phases"])
    return Image(header["target"], body[8 + length :], phases, tuple(header["arguments"]))
