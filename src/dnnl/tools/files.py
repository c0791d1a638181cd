"""Files that a command line names: whether they can be written, before anything takes time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dnnl.errors import InvalidArguments


def check_place(option: str, path: Path) -> None:
    """Raise InvalidArguments where no file can be written."""
    rule = ""
    if path.is_dir():
        rule = "is a folder"
    elif not path.parent.is_dir():
        rule = f"there is no folder {path.parent}"
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        rule = "cannot be written"
    if rule:
        raise InvalidArguments(option, str(path), rule)


@contextmanager
def writing(option: str, path: Path) -> Iterator[None]:
    """Name the option in an error of the system's."""
    try:
        yield
    except OSError as error:
        rule = f"cannot be written: {error.strerror}"
        raise InvalidArguments(option, str(path), rule) from error
